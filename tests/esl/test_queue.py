"""Queues for applications: never more at a time than the capacity says, and who waits is served while there is any."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from extender.core.cluster import Pod
from extender.esl.policies.queue import Queue
from extender.kube.names import CPU
from tests.esl.orders import Orders
from tests.esl.policy_world import MILLI, PolicyWorld, nodes


def running(world: PolicyWorld) -> int:
    return sum(world.esl.label in pod.labels for node in world.nodes for pod in world.running(node))


@pytest.mark.parametrize("seed", range(5))
def test_at_most_as_many_run_as_the_capacity_says_and_all_in_the_end(seed: int) -> None:
    world = PolicyWorld(Queue("slots", capacity=3), nodes({"n1": 2, "n2": 2, "n3": 2}), seed=seed)
    for i in range(10):
        world.launch(f"t{i}")
    for _ in range(10):
        world.pass_time(60)
        assert running(world) == min(3, 10 - sum(pod.finished for pod in world.pods.values()))
        for name in [pod.name for pod in world.pods.values() if pod.node and not pod.finished][:1]:
            world.finish(name)
    assert len(world.bound) == 10


def test_raising_the_capacity_lets_those_in_that_wait() -> None:
    queue = Queue("slots", capacity=0)
    world = PolicyWorld(queue, nodes({"n1": 8, "n2": 8}))
    for i in range(6):
        world.launch(f"t{i}")
    world.settle()
    assert running(world) == 0
    for capacity in (1, 4, 100):
        world.perform(queue.resize(capacity, world.now))
        world.settle()
        assert running(world) == min(capacity, 6)


def test_lowering_the_capacity_kills_nobody_and_lets_nobody_in_until_enough_have_ended() -> None:
    queue = Queue("slots", capacity=3)
    world = PolicyWorld(queue, nodes({"n1": 8}))
    for i in range(5):
        world.launch(f"t{i}")
    world.settle()
    world.perform(queue.resize(1, world.now))
    world.settle()
    for left in (3, 2, 1, 1, 1):
        assert running(world) == left
        world.finish(next(pod.name for pod in world.pods.values() if pod.node and not pod.finished))
        world.pass_time(60)


def test_while_more_run_than_the_capacity_says_no_node_has_a_unit_that_is_free_or_that_its_kubelet_would_miss() -> None:
    queue = Queue("slots", capacity=4)
    world = PolicyWorld(queue, nodes({f"n{i}": 1 for i in range(4)}))
    for i in range(8):
        world.launch(f"t{i}")
    world.settle()
    world.perform(queue.resize(1, world.now))
    world.settle()
    for left in (4, 3, 2, 1, 1, 1):
        assert running(world) == left
        units = world.capacity("unit")
        # A kubelet that starts anew turns away a pod only for a unit that its node has too few of, not for none at all.
        assert units == ({} if left > 1 else {node: 1 for node in world.nodes if world.running(node)})
        world.finish(next(pod.name for pod in world.pods.values() if pod.node and not pod.finished))
        # What ends is replaced before the policy hears of it, where its node has a unit left.
        world.schedule()
        assert running(world) == (left - 1 or 1)
        world.pass_time(60)


def test_a_mutex_goes_to_where_somebody_waits() -> None:
    world = PolicyWorld(Queue("mutex", capacity=1), nodes({"n1": 1, "n2": 4}))
    world.launch("small", node_labels={})
    world.settle()
    world.launch("large", cpu=4)
    world.settle()
    assert world.where("large") == [None]
    world.finish("small")
    world.pass_time(10)
    assert world.where("large") == ["n2"]


def test_a_unit_on_a_node_that_others_have_filled_unseen_goes_elsewhere_after_a_while() -> None:
    world = PolicyWorld(Queue("mutex", capacity=1), nodes({"n1": 1}))
    world.create("theirs", None, {CPU: MILLI}, namespace="elsewhere")
    world.settle()
    world.launch("t1")
    world.settle()
    assert world.capacity("unit") == {"n1": 1}
    world.add_node(nodes({"n2": 1})[0])
    world.pass_time(60)
    assert world.where("t1") == ["n2"]


def test_a_task_whose_node_others_have_filled_unseen_does_not_keep_the_unit_from_one_that_fits_elsewhere() -> None:
    world = PolicyWorld(Queue("mutex", capacity=1), nodes({"n1": 4, "n2": 1}))
    world.create("theirs", None, {CPU: 4 * MILLI}, namespace="elsewhere")
    world.settle()
    world.launch("large", cpu=4)
    world.settle()
    world.launch("small")
    world.pass_time(120)
    assert world.where("large", "small") == [None, "n2"]


def test_a_capacity_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity of -1"):
        Queue("slots", capacity=-1)


class Slots(Orders):
    def __init__(self) -> None:
        self.capacity = self.allowed = 2
        self.rested = True
        """Whether all that the last change of the capacity led to has been done."""
        super().__init__()

    def policy(self) -> Queue:
        return Queue("slots", capacity=self.capacity)

    @rule(cpu=st.integers(1, 4))
    def launch(self, cpu: int) -> None:
        self.serial += 1
        self.world.launch(f"t{self.serial}", cpu=cpu)

    @rule()
    def ask_and_never_launch(self) -> None:
        self.serial += 1
        self.world.ask(f"t{self.serial}")

    @rule(capacity=st.integers(0, 4))
    def resize(self, capacity: int) -> None:
        assert isinstance(self.world.esl, Queue)
        self.capacity, self.allowed, self.rested = capacity, max(self.allowed, capacity), False
        self.world.perform(self.world.esl.resize(capacity, self.world.now))

    @rule()
    def all_comes_to_rest(self) -> None:
        self.world.settle()
        self.allowed, self.rested = max(self.capacity, running(self.world)), True

    def check(self) -> None:
        assert running(self.world) <= self.allowed
        if self.rested:
            # What has ended is not replaced while more run than the capacity says.
            self.allowed = max(self.capacity, running(self.world))

    def may_wait(self, pod: Pod) -> bool:
        return running(self.world) >= self.capacity or not self.roomy(pod)


TestSlots = Slots.TestCase
TestSlots.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
