"""The first list of pods is taken in by slices: others have their turn, and nothing is decided before it is whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from extender.app import population
from extender.app.decisions import Effect
from extender.app.journal import Journal
from extender.app.keeper import Keeper
from extender.app.sinks import PodFacts
from extender.core.cluster import Pod
from extender.core.gang_ask import GroupAsk
from extender.core.gangs.machine import Phase
from extender.core.gangs.pod_groups import PodGroup
from extender.core.names import GangKey
from extender.kube.names import CPU, NodeName, PodUid
from tests.builders import gang_pods, gone, node, pod
from tests.core.gang_world import FixedClock
from tests.performing import Performing

N1, N2 = NodeName("n1"), NodeName("n2")


@pytest.fixture(autouse=True)
def one_pod_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "_SLICE", 1)


@dataclass
class Service(Performing):
    """A keeper with one node of 8 CPU; `effects`: all that it wanted done."""

    clock: FixedClock = field(default_factory=FixedClock)
    effects: list[Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keeper = Keeper(self.clock)
        self.pods = PodFacts(self.keeper, self, Journal(self.clock))
        self.do(self.keeper.observe(node("n1", {"cpu": 8000})))
        self.effects.clear()

    def take(self, effects: Sequence[Effect]) -> None:
        self.effects += effects

    def phase(self) -> Phase | None:
        gang = self.keeper.tables.gangs.by_key.get(GangKey("default", "train"))
        return None if gang is None else gang.phase


WAITING = gang_pods("train", 2, {"cpu": 4000})
BOUND = [pod(f"old-{number}", {"cpu": 2000}, node=N1) for number in range(3)]


def in_slices(service: Service, listed: Sequence[Pod], between: Callable[[int], object] = lambda number: None) -> None:
    """`between` is called after each slice, with its number from 0."""
    for number, _ in enumerate(service.pods.take_in(listed)):
        between(number)


def test_room_of_pods_that_are_still_to_come_is_given_to_nobody() -> None:
    """The gang at our gate would fit before those that are bound are known: whatever is told meanwhile, and however
    late it is, it is not planned for."""
    service = Service()
    at_the_gate = [replace(each, at_our_gate=True) for each in WAITING]

    def meanwhile(number: int) -> None:
        service.clock.time += 5.0
        service.do(service.keeper.observe(node("n1", {"cpu": 8000}, version=f"{number}")))
        service.do(service.keeper.tick())
        service.do(service.keeper.settle())
        assert service.effects == []
        assert service.keeper.next_deadline() is None
        assert not service.keeper.tables.whole

    in_slices(service, [*at_the_gate, *BOUND], meanwhile)
    assert service.keeper.tables.whole
    assert service.keeper.tables.ledger.rows.free(N1, CPU) == 2000
    assert service.phase() is not Phase.PLANNED


def test_what_was_held_back_is_done_when_it_is_whole() -> None:
    """Pods that an earlier life may have turned away, and that have room, are woken as after a list at one go."""
    at_once, gradual = Service(), Service()
    listed = [*WAITING, pod("alone", {"cpu": 1000}), BOUND[0]]
    at_once.pods.replace(listed)
    in_slices(gradual, listed)
    assert gradual.effects == at_once.effects
    assert gradual.keeper.next_deadline() == at_once.keeper.next_deadline()
    assert dict(gradual.keeper.tables.pods) == dict(at_once.keeper.tables.pods)


MEANWHILE = {
    "a node comes": lambda keeper: keeper.observe(node("n2", {"cpu": 8000})),
    "a node goes": lambda keeper: keeper.forget(node("n1")),
    "a node has less": lambda keeper: keeper.observe(node("n1", {"cpu": 5000})),
    "a group comes": lambda keeper: keeper.observe(PodGroup("default", "sets", 2)),
    "there are no groups": lambda keeper: keeper.replace(PodGroup, []),
}


@pytest.mark.parametrize("what", MEANWHILE)
@pytest.mark.parametrize("after", range(6))
def test_whatever_else_is_told_between_two_slices_it_comes_to_what_it_would_have_before(what: str, after: int) -> None:
    grouped = [pod(f"sets-{number}", {"cpu": 1000}, gang=GroupAsk("default", "sets", 60.0)) for number in range(2)]
    listed = [*WAITING, *grouped, *BOUND]
    before, between = Service(), Service()
    before.do(MEANWHILE[what](before.keeper))
    before.pods.replace(listed)

    def told(number: int) -> None:
        if number == after:
            between.do(MEANWHILE[what](between.keeper))

    in_slices(between, listed, told)
    for service in (before, between):
        assert service.keeper.tables.violations() == []
    assert dict(between.keeper.tables.pods) == dict(before.keeper.tables.pods)
    assert between.phase() == before.phase()
    for name in (N1, N2):
        assert between.keeper.tables.ledger.rows.free(name, CPU) == before.keeper.tables.ledger.rows.free(name, CPU)
    assert {repr(each) for each in between.effects} == {repr(each) for each in before.effects}


def test_no_invariant_is_looked_at_while_a_part_is_missing() -> None:
    service = Service()
    half_bound = [replace(each, node=N1) for each in gang_pods("half", 2)]
    seen: list[bool] = []
    in_slices(service, half_bound, lambda _: seen.append(service.keeper.tables.whole))
    assert seen
    assert not any(seen)
    assert service.keeper.tables.violations() == []


def test_a_later_list_replaces_the_first() -> None:
    service = Service()
    in_slices(service, BOUND)
    service.pods.replace(BOUND[:1])
    assert set(service.keeper.tables.pods) == {PodUid("uid-old-0")}
    service.do(service.keeper.forget(gone("uid-old-0")))
    assert service.keeper.tables.ledger.rows.free(N1, CPU) == 8000
