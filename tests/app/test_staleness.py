"""What is known grows old: beyond an age nothing new is planned, and who was turned away for that is woken after it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from extender.app.cache.staleness import STALE, Staleness
from extender.app.contracts.effects import Effect
from extender.app.cycle.scheduler import Scheduler
from extender.app.explain.explain import Explain
from extender.core.cluster import Pod
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.gangs.state.gang import WakePod
from extender.core.names import GangKey
from extender.filters.gang import AT_BARRIER
from extender.kube.names import NodeName, ResourceKey
from tests.app.fakes import LoopClock
from tests.builders import JOB, job_pods, node, pod
from tests.performing import Performing

N1, N2 = NODES = [NodeName("n1"), NodeName("n2")]
DATA = ResourceKey("escher.dev/default.data")


class Room(Performing):
    def __init__(self, limit: float = 300.0) -> None:
        self.clock = LoopClock()
        self.effects: list[Effect] = []
        self.age = 1.0
        self.scheduler = Scheduler(self.clock)
        self.scheduler.cache.staleness = Staleness(lambda: {"nodes": 1.0, "pods": self.age}, limit)
        self.do(self.scheduler.observe(Promise(JOB.uid, 16)))
        for name in NODES:
            self.do(self.scheduler.observe(node(name)))
        self.do(self.scheduler.set_capacity(N1, DATA, 1))

    def take(self, effects: Sequence[Effect]) -> None:
        self.effects += effects

    def filter(self, each: Pod) -> list[NodeName]:
        return list(self.do(self.scheduler.filter(each, NODES)).passed)

    def reasons(self, each: Pod) -> set[str]:
        verdict = self.do(self.scheduler.filter(each, NODES))
        assert not verdict.passed
        return {*verdict.rejected.values(), *verdict.unresolvable.values()}

    def gang(self, name: str = "train") -> list[Pod]:
        made = job_pods(name, 2, {"cpu": 6000})
        for each in made:
            self.do(self.scheduler.observe(each))
        return made

    def woken(self) -> set[str]:
        return {effect.pod.name for effect in self.effects if isinstance(effect, WakePod)}


def test_a_gang_is_not_planned_then_and_is_woken_after_it() -> None:
    room = Room()
    members = room.gang()
    room.age = 301.0
    for each in members:
        assert room.reasons(each) == {STALE}
    assert not list(room.scheduler.cache.ledger.rows.holdings())
    room.effects.clear()
    room.age = 1.0
    room.do(room.scheduler.settle())
    assert room.woken() == {each.name for each in members}
    assert {room.filter(each)[0] for each in members} == {N1, N2}
    assert room.scheduler.cache.violations() == []


def test_a_gang_that_waits_for_room_is_not_planned_when_some_comes_free() -> None:
    room = Room()
    filler = pod("filler", {"cpu": 8000}, node=N1)
    room.do(room.scheduler.observe(filler))
    members = room.gang()
    for each in members:
        assert room.filter(each) == []
    room.effects.clear()
    room.age = 301.0
    room.do(room.scheduler.forget(filler))
    assert room.woken() == set()
    room.age = 1.0
    room.do(room.scheduler.settle())
    assert room.woken() == {each.name for each in members}
    assert room.scheduler.cache.violations() == []


def test_the_next_filter_call_of_any_pod_wakes_it_once_the_cache_is_fresh() -> None:
    """No fact comes, and nothing else is due."""
    room = Room()
    ordinary = pod("ordinary", {"cpu": 100})
    room.do(room.scheduler.observe(ordinary))
    members = room.gang()
    room.age = 301.0
    for each in members:
        assert room.reasons(each) == {STALE}
    due = room.scheduler.next_deadline()
    assert due is not None
    assert due <= room.clock.steady() + 5.0
    room.effects.clear()
    room.age = 1.0
    assert room.filter(ordinary)
    assert room.woken() == {each.name for each in members}


def test_what_is_planned_goes_on() -> None:
    room = Room()
    members = room.gang()
    assert room.filter(members[0])
    room.age = 301.0
    for each in members:
        (on,) = room.filter(each)
        assert room.do(room.scheduler.permit(each.uid, on)) is AT_BARRIER


def test_no_ephemeral_resource_is_reserved_then() -> None:
    room = Room()
    asker = pod("asker", {"cpu": 100, DATA: 1})
    room.do(room.scheduler.observe(asker))
    room.age = 301.0
    assert room.reasons(asker) == {STALE}
    room.age = 1.0
    room.do(room.scheduler.settle())
    assert room.woken() == {"asker"}
    assert room.filter(asker) == [N1]
    room.age = 301.0
    assert room.filter(asker) == [N1], "it has its place"


def test_what_is_held_for_a_pod_that_others_bind_stays_held_while_no_watch_could_say_that_it_is_bound() -> None:
    room = Room()
    first, second = pod("first", {DATA: 1}), pod("second", {DATA: 1})
    assert room.filter(first) == [N1]
    room.clock.ahead, room.age = 31.0, 31.0
    for _ in range(3):
        room.do(room.scheduler.tick())
        assert room.reasons(second)
        room.clock.ahead += 5.0
        room.age += 5.0
    room.age = 1.0
    room.do(room.scheduler.tick())
    assert room.filter(second) == [N1]


def test_other_pods_are_left_to_kube_scheduler() -> None:
    room = Room()
    room.age = 10_000.0
    assert room.filter(pod("plain", {"cpu": 100})) == NODES


def test_at_0_everything_is_planned_all_the_same_and_explain_says_how_old_it_is() -> None:
    room = Room(limit=0)
    members = room.gang()
    room.age = 10_000.0
    assert room.filter(members[0])
    told = Explain(room.scheduler.cache).gang(GangKey("default", "train"))
    assert "Escher's data about pods is 10000 s old: this may be wrong" in told.summary


@pytest.mark.parametrize("what", ["pod", "gang"])
def test_explain_says_so_once_and_what_to_look_at(what: str) -> None:
    room = Room()
    members = room.gang()
    explain = Explain(room.scheduler.cache)

    def told() -> tuple[str, Sequence[str]]:
        found = explain.gang(GangKey("default", "train")) if what == "gang" else explain.pod("default", members[0].name)
        return found.summary, found.remedies

    assert "s old" not in told()[0]
    room.age = 312.4
    summary, remedies = told()
    assert summary.count("Escher's data about pods is 312 s old: nothing new is planned") == 1
    assert "/readyz" in remedies[0]


def test_nobody_looks_again_and_again_for_what_may_not_be_planned() -> None:
    room = Room()
    for each in room.gang():
        room.filter(each)
    room.clock.ahead = 3600.0
    room.age = 301.0
    room.do(room.scheduler.observe(node("n3")))
    room.do(room.scheduler.tick())
    deadline = room.scheduler.next_deadline()
    assert deadline is None or deadline >= room.clock.steady() + 1


@pytest.mark.anyio
async def test_that_it_is_too_old_is_told_once_and_heeded_when_it_is_over() -> None:
    loop, changes = asyncio.get_running_loop(), list[float]()
    heard = began = loop.time()
    staleness = Staleness(lambda: {"pods": loop.time() - heard}, 300.0)
    with capture_logs() as logs:
        watching = asyncio.create_task(staleness.watch(lambda: changes.append(loop.time() - began)))
        await asyncio.sleep(100)
        heard = loop.time()
        await asyncio.sleep(302)
        assert changes == []
        await asyncio.sleep(200)
        heard = loop.time()
        await asyncio.sleep(100)
        watching.cancel()
    # It looks every five seconds.
    assert changes == [405.0, 605.0]
    assert [each["log_level"] for each in logs] == ["error", "info"]


def test_what_nothing_is_known_of_yet_is_not_old() -> None:
    staleness = Staleness()
    assert (staleness.is_stale(), staleness.told()) == (False, "")
