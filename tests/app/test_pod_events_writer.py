"""Events of pods: each is stored once, what was not stored may be told again, and of one namespace so many wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from extender.app.contracts.ports import EventType
from extender.app.effects.pod_events_writer import MOST_WAITING, EventRecorder
from extender.kube.errors import Refused
from tests.app.fakes import Fault, PodApi, unavailable
from tests.builders import pod

pytestmark = pytest.mark.anyio


class Told:
    def __init__(self) -> None:
        self.api = PodApi()
        self.tasks: list[asyncio.Task[None]] = []
        self.telling = EventRecorder(self.api, self._start)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def tell(self, namespace: str = "default", note: str = "it waits") -> None:
        self.telling.emit(pod("p", namespace=namespace, uid=f"uid-{namespace}"), EventType.NORMAL, "Waits", note)

    def stored(self) -> int:
        return len(self.api.notices)


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    made = Told()
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


async def test_an_event_that_was_lost_is_told_when_there_is_the_same_to_tell_again(told: Told) -> None:
    told.api.faults = [unavailable(of="tell")] * 1000
    told.tell()
    await asyncio.sleep(200)
    tries = len(told.api.calls)
    assert (told.stored(), tries < 80) == (0, True)
    told.api.faults = []
    for _ in range(3):
        told.tell()
        await asyncio.sleep(1)
    assert (told.stored(), len(told.api.calls)) == (1, tries + 1)


async def test_what_was_done_to_a_pod_is_told_each_time(told: Told) -> None:
    for _ in range(2):
        told.telling.emit_done(pod("p"), EventType.WARNING, "PreemptedByGang", "evicted for a gang")
        await asyncio.sleep(1)
    assert told.stored() == 2


async def test_one_that_is_refused_for_good_is_not_tried_again(told: Told) -> None:
    told.api.faults = [Fault(Refused(403, "the namespace is being deleted"), of="tell")]
    for _ in range(100):
        told.tell()
        await asyncio.sleep(1)
    assert len(told.api.calls) == 1


async def test_one_namespace_has_no_more_than_so_many_waiting_and_keeps_none_of_another(told: Told) -> None:
    told.api.latency = 10.0
    for number in range(2 * MOST_WAITING):
        told.tell("a", f"change {number}")
    told.tell("b")
    await asyncio.sleep(5)
    assert len(told.api.calls) == MOST_WAITING + 1
    await asyncio.sleep(10)
    assert any(notice.pod.namespace == "b" for notice in told.api.notices)
    told.tell("a", "news")
    await asyncio.sleep(11)
    assert told.stored() == MOST_WAITING + 2
