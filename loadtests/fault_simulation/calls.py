"""Calls: what befalls kube-scheduler's calls on their way to the service and its answers on their way back.

Knows verbs, and of whom a bind was asked; must not know what becomes of it, nor when which fault is put.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from kubesim.apiserver.faults import Faults
from kubesim.scheduler.extender_client import ExtenderFailed
from loadtests.fault_simulation.rounds import IN_SERVICE

CALLER = "kube-scheduler"


class Calls:
    """`answer` is who is called. A fault's `method` is the verb."""

    def __init__(self, answer: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        self.faults = Faults()
        self.binds: set[str] = set()
        """UIDs of pods of which the service was asked that they be bound."""
        self._answer = answer
        self._repeated: set[asyncio.Future[bytes]] = set()

    async def __call__(self, verb: str, body: bytes) -> bytes:
        """As of who is called. Raises ExtenderFailed."""
        IN_SERVICE.set(True)
        fault = self.faults.met_by(CALLER, verb, "")
        if fault is None:
            return await self._arrive(verb, body)
        if fault.again is not None:
            asyncio.get_running_loop().call_later(fault.again, self._arrive_again, verb, body)
        answer = b""
        if fault.after:
            answer = await self._arrive(verb, body)
        await asyncio.sleep(fault.seconds)
        if fault.error is not None:
            raise ExtenderFailed(str(fault.error))
        return answer if fault.after else await self._arrive(verb, body)

    async def _arrive(self, verb: str, body: bytes) -> bytes:
        if verb == "bind":
            self.binds.add(msgspec.json.decode(body)["PodUID"])
        return await self._answer(verb, body)

    def _arrive_again(self, verb: str, body: bytes) -> None:
        """Nobody hears the answer."""
        IN_SERVICE.set(True)
        again = asyncio.ensure_future(self._arrive(verb, body))
        self._repeated.add(again)
        again.add_done_callback(self._forget)

    def _forget(self, answered: asyncio.Future[bytes]) -> None:
        self._repeated.discard(answered)
        if not answered.cancelled():
            answered.exception()
