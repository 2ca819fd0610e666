"""Calls: what befalls kube-scheduler's calls on their way to the service and its answers on their way back.

Knows verbs, and of whom a bind was asked; must not know what becomes of it, nor when which fault is put.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from kubesim.apiserver.faults import Faults
from kubesim.scheduler.extender_client import ExtenderFailed
from loadtests.fault_simulation.rounds import IN_SERVICE

CALLER = "kube-scheduler"


class Calls:
    """`answer` is who is called. A fault's `method` is the verb."""

    def __init__(self, answer: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        self.faults = Faults()
        self.time_outs = Faults()
        """For how many seconds the caller waits, whatever else befalls the call."""
        self.binds: dict[str, float] = {}
        """By UID: when the service was first asked that the pod be bound, in seconds of the event loop."""
        self._answer = answer
        self._unheard: set[asyncio.Future[bytes]] = set()

    async def __call__(self, verb: str, body: bytes) -> bytes:
        """As of who is called. Raises ExtenderFailed."""
        IN_SERVICE.set(True)
        time_out = self.time_outs.met_by(CALLER, verb, "")
        if time_out is None:
            return await self._travel(verb, body)
        answered = self._go_on(self._travel(verb, body))
        await asyncio.wait({answered}, timeout=time_out.seconds)
        if not answered.done():
            raise ExtenderFailed(str(time_out.error))
        return answered.result()

    async def _travel(self, verb: str, body: bytes) -> bytes:
        """There and back."""
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
            self.binds.setdefault(msgspec.json.decode(body)["PodUID"], asyncio.get_running_loop().time())
        return await self._answer(verb, body)

    def _arrive_again(self, verb: str, body: bytes) -> None:
        IN_SERVICE.set(True)
        self._go_on(self._arrive(verb, body))

    def _go_on(self, call: Coroutine[Any, Any, bytes]) -> asyncio.Future[bytes]:
        """It goes on, though nobody may hear the answer."""
        answered = asyncio.ensure_future(call)
        self._unheard.add(answered)
        answered.add_done_callback(self._forget)
        return answered

    def _forget(self, answered: asyncio.Future[bytes]) -> None:
        self._unheard.discard(answered)
        if not answered.cancelled():
            answered.exception()
