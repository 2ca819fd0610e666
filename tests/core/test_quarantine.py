"""A defect in what is done about one gang sets that gang aside; everything else goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from extender.core.cluster import Pod
from extender.core.gangs.state.gang import QUARANTINE, Gang, GangQuarantined
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import HoldingKind
from extender.core.names import GangKey
from tests.builders import gang_pods, node, reason_of
from tests.core.gang_world import GangWorld

FULL = {"cpu": 8000}
POISONED = GangKey("default", "poisoned")


class Poison(Mapping[str, str]):
    """A selector that nobody can read: a defect where a gang is planned."""

    def __getitem__(self, key: str) -> str:
        raise RuntimeError("poisoned")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("poisoned")

    def __len__(self) -> int:
        return 1


@dataclass
class Watched(GangWorld):
    """Defects are counted, and not raised."""

    quarantined: list[GangQuarantined] = field(default_factory=list)

    def has_a_defect(self, event: GangQuarantined) -> None:
        self.quarantined.append(event)


@pytest.fixture
def world() -> Watched:
    made = Watched()
    for number in range(4):
        made.add_node(node(f"n{number}"))
    return made


def poisoned(count: int = 2, quorum: int = 2) -> list[Pod]:
    return [replace(each, node_selector=Poison()) for each in gang_pods("poisoned", count, FULL, quorum=quorum)]


def offered(world: Watched, each: Pod) -> list[str]:
    """What kube-scheduler finds, for which the selector is no trouble."""
    reasons = world.do(world.scheduler.filter(each, list(world.nodes))).unresolvable
    return sorted(set(reasons.values()))


def test_its_pods_wait_with_a_constant_reason_and_it_is_told(world: Watched) -> None:
    members = poisoned()
    world.create(*members)
    assert [offered(world, each) for each in members * 2] == [[QUARANTINE]] * 4
    [told] = world.quarantined
    assert told.gang == POISONED
    assert str(told.defect) == "poisoned"
    assert world.gangs == {"poisoned": Phase.QUARANTINED}
    assert reason_of(world.do(world.scheduler.permit(members[0].uid, next(iter(world.nodes))))) == QUARANTINE
    world.check()


def test_it_holds_nothing_and_others_go_on(world: Watched) -> None:
    world.create(*poisoned(), *gang_pods("train", 4, FULL))
    for each in list(world.pods.values()):
        if each.gang == poisoned()[0].gang:
            offered(world, each)
    for each in gang_pods("train", 4, FULL):
        world.filter(each)
        world.bind(each.uid)
    for uid in list(world.opened):
        world.write(uid)
    world.catch_up()
    assert world.bound("train") == 4
    assert {held.kind for held in world.scheduler.cache.ledger.rows.holdings()} == {HoldingKind.BOUND}
    world.check()


def test_a_defect_with_one_that_waits_does_not_keep_others_waiting(world: Watched) -> None:
    """It comes up while room that has come free is given to those who wait, in turn: the next one still has it."""
    hog = [replace(each, priority=5) for each in gang_pods("hog", 4, FULL)]
    world.create(*hog)
    world.schedule()
    first, second = gang_pods("poisoned", 2, FULL), gang_pods("train", 2, FULL)
    world.create(*(replace(each, created=1.0) for each in first), *(replace(each, created=2.0) for each in second))
    for each in (*first, *second):
        world.do(world.scheduler.filter(each, list(world.nodes)))
    gang = world.scheduler.cache.gangs.by_key[POISONED]
    for uid in list(gang.roster.members):
        gang.roster.take(replace(gang.roster.members[uid], node_selector=Poison()))
    for each in hog:
        world.delete(each.uid)
    world.schedule()
    assert [each.gang for each in world.quarantined] == [POISONED]
    assert world.bound("train") == 2


def test_a_defect_of_no_gang_is_not_taken_for_one_of_the_gang_that_was_handled_last(world: Watched) -> None:
    world.create(*gang_pods("train", 4, FULL))
    world.schedule()
    gangs = world.scheduler.cache.gangs
    gangs.requeue._table.handled = GangKey("default", "train")
    world.do(world.scheduler.settle())
    assert gangs.requeue._table.handled is None


def test_a_defect_in_what_its_deadline_brings_does_not_stop_the_clock(
    world: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = gang_pods("poisoned", 2, FULL)
    others = gang_pods("train", 2, FULL)
    world.create(*members, *others)
    for first in (members[0], others[0]):
        world.filter(first)
        world.bind(first.uid)
    planning = world.scheduler.cache.gangs.planning
    give_up = planning.give_up

    def fails_for_one(gang: Gang, now: float, reason: str = "") -> None:
        if gang.key == POISONED:
            raise RuntimeError("some defect")
        give_up(gang, now, reason)

    monkeypatch.setattr(planning, "give_up", fails_for_one)
    world.pass_time(6)
    assert [each.gang for each in world.quarantined] == [POISONED]
    assert sorted(world.turned_back) == [members[0].uid, others[0].uid]
    assert world.gangs == {"poisoned": Phase.QUARANTINED, "train": Phase.WAITING}
    world.check()


def test_it_is_over_when_its_members_are_gone(world: Watched) -> None:
    members = poisoned()
    world.create(*members)
    offered(world, members[0])
    for each in members:
        world.delete(each.uid)
    assert world.gangs == {}
    world.create(*gang_pods("poisoned", 2, FULL))
    world.schedule()
    assert world.bound("poisoned") == 2


def test_members_of_one_that_run_go_on_running(world: Watched) -> None:
    world.create(*gang_pods("poisoned", 4, FULL, quorum=3))
    world.schedule()
    gang = world.scheduler.cache.gangs.by_key[POISONED]
    world.scheduler.cache.gangs.quarantine.contain(gang.key, RuntimeError("some defect"))
    for _ in range(10):
        world.pass_time(60)
        world.schedule()
    assert world.bound("poisoned") == 4
    world.delete(next(uid for uid in world.pods))
    assert (world.bound("poisoned"), world.evicted) == (3, [])
    world.check()


def test_a_defect_that_is_nobodys_is_not_hidden(world: Watched) -> None:
    with pytest.raises(RuntimeError, match="of nobody"):
        world.scheduler.cache.gangs.quarantine.contain(None, RuntimeError("of nobody"))
