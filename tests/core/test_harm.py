"""First do no harm: what runs is never evicted on an inference, after whatever has happened to it or to us.

Most of these have killed healthy pods once, or ended the service.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from extender.core.attempt import attempts_for
from extender.core.cluster import Owner, Pod
from extender.core.feedback import NotBound, NotEvicted
from extender.core.gang_ask import GroupAsk
from extender.core.gangs.state.pod_groups import PodGroup
from extender.core.gangs.state.state_machine import Phase, Standing
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from tests.builders import NOW, gang_ask, gang_pods, node, pod
from tests.core.gang_world import GangWorld

DAY = 86_400.0
FULL = {"cpu": 8000}
RUN = Owner("Job", "train", "uid-run-1")
KEY = GangKey("default", "train")
MPI = GroupAsk("default", "mpi", 60.0)


@pytest.fixture
def world() -> GangWorld:
    return GangWorld()


def nodes(world: GangWorld, count: int) -> None:
    for number in range(count):
        world.add_node(node(f"n{number}"))


def running(world: GangWorld) -> list[Pod]:
    return [each for each in world.pods.values() if each.node is not None]


def live(world: GangWorld, seconds: int = 600) -> None:
    """Time passes, and kube-scheduler does its work."""
    for _ in range(seconds // 10):
        world.pass_time(10)
        world.schedule()
        world.check()


def cordon(world: GangWorld, *names: str | None) -> None:
    for name in names:
        world.add_node(node(str(name), unschedulable=True))


class TestWhoIsGoneDoesNotCount:
    """Kubelets write a terminal phase to every pod that is deleted, before it is removed."""

    def job(self, world: GangWorld, names: str = "m", size: int = 4, owner: Owner = RUN) -> list[Pod]:
        ask = gang_ask(quorum=4)
        return [pod(f"{names}{number}", FULL, gang=ask, owner=owner, created=10.0) for number in range(size)]

    def test_members_that_were_drained_are_not_replaced_by_fewer(self, world: GangWorld) -> None:
        nodes(world, 4)
        members = self.job(world)
        world.create(*members)
        world.schedule()
        for each in members[:3]:
            world.delete(each.uid)
        cordon(world, "n0", "n1")
        world.create(*self.job(world, "r", 3))
        live(world)
        assert world.bound("train") == 1
        assert world.scheduler.cache.gangs.by_key[KEY].needed == 3

    def test_a_job_made_again_under_its_name_owes_nothing_to_the_pods_of_the_one_before(self, world: GangWorld) -> None:
        nodes(world, 4)
        old = self.job(world)
        world.create(*old)
        world.schedule()
        for each in old:
            world.change(each.uid, deleting=True)
        world.create(*self.job(world, "x", owner=Owner("Job", "train", "uid-run-2")))
        world.schedule()
        cordon(world, "n2", "n3")
        for each in old:
            world.change(each.uid, finished=True)
            world.catch_up()
            world.delete(each.uid)
            world.schedule()
        live(world)
        assert world.bound("train") == 0

    def test_who_ended_well_counts_and_who_failed_does_not(self, world: GangWorld) -> None:
        nodes(world, 4)
        members = self.job(world)
        world.create(*members)
        world.schedule()
        world.finish(members[0].uid)
        world.catch_up()
        assert world.scheduler.cache.gangs.by_key[KEY].needed == 0
        world.finish(members[1].uid, succeeded=False)
        world.catch_up()
        assert world.scheduler.cache.gangs.by_key[KEY].needed == 1

    def test_who_ended_well_because_somebody_deleted_it_does_not_count(self, world: GangWorld) -> None:
        nodes(world, 4)
        members = self.job(world)
        world.create(*members)
        world.schedule()
        world.change(members[0].uid, deleting=True)
        world.catch_up()
        world.finish(members[0].uid)
        world.catch_up()
        assert world.scheduler.cache.gangs.by_key[KEY].needed == 1

    @pytest.mark.parametrize("by", ["controller", "attempt", "name"])
    def test_after_a_restart_who_ended_well_counts_where_it_is_known_to_be_of_this_run(
        self, world: GangWorld, by: str
    ) -> None:
        nodes(world, 4)
        owner = RUN if by == "controller" else None
        members = [replace(each, owner=owner) for each in self.job(world)]
        world.create(*members)
        world.schedule()
        world.finish(members[0].uid)
        world.catch_up()
        if by == "name":
            for each in [*running(world), *world.ended.values()]:
                (world.pods if each.uid in world.pods else world.ended)[each.uid] = replace(each, attempt=None)
        world.restart()
        assert world.scheduler.cache.gangs.by_key[KEY].needed == (by == "name")

    def test_whoever_is_to_be_evicted_counts_no_more_from_that_moment(self, world: GangWorld) -> None:
        nodes(world, 3)
        halved(world)
        world.pass_time(4.5)
        assert len(world.evicted) == 2
        # A successor that comes in this moment completes nothing.
        successor = pod("train-r", FULL, gang=gang_ask("train", 3))
        world.create(successor)
        assert not world.filter(successor).passed
        world.schedule()
        live(world)
        assert world.bound("train") == 0

    def test_an_eviction_that_is_refused_lets_its_pod_count_again(self, world: GangWorld) -> None:
        nodes(world, 3)
        left = halved(world)
        world.pass_time(4.5)
        world.evicted.clear()
        for each in left:
            world.do(world.scheduler.on_event(NotEvicted(each.uid)))
        world.create(pod("train-r", FULL, gang=gang_ask("train", 3)))
        world.schedule()
        assert world.bound("train") == 3
        assert world.scheduler.cache.gangs.by_key[KEY].standing is Standing.RAN

    def test_an_eviction_that_is_refused_again_and_again_is_tried_ever_more_rarely(self, world: GangWorld) -> None:
        """As of pods whose own budget lets none of them go: each try would spend what others wait for."""
        nodes(world, 3)
        left = halved(world)
        tries = []
        for second in range(4 * 3600):
            world.pass_time(1)
            if world.evicted:
                world.evicted.clear()
                tries.append(second)
                for each in left:
                    world.do(world.scheduler.on_event(NotEvicted(each.uid)))
        pauses = [later - earlier for earlier, later in pairwise(tries)]
        assert pauses == sorted(pauses)
        assert 590 <= pauses[-1] <= 610
        assert len(tries) < 40
        world.create(pod("train-r", FULL, gang=gang_ask("train", 3)))
        world.schedule()
        assert world.bound("train") == 3


def halved(world: GangWorld) -> list[Pod]:
    """Two of a gang of three are bound; the third was deleted just when its Binding was to be written."""
    members = gang_pods("train", 3, FULL)
    world.create(*members)
    world.bring(members)
    world.delete(members[2].uid)
    for uid in list(world.opened):
        world.write(uid)
    world.catch_up()
    return running(world)


class TestAPartIsEvictedOnlyWithProof:
    def test_a_member_that_was_to_be_bound_with_them_is_there_and_is_not_bound(self, world: GangWorld) -> None:
        nodes(world, 3)
        members = gang_pods("train", 3, FULL)
        world.create(*members)
        world.bring(members)
        for each in members[:2]:
            world.write(each.uid)
        cordon(world, *world.opened.values())
        world.restart()
        live(world, 60)
        assert world.bound("train") == 0

    def test_a_binding_was_refused_for_good_before_our_eyes(self, world: GangWorld) -> None:
        nodes(world, 3)
        assert len(halved(world)) == 2
        live(world, 60)
        assert world.bound("train") == 0

    def test_what_we_saw_and_nobody_wrote_down_is_no_proof_after_a_restart(self, world: GangWorld) -> None:
        nodes(world, 3)
        halved(world)
        world.restart()
        live(world)
        assert world.bound("train") == 2
        assert [each.gang for each in world.doubted] == [KEY]

    def test_a_refusal_that_may_have_followed_a_lost_success_is_no_proof(self, world: GangWorld) -> None:
        nodes(world, 3)
        members = gang_pods("train", 3, FULL)
        world.create(*members)
        world.bring(members)
        world.delete(members[2].uid)
        for each in members[:2]:
            world.write(each.uid)
        world.opened.clear()
        world.do(world.scheduler.on_event(NotBound(members[2].uid, for_good=True, surely=False)))
        world.catch_up()
        live(world)
        assert world.bound("train") == 2

    @pytest.mark.parametrize("copied", [False, True])
    def test_marks_count_only_where_they_name_the_pod_itself(self, world: GangWorld, copied: bool) -> None:
        """`read_attempt` reads no mark of another pod: here is what follows."""
        nodes(world, 2)
        members = gang_pods("train", 3, FULL)
        said = attempts_for("1.1", [each.uid for each in members], needed=3)
        bound = [
            replace(each, node=NodeName(f"n{number}"), attempt=None if copied else said[each.uid])
            for number, each in enumerate(members[:2])
        ]
        world.pods = {each.uid: each for each in (*bound, members[2])}
        world.restart()
        world.pass_time(5)
        assert sorted(world.evicted) == ([] if copied else sorted(each.uid for each in bound))

    def test_a_large_gang_is_known_for_a_part_by_those_who_name_the_missing(self, world: GangWorld) -> None:
        members = gang_pods("train", 100, {"cpu": 100})
        said = attempts_for("1.1", [each.uid for each in members], needed=100)
        world.add_node(node("n0", {"cpu": 9900}))
        for each in members[:-1]:
            world.pods[each.uid] = replace(each, node=NodeName("n0"), attempt=said[each.uid])
        world.pods[members[-1].uid] = replace(members[-1], requests={**members[-1].requests})
        world.restart()
        world.pass_time(5)
        assert len(world.evicted) == 99

    def test_strangers_among_the_bound_are_not_ours_to_end(self, world: GangWorld) -> None:
        """A gang of four: one was bound by somebody else, and of the other three, which we bound together, one could
        not be."""
        nodes(world, 4)
        members = gang_pods("train", 4, FULL)
        world.create(*members)
        world.create(replace(members[0], node=NodeName("n0")))
        world.bring(members[1:])
        for each in members[1:3]:
            world.write(each.uid)
        cordon(world, *world.opened.values())
        world.restart()
        live(world, 60)
        assert [each.name for each in running(world)] == ["train-0"]

    def test_a_gang_that_ran_and_is_completed_by_some_of_several_runs_on(self, world: GangWorld) -> None:
        """Two of its members are replaced, and of their Bindings one fails: no part of a quorum, after a restart
        either."""
        nodes(world, 4)
        members = gang_pods("train", 4, FULL)
        world.create(*members)
        world.schedule()
        for each in members[:2]:
            world.delete(each.uid)
        successors = [pod(f"r{number}", FULL, gang=gang_ask("train", 4)) for number in range(2)]
        world.create(*successors)
        world.bring(successors)
        world.write(successors[0].uid)
        cordon(world, *world.opened.values())
        world.opened.clear()
        world.do(world.scheduler.on_event(NotBound(successors[1].uid, for_good=False)))
        live(world)
        assert len(running(world)) == 3
        world.restart()
        live(world)
        assert len(running(world)) == 3

    def test_a_raised_quorum_makes_no_part_of_a_gang_that_runs(self, world: GangWorld) -> None:
        nodes(world, 3)
        world.create(*gang_pods("train", 5, FULL, quorum=3))
        world.schedule()
        for uid in list(world.pods):
            world.change(uid, gang=gang_ask("train", 5))
        live(world)
        world.restart()
        live(world)
        assert world.bound("train") == 3

    @pytest.mark.parametrize("step", [-7200.0, 7200.0])
    def test_a_clock_that_is_set_proves_nothing(self, world: GangWorld, step: float) -> None:
        nodes(world, 3)
        world.create(*gang_pods("train", 5, FULL, quorum=3))
        world.schedule()
        world.clock.stepped = step
        world.delete(running(world)[0].uid)
        cordon(world, "n0", "n1", "n2")
        world.restart()
        live(world)
        world.clock.stepped = 0.0
        live(world)
        assert len(running(world)) == 2


class TestARestart:
    """A new life knows only what the cluster says."""

    def member(self, number: int, created: float, on: str | None = None, *, quorum: int = 4, **facts: Any) -> Pod:
        facts.setdefault("gang", gang_ask(quorum=quorum, timeout=30.0))
        if on is not None:
            facts |= {"node": NodeName(on), "bound_at": created + 1}
        return pod(f"m{number}", FULL, owner=RUN, created=created, **facts)

    def begins(self, world: GangWorld, pods: list[Pod], groups: list[PodGroup] | None = None) -> None:
        nodes(world, 3)
        for each in pods:
            (world.ended if each.finished else world.pods)[each.uid] = each
        world.groups = None if groups is None else {each.name: each for each in groups}
        world.restart()

    def test_after_a_rolling_drain(self, world: GangWorld) -> None:
        past = NOW - DAY
        pods = [self.member(number, past + 500 * number, f"n{number - 1}") for number in (1, 2, 3)]
        self.begins(world, [*pods, self.member(4, past + 900)])
        live(world)
        assert len(running(world)) == 3

    def test_of_an_elastic_gang_that_has_lost_a_node(self, world: GangWorld) -> None:
        past = NOW - DAY
        pods = [self.member(number, past, f"n{number}", quorum=3) for number in (1, 2)]
        self.begins(world, [*pods, *(self.member(number, past, quorum=3) for number in (4, 5))])
        cordon(world, "n0")
        live(world)
        assert len(running(world)) == 2

    def test_right_after_it_was_bound_and_a_short_member_has_ended(self, world: GangWorld) -> None:
        pods = [self.member(number, NOW - 50, f"n{number - 1}") for number in (1, 2, 3)]
        self.begins(world, pods)
        live(world)
        assert len(running(world)) == 3

    @pytest.mark.parametrize("groups_first", [True, False])
    def test_of_a_pod_group_of_which_one_has_ended_well(self, world: GangWorld, groups_first: bool) -> None:
        pods = [self.member(number, NOW - 50, f"n{number}", gang=MPI) for number in range(3)]
        pods.append(self.member(3, NOW - 50, "n0", gang=MPI, finished=True, succeeded=True))
        group = PodGroup("default", "mpi", 4, 30.0)
        self.begins(world, pods, [group] if groups_first else None)
        if not groups_first:
            world.set_group(group)
        live(world)
        assert len(running(world)) == 3
        assert world.gangs == {"podgroup.mpi": Phase.BOUND}

    def test_after_every_day_of_a_life_with_a_drain(self, world: GangWorld) -> None:
        """One `kubectl drain` has ended the service, and the next life the gang."""
        nodes(world, 3)
        world.create(*gang_pods("train", 5, FULL, quorum=3))
        world.schedule()
        world.pass_time(DAY)
        drained = running(world)[0]
        cordon(world, drained.node)
        world.delete(drained.uid)
        world.schedule()
        live(world)
        world.restart()
        live(world)
        assert world.bound("train") == 2


class TestPodGroups:
    def test_that_are_made_again_end_nobody(self, world: GangWorld) -> None:
        nodes(world, 3)
        group = PodGroup("default", "mpi", 3, 30.0)
        world.set_group(group)
        world.create(*(pod(f"g{number}", FULL, gang=MPI, created=NOW - 5) for number in range(5)))
        world.schedule()
        gone = running(world)[0]
        world.remove_node(NodeName(str(gone.node)))
        world.delete(gone.uid)
        live(world)
        world.drop_group("mpi")
        world.set_group(group)
        live(world)
        assert len(running(world)) == 2
        assert world.evicted == []


class TestNotOurs:
    """Pods of schedulers that do not ask us are facts on nodes, whatever they say."""

    def foreign(self, number: int, **facts: Any) -> Pod:
        return pod(f"f{number}", FULL, gang=MPI, scheduler="coscheduling", created=NOW - DAY, **facts)

    @pytest.mark.parametrize("priority", [0, 10])
    def test_gangs_of_others_are_not_waited_for_and_nothing_is_saved_or_evicted_for_them(
        self, world: GangWorld, priority: int
    ) -> None:
        nodes(world, 4)
        world.set_group(PodGroup("default", "mpi", 4, 30.0))
        world.create(*(pod(f"web{number}", node=NodeName(f"n{number}"), bound_at=1.0) for number in range(4)))
        world.create(*(self.foreign(number, priority=priority, at_our_gate=number == 3) for number in range(4)))
        world.restart()
        for _ in range(100):
            world.pass_time(1)
        assert world.preempted == []
        assert world.scheduler.cache.gangs.by_key == {}
        assert world.wakes == {}
        ours = gang_pods("ours", 2, {"cpu": 1000})
        world.create(*ours)
        assert all(world.filter(each).passed for each in ours)

    def test_a_part_of_theirs_is_theirs(self, world: GangWorld) -> None:
        nodes(world, 4)
        world.set_group(PodGroup("default", "mpi", 4, 30.0))
        said = attempts_for("1.1", [PodUid(f"uid-f{number}") for number in range(4)], needed=4)
        for number in range(3):
            each = self.foreign(number, node=NodeName(f"n{number}"), bound_at=NOW)
            world.create(replace(each, attempt=said[each.uid]))
        world.create(self.foreign(3))
        for _ in range(100):
            world.pass_time(1)
        assert (world.evicted, world.doubted, world.scheduler.cache.gangs.by_key) == ([], [], {})

    def test_a_scheduler_that_calls_is_one_of_ours_from_then_on(self, world: GangWorld) -> None:
        nodes(world, 4)
        members = [replace(each, scheduler="batch") for each in gang_pods("train", 3, FULL)]
        world.create(*members)
        assert world.scheduler.cache.gangs.by_key == {}
        world.filter(members[0])
        assert len(world.scheduler.cache.gangs.by_key[KEY].roster.members) == 3
        world.schedule()
        assert world.bound("train") == 3

    def test_a_pod_of_others_that_asks_for_what_is_ours_is_not_woken(self, world: GangWorld) -> None:
        nodes(world, 1)
        world.create(pod("reader", {"escher.dev/default.data": 1}, scheduler="default-scheduler"))
        world.restart()
        world.add_node(node("n1"))
        assert world.wakes == {}


class TestTheServiceGoesOn:
    @pytest.mark.parametrize("how", ["group", "annotation"])
    def test_when_a_quorum_is_lowered_to_what_runs(self, world: GangWorld, how: str) -> None:
        nodes(world, 3)
        ask = MPI if how == "group" else gang_ask("train", 3)
        world.set_group(PodGroup("default", "mpi", 3, 30.0))
        world.create(*(pod(f"g{number}", FULL, gang=ask, created=NOW - 5) for number in range(4)))
        world.schedule()
        lost = running(world)[0]
        world.remove_node(NodeName(str(lost.node)))
        world.delete(lost.uid)
        world.schedule()
        if how == "group":
            world.set_group(PodGroup("default", "mpi", 2, 30.0))
        else:
            for uid in list(world.pods):
                world.change(uid, gang=gang_ask("train", 2))
            world.catch_up()
        live(world)
        assert set(world.gangs.values()) == {Phase.BOUND}
        assert len(running(world)) == 2

    def test_when_a_call_tells_of_a_pod_that_is_no_more(self, world: GangWorld) -> None:
        """kube-scheduler's watch is behind, and ours will never tell of it."""
        nodes(world, 3)
        ghost, living = gang_pods("train", 2, {"cpu": 1000})
        world.restart()
        world.create(living)
        world.do(world.scheduler.filter(ghost, list(world.nodes)))
        live(world)
        gang = world.scheduler.cache.gangs.by_key[KEY]
        assert [each.name for each in gang.roster.members.values()] == ["train-1"]
        assert gang.missing == 1
        assert len(world.scheduler.cache.pods) == 1

    def test_when_the_clock_is_set_back_a_plan_is_held_no_longer(self, world: GangWorld) -> None:
        nodes(world, 2)
        members = gang_pods("train", 2, FULL)
        world.create(*members)
        world.bring(members[:1])
        world.clock.stepped = -3600.0
        world.pass_time(5)
        assert world.turned_back == [members[0].uid]
