"""After a change of a PodGroup its pods are understood anew in slices: a quorum that was raised is in force at once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from extender.app.decisions import Effect
from extender.app.keeper import Fact, Keeper
from extender.app.remembering import records, reopened
from extender.app.verbs import Verdict
from extender.core.attempt import attempts_for
from extender.core.cluster import Pod
from extender.core.gang_ask import GroupAsk, MalformedAsk
from extender.core.gangs.gang import EvictMembers, OpenBarrier, WakePod
from extender.core.gangs.machine import Phase
from extender.core.gangs.pod_groups import GroupName, PodGroup, gang_of
from extender.core.ledger import HoldingKind
from extender.core.policy import Permit
from extender.kube.names import NodeName, PodUid
from tests.builders import gone, node, pod
from tests.core.gang_world import FixedClock, differs_from_twin
from tests.performing import Performing, replaced

N1 = NodeName("n1")
ONE_POD = 25
"""Steps that one costs."""


def member(number: int, *, namespace: str = "a", group: str = "mpi", **facts: Any) -> Pod:
    ask = GroupAsk(namespace, group, longest_wait=60.0)
    return pod(f"{namespace}-{group}-{number}", {"cpu": 1}, namespace=namespace, gang=ask, **facts)


def group(quorum: int, *, namespace: str = "a", name: str = "mpi") -> PodGroup:
    return PodGroup(namespace, name, quorum)


@dataclass
class Service(Performing):
    """A keeper with one large node and the kind installed. `at_once`: one slice holds so many pods."""

    at_once: int = 4
    clock: FixedClock = field(default_factory=FixedClock)
    effects: list[Effect] = field(default_factory=list)
    understood: list[PodUid] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keeper = Keeper(self.clock)
        self.regrouped = self.keeper.population.regrouped
        self.work = self.regrouped.work
        self.work.limit = self.at_once * ONE_POD
        understand = self.regrouped._understand

        def counting(told: Pod) -> None:
            self.understood.append(told.uid)
            understand(told)

        self.regrouped._understand = counting
        self.do(self.keeper.observe(node("n1", {"cpu": 10**6, "pods": 10**5})))
        self.do(replaced(self.keeper, PodGroup, []))

    def take(self, effects: Sequence[Effect]) -> None:
        self.effects += effects

    def come(self, *pods: Pod) -> None:
        for each in pods:
            self.do(self.keeper.observe(each))

    def edit(self, edited: PodGroup) -> None:
        self.do(self.keeper.observe(edited))

    def tick(self) -> int:
        """How many pods were understood in it."""
        before = len(self.understood)
        self.do(self.keeper.tick())
        return len(self.understood) - before

    def do_the_rest(self) -> int:
        """How many turns of the event loop it took."""
        for turn in range(10_000):
            if not self.keeper.more_to_do:
                return turn
            assert self.keeper.next_deadline() == self.clock.steady()
            self.tick()
        raise AssertionError("it never ends")

    def use_up(self) -> None:
        """Of this turn of the event loop nothing is left."""
        self.work.spent = self.work.limit

    def quorum(self, name: GroupName = ("a", "mpi")) -> int:
        return self.keeper.tables.gangs.by_key[gang_of(name)].terms.quorum

    def filter(self, each: Pod) -> Verdict:
        return self.do(self.keeper.filter(each, [N1]))

    def permit(self, each: Pod) -> Permit:
        return self.do(self.keeper.permit(each.uid, N1))

    def let_through(self) -> set[PodUid]:
        return {uid for effect in self.effects if isinstance(effect, OpenBarrier) for uid in effect.members}

    def woken(self) -> list[PodUid]:
        return [effect.pod.uid for effect in self.effects if isinstance(effect, WakePod)]

    def check(self) -> None:
        assert self.keeper.tables.violations() == []
        for gang in self.keeper.tables.gangs.by_key.values():
            assert differs_from_twin(gang.roster) == []


def test_a_turn_of_the_event_loop_takes_one_slice_and_the_next_follows_at_once() -> None:
    service = Service(at_once=10)
    service.edit(group(10))
    service.come(*(member(number) for number in range(100)))
    service.edit(group(20))
    assert len(service.understood) == 10
    assert service.do_the_rest() == 9
    assert sorted(service.understood) == sorted(member(number).uid for number in range(100))
    assert service.keeper.next_deadline() != service.clock.steady()
    service.check()


def test_edits_within_one_turn_share_its_slice_but_for_one_member_each() -> None:
    service = Service(at_once=10)
    service.edit(group(10))
    service.come(*(member(number) for number in range(100)))
    for quorum in range(11, 31):
        service.edit(group(quorum))
    assert len(service.understood) <= 10 + 20


def test_edits_that_wait_are_merged_to_the_last() -> None:
    service = Service(at_once=10)
    service.edit(group(10))
    service.come(*(member(number) for number in range(100)))
    for quorum in range(500, 0, -1):
        service.edit(group(quorum))
    service.do_the_rest()
    assert len(service.understood) < 500 + 2 * 100 + 10
    assert service.quorum() == 1
    service.check()


def test_namespaces_take_turns_so_that_a_small_group_does_not_wait_for_a_large_one() -> None:
    service = Service(at_once=20)
    for namespace, members in (("a", 1_000), ("b", 10)):
        service.edit(group(10, namespace=namespace))
        service.come(*(member(number, namespace=namespace) for number in range(members)))
    service.edit(group(5))
    service.edit(group(5, namespace="b"))
    turns = 0
    while "b" in service.regrouped.namespaces:
        service.tick()
        service.edit(group(100 + turns))
        turns += 1
    assert turns <= 2
    assert service.quorum(("b", "mpi")) == 5
    assert "a" in service.regrouped.namespaces


def test_members_that_have_ended_have_their_turn_after_the_living() -> None:
    service = Service(at_once=2)
    service.edit(group(4))
    ended = [member(number, node=N1, finished=True, succeeded=True) for number in (0, 2)]
    service.come(*ended, *(member(number, node=N1) for number in (1, 3, 5)))
    service.edit(group(3))
    service.do_the_rest()
    assert {*service.understood[-2:]} == {each.uid for each in ended}


# -- what is in force meanwhile -------------------------------------------------------------------------------------


def at_barrier(service: Service, members: Sequence[Pod]) -> None:
    for each in members:
        assert service.filter(each).passed == [N1]
        service.permit(each)


@pytest.mark.parametrize("last", [3, 11])
def test_a_quorum_that_is_raised_binds_no_part_whoever_comes_while_members_wait_for_their_turn(last: int) -> None:
    service = Service()
    members = [member(number) for number in range(12)]
    service.edit(group(4))
    service.come(*members)
    at_barrier(service, members[:3])
    service.use_up()
    service.edit(group(12))
    assert service.quorum() == 12
    assert len(service.understood) == 1
    service.filter(members[last])
    service.permit(members[last])
    assert service.let_through() == set()
    service.do_the_rest()
    assert service.let_through() == set()
    for each in members:
        service.filter(each)
        service.permit(each)
    assert service.let_through() == {each.uid for each in members}
    service.check()


def test_a_quorum_that_is_lowered_is_in_force_from_the_last_member_on_which_is_woken_then() -> None:
    service = Service()
    members = [member(number) for number in range(8)]
    service.edit(group(12))
    service.come(*members)
    # Longer ago than any of a gang are planned for that do not exist.
    service.clock.time += 60
    for each in members:
        assert not service.filter(each).passed
    service.effects.clear()
    service.use_up()
    service.edit(group(6))
    while len({*service.understood}) < 8:
        assert service.quorum() == 12
        assert not service.filter(members[-1]).passed
        assert service.let_through() == set()
        service.tick()
    assert service.quorum() == 6
    service.do_the_rest()
    assert {*service.woken()} == {each.uid for each in members}
    at_barrier(service, members[:5])
    assert service.let_through() == set()
    at_barrier(service, members[5:6])
    assert service.let_through() == {each.uid for each in members[:6]}
    service.check()


def test_edits_down_and_up_again_leave_the_quorum_where_it_was_for_no_moment_below() -> None:
    service = Service(at_once=2)
    members = [member(number) for number in range(9)]
    service.edit(group(9))
    service.come(*members)
    for quorum in (3, 8, 3, 9):
        service.edit(group(quorum))
        assert service.quorum() == 9
        service.tick()
        assert service.quorum() == 9
    service.do_the_rest()
    assert service.quorum() == 9


def test_members_are_tried_once_for_an_edit_and_not_in_each_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(at_once=2)
    members = [member(number) for number in range(40)]
    service.edit(group(40))
    service.come(*(replace(each, requests={**each.requests, "cpu": 10**5}) for each in members))  # type: ignore[dict-item]
    service.filter(service.keeper.tables.pods[members[0].uid])
    planning, tried = service.keeper.tables.gangs.planning, list[Any]()
    reserve = planning._reserve

    def counting(*asked: Any, **more: Any) -> Any:
        tried.append(asked)
        return reserve(*asked, **more)

    monkeypatch.setattr(planning, "_reserve", counting)
    service.edit(group(39))
    assert service.do_the_rest() > 15
    assert len(tried) == 1


def test_a_member_that_a_verb_asks_about_is_understood_first() -> None:
    service = Service()
    members = [member(number) for number in range(20)]
    service.edit(group(20))
    service.come(*members)
    service.use_up()
    service.edit(group(19))
    asked = members[15]
    assert asked.uid not in service.understood
    assert service.filter(asked).passed == [N1]
    assert asked.uid in service.understood
    service.do_the_rest()
    service.check()


@pytest.mark.parametrize("senseless", [None, 0, 10_001])
def test_members_of_a_gang_that_is_none_any_more_leave_it_at_once(senseless: int | None) -> None:
    """One that is half disbanded is a part: it would be completed, others would leave for it, or it would itself."""
    service = Service()
    members = [member(number) for number in range(20)]
    service.edit(group(20))
    service.come(*members)
    service.filter(members[0])
    service.use_up()
    service.do(service.keeper.forget(group(20)) if senseless is None else service.keeper.observe(group(senseless)))
    assert not service.keeper.tables.gangs.by_key
    assert all(isinstance(service.keeper.tables.pods[each.uid].gang, MalformedAsk) for each in members)
    service.edit(group(20))
    assert len(service.keeper.tables.gangs.by_key[gang_of(("a", "mpi"))].roster.members) == 20
    service.check()


def test_a_raised_quorum_is_in_force_though_the_first_member_to_ask_for_it_goes() -> None:
    service = Service()
    members = [member(number) for number in range(40)]
    service.edit(group(40))
    service.come(*members)
    service.edit(group(8))
    service.do_the_rest()
    service.use_up()
    service.edit(group(40))
    service.do(service.keeper.forget(gone(service.understood[-1])))
    assert service.quorum() == 40


def test_a_pod_that_is_a_gangs_member_since_is_not_bound_alone_before_its_turn() -> None:
    service = Service()
    service.do(service.keeper.pod_groups_uninstalled())
    members = [member(number) for number in range(20)]
    service.come(*members)
    assert service.filter(members[15]).passed == [N1]
    service.use_up()
    service.edit(group(20))
    service.permit(members[15])
    assert service.let_through() == set()
    gang = service.keeper.tables.gangs.of(members[15].uid)
    assert gang is not None
    assert gang.terms.quorum == 20
    service.do_the_rest()
    service.check()


@pytest.mark.parametrize("bound", [0, 1])
def test_a_plan_has_room_for_a_quorum_that_was_raised_whoever_is_understood_first(bound: int) -> None:
    service = Service()
    members = [member(number, node=N1 if number < bound else None) for number in range(9)]
    service.edit(group(2))
    service.come(*members)
    assert service.filter(members[-1]).passed == [N1]
    gang = service.keeper.tables.gangs.by_key[gang_of(("a", "mpi"))]
    assert gang.phase is Phase.PLANNED
    service.use_up()
    service.edit(group(7))
    assert len(service.understood) == 1
    held = service.keeper.tables.ledger.held_for(gang.key)
    assert sum(each.kind is not HoldingKind.BOUND for each in held) == 7 - bound
    service.do_the_rest()
    service.check()


def test_a_part_is_not_evicted_while_some_of_its_members_have_yet_to_ask_for_fewer() -> None:
    service = Service()
    members = [member(number) for number in range(20)]
    marks = attempts_for("1.1", [each.uid for each in members], needed=20)
    service.edit(group(20))
    service.come(*(replace(each, node=N1, attempt=marks[each.uid]) for each in members[:2]), *members[2:])
    [until] = service.keeper.tables.gangs.quorums.in_part.values()
    service.clock.time = until - 1.0
    service.tick()
    service.use_up()
    service.edit(group(2))
    service.clock.time = until
    service.do_the_rest()
    assert service.quorum() == 2
    assert not any(isinstance(effect, EvictMembers) for effect in service.effects)
    service.edit(group(20))
    service.do_the_rest()
    service.clock.time += 1_000.0
    service.tick()
    service.check()


# -- others' news in between ----------------------------------------------------------------------------------------


def test_one_that_is_deleted_before_its_turn_is_passed_over() -> None:
    service = Service()
    members = [member(number) for number in range(20)]
    service.edit(group(20))
    service.come(*members)
    service.edit(group(2))
    service.do(service.keeper.forget(gone(members[19].uid)))
    service.do(service.keeper.observe(replace(members[18], node=N1)))
    service.do(service.keeper.observe(replace(members[17], node=N1, finished=True)))
    service.do_the_rest()
    tables = service.keeper.tables
    assert {members[19].uid, members[17].uid}.isdisjoint(tables.pods)
    assert tables.pods[members[18].uid].node == N1
    assert service.quorum() == 2
    service.check()


def test_a_gang_whose_last_members_go_meanwhile_ends() -> None:
    service = Service()
    members = [member(number) for number in range(20)]
    service.edit(group(20))
    service.come(*members)
    service.edit(group(2))
    for each in members:
        service.do(service.keeper.forget(gone(each.uid)))
    service.do_the_rest()
    assert not service.keeper.tables.gangs.by_key
    assert not service.regrouped.namespaces


def test_all_are_understood_once_a_list_of_groups_is_walked_through() -> None:
    service = Service()
    for name in ("one", "two"):
        service.edit(group(10, name=name))
        service.come(*(member(number, group=name) for number in range(450)))
    service.use_up()
    steps = 0
    for _ in service.keeper.replace(PodGroup, [group(12, name="one"), group(4, name="two")]):
        steps += 1
        assert len(service.understood) <= steps * 200 + 2
        assert service.quorum(("a", "one")) == 12, "what was raised is the first to be in force"
    assert steps == 900 // 200
    assert sorted(service.understood) == sorted({*service.understood})
    assert len(service.understood) == 900
    assert (service.quorum(("a", "one")), service.quorum(("a", "two"))) == (12, 4)
    assert not service.regrouped.namespaces


def test_a_list_that_is_not_walked_through_is_gone_on_with_in_slices() -> None:
    service = Service(at_once=100)
    service.edit(group(10))
    service.come(*(member(number) for number in range(450)))
    for _ in service.keeper.replace(PodGroup, [group(12)]):
        break
    service.do_the_rest()
    assert sorted(service.understood) == sorted(member(number).uid for number in range(450))


def test_who_begins_where_another_was_in_the_midst_knows_all_by_their_groups() -> None:
    service = Service()
    service.edit(group(12))
    service.come(*(member(number) for number in range(20)))
    service.edit(group(6))
    assert service.regrouped.namespaces
    other = reopened(records(service.keeper)).keeper
    assert not other.more_to_do
    assert other.tables.gangs.by_key[gang_of(("a", "mpi"))].terms.quorum == 6


def test_while_a_list_of_pods_is_taken_in_nobody_has_a_turn_and_all_have_it_afterwards() -> None:
    service = Service()
    members = [member(number) for number in range(600)]
    service.edit(group(12))
    service.come(*members)
    service.use_up()
    steps = service.keeper.replace(Pod, members)
    next(steps)
    service.edit(group(6))
    assert service.tick() == 0
    for _ in steps:
        pass
    service.do(service.keeper.settle())
    service.do_the_rest()
    assert service.quorum() == 6
    service.check()


def test_where_the_kind_is_uninstalled_all_are_of_no_gang_in_the_end() -> None:
    service = Service()
    service.edit(group(12))
    members = [member(number) for number in range(20)]
    service.come(*members)
    service.do(service.keeper.pod_groups_uninstalled())
    assert not service.keeper.tables.gangs.by_key
    assert [service.keeper.tables.pods[each.uid].gang for each in members] == [None] * 20
    service.check()


# -- a slow twin ----------------------------------------------------------------------------------------------------


def seen(service: Service) -> object:
    tables = service.keeper.tables
    gangs = {
        key: (gang.phase, gang.terms, dict(gang.roster.members), gang.roster.bound)
        for key, gang in tables.gangs.by_key.items()
    }
    return dict(tables.pods), gangs


@pytest.mark.parametrize("seed", range(60))
def test_it_comes_to_the_same_as_if_all_were_understood_at_once(seed: int) -> None:
    rng = random.Random(seed)
    gradual, twin = Service(at_once=2), Service(at_once=10**6)
    alive: dict[PodUid, Pod] = {}
    for number in range(120):
        draw, name = rng.random(), rng.choice(("one", "two"))
        facts, goes = list[Fact](), False
        if draw < 0.4 or not alive:
            new = member(number, group=name, node=rng.choice((None, None, N1)), created=float(number))
            alive[new.uid] = new
            facts = [new]
        elif draw < 0.5:
            uid = rng.choice(list(alive))
            alive[uid] = replace(alive[uid], node=N1, finished=alive[uid].finished or rng.random() < 0.3)
            facts = [alive[uid]]
        elif draw < 0.55:
            facts, goes = [gone(alive.pop(rng.choice(list(alive))).uid)], True
        elif draw < 0.85:
            facts, goes = [group(rng.randrange(0, 9), name=name)], draw > 0.8
        elif draw > 0.88:
            gradual.tick()
            continue
        for service in (gradual, twin):
            for fact in facts:
                service.do(service.keeper.forget(fact) if goes else service.keeper.observe(fact))
            if not facts:
                service.do(service.keeper.pod_groups_uninstalled())
                service.do(replaced(service.keeper, PodGroup, [group(3, name="one")]))
            if service is twin:
                service.do_the_rest()
            service.check()
    gradual.do_the_rest()
    assert seen(gradual) == seen(twin)
