"""What is changed about pods in the background: one of a kind at a time for each pod, and what is refused backs off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from typing import Any

import pytest

from extender.app.contracts.ports import PodRef
from extender.app.pod_edits import PodEdits
from extender.kube.errors import Gone, Refused
from extender.kube.names import PodUid
from tests.app.fakes import Fault, PodApi, unavailable

pytestmark = pytest.mark.anyio
POD = PodRef("default", "p", PodUid("uid-p"))
FORBIDDEN = Refused(403, "an admission policy refuses every change of this pod")


class Edits:
    def __init__(self) -> None:
        self.api = PodApi()
        self.tasks: list[asyncio.Task[None]] = []
        self._edits = PodEdits(self._start)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def wake(self) -> None:
        self._edits.begin("wake", POD, partial(self.api.wake, POD, "token"))

    def void(self) -> None:
        self._edits.begin("void", POD, partial(self.api.void_attempt, POD))

    @property
    def calls(self) -> list[str]:
        return [call for _, call in self.api.calls]

    @property
    def under_way(self) -> int:
        return sum(not task.done() for task in self.tasks)


@pytest.fixture
async def edits() -> AsyncIterator[Edits]:
    made = Edits()
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


async def test_a_pod_that_may_not_be_changed_is_tried_ever_more_rarely_however_often_it_is_to_be_woken(
    edits: Edits,
) -> None:
    edits.api.faults = [Fault(FORBIDDEN, of="wake")] * 100_000
    for _ in range(720):
        edits.wake()
        await asyncio.sleep(5)
        assert edits.under_way == 1
    assert 58 <= len(edits.calls) <= 64
    edits.api.faults = []
    await asyncio.sleep(61)
    assert edits.under_way == 0


async def test_one_that_comes_while_another_is_being_written_is_written_after_it(edits: Edits) -> None:
    """The pod may have been tried, and turned away again, before the answer to the first is here."""
    edits.wake()
    await asyncio.sleep(0.005)
    edits.wake()
    edits.wake()
    await asyncio.sleep(1)
    assert (edits.calls, edits.under_way) == (["wake p", "wake p"], 0)


async def test_those_that_come_while_the_api_server_is_away_are_one(edits: Edits) -> None:
    edits.api.faults = [unavailable(30.0, of="wake")]
    for _ in range(20):
        edits.wake()
        await asyncio.sleep(1)
    await asyncio.sleep(20)
    assert (edits.calls, edits.under_way) == (["wake p", "wake p"], 0)


@pytest.mark.parametrize("error", [Gone(404, "not found"), Refused(422, "invalid")])
async def test_what_is_refused_for_good_is_tried_once(edits: Edits, error: Exception) -> None:
    edits.api.faults = [Fault(error, of="wake")]
    edits.wake()
    await asyncio.sleep(600)
    assert (edits.calls, edits.under_way) == (["wake p"], 0)
    edits.wake()
    await asyncio.sleep(1)
    assert edits.calls == ["wake p", "wake p"]


async def test_kinds_do_not_wait_for_each_other(edits: Edits) -> None:
    edits.api.faults = [Fault(FORBIDDEN, of="wake")]
    edits.wake()
    edits.void()
    await asyncio.sleep(1)
    assert edits.calls == ["wake p", "void p"]
