"""Calls of kube-scheduler: whoever gives one up hears no answer, and whoever was called goes on with it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from extender.kube.errors import Away
from kubesim.apiserver.serving.faults import Fault
from kubesim.scheduler.extender_client import ExtenderFailed
from loadtests.fault_simulation.actors.calls import CALLER, Calls

pytestmark = pytest.mark.anyio

BIND = msgspec.json.encode({"PodUID": "p"})


class Called:
    """Answers a call after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.answered: list[float] = []

    async def __call__(self, verb: str, body: bytes) -> bytes:
        await asyncio.sleep(self._seconds)
        self.answered.append(asyncio.get_running_loop().time())
        return b"{}"


def waits(seconds: float) -> Fault:
    return Fault(Away("context deadline exceeded"), method="bind", user=CALLER, seconds=seconds)


async def test_a_call_that_is_given_up_goes_on() -> None:
    called, now = Called(5.0), asyncio.get_running_loop().time
    calls, began = Calls(called), now()
    calls.time_outs.add(waits(2.0))
    with pytest.raises(ExtenderFailed, match="deadline exceeded"):
        await calls("bind", BIND)
    assert (now() - began, called.answered) == (2.0, [])
    await asyncio.sleep(10.0)
    assert called.answered == [began + 5.0]


async def test_an_answer_in_time_is_heard() -> None:
    calls = Calls(Called(1.0))
    calls.time_outs.add(waits(2.0))
    assert await calls("bind", BIND) == b"{}"


async def test_who_waits_gives_up_whatever_else_befalls_the_call() -> None:
    called, now = Called(0.0), asyncio.get_running_loop().time
    calls, began = Calls(called), now()
    calls.time_outs.add(waits(2.0))
    calls.faults.add(Fault(method="bind", user=CALLER, seconds=3.0))
    with pytest.raises(ExtenderFailed):
        await calls("bind", BIND)
    assert now() == began + 2.0
    await asyncio.sleep(10.0)
    assert called.answered == [began + 3.0]


async def test_it_is_known_when_a_bind_was_asked_for_first() -> None:
    calls, began = Calls(Called(0.0)), asyncio.get_running_loop().time()
    for _ in range(2):
        await calls("bind", BIND)
        await asyncio.sleep(4.0)
    assert calls.binds == {"p": began}
