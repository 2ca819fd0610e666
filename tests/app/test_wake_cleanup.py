"""The annotation by which a pod was woken: taken off from pods that are bound, in time, and from no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from extender.app.cycle.scheduler import Scheduler
from extender.app.effects.wake_cleanup import ROUND, WakeCleanup
from extender.core.cluster import Pod
from extender.kube.errors import Away, Refused, Unavailable
from extender.kube.names import NodeName, PodUid
from tests.app.fakes import Fault, LoopClock, PodApi
from tests.builders import gone, node, pod
from tests.performing import Performing

pytestmark = pytest.mark.anyio


class Room(Performing):
    def __init__(self) -> None:
        self.scheduler = Scheduler(LoopClock())
        self.do(self.scheduler.observe(node()))
        self.server = PodApi()

    def see(
        self, name: str, *, bound: bool = True, woken: bool = True, deleting: bool = False, namespace: str = "default"
    ) -> Pod:
        where = NodeName("n1") if bound else None
        made = pod(name, node=where, woken=woken, deleting=deleting, namespace=namespace)
        self.do(self.scheduler.observe(made))
        return made

    @property
    def tidied(self) -> list[str]:
        return [call.removeprefix("tidy ") for _, call in self.server.calls]


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    made = Room()
    task = asyncio.ensure_future(WakeCleanup(made.scheduler.cache, made.server).run())
    yield made
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def rounds(count: float) -> None:
    await asyncio.sleep(count * ROUND + 1)


async def test_is_taken_off_once_the_pod_has_been_bound_for_a_round(room: Room) -> None:
    room.see("early")
    await rounds(1)
    room.see("late")
    assert room.tidied == []
    await rounds(1)
    assert room.tidied == ["early"]


async def test_is_not_touched_where_it_is_needed_or_not_there(room: Room) -> None:
    room.see("waiting", bound=False)
    room.see("not-woken", woken=False)
    room.see("going", deleting=True)
    room.see("gone")
    await rounds(1)
    room.do(room.scheduler.forget(gone(PodUid("uid-gone"))))
    await rounds(3)
    assert room.tidied == []


async def test_is_not_touched_where_the_scheduler_is_not_ours(room: Room) -> None:
    """A copy of a pod of ours, made for another scheduler, bears it too."""
    room.do(room.scheduler.observe(pod("copy", node=NodeName("n1"), woken=True, scheduler="other")))
    await rounds(2)
    assert room.tidied == []


async def test_is_taken_off_once(room: Room) -> None:
    room.see("p")
    await rounds(2)
    room.see("p", woken=False)
    await rounds(3)
    assert room.tidied == ["p"]


async def test_is_not_taken_off_again_where_somebody_else_puts_it_there_without_end(room: Room) -> None:
    for _ in range(5):
        room.see("p")
        await rounds(2)
        room.see("p", woken=False)
        await rounds(1)
    assert room.tidied == ["p"]


async def test_is_not_tried_again_where_that_is_refused(room: Room) -> None:
    room.server.faults = [Fault(Refused(403, "an admission policy refuses every change of this pod"))] * 10
    room.see("p")
    await rounds(20)
    assert room.tidied == ["p"]


async def test_a_namespace_where_it_fails_keeps_no_other_waiting(room: Room) -> None:
    room.server.faults = [Fault(Unavailable("a webhook has not answered"), of="tidy a")] * 100
    for name in ("a0", "a1", "a2"):
        room.see(name, namespace="a")
    room.see("b", namespace="b")
    await rounds(3)
    assert room.tidied == ["a0", "b", "a0"]


async def test_a_server_that_is_away_is_asked_again_in_the_next_round(room: Room) -> None:
    room.server.faults.append(Fault(Away("away")))
    for name in ("a", "b"):
        room.see(name)
    await rounds(2)
    assert room.tidied == ["a"], "the others would fare no better"
    await rounds(1)
    assert room.tidied == ["a", "a", "b"]


async def test_a_refusal_for_one_pod_does_not_concern_the_others(room: Room) -> None:
    room.server.faults.append(Fault(Refused(422, "no")))
    for name in ("a", "b"):
        room.see(name)
    await rounds(2)
    assert room.tidied == ["a", "b"]


async def test_a_wake_is_no_change_of_the_pod(room: Room) -> None:
    """Else every wake of a member would be a reason to plan its gang again."""
    assert pod("p", woken=True) == pod("p")
