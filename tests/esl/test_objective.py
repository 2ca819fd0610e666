"""An objective function for applications: the best node with room, to a factor of two."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from extender.core.cluster import Node, Pod
from extender.esl.base import PodRequirement
from extender.esl.policies.objective import Objective
from extender.esl.runtime.policy_esl import Task
from extender.kube.names import CPU, NodeName
from tests.esl.policy_machine import PICK, PolicyMachine
from tests.esl.policy_world import MILLI, PolicyWorld, nodes

GAMMA = 64


def labelled(node: Node) -> float:
    """The score that the node's label says."""
    return float(node.labels.get("score", "0"))


def world_of(scores: dict[str, int], cpu: int = 4, seed: int = 0) -> PolicyWorld:
    labels = {name: {"score": str(score)} for name, score in scores.items()}
    esl = Objective("best", labelled, gamma=GAMMA, steps=7)
    world = PolicyWorld(esl, nodes(dict.fromkeys(scores, cpu), **labels), seed=seed)
    world.settle()
    return world


def alternatives(world: PolicyWorld) -> list[int]:
    assert isinstance(world.esl, Objective)
    ((key,), *_), listed = [list(each) for each in world.esl.alternatives(Task("t"))], world.esl.alternatives(Task("t"))
    assert key == world.esl.key("obj")
    return [each[key] for each in listed]


def try_all(world: PolicyWorld, name: str, cpu: int) -> str | None:
    """As one does who tries the list: each until all is at rest, then the next."""
    needs = {CPU: cpu * MILLI}
    asked = world.ask(name, needs=needs)
    world.settle()
    for units in alternatives(world):
        requirement = PodRequirement({str(world.esl.key("obj")): str(units)}, asked.labels)
        world.create(name, requirement, needs)
        world.settle()
        if (node := world.pods[name].node) is not None:
            return node
        world.delete(name)
        world.settle()
    return None


def test_alternatives_are_halves_with_the_best_first_and_any_node_last() -> None:
    assert alternatives(world_of({})) == [64, 32, 16, 8, 4, 2, 1]
    esl = Objective("best", labelled, gamma=100, steps=3)
    assert [*esl.alternatives(Task("t"))] == [{esl.key("obj"): units} for units in (100, 50, 25, 1)]


def test_tasks_fill_the_best_node_before_worse_ones() -> None:
    world = world_of({"best": 64, "good": 20, "poor": 3}, cpu=2)
    assert [try_all(world, f"t{i}", 1) for i in range(6)] == ["best", "best", "good", "good", "poor", "poor"]


def test_a_node_of_score_0_has_none() -> None:
    world = world_of({"never": 0})
    assert try_all(world, "t", 1) is None


def test_who_asks_without_the_list_has_the_best_that_is_met_at_that_moment() -> None:
    world = world_of({"best": 64, "good": 20}, cpu=1)
    for name in ("a", "b"):
        world.launch(name)
        world.settle()
    assert world.where("a", "b") == ["best", "good"]
    world.launch("c")
    world.settle()
    assert world.where("c") == [None]


def test_what_a_node_has_left_is_its_score_whoever_comes_and_goes() -> None:
    world = world_of({"n1": 40})
    for name in ("a", "b"):
        world.launch(name)
        world.settle()
        assert world.left(NodeName("n1"), world.esl.key("obj")) == 40
    world.finish("a")
    world.settle()
    assert world.left(NodeName("n1"), world.esl.key("obj")) == 40


@settings(max_examples=40, deadline=None)
@given(
    scores=st.lists(st.integers(0, GAMMA), min_size=1, max_size=6),
    cpus=st.lists(st.integers(1, 3), min_size=1, max_size=8),
    seed=st.integers(0, 100),
)
def test_who_tries_one_after_another_has_at_least_half_of_the_best_with_room(
    scores: list[int], cpus: list[int], seed: int
) -> None:
    world = world_of({f"n{i}": score for i, score in enumerate(scores)}, seed=seed)
    for number, cpu in enumerate(cpus):
        room = {name: labelled(node) for name, node in world.nodes.items() if world.left(name, CPU) >= cpu * MILLI}
        chosen = try_all(world, f"t{number}", cpu)
        assert (chosen is None) == (not any(room.values()))
        if chosen is not None:
            assert room[NodeName(chosen)] >= max(room.values()) / 2


@pytest.mark.parametrize(("gamma", "steps"), [(0, 1), (15, 5), (16, 0)])
def test_what_cannot_be_halved_so_often_is_refused(gamma: int, steps: int) -> None:
    with pytest.raises(ValueError, match="cannot be halved"):
        Objective("best", labelled, gamma=gamma, steps=steps)


class Orders(PolicyMachine):
    """In the end every node has its score left, and whoever waits has room on no node that is as good as it asks."""

    def policy(self) -> Objective:
        return Objective("best", labelled, gamma=GAMMA, steps=7)

    def node(self, name: str) -> Node:
        return nodes({name: self.cpus}, **{name: {"score": str(sum(map(ord, name)) * 7 % (GAMMA + 1))}})[0]

    @rule(step=st.integers(0, 6), cpu=st.integers(1, 3))
    def launch(self, step: int, cpu: int) -> None:
        self.asked += 1
        name, needs = f"t{self.asked}", {CPU: cpu * MILLI}
        asked = self.world.ask(name, needs=needs)
        units = {str(self.world.esl.key("obj")): str(GAMMA >> step)}
        self.world.create(name, PodRequirement(units, asked.labels), needs)

    @precondition(lambda self: self.world.nodes)
    @rule(pick=PICK, score=st.integers(0, GAMMA))
    def a_score_changes(self, pick: int, score: int) -> None:
        name = self.pick_node(pick)
        node = self.world.nodes[name]
        self.world.add_node(
            Node(name, node.allocatable, labels={"score": str(score)}, unschedulable=node.unschedulable)
        )

    def may_wait(self, pod: Pod) -> bool:
        asked = pod.requests[self.world.esl.key("obj")]
        return all(labelled(node) < asked for node in self.world.nodes.values() if self.has_room(pod, node))

    @invariant()
    def nobody_has_more_than_there_can_be_reason_for(self) -> None:
        assert all(units <= GAMMA * (1 + self.asked) for units in self.world.units.values())

    def at_rest(self) -> None:
        if self.world.esl.tasks:
            left = {name: self.world.left(name, self.world.esl.key("obj")) for name in self.world.nodes}
            assert left == {name: labelled(node) for name, node in self.world.nodes.items()}


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
