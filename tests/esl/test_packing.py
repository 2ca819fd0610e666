"""Bin packing for applications: a node is opened when a task fits no open one, and closed when nobody uses it."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from extender.core.cluster import Pod
from extender.esl.base import PodSeen
from extender.esl.policies.packing import Packing
from extender.esl.runtime.policy_esl import UNLIMITED
from extender.kube.names import CPU, NodeName, PodUid
from tests.esl.policy_machine import PolicyMachine
from tests.esl.policy_world import MILLI, PolicyWorld, nodes


def used(world: PolicyWorld) -> set[str]:
    """The nodes that run one of the policy's tasks."""
    return {name for name in world.nodes if any(world.esl.label in pod.labels for pod in world.running(name))}


@pytest.mark.parametrize("seed", range(3))
def test_tasks_that_come_one_by_one_fill_a_node_before_the_next(seed: int) -> None:
    world = PolicyWorld(Packing("tight"), nodes({f"n{i}": 4 for i in range(5)}), seed=seed)
    for i in range(10):
        world.launch(f"t{i}")
        world.settle()
        assert len(used(world)) == -(-(i + 1) // 4)


def test_tasks_that_come_at_once_use_as_few_nodes_when_they_are_alike() -> None:
    world = PolicyWorld(Packing("tight"), nodes({f"n{i}": 4 for i in range(5)}))
    for i in range(8):
        world.launch(f"t{i}")
    world.settle()
    assert len(used(world)) == 2


def test_the_node_that_a_task_fills_best_is_opened() -> None:
    world = PolicyWorld(Packing("tight"), nodes({"large": 16, "middle": 5, "small": 2}))
    world.launch("t", cpu=4)
    world.settle()
    assert world.where("t") == ["middle"]


def test_for_two_that_come_at_the_same_moment_and_do_not_fit_one_node_two_are_opened() -> None:
    world = PolicyWorld(Packing("tight"), nodes({"n1": 4, "n2": 4}))
    world.launch("a", cpu=4), world.launch("b", cpu=4)
    world.hear()
    assert set(world.esl.capacities(world.now)) == {"n1", "n2"}


def test_a_choice_is_kept_to_when_another_node_would_be_filled_better_by_now() -> None:
    world = PolicyWorld(Packing("tight"), nodes({"n1": 4, "n2": 4}))
    world.launch("a", cpu=2)
    world.hear()
    assert set(world.esl.capacities(world.now)) == {"n1"}
    other = Pod(PodUid("other"), "default", "other", {CPU: 1 * MILLI}, node=NodeName("n2"))
    world.perform(world.esl.handle(PodSeen(other), world.now))
    assert set(world.esl.capacities(world.now)) == {"n1"}


def test_a_node_that_nobody_uses_any_more_is_closed() -> None:
    world = PolicyWorld(Packing("tight"), nodes({"n1": 4, "n2": 4}))
    world.launch("a", cpu=4), world.launch("b", cpu=4)
    world.settle()
    assert len(world.capacity("bp")) == 2
    (there,) = world.where("a")
    world.finish("a")
    world.settle()
    assert set(world.capacity("bp")) == {"n1", "n2"} - {there}


def test_what_is_asked_for_and_never_launched_opens_no_node() -> None:
    world = PolicyWorld(Packing("tight"), nodes({"n1": 4}))
    world.ask("never")
    world.settle()
    assert world.units == {}


def test_pods_that_nobody_tells_of_hold_nobody_up_for_longer_than_a_patience_a_node() -> None:
    world = PolicyWorld(Packing("tight", patience=60.0), nodes({"n1": 4, "n2": 4, "n3": 4}))
    world.settle()
    for name in ("n1", "n2"):
        world.occupy_unseen(NodeName(name), {CPU: 4 * MILLI})
    world.launch("t", cpu=4)
    world.pass_time(119.0)
    assert world.where("t") == [None]
    world.pass_time(1.0)
    assert world.where("t") == ["n3"]


class Orders(PolicyMachine):
    """A node is opened for those alone that have room on no open one."""

    def policy(self) -> Packing:
        return Packing("tight")

    @rule(cpu=st.integers(1, 3))
    def launch(self, cpu: int) -> None:
        self.asked += 1
        self.world.launch(f"t{self.asked}", cpu=cpu)

    @precondition(lambda self: len(self.world.pods) < 12)
    @rule(cpu=st.integers(1, 3))
    def launch_at_rest(self, cpu: int) -> None:
        """Whoever comes alone, when all is known, goes to a node in use if there is room on one."""
        world = self.world
        world.pass_time(600)
        before = used(world)
        self.asked += 1
        pod = world.launch(f"t{self.asked}", cpu=cpu)
        room = {name for name in before if self.has_room(pod, world.nodes[NodeName(name)])}
        world.settle()
        chosen = world.pods[pod.name].node
        assert chosen in room if room else chosen not in before

    @invariant()
    def what_marks_a_node_limits_nobody(self) -> None:
        assert all(units == UNLIMITED for units in self.world.units.values())

    def at_rest(self) -> None:
        """Open are the nodes in use, and no others: whoever waits has no room on any."""
        assert set(self.world.capacity("bp")) == used(self.world)


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
