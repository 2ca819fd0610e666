"""Calls: faults between kube-scheduler and the service, on the way of a call or of its answer.

It also records which binds kube-scheduler asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from kubesim.apiserver.serving.faults import Faults
from kubesim.scheduler.extender_client import ExtenderFailed
from loadtests.fault_simulation.rounds import IN_SERVICE

CALLER = "kube-scheduler"


class Calls:
    """`answer` calls the service. A fault's `method` is the verb."""

    def __init__(self, answer: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        self.faults = Faults()
        self.time_outs = Faults()
        """Limits, in seconds, to kube-scheduler's wait; they apply in addition to `faults`."""
        self.binds: dict[str, float] = {}
        """By pod UID: when kube-scheduler first asked to bind it, in seconds of the event loop."""
        self._counted: dict[str, list[tuple[float, bool]]] = {}
        """By pod UID: when kube-scheduler began (True) or ceased (False) to count on a bind."""
        self.answered: list[Callable[[str, bytes], None]] = []
        """Called with the verb and the service's answer, even if kube-scheduler misses it."""
        self._answer = answer
        self._unheard: set[asyncio.Future[bytes]] = set()

    async def __call__(self, verb: str, body: bytes) -> bytes:
        """Calls the service, through the faults. Raises ExtenderFailed."""
        if verb != "bind":
            return await self._call(verb, body)
        self._count(body, True)
        done = False
        try:
            answer = await self._call(verb, body)
            done = not msgspec.json.decode(answer).get("Error")
            return answer
        finally:
            if not done:
                self._count(body, False)

    def _count(self, body: bytes, counted: bool) -> None:
        self._counted.setdefault(_pod_of(body), []).append((asyncio.get_running_loop().time(), counted))

    def counted(self, uid: str, at: float) -> bool:
        """Whether kube-scheduler counted on that pod's bind then, as far as its calls show."""
        return next((counted for when, counted in reversed(self._counted.get(uid, [])) if when <= at), False)

    def asked_last(self, uid: str) -> float:
        """When it last asked for the pod's bind, in seconds of the event loop; 0: never."""
        return next((when for when, counted in reversed(self._counted.get(uid, [])) if counted), 0.0)

    async def _call(self, verb: str, body: bytes) -> bytes:
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
        """Carries the call to the service and the answer back, with the fault that meets it."""
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
            self.binds.setdefault(_pod_of(body), asyncio.get_running_loop().time())
        answer = await self._answer(verb, body)
        for listener in self.answered:
            listener(verb, answer)
        return answer

    def _arrive_again(self, verb: str, body: bytes) -> None:
        IN_SERVICE.set(True)
        self._go_on(self._arrive(verb, body))

    def _go_on(self, call: Coroutine[Any, Any, bytes]) -> asyncio.Future[bytes]:
        """The call continues, even if its caller no longer waits for the answer."""
        answered = asyncio.ensure_future(call)
        self._unheard.add(answered)
        answered.add_done_callback(self._forget)
        return answered

    def _forget(self, answered: asyncio.Future[bytes]) -> None:
        self._unheard.discard(answered)
        if not answered.cancelled():
            answered.exception()


def _pod_of(body: bytes) -> str:
    """The UID of the pod in a bind request."""
    uid: str = msgspec.json.decode(body)["PodUID"]
    return uid
