"""Locality for applications: tasks run on the node that was named, or where another task's pod is."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from extender.core.cluster import Pod
from extender.esl.compositions.locality import Locality
from extender.kube.names import NodeName
from tests.esl.orders import Orders
from tests.esl.policy_world import PolicyWorld, nodes


def test_tasks_run_on_the_node_that_is_named() -> None:
    world = PolicyWorld(Locality("disk", node="n2"), nodes({"n1": 8, "n2": 8, "n3": 8}))
    names = [world.launch(f"t{i}").name for i in range(5)]
    world.settle()
    assert world.where(*names) == ["n2"] * 5


def test_tasks_run_beside_another_task_wherever_it_is() -> None:
    for seed in range(5):
        world = PolicyWorld(Locality("disk", beside="loader"), nodes({"n1": 8, "n2": 8, "n3": 8}), seed=seed)
        world.launch("t1"), world.launch("loader"), world.launch("t2")
        world.settle()
        assert len(set(world.where("t1", "t2", "loader"))) == 1
        assert world.where("loader") != [None]


def test_tasks_that_wait_follow_the_other_one_when_its_node_is_lost() -> None:
    world = PolicyWorld(Locality("disk", beside="loader"), nodes({"n1": 8, "n2": 8}))
    world.launch("loader")
    world.settle()
    world.ask("later")
    world.settle()
    world.lose_node(str(world.where("loader")[0]))
    world.launch("loader"), world.launch("t1")
    world.settle()
    assert world.where("t1") == world.where("loader") != [None]


def test_the_place_of_one_that_is_gone_is_remembered_while_somebody_wants_it_even_by_another_life() -> None:
    world = PolicyWorld(Locality("disk", beside="loader"), nodes({"n1": 1, "n2": 1, "n3": 1}))
    loader = world.launch("loader").name
    world.settle()
    (node,) = world.where(loader)
    world.launch("t1")
    world.settle()
    world.delete(loader)
    world.restart(Locality("disk", beside="loader"))
    world.settle()
    assert world.where("t1") == [node]


def test_a_named_node_that_is_not_there_yet_is_waited_for() -> None:
    world = PolicyWorld(Locality("disk", node="n9"), nodes({"n1": 8}))
    world.launch("t1")
    world.settle()
    assert world.where("t1") == [None]
    world.add_node(nodes({"n9": 8})[0])
    world.settle()
    assert world.where("t1") == ["n9"]


@pytest.mark.parametrize("given", [{}, {"node": "n1", "beside": "t"}])
def test_a_place_is_named_in_one_way(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="give exactly one"):
        Locality("disk", **given)


class AtANode(Orders):
    def policy(self) -> Locality:
        return Locality("disk", node="n1")

    @rule()
    def launch(self) -> None:
        self.serial += 1
        self.world.launch(f"t{self.serial}")

    @rule()
    def the_node_comes_again(self) -> None:
        if "n1" not in self.world.nodes:
            self.world.add_node(nodes({"n1": self.cpus})[0])

    def check(self) -> None:
        assert not any(self.running(node) for node in self.world.nodes if node != "n1")

    def may_wait(self, pod: Pod) -> bool:
        return "n1" not in self.roomy(pod)


class BesideATask(Orders):
    def __init__(self) -> None:
        super().__init__()
        self.has_been: set[str] = set()

    def policy(self) -> Locality:
        return Locality("disk", beside="loader")

    @rule()
    def launch(self) -> None:
        self.serial += 1
        self.world.launch(f"t{self.serial}")

    @rule()
    def launch_the_other(self) -> None:
        if "loader" not in self.world.pods:
            self.world.launch("loader")

    @rule(kept=st.booleans())
    def the_other_ends(self, kept: bool) -> None:
        if "loader" in self.world.pods and self.world.pods["loader"].node:
            (self.world.finish if kept else self.world.delete)("loader")

    def check_binding(self, pod: str, node: NodeName) -> None:
        if pod == "loader":
            self.has_been.add(node)
        else:
            assert node in self.has_been

    def check(self) -> None:
        """Who is bound was bound where the other has been."""

    def may_wait(self, pod: Pod) -> bool:
        if pod.name == "loader":
            return not self.roomy(pod)
        other = self.world.pods.get("loader")
        return other is None or other.node not in self.roomy(pod)


TestAtANode = AtANode.TestCase
TestBesideATask = BesideATask.TestCase
TestAtANode.settings = TestBesideATask.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
