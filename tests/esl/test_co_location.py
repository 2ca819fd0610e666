"""Co-location for applications: no group is ever split, whatever happens, and nobody waits in vain."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from extender.core.cluster import Pod
from extender.esl.policies.co_location import CoLocation, KnownGroup
from extender.kube.names import CPU
from tests.esl.orders import PICK, Orders
from tests.esl.policy_world import MILLI, PolicyWorld, nodes

GROUPS = ("web", "db")


# -- first come


@pytest.mark.parametrize("seed", range(5))
def test_all_of_a_group_run_where_the_first_one_does(seed: int) -> None:
    world = PolicyWorld(CoLocation("near"), nodes({"n1": 8, "n2": 8, "n3": 8}), seed=seed)
    for i in range(4):
        world.launch(f"t{i}", "web")
    world.settle()
    assert len(set(world.where("t0", "t1", "t2", "t3"))) == 1
    assert world.where("t0") != [None]


@pytest.mark.parametrize("seed", range(5))
def test_each_of_two_pairs_is_together_when_asked_for_at_once(seed: int) -> None:
    world = PolicyWorld(CoLocation("near"), nodes({"n1": 2, "n2": 2}), seed=seed)
    for name, group in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b")):
        world.ask(name, group)
    for name, group in (("b2", "b"), ("a2", "a"), ("a1", "a")):
        world.launch(name, group)
    world.settle()
    world.launch("b1", "b")
    world.settle()
    assert world.where("a1") == world.where("a2") != [None]
    assert world.where("b1") == world.where("b2") != [None] or world.where("b2") == [None]


def test_the_others_stay_together_when_the_first_is_over_before_they_are_placed() -> None:
    world = PolicyWorld(CoLocation("near"), nodes({"n1": 1, "n2": 2, "n3": 2}))
    world.launch("first", "web")
    world.settle()
    world.delete("first")
    world.launch("t1", "web"), world.launch("t2", "web")
    world.pass_time(60)
    assert world.where("t1") == world.where("t2") != [None]


def test_those_that_wait_go_elsewhere_together_when_the_node_is_lost() -> None:
    world = PolicyWorld(CoLocation("near"), nodes({"n1": 4, "n2": 4}))
    world.launch("first", "web"), world.launch("t1", "web")
    world.settle()
    (node,) = {*world.where("first", "t1")}
    world.launch("big1", "web", cpu=3), world.launch("big2", "web", cpu=1)
    world.lose_node(str(node))
    world.pass_time(60)
    assert world.where("big1") == world.where("big2") == [{"n1": "n2", "n2": "n1"}[str(node)]]


def test_one_that_is_evicted_and_asked_for_again_comes_back_to_the_others() -> None:
    world = PolicyWorld(CoLocation("near"), nodes({"n1": 8, "n2": 8, "n3": 8}))
    world.launch("first", "web"), world.launch("t1", "web")
    world.settle()
    world.delete("first")
    world.settle()
    world.launch("first", "web")
    world.settle()
    assert world.where("first") == world.where("t1")


def test_the_others_need_not_wait_for_a_first_one_that_was_given_up() -> None:
    world = PolicyWorld(CoLocation("near"), nodes({"n1": 8, "n2": 8}))
    world.ask("first", "web")
    world.launch("t1", "web"), world.launch("t2", "web")
    world.settle()
    assert world.where("t1", "t2") == [None, None]
    world.release("first")
    world.settle()
    assert world.where("t1") == world.where("t2") != [None]


def test_a_mark_on_a_node_that_others_have_filled_unseen_goes_to_another_after_a_while() -> None:
    world = PolicyWorld(CoLocation("near"), nodes({"n1": 2, "n2": 2}))
    world.ask("first", "web")
    world.launch("t1", "web", cpu=2)
    world.create("theirs", None, {CPU: MILLI}, {}, namespace="elsewhere")
    world.settle()
    (full,) = world.where("theirs")
    world.release("first")
    world.pass_time(120)
    assert world.where("t1") == [{"n1": "n2", "n2": "n1"}[str(full)]]


# -- known beforehand


def test_a_known_group_goes_to_the_node_that_has_room_for_all_of_it() -> None:
    world = PolicyWorld(KnownGroup("near", size=3, needs={CPU: 6 * MILLI}), nodes({"n1": 5, "n2": 6, "n3": 4}))
    world.launch("t1", "web", cpu=1), world.launch("t2", "web", cpu=2), world.launch("t3", "web", cpu=3)
    world.settle()
    assert world.where("t1", "t2", "t3") == ["n2"] * 3
    assert world.capacity("web") == {"n2": 3}


@pytest.mark.parametrize("seed", range(5))
def test_groups_that_are_asked_for_at_once_do_not_wait_for_each_others_node(seed: int) -> None:
    there = nodes({"n1": 6, "n2": 6, "n3": 12, "n4": 5})
    world = PolicyWorld(KnownGroup("near", size=3, needs={CPU: 6 * MILLI}), there, seed=seed)
    world.settle()
    names = [f"{group}{n}" for n in range(3) for group in "abcd"]
    for name in names:
        world.launch(name, name[0], cpu=2)
    world.settle()
    assert [len(set(world.where(*(name for name in names if name[0] == group)))) for group in "abcd"] == [1] * 4
    assert sorted(map(str, world.where("a0", "b0", "c0", "d0"))) == ["n1", "n2", "n3", "n3"]


def test_who_was_asked_for_and_never_comes_keeps_nobody_from_the_only_node() -> None:
    world = PolicyWorld(KnownGroup("near", size=1, needs={CPU: 4 * MILLI}), nodes({"n1": 4}))
    world.ask("never", "a")
    world.settle()
    world.launch("t", "b", cpu=4)
    world.settle()
    assert world.where("t") == ["n1"]


def test_a_node_that_fills_up_before_they_come_is_given_up_for_another() -> None:
    world = PolicyWorld(KnownGroup("near", size=2, needs={CPU: 4 * MILLI}), nodes({"n1": 4}))
    world.ask("t1", "web", needs={CPU: 2 * MILLI})
    world.settle()
    assert world.capacity("web") == {"n1": 2}
    world.create("theirs", None, {CPU: MILLI})
    world.settle()
    world.add_node(nodes({"n2": 4})[0])
    world.pass_time(10)
    assert world.capacity("web") == {"n2": 2}
    world.launch("t1", "web", cpu=2), world.launch("t2", "web", cpu=2)
    world.settle()
    assert world.where("t1", "t2") == ["n2", "n2"]


def test_a_known_group_whose_node_is_lost_goes_to_another_as_a_whole() -> None:
    world = PolicyWorld(KnownGroup("near", size=2, needs={CPU: 4 * MILLI}), nodes({"n1": 4, "n2": 4}))
    world.launch("t1", "web", cpu=2), world.launch("t2", "web", cpu=2)
    world.settle()
    (lost,) = set(world.where("t1", "t2"))
    world.lose_node(str(lost))
    world.launch("t1", "web", cpu=2), world.launch("t2", "web", cpu=2)
    world.pass_time(60)
    assert set(world.where("t1", "t2")) == {"n1", "n2"} - {lost}


def test_a_group_has_a_member() -> None:
    with pytest.raises(ValueError, match="groups of size 0"):
        KnownGroup("near", size=0, needs={})


# -- any order


class Together(Orders):
    """What is so for both kinds."""

    def check(self) -> None:
        where: dict[str, set[str]] = {}
        for node in self.world.nodes:
            for pod in self.running(node):
                where.setdefault(self.group(pod), set()).add(node)
        assert all(len(there) == 1 for there in where.values()), where

    def node_of(self, group: str) -> str | None:
        return next((n for n in self.world.nodes for pod in self.running(n) if self.group(pod) == group), None)


class FirstCome(Together):
    def policy(self) -> CoLocation:
        return CoLocation("near")

    @rule(group=st.sampled_from(GROUPS), cpu=st.integers(1, 3))
    def launch(self, group: str, cpu: int) -> None:
        self.serial += 1
        self.world.launch(f"t{self.serial}", group, cpu)

    @rule(group=st.sampled_from(GROUPS))
    def ask_and_never_launch(self, group: str) -> None:
        self.serial += 1
        self.world.ask(f"t{self.serial}", group)

    @precondition(lambda self: self.world.pods)
    @rule(pick=PICK)
    def one_is_made_again(self, pick: int) -> None:
        names = [pod.name for pod in self.world.pods.values() if self.mine(pod) and pod.node and not pod.finished]
        if names:
            again = self.world.pods[names[pick % len(names)]]
            self.world.delete(again.name)
            self.world.settle()
            self.world.launch(again.name, self.group(again), again.requests[CPU] // MILLI)

    def may_wait(self, pod: Pod) -> bool:
        node = self.node_of(self.group(pod))
        if self.is_first(pod):
            return not self.roomy(pod)
        if node is not None:
            return node not in self.roomy(pod)
        group = [
            other for other in self.world.pods.values() if self.mine(other) and self.group(other) == self.group(pod)
        ]
        return any(self.is_first(other) and other.node is None for other in group) or not self.roomy(pod)

    def is_first(self, pod: Pod) -> bool:
        return self.world.esl.key(self.group(pod)) not in pod.requests


class Known(Together):
    size, needs = 3, 3

    def policy(self) -> KnownGroup:
        return KnownGroup("near", size=self.size, needs={CPU: self.needs * MILLI})

    @rule(group=st.sampled_from(GROUPS))
    def launch(self, group: str) -> None:
        self.serial += 1
        self.world.launch(f"t{self.serial}", group)

    @rule(group=st.sampled_from(GROUPS))
    def ask_and_never_launch(self, group: str) -> None:
        self.serial += 1
        self.world.ask(f"t{self.serial}", group)

    def may_wait(self, pod: Pod) -> bool:
        node = self.node_of(self.group(pod))
        if node is None:
            return not self.roomy(pod, self.needs)
        members = [other for other in self.running(node) if self.group(other) == self.group(pod)]
        return len(members) >= self.size or node not in self.roomy(pod)


TestFirstCome = FirstCome.TestCase
TestKnown = Known.TestCase
TestFirstCome.settings = TestKnown.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
