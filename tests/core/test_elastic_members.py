"""Members beyond a quorum: woken for the room there is, in order, and by nothing that cannot help them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from extender.core.cluster import Node, Pod
from extender.core.fit.equivalence import EquivalenceClass, equivalence_of
from extender.core.gangs.placement.fit_counts import Copies
from extender.core.gangs.queue.elastic_members import COMES_WITHIN, ElasticMembers
from extender.core.gangs.queue.queue import BackfillTrigger
from extender.core.gangs.state.gang import NO_ROOM_FOR_MEMBER, Gang
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import Holder, Ledger
from extender.core.names import GangKey
from extender.core.policies.policy_types import DataLocality
from extender.kube.names import NodeName, PodUid
from tests.builders import NOW, gang_pods, ledger_of, node, pod, units
from tests.core.gang_world import GangWorld
from tests.filters.escher_policies.test_gangs import DATA
from tests.filters.escher_policies.world import PolicyWorld, naming
from tests.performing import replaced

ONE, EIGHT = {"cpu": 1000}, {"cpu": 8000}
SECONDS = 60.0


def planned(name: str, size: int) -> Gang:
    gang = Gang(GangKey("default", name), size, 4.0, NOW, phase=Phase.BOUND)
    for each in gang_pods(name, size, ONE):
        gang.roster.take(each)
    gang.wait.rejected = set(gang.roster.members)
    return gang


def table_of(*gangs: Gang) -> GangStore:
    table = GangStore()
    table.by_key.update((gang.key, gang) for gang in gangs)
    return table


def surplus_of(ledger: Ledger, *gangs: Gang) -> ElasticMembers:
    copies: Copies[EquivalenceClass] = Copies(ledger.rows, lambda name, kind: 0)
    return ElasticMembers(ledger, table_of(*gangs), copies, lambda name, kind: True)


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld(patience=BackfillTrigger(8, SECONDS))
    yield made
    made.check()


def elastic(world: GangWorld, count: int, *, node_selector: dict[str, str] | None = None) -> list[Pod]:
    """A gang of quorum 2 that fills a node of two, and so many members beyond it, all turned away."""
    world.add_node(node("n0", {"cpu": 16000}))
    members = [replace(each, created=1.0) for each in gang_pods("elastic", 2 + count, EIGHT, quorum=2)]
    members = [*members[:2], *(replace(each, node_selector=node_selector or {}) for each in members[2:])]
    world.create(*members[:2])
    world.schedule()
    assert world.gangs["elastic"] is Phase.BOUND
    join(world, members[2:])
    return members[2:]


def join(world: GangWorld, members: Sequence[Pod]) -> None:
    for member in members:
        world.create(member)
        verdict = world.filter(member, list(world.nodes))
        assert set(verdict.unresolvable.values()) == {NO_ROOM_FOR_MEMBER}


def woken(world: GangWorld) -> list[str]:
    found = [uid.removeprefix("uid-") for uid, count in world.wakes.items() for _ in range(count)]
    world.wakes.clear()
    world._wakes_seen.clear()
    return found


def end(world: GangWorld, name: str) -> None:
    world.delete(PodUid(f"uid-{name}"))


class TestAChange:
    def test_of_the_gang_itself_wakes_nobody(self, world: GangWorld) -> None:
        elastic(world, 5)
        join(world, [replace(gang_pods("elastic", 9, EIGHT, quorum=2)[-1], created=2.0)])
        end(world, "elastic-4")
        assert woken(world) == []

    def test_that_makes_room_wakes_as_many_as_have_room_the_oldest_first_and_each_once(self, world: GangWorld) -> None:
        elastic(world, 5)
        world.add_node(node("n1", {"cpu": 16000}))
        assert woken(world) == ["elastic-2", "elastic-3"]
        world.schedule()
        assert (woken(world), world.bound("elastic")) == ([], 4)
        world.add_node(node("n2", {"cpu": 8000}))
        world.schedule()
        assert (woken(world), world.bound("elastic")) == (["elastic-4"], 5)

    def test_wakes_members_of_each_gang_that_has_some(self, world: GangWorld) -> None:
        world.add_node(node("m0", {"cpu": 16000}))
        others = [replace(each, created=1.0) for each in gang_pods("second", 3, EIGHT, quorum=2)]
        world.create(*others[:2])
        world.schedule()
        elastic(world, 1)
        join(world, others[2:])
        world.add_node(node("n1", {"cpu": 16000}))
        assert sorted(woken(world)) == ["elastic-2", "second-2"]

    def test_opens_our_gate_for_all_who_wait_behind_it(self, world: GangWorld) -> None:
        elastic(world, 1)
        gated = [replace(each, created=2.0, at_our_gate=True) for each in gang_pods("elastic", 6, EIGHT, quorum=2)[3:]]
        world.create(*gated)
        world.add_node(node("m0", {"cpu": 16000}))
        others = [replace(each, created=3.0) for each in gang_pods("second", 3, EIGHT, quorum=2)]
        world.create(*others[:2], replace(others[2], at_our_gate=True))
        world.schedule()
        assert not any(each.at_our_gate for each in world.pods.values())

    def test_while_others_are_on_their_way_leaves_them_their_room(self, world: GangWorld) -> None:
        elastic(world, 5)
        world.add_node(node("n1", {"cpu": 8000}))
        world.add_node(node("n1", {"cpu": 8000}, labels={"a": "b"}))
        assert woken(world) == ["elastic-2"]

    def test_on_a_node_that_they_may_not_be_on_wakes_nobody(self, world: GangWorld) -> None:
        elastic(world, 2, node_selector={"zone": "x"})
        world.add_node(node("n1"))
        assert woken(world) == []
        world.add_node(node("n1", labels={"zone": "x"}))
        assert woken(world) == ["elastic-2"]

    @pytest.mark.parametrize("priority", [0, 10])
    def test_that_goes_to_the_gang_whose_turn_it_is_wakes_nobody(self, world: GangWorld, priority: int) -> None:
        """However many sleep, however many end, and whatever their priority is: the quorum has what it claimed."""
        world.add_node(node("n0", {"cpu": 4000}))
        world.add_node(node("n1", {"cpu": 8000}))
        members = [replace(each, created=1.0, priority=priority) for each in gang_pods("elastic", 60, ONE, quorum=2)]
        world.create(*members[:8])
        world.schedule()
        assert world.bound("elastic") == 8
        whole = [replace(each, created=2.0) for each in gang_pods("whole", 2, EIGHT)]
        world.create(*whole)
        world.filter(whole[0], list(world.nodes))
        world.add_node(node("n0", {"cpu": 8000}))
        world.pass_time(SECONDS)
        saver = world.scheduler.cache.gangs.waiting.queue.saved.gang
        assert saver is not None
        assert saver.key.name == "whole"
        join(world, members[8:])
        for number in range(3):
            end(world, f"elastic-{number}")
        assert woken(world) == []

    def test_on_several_nodes_at_once_wakes_one_for_each(self, world: GangWorld) -> None:
        elastic(world, 5)
        world.do(
            replaced(world.scheduler, Node, [*world.nodes.values(), *(node(f"n{n}", {"cpu": 8000}) for n in (1, 2, 3))])
        )
        assert woken(world) == ["elastic-2", "elastic-3", "elastic-4"]

    def test_after_one_is_gone_and_another_has_come_wakes_the_next(self, world: GangWorld) -> None:
        elastic(world, 2)
        end(world, "elastic-2")
        join(world, [replace(gang_pods("elastic", 9, EIGHT, quorum=2)[-1], created=2.0)])
        world.add_node(node("n1", {"cpu": 8000}))
        assert woken(world) == ["elastic-3"]


def test_a_plan_of_another_gang_leaves_those_that_are_on_their_way_their_room(world: GangWorld) -> None:
    elastic(world, 3)
    world.add_node(node("n1", {"cpu": 8000}))
    assert woken(world) == ["elastic-2"]
    world.add_node(node("n2", {"cpu": 2000}))
    world.create(*gang_pods("other", 2, ONE))
    world.schedule()
    assert world.bound("other") == 2
    assert woken(world) == []
    world.add_node(node("n1", {"cpu": 8000}, labels={"a": "b"}))
    assert woken(world) == []


class TestOwnPlaces:
    """A member was turned away, and its gang's plan has a place for it by name since."""

    def test_it_is_told_once_of_each_place(self) -> None:
        ledger, gang = ledger_of({"n1": units(cpu=8000), "n2": units(cpu=8000)}), planned("elastic", 3)
        other = planned("other", 1)
        surplus = surplus_of(ledger, gang, other)
        one, two, three = sorted(gang.roster.members)
        gang.wait.rejected = {one, two, three}
        assert surplus.with_own_place(gang) == []
        surplus.has(gang)
        assert surplus.with_own_place(gang) == []
        ledger.reserve(Holder(two), on=NodeName("n1"), units=units(cpu=1000), owner=gang.key, until=NOW + 30)
        ledger.reserve(Holder(one), on=NodeName("n1"), units=units(cpu=1000), owner=gang.key, until=NOW + 30)
        assert surplus.with_own_place(other) == []
        assert surplus.with_own_place(gang) == [one, two]
        assert surplus.with_own_place(gang) == []
        ledger.reserve(Holder(one), on=NodeName("n2"), units=units(cpu=1000), owner=gang.key, until=NOW + 30)
        assert surplus.with_own_place(gang) == [one]
        surplus.look_again()
        assert surplus.with_own_place(gang) == [one, two]
        # It is known of a plan only, and the next one is another.
        surplus.planned_anew(gang)
        assert surplus.with_own_place(gang) == []
        surplus.has(gang)
        gang.wait.rejected = {two}
        assert surplus.with_own_place(gang) == [two]

    def test_who_sleeps_is_known_until_its_gang_is_planned_anew(self) -> None:
        gang = planned("elastic", 1)
        surplus = surplus_of(ledger_of({"n1": {}}), gang)
        assert gang not in surplus
        assert not surplus.has_news
        surplus.has(gang)
        assert gang in surplus
        assert surplus.has_news
        surplus.to_wake((), NOW)
        assert not surplus.has_news
        surplus.look_again()
        assert surplus.has_news
        surplus.planned_anew(gang)
        assert gang not in surplus


class TestAGangIsForgotten:
    """And nothing is counted any more for kinds of pods that only it waits with."""

    @pytest.mark.parametrize(
        ("rejected", "phase", "there", "kept"),
        [
            (True, Phase.BOUND, True, True),
            (False, Phase.BOUND, True, False),
            (True, Phase.WAITING, True, False),
            (True, Phase.BOUND, False, False),
        ],
    )
    def test_when_it_is_gone_or_has_no_plan_or_nobody_sleeps(
        self, rejected: bool, phase: Phase, there: bool, kept: bool
    ) -> None:
        gang = planned("elastic", 2)
        ledger = ledger_of({"n1": {}})
        copies: Copies[EquivalenceClass] = Copies(ledger.rows, lambda name, kind: 0)
        table = table_of(gang)
        surplus = ElasticMembers(ledger, table, copies, lambda name, kind: True)
        surplus.has(gang)
        for each in gang.roster.members.values():
            surplus.found_no_place(gang, each)
        [kind] = {equivalence_of(each) for each in gang.roster.members.values()}
        assert kind in copies
        gang.wait.rejected = gang.wait.rejected if rejected else set()
        gang.phase = phase
        if not there:
            table.by_key.clear()
        assert surplus.to_wake((), NOW) == []
        assert table.handled == gang.key
        assert (gang in surplus) is kept
        assert (kind in copies) is kept
        surplus.planned_anew(gang)
        assert kind not in copies


class TestWhoWasWoken:
    @pytest.fixture(autouse=True)
    def room_for_one(self, world: GangWorld) -> None:
        elastic(world, 3)
        world.add_node(node("n1", {"cpu": 8000}))
        assert woken(world) == ["elastic-2"]

    def test_and_does_not_come_leaves_its_place_to_the_next_after_a_while(self, world: GangWorld) -> None:
        world.pass_time(COMES_WITHIN - 1)
        assert woken(world) == []
        assert world.scheduler.next_deadline() == world.clock.steady() + 1
        world.pass_time(1)
        assert woken(world) == ["elastic-3"]

    def test_and_is_gone_leaves_its_place_to_the_next(self, world: GangWorld) -> None:
        end(world, "elastic-2")
        assert woken(world) == ["elastic-3"]

    def test_and_is_gone_leaves_its_place_to_the_next_while_another_is_still_on_its_way(self, world: GangWorld) -> None:
        world.add_node(node("n2", {"cpu": 8000}))
        assert woken(world) == ["elastic-3"]
        end(world, "elastic-3")
        assert woken(world) == ["elastic-4"]

    def test_and_goes_elsewhere_leaves_its_place_to_the_next(self, world: GangWorld) -> None:
        world.add_node(node("n2", {"cpu": 8000}))
        assert woken(world) == ["elastic-3"]
        world.filter(world.pods[PodUid("uid-elastic-2")], [NodeName("n2")])
        world.add_node(node("n1", {"cpu": 16000}))
        assert woken(world) == ["elastic-4"]

    def test_and_is_turned_away_again_wakes_nobody_who_is_like_it(self, world: GangWorld) -> None:
        """kube-scheduler does not offer that node, and would not offer it to them."""
        world.filter(world.pods[PodUid("uid-elastic-2")], [NodeName("n0")])
        assert woken(world) == []
        world.pass_time(10 * COMES_WITHIN)
        assert woken(world) == []

    def test_and_is_turned_away_again_leaves_its_place_to_others(self, world: GangWorld) -> None:
        smaller = replace(gang_pods("elastic", 9, {"cpu": 4000}, quorum=2)[-1], created=9.0)
        world.create(smaller)
        assert not world.filter(smaller, [NodeName("n0")]).passed
        world.filter(world.pods[PodUid("uid-elastic-2")], [NodeName("n0")])
        assert woken(world) == ["elastic-8"]

    def test_and_is_turned_away_again_is_not_offered_what_others_were_turned_away_from_too(
        self, world: GangWorld
    ) -> None:
        """Else two kinds of members that a policy keeps off wake each other for the same room as fast as they can."""
        smaller = replace(gang_pods("elastic", 9, {"cpu": 4000}, quorum=2)[-1], created=9.0)
        world.create(smaller)
        world.filter(smaller, [NodeName("n0")])
        world.filter(world.pods[PodUid("uid-elastic-2")], [NodeName("n0")])
        assert woken(world) == ["elastic-8"]
        world.filter(smaller, [NodeName("n0")])
        assert woken(world) == []
        world.pass_time(10 * COMES_WITHIN)
        assert woken(world) == []
        world.add_node(node("n1", {"cpu": 16000}))
        assert "elastic-2" in woken(world), "there is more room"

    def test_and_is_turned_away_after_a_gain_leaves_the_place_to_those_who_were_turned_away_before_it(
        self, world: GangWorld
    ) -> None:
        smaller = replace(gang_pods("elastic", 9, {"cpu": 4000}, quorum=2)[-1], created=9.0)
        world.create(smaller)
        world.filter(smaller, [NodeName("n0")])
        world.filter(world.pods[PodUid("uid-elastic-2")], [NodeName("n0")])
        assert woken(world) == ["elastic-8"]
        world.add_node(node("n1", {"cpu": 8000}, labels={"other": "label"}))
        world.filter(smaller, [NodeName("n0")])
        assert woken(world) == ["elastic-2"]


def test_one_that_is_turned_away_bars_no_member_of_another_gang_that_is_like_it(world: GangWorld) -> None:
    world.add_node(node("m0", {"cpu": 16000}))
    others = [replace(each, created=1.0) for each in gang_pods("second", 3, EIGHT, quorum=2)]
    world.create(*others[:2])
    world.schedule()
    elastic(world, 1)
    join(world, others[2:])
    world.add_node(node("n1", {"cpu": 8000}))
    assert woken(world) == ["elastic-2"]
    world.filter(world.pods[PodUid("uid-elastic-2")], [NodeName("n0")])
    assert woken(world) == ["second-2"]
    world.filter(world.pods[PodUid("uid-second-2")], [NodeName("n0")])
    world.pass_time(10 * COMES_WITHIN)
    assert woken(world) == []


@pytest.mark.parametrize("vacant", [1, 2, 3])
def test_one_whom_kube_scheduler_keeps_from_vacant_places_is_woken_once_for_each(world: GangWorld, vacant: int) -> None:
    for number in range(3):
        world.add_node(node(f"full-{number}", {"cpu": 1000}))
    world.add_node(node("small", {"cpu": 100}))
    members = [replace(each, created=1.0) for each in gang_pods("g", 4, ONE, quorum=3)]
    world.create(*members)
    for each in members:
        world.filter(each, [NodeName(f"full-{number}") for number in range(3)])
    woken(world)
    for each in members[:vacant]:
        world.delete(each.uid)
    times = 0
    while found := woken(world):
        assert found == ["g-3"]
        times += 1
        assert times <= vacant, "it is woken for ever"
        assert not world.filter(members[3], [NodeName("small")]).passed


@pytest.mark.parametrize("gangs", [1, 2, 3])
def test_members_that_a_policy_keeps_from_the_only_room_do_not_wake_each_other_after_the_preempt_verb(
    gangs: int,
) -> None:
    """Such a refusal does not say that all nodes were looked at."""
    world = PolicyWorld(zones="")
    world.govern("data", DataLocality(("data1",)))
    surplus = list[Pod]()
    for number in range(gangs):
        world.add_node(node(f"full-{number}", {"cpu": 2000 + 2 * number}))
        world.do(world.scheduler.set_capacity(NodeName(f"full-{number}"), DATA, 1))
        members = gang_pods(f"g{number}", 4, {"cpu": 1000 + number}, quorum=2)
        members = [replace(each, created=1.0, annotations=naming("data")) for each in members]
        world.create(*members[:2])
        world.schedule()
        surplus += members[2:]
    world.add_node(node("free", {"cpu": 64000}))
    world.create(*surplus)

    def tried(each: Pod) -> None:
        assert not world.filter(each, [NodeName("free")]).passed
        world.do(world.scheduler.preempt(world.pods[each.uid], {}))

    for each in surplus:
        tried(each)
    times = 0
    while found := woken(world):
        times += len(found)
        assert times <= 2 * len(surplus), "they wake each other for ever"
        for name in found:
            tried(world.pods[PodUid(f"uid-{name}")])


def test_when_a_gang_is_planned_as_many_beyond_its_quorum_are_woken_as_there_is_room_for(world: GangWorld) -> None:
    world.add_node(node("n0"))
    members = gang_pods("late", 5, EIGHT, quorum=2)
    world.create(*members)
    for member in members:
        world.filter(member)
    world.add_node(node("n1", {"cpu": 16000}))
    assert sorted(woken(world)) == ["late-0", "late-1", "late-2"]
    world.schedule()
    assert world.bound("late") == 3


def test_one_turned_away_on_a_sample_of_the_nodes_is_woken_once_if_another_has_room(world: GangWorld) -> None:
    for number in range(110):
        world.add_node(node(f"n{number}", {"cpu": 1000}))
    world.add_node(node("large", {"cpu": 16000}))
    members = gang_pods("elastic", 4, EIGHT, quorum=2)
    world.create(*members[:2])
    world.schedule()
    world.add_node(node("free", {"cpu": 16000}))
    sample = [NodeName(f"n{number}") for number in range(100)]
    world.create(members[2])
    for _ in range(2):
        assert not world.filter(members[2], sample).passed
    assert woken(world) == ["elastic-2"]


def test_one_with_room_beyond_a_sample_is_woken_though_others_have_none_anywhere(world: GangWorld) -> None:
    for number in range(110):
        world.add_node(node(f"n{number}", {"cpu": 500}))
    world.add_node(node("large", {"cpu": 16000}))
    world.add_node(node("small", {"cpu": 2000}))
    members = gang_pods("elastic", 4, EIGHT, quorum=2)
    world.create(*members[:2])
    world.schedule()
    sample = [NodeName(f"n{number}") for number in range(100)]
    for member in (members[2], replace(members[3], requests=pod(asks=ONE).requests)):
        world.create(member)
        assert not world.filter(member, sample).passed
    assert woken(world) == ["elastic-3"]


def test_one_that_is_gone_is_forgotten_when_another_is_turned_away_on_a_sample(world: GangWorld) -> None:
    for number in range(110):
        world.add_node(node(f"n{number}", {"cpu": 1000}))
    world.add_node(node("large", {"cpu": 16000}))
    members = gang_pods("elastic", 4, EIGHT, quorum=2)
    world.create(*members[:2])
    world.schedule()
    sample = [NodeName(f"n{number}") for number in range(100)]
    for member in members[2:]:
        world.create(member)
        assert not world.filter(member, sample).passed
        if member is members[2]:
            end(world, member.name)
    world.add_node(node("free", {"cpu": 16000}))
    assert woken(world) == ["elastic-3"]


def test_a_place_that_a_member_left_behind_wakes_one_to_take_it(world: GangWorld) -> None:
    world.add_node(node("n0", {"cpu": 16000}))
    members = gang_pods("train", 4, EIGHT, quorum=2)
    world.create(*members)
    for member in members:
        world.filter(member, list(world.nodes))
    assert len(world.asleep) == 2
    end(world, "train-0")
    assert woken(world) == ["train-2"]
    world.schedule()
    assert world.bound("train") == 2


def test_of_the_places_of_a_plan_those_are_to_be_had_that_are_nobodys() -> None:
    gang = planned("train", 4)
    own, *others = sorted(gang.roster.members)
    gang.wait.rejected = set(others)
    ledger = ledger_of({"n1": units(cpu=1000, pods=9), "n2": units(cpu=1000, pods=9)})
    surplus = surplus_of(ledger, gang)
    surplus.has(gang)
    for each in gang.roster.members.values():
        surplus.found_no_place(gang, each)
    assert surplus.to_wake((), NOW) == []
    for number, holder in enumerate((own, Holder("train#1")), 1):
        asks = units(cpu=1000, pods=1)
        ledger.reserve(Holder(holder), on=NodeName(f"n{number}"), units=asks, owner=gang.key, until=NOW + 30)
    gang.plan.slots_made = 2
    assert surplus.to_wake((), NOW) == [(gang, others[0])]
    gang.wait.rejected.remove(others[0])
    assert surplus.to_wake((), NOW) == []
    assert surplus.next_deadline() == NOW + COMES_WITHIN
    assert [surplus.overdue(NOW + after) for after in (COMES_WITHIN - 1, COMES_WITHIN)] == [False, True]
    # It did not come: the place is the next one's.
    assert surplus.to_wake((), NOW + COMES_WITHIN) == [(gang, others[1])]
    ledger.release(Holder("train#1"))
    surplus.planned_anew(gang)
    assert surplus.next_deadline() is None
    assert not surplus.overdue(NOW + 60)


def test_a_place_that_one_was_woken_for_in_vain_wakes_nobody_like_it_when_others_gain_room() -> None:
    gang = planned("train", 3)
    ledger = ledger_of({"n1": units(cpu=1000, pods=9), "n2": {}})
    surplus = surplus_of(ledger, gang)
    surplus.has(gang)
    for each in gang.roster.members.values():
        surplus.found_no_place(gang, each)
    asks = units(cpu=1000, pods=1)
    ledger.reserve(Holder("train#1"), on=NodeName("n1"), units=asks, owner=gang.key, until=NOW + 30)
    gang.plan.slots_made = 1
    assert surplus.to_wake((), NOW) == [(gang, PodUid("uid-train-0"))]
    # Our filter turned it away again: it was not offered that node.
    assert surplus.to_wake((), NOW) == []
    assert surplus.to_wake([NodeName("n2")], NOW) == []


def woken_for_another_place() -> tuple[ElasticMembers, Gang, PodUid]:
    """Both members of the gang hold a place on n2, and sleep; the first was woken for one on n1 that is nobody's."""
    gang = planned("train", 2)
    ledger = ledger_of({"n1": units(cpu=1000, pods=9), "n2": units(cpu=2000, pods=9)})
    surplus = surplus_of(ledger, gang)
    surplus.has(gang)
    for each in gang.roster.members.values():
        surplus.found_no_place(gang, each)
        ledger.assume(each.uid, on=NodeName("n2"), units=each.requests, owner=gang.key, until=NOW + 30)
    ledger.reserve(Holder("train#1"), on=NodeName("n1"), units=units(cpu=1000, pods=1), owner=gang.key, until=NOW + 30)
    gang.plan.slots_made = 1
    first, second = sorted(gang.roster.members)
    assert surplus.to_wake((), NOW) == [(gang, first)]
    gang.wait.rejected.remove(first)
    return surplus, gang, second


def test_who_was_woken_for_another_place_than_its_own_is_waited_for_there() -> None:
    """Others have taken its own by facts: what it holds does not say that it has come."""
    surplus, gang, second = woken_for_another_place()
    assert surplus.to_wake((), NOW) == []
    assert surplus.to_wake((), NOW + COMES_WITHIN) == [(gang, second)]


def test_the_place_that_one_was_woken_for_is_the_next_ones_if_it_has_kept_its_own() -> None:
    surplus, gang, second = woken_for_another_place()
    surplus.passed(PodUid("uid-train-0"))
    assert surplus.has_news
    assert surplus.to_wake((), NOW) == [(gang, second)]


def test_a_place_that_a_member_left_behind_wakes_nobody_who_may_not_be_there(world: GangWorld) -> None:
    world.add_node(node("n0", {"cpu": 16000}))
    members = gang_pods("train", 4, EIGHT, quorum=2)
    members = [*members[:2], *(replace(each, node_selector={"zone": "x"}) for each in members[2:])]
    world.create(*members)
    for member in members:
        world.filter(member, list(world.nodes))
    assert len(world.asleep) == 2
    end(world, "train-0")
    assert woken(world) == []


def test_ordinary_pods_in_between_change_nothing_about_the_order(world: GangWorld) -> None:
    elastic(world, 3)
    world.add_node(node("n1"))
    world.create(pod("plain", EIGHT, node=NodeName("n1")))
    assert woken(world) == ["elastic-2"]
    world.delete(PodUid("uid-plain"))
    assert woken(world) == []
    world.schedule()
    assert world.bound("elastic") == 3


def test_what_was_refused_to_a_gang_is_forgotten_when_it_is_gone_though_none_of_it_slept_then(world: GangWorld) -> None:
    elastic(world, 1)
    world.add_node(node("n1", {"cpu": 8000}))
    assert woken(world) == ["elastic-2"]
    world.filter(world.pods[PodUid("uid-elastic-2")], [NodeName("n0")])
    surplus = world.scheduler.cache.gangs.waiting.surplus
    assert surplus._found
    end(world, "elastic-2")
    world.add_node(node("n2", {"cpu": 1000}))
    for name in ("elastic-0", "elastic-1"):
        end(world, name)
    world.add_node(node("n3", {"cpu": 1000}))
    assert not world.gangs
    assert surplus._found == {}
