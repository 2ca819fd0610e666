"""Who follows decisions: whom one wakes, how often it is worded, and what becomes of followers that fall behind."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from extender.app.contracts.decisions import DecisionEvent, Missed
from extender.app.observability import decision_stream
from extender.app.observability.decision_events import announced
from extender.app.observability.decision_stream import DecisionStream, Follower
from extender.core.gangs.state.eviction_orders import Preempted
from extender.core.gangs.state.gang import GangPlanned, WakePod
from extender.core.names import GangKey
from tests.app.fakes import LoopClock
from tests.builders import pod

pytestmark = pytest.mark.anyio

A, B = GangKey("team-a", "train"), GangKey("team-b", "other")


@pytest.fixture
def decisions() -> DecisionStream:
    return DecisionStream(LoopClock())


@pytest.fixture
def worded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the decisions that were put into words, each time."""
    found: list[int] = []

    def noted(number: int, *given: Any) -> DecisionEvent:
        found.append(number)
        return announced(number, *given)

    monkeypatch.setattr(decision_stream, "announced", noted)
    return found


class Reader:
    """Follows, and notes each time that it is woken."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.woken = 0
        self.read: list[DecisionEvent | Missed] = []
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self.follower.ended:
            if taken := self.follower.take(32):
                self.read += taken
            else:
                await self.follower.wait()
                self.woken += 1

    @property
    def numbers(self) -> list[int]:
        return [each.number for each in self.read if isinstance(each, DecisionEvent)]


async def at_rest() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_a_decision_wakes_the_followers_of_its_namespace_and_of_all_and_no_others(
    decisions: DecisionStream,
) -> None:
    own, other, everywhere = (Reader(decisions.follow(namespace=each)) for each in ("team-a", "team-b", None))
    await at_rest()
    for _ in range(5):
        decisions.emit(GangPlanned(A))
        await at_rest()
    assert (own.woken, other.woken, everywhere.woken) == (5, 0, 5)
    assert own.numbers == everywhere.numbers == [1, 2, 3, 4, 5]
    decisions.emit(GangPlanned(B))
    decisions.close()
    await asyncio.gather(own.task, other.task, everywhere.task)
    assert (own.numbers, other.numbers, everywhere.numbers) == ([1, 2, 3, 4, 5], [6], [1, 2, 3, 4, 5, 6])


async def test_a_decision_is_worded_once_for_all_who_follow(decisions: DecisionStream, worded: list[int]) -> None:
    readers = [Reader(decisions.follow(namespace=each)) for each in ("team-a", None, "team-b") for _ in range(50)]
    await at_rest()
    for _ in range(3):
        decisions.emit(GangPlanned(A))
    await at_rest()
    assert [len(each.read) for each in readers] == [3] * 100 + [0] * 50
    assert worded == [1, 2, 3]
    assert len([each async for each in until_over(decisions, 0)]) == 3
    assert worded == [1, 2, 3], "nor anew for those who come later"


async def test_what_names_pods_of_several_namespaces_is_worded_once_for_each_kind_of_follower(
    decisions: DecisionStream, worded: list[int]
) -> None:
    readers = [Reader(decisions.follow(namespace=each)) for each in ("default", None) for _ in range(5)]
    decisions.emit(Preempted(pod("a"), pod("secret", namespace="other")))
    await at_rest()
    details = [each.read[0].detail for each in readers if isinstance(each.read[0], DecisionEvent)]
    assert details == ["for a pod of another namespace"] * 5 + ["for pod other/secret"] * 5
    assert worded == [1, 1]


async def test_many_followers_are_woken_some_at_a_time(decisions: DecisionStream) -> None:
    readers = [Reader(decisions.follow(namespace=each)) for each in ("team-a", None) for _ in range(100)]
    await at_rest()
    decisions.emit(GangPlanned(A))
    before, most = 0, 0
    while before < 200:
        await asyncio.sleep(0)
        now = sum(each.woken for each in readers)
        before, most = now, max(most, now - before)
    assert most <= 32
    assert all(each.numbers == [1] for each in readers)


async def test_decisions_that_come_while_followers_are_being_woken_reach_each_once(decisions: DecisionStream) -> None:
    readers = [Reader(decisions.follow(namespace="team-a")) for _ in range(100)]
    await at_rest()
    for _ in range(20):
        decisions.emit(GangPlanned(A))
        await asyncio.sleep(0)
    await at_rest()
    assert all(each.numbers == list(range(1, 21)) for each in readers)


async def test_a_follower_that_falls_behind_what_is_remembered_is_dropped_and_told_where_to_go_on(
    decisions: DecisionStream,
) -> None:
    decisions.remember(3)
    slow, idle = decisions.follow(), decisions.follow(namespace="team-b")
    assert slow.take(32) == idle.take(32) == []
    for _ in range(5):
        decisions.emit(GangPlanned(A))
    assert slow.take(32) == [Missed(2, 3)]
    assert slow.ended
    assert slow.take(32) == []
    again = decisions.follow(2)
    assert [each.number for each in again.take(32) if isinstance(each, DecisionEvent)] == [3, 4, 5]
    assert idle.take(32) == [], "it has missed nothing of its namespace"
    assert not idle.ended


async def test_of_one_namespace_what_was_missed_of_it_is_counted(decisions: DecisionStream) -> None:
    decisions.remember(3)
    slow = decisions.follow(namespace="team-a")
    assert slow.take(32) == []
    for gang in (A, B, A, B, B, B):
        decisions.emit(GangPlanned(gang))
    assert slow.take(32) == [Missed(2, 4)]


async def test_whoever_comes_back_too_late_is_told_and_follows_on(decisions: DecisionStream) -> None:
    decisions.remember(2)
    for _ in range(5):
        decisions.emit(GangPlanned(A))
    follower = decisions.follow(1)
    first, *rest = follower.take(32)
    assert first == Missed(2, 4)
    assert [each.number for each in rest if isinstance(each, DecisionEvent)] == [4, 5]
    assert not follower.ended


async def test_a_replay_of_one_namespace_passes_by_nothing_of_others(
    decisions: DecisionStream, worded: list[int]
) -> None:
    for _ in range(1000):
        decisions.emit(WakePod(pod("a")))
    decisions.emit(GangPlanned(A))
    taken = decisions.follow(0, namespace="team-a").take(32)
    assert [each.number for each in taken if isinstance(each, DecisionEvent)] == worded == [1001]


async def test_waits_that_are_given_up_leave_nothing(decisions: DecisionStream) -> None:
    follower = decisions.follow(namespace="team-a")
    follower.take(1)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await follower.wait()
    assert not decisions._by_namespace["team-a"].waiting


async def test_a_namespace_that_nobody_follows_and_of_which_nothing_is_remembered_is_forgotten(
    decisions: DecisionStream,
) -> None:
    decisions.remember(2)
    follower = decisions.follow(namespace="team-c")
    for number in range(10):
        decisions.emit(GangPlanned(GangKey(f"team-{number}", "train")))
    gc.collect()
    assert set(decisions._by_namespace) == {"team-8", "team-9", "team-c"}
    decisions.emit(GangPlanned(GangKey("team-c", "train")))
    assert len(follower.take(32)) == 1


def until_over(decisions: DecisionStream, after: int) -> Follower:
    decisions.close()
    return decisions.follow(after)
