"""Gangs by PodGroups of scheduler-plugins: the quorum is the group's, which may come, change and go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk, GroupAsk
from extender.core.gangs.state.pod_groups import PodGroup, PodGroups
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.kube.names import NodeName
from tests.builders import node, pod
from tests.core.gang_world import GangWorld
from tests.performing import replaced

ASK = GroupAsk("default", "mpi", longest_wait=60.0)


def members(count: int) -> list[Pod]:
    return [pod(f"mpi-{index}", {"cpu": 8000}, gang=ASK) for index in range(count)]


def group(quorum: int, *, timeout: float | None = None) -> PodGroup:
    return PodGroup("default", "mpi", quorum, timeout)


@pytest.fixture
def world() -> GangWorld:
    """Four nodes of 8 CPU, and the kind installed, without any group."""
    made = GangWorld()
    for number in range(4):
        made.add_node(node(f"n{number}"))
    made.do(replaced(made.scheduler, PodGroup, []))
    return made


def placed(world: GangWorld) -> int:
    return sum(each.node is not None for each in world.pods.values())


def test_members_are_a_gang_with_the_groups_quorum(world: GangWorld) -> None:
    world.do(world.scheduler.observe(group(3, timeout=7)))
    world.create(*members(2))
    world.schedule()
    world.pass_time(60)
    assert placed(world) == 0
    world.create(*members(3)[2:])
    world.schedule()
    assert placed(world) == 3
    gang = world.scheduler.cache.gangs.by_key[GangKey("default", "podgroup.mpi")]
    assert (gang.phase, gang.terms.quorum, gang.terms.timeout) == (Phase.BOUND, 3, 7)
    world.check()


def test_members_whose_group_is_not_there_wait_for_it_and_are_woken_once(world: GangWorld) -> None:
    world.create(*members(2))
    for each in members(2):
        verdict = world.filter(each, list(world.nodes))
        assert set(verdict.unresolvable.values()) == {
            "label scheduling.x-k8s.io/pod-group names a PodGroup that does not exist"
        }
    world.do(world.scheduler.observe(group(2)))
    world.do(world.scheduler.observe(group(2)))
    assert world.wakes == {"uid-mpi-0": 1, "uid-mpi-1": 1}
    world.schedule()
    assert placed(world) == 2


def test_members_that_an_earlier_life_turned_away_are_woken_when_their_group_comes(world: GangWorld) -> None:
    world.groups = {}
    world.do(replaced(world.scheduler, PodGroup, []))
    world.create(*members(2))
    for each in members(2):
        assert not world.filter(each, list(world.nodes)).passed
    world.restart()
    world.set_group(group(2))
    assert world.wakes == {"uid-mpi-0": 1, "uid-mpi-1": 1}
    world.schedule()
    assert placed(world) == 2


def test_a_member_that_has_finished_is_not_taken_for_living_when_the_group_changes(world: GangWorld) -> None:
    world.do(world.scheduler.observe(group(2)))
    first, second = members(2)
    world.create(replace(first, node=NodeName("n0")), replace(second, node=NodeName("n1")))
    world.do(world.scheduler.observe(replace(first, node=NodeName("n0"), finished=True)))
    world.do(world.scheduler.observe(group(1)))
    assert list(world.scheduler.cache.pods) == [second.uid]
    assert [str(held.holder) for held in world.scheduler.cache.ledger.rows.holdings()] == [str(second.uid)]


def test_where_the_kind_is_not_installed_the_label_means_nothing() -> None:
    world = GangWorld()
    world.add_node(node("n0"))
    world.create(*members(2))
    world.schedule()
    assert placed(world) == 1
    assert not world.scheduler.cache.gangs.by_key


def test_where_the_kind_is_installed_later_members_become_gangs() -> None:
    world = GangWorld()
    world.add_node(node("n0"))
    [first, second] = members(2)
    world.create(first)
    world.do(replaced(world.scheduler, PodGroup, [group(2)]))
    world.create(second)
    assert world.gangs == {"podgroup.mpi": Phase.WAITING}
    world.schedule()
    assert placed(world) == 0


def test_a_quorum_that_changes_counts_at_once(world: GangWorld) -> None:
    world.do(world.scheduler.observe(group(4)))
    world.create(*members(3))
    world.schedule()
    world.pass_time(60)
    world.schedule()
    assert placed(world) == 0
    world.do(world.scheduler.observe(group(3)))
    world.schedule()
    assert placed(world) == 3


def test_a_list_tells_of_groups_that_changed_and_of_those_that_are_gone(world: GangWorld) -> None:
    world.do(world.scheduler.observe(group(2)))
    world.create(*members(2))
    world.schedule()
    assert placed(world) == 2
    world.do(replaced(world.scheduler, PodGroup, []))
    late = pod("mpi-9", {"cpu": 8000}, gang=ASK)
    world.create(late)
    assert not world.filter(late, list(world.nodes)).passed
    world.do(replaced(world.scheduler, PodGroup, [group(2)]))
    assert world.wakes == {late.uid: 1}
    world.schedule()
    assert placed(world) == 3


def test_a_group_that_is_deleted_lets_nobody_in_and_harms_nobody(world: GangWorld) -> None:
    world.do(world.scheduler.observe(group(2)))
    world.create(*members(2))
    world.schedule()
    world.do(world.scheduler.forget(group(2)))
    world.do(world.scheduler.forget(group(2)))
    world.check()
    assert placed(world) == 2
    assert not world.scheduler.cache.gangs.by_key


def test_pods_are_another_gangs_only_when_their_group_has_changed() -> None:
    groups = PodGroups()
    [member] = members(1)
    groups.remember(member)
    assert groups.replace([]) == [member]
    assert groups.see(group(2)) == [member]
    assert groups.see(group(2)) == []
    assert groups.see(group(3)) == [member]
    assert groups.lose(group(3)) == [member]
    assert groups.lose(group(3)) == []


def test_who_was_turned_away_is_woken_once_unless_it_is_bound_by_then() -> None:
    groups = PodGroups()
    groups.replace([])
    waiting, other = (groups.resolved(each) for each in members(2))
    for each in (waiting, other):
        groups.turned_away(each)
    assert [groups.to_wake(waiting), groups.to_wake(waiting)] == [True, False]
    assert groups.to_wake(replace(other, node=NodeName("n0"))) is False


@pytest.mark.parametrize(("asked", "taken"), [(None, 30.0), (7.0, 7.0), (600.0, 54.0)])
def test_a_gangs_timeout_is_the_groups_but_ends_before_kube_scheduler_gives_up(
    asked: float | None, taken: float
) -> None:
    groups = PodGroups()
    groups.replace([group(2, timeout=asked)])
    ask = groups.resolved(members(1)[0]).gang
    assert isinstance(ask, GangAsk)
    assert ask.timeout == pytest.approx(taken)


@pytest.mark.parametrize("quorum", [1, 10_000])
def test_the_smallest_and_the_largest_quorum_are_taken(world: GangWorld, quorum: int) -> None:
    world.do(world.scheduler.observe(group(quorum)))
    world.create(*members(1))
    assert world.scheduler.cache.gangs.by_key[GangKey("default", "podgroup.mpi")].terms.quorum == quorum


@pytest.mark.parametrize("quorum", [0, -1, 10_001])
def test_a_senseless_quorum_is_named(world: GangWorld, quorum: int) -> None:
    world.do(world.scheduler.observe(group(quorum)))
    [member] = members(1)
    world.create(member)
    [reason] = set(world.filter(member, list(world.nodes)).unresolvable.values())
    assert reason == "spec.minMember of the pod's PodGroup is not from 1 to 10000"


def test_nothing_is_remembered_of_pods_that_are_gone(world: GangWorld) -> None:
    world.do(world.scheduler.observe(group(2)))
    one, two = members(2)
    world.create(one, two)
    world.schedule()
    world.finish(one.uid)
    world.delete(two.uid)
    world.catch_up()
    world.do(world.scheduler.forget(group(2)))
    assert not world.scheduler.cache.gangs.by_key
    assert world.wakes == {}
