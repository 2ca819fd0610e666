"""AlphaZero's pattern for applications: predictors are spread, and aggregators are beside theirs."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from extender.core.cluster import Node, Pod
from extender.esl.compositions.alpha_zero import AlphaZero
from extender.kube.names import CPU, NodeName, ResourceKey
from tests.esl.orders import Orders
from tests.esl.policy_world import MILLI, PolicyWorld

GPU = ResourceKey("nvidia.com/gpu")


def machine(name: str, gpus: int, cpu: int = 8) -> Node:
    return Node(NodeName(name), {CPU: cpu * MILLI, GPU: gpus})


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("predictors", [3, 5, 7, 12])
def test_predictors_are_spread_and_aggregators_beside_theirs(seed: int, predictors: int) -> None:
    world = PolicyWorld(
        AlphaZero("az"), [machine("n1", 4), machine("n2", 4), machine("n3", 4), machine("n0", 0)], seed=seed
    )
    world.settle()
    for i in range(predictors):
        world.ask(f"p{i}")
    for i in range(predictors):
        world.launch(f"a{i}", f"p{i}"), world.launch(f"p{i}")
    world.settle()
    there = Counter(world.where(*(f"p{i}" for i in range(predictors))))
    assert there.keys() == {"n1", "n2", "n3"}
    assert max(there.values()) - min(there.values()) <= 1
    assert all(world.where(f"a{i}") == world.where(f"p{i}") for i in range(predictors))


def test_a_node_whose_accelerators_are_taken_takes_no_fair_share() -> None:
    world = PolicyWorld(AlphaZero("az"), [machine("n1", 1), machine("n2", 5)])
    world.settle()
    names = [world.launch(f"p{i}").name for i in range(6)]
    world.settle()
    assert Counter(world.where(*names)) == {"n1": 1, "n2": 5}


def test_an_aggregator_has_its_predictor_for_itself() -> None:
    world = PolicyWorld(AlphaZero("az"), [machine("n1", 1)])
    for name, group in (("p", ""), ("a1", "p"), ("a2", "p")):
        world.launch(name, group)
    world.settle()
    assert sorted(map(str, world.where("a1", "a2"))) == ["None", "n1"]


def test_an_aggregator_that_waits_follows_a_predictor_that_is_made_again() -> None:
    world = PolicyWorld(AlphaZero("az"), [machine("n1", 1)])
    world.launch("p")
    world.settle()
    world.lose_node("n1")
    world.launch("a", "p"), world.launch("p")
    world.add_node(machine("n2", 1))
    world.settle()
    assert world.where("p", "a") == ["n2", "n2"]


class Match(Orders):
    """Predictors are p<n>, and their aggregators a<n>."""

    def __init__(self) -> None:
        super().__init__()
        self.has_been: set[tuple[str, str]] = set()
        for name in ("g1", "g2"):
            self.world.add_node(machine(name, 2))

    def policy(self) -> AlphaZero:
        return AlphaZero("az")

    @rule(number=st.integers(1, 4))
    def launch_a_predictor(self, number: int) -> None:
        if f"p{number}" not in self.world.pods:
            self.world.launch(f"p{number}")

    @rule(number=st.integers(1, 4))
    def launch_an_aggregator(self, number: int) -> None:
        if f"a{number}" not in self.world.pods:
            self.world.launch(f"a{number}", f"p{number}")

    @rule()
    def a_machine_comes(self) -> None:
        self.serial += 1
        self.world.add_node(machine(f"h{self.serial}", 1))

    def check_binding(self, pod: str, node: NodeName) -> None:
        if pod.startswith("p"):
            self.has_been.add((pod, node))
        else:
            assert (f"p{pod[1:]}", node) in self.has_been

    def check(self) -> None:
        for node in self.world.nodes:
            assert self.world.left(node, GPU) >= 0

    def may_wait(self, pod: Pod) -> bool:
        if pod.name.startswith("p"):
            return all(self.world.left(node, GPU) < 1 for node in self.roomy(pod))
        predictor = self.world.pods.get(self.group(pod))
        return predictor is None or predictor.finished or predictor.node not in self.roomy(pod)


TestMatch = Match.TestCase
TestMatch.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
