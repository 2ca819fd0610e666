"""Weighted fair queueing for applications: slots by weight among queues that want them, and never one too many."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from extender.core.cluster import Pod
from extender.esl.compositions.fair_queueing import FairQueueing
from extender.kube.names import CPU, NodeName
from tests.esl.policy_machine import PolicyMachine
from tests.esl.policy_world import MILLI, PolicyWorld, nodes


def runs(world: PolicyWorld) -> Counter[str]:
    """How many tasks each queue runs."""
    label = world.esl.group_label
    return Counter(pod.labels[label] for pod in world.pods.values() if pod.node and not pod.finished)


def world_of(slots: int, cluster: int = 4, seed: int = 0, **weights: int) -> PolicyWorld:
    return PolicyWorld(FairQueueing("fair", slots, weights), nodes({f"n{i}": 8 for i in range(cluster)}), seed=seed)


def launch(world: PolicyWorld, queue: str, number: int) -> None:
    for _ in range(number):
        world.launch(f"{queue}{len(world.bound)}-{len(world.pods)}", queue)


@pytest.mark.parametrize(
    ("slots", "weights", "expected"),
    [
        (8, {"a": 1, "b": 3}, {"a": 2, "b": 6}),
        (10, {"a": 1, "b": 1, "c": 1}, {"a": 4, "b": 3, "c": 3}),
        (10, {"a": 6, "b": 6, "c": 2}, {"a": 4, "b": 4, "c": 2}),
        (7, {"a": 2, "b": 5}, {"a": 2, "b": 5}),
    ],
)
def test_slots_are_divided_by_weight(slots: int, weights: dict[str, int], expected: dict[str, int]) -> None:
    world = world_of(slots, **weights)
    for queue in weights:
        launch(world, queue, slots)
    world.hear()
    world.settle()
    assert runs(world) == expected


def test_what_a_queue_does_not_use_is_lent_and_comes_back_as_tasks_end() -> None:
    world = world_of(6, a=1, b=1)
    launch(world, "a", 9)
    world.settle()
    assert runs(world) == {"a": 6}
    launch(world, "b", 9)
    world.settle()
    assert runs(world) == {"a": 6}, "nothing is killed"
    for left in (5, 4, 3):
        world.finish(
            next(pod.name for pod in world.pods.values() if pod.node and not pod.finished and pod.name[0] == "a")
        )
        world.settle()
        assert runs(world) == {"a": left, "b": 6 - left}


def test_a_slot_that_whoever_is_due_cannot_use_is_lent() -> None:
    world = world_of(4, cluster=1, a=3, b=1)
    world.launch("large", "a", cpu=9)
    launch(world, "b", 5)
    world.settle()
    assert runs(world) == {"b": 4}


def test_a_slot_for_which_those_due_are_in_each_others_way_goes_to_who_runs_more_than_its_part() -> None:
    there = nodes({"n1": 1, "n2": 8}, n1={"small": "yes"})
    world = PolicyWorld(FairQueueing("fair", 5, dict.fromkeys("abcd", 1)), there)
    for i in range(3):
        world.launch(f"a{i}", "a", cpu=2)
    world.settle()
    for queue in "bcd":
        world.launch(queue, queue, node_labels={"small": "yes"})
    world.launch("a3", "a", cpu=2)
    world.hear()
    world.settle()
    assert runs(world) == {"a": 4, "b": 1}


def test_who_is_asked_for_and_never_launched_has_no_slot() -> None:
    world = world_of(1, a=1, b=1)
    world.ask("never", "a")
    launch(world, "b", 1)
    world.settle()
    assert runs(world) == {"b": 1}


def test_pods_that_nobody_tells_of_hold_nobody_up_for_longer_than_a_patience_a_node() -> None:
    world = world_of(1, cluster=3, a=1)
    world.settle()
    for name in ("n0", "n1"):
        world.occupy_unseen(NodeName(name), {CPU: 8 * MILLI})
    launch(world, "a", 1)
    world.pass_time(119)
    assert not runs(world)
    world.pass_time(1)
    assert runs(world) == {"a": 1}


def test_weights_that_change_hold_for_whoever_comes_next() -> None:
    world = world_of(4, a=1, b=1)
    esl = world.esl
    assert isinstance(esl, FairQueueing)
    launch(world, "a", 6)
    launch(world, "b", 6)
    world.settle()
    assert runs(world) == {"a": 2, "b": 2}
    world.perform(esl.set_weights({"a": 3, "b": 1}, world.now))
    world.settle()
    for pod in world.pods.values():
        if pod.node:
            world.finish(pod.name)
    world.settle()
    assert runs(world) == {"a": 3, "b": 1}


def test_who_starts_with_fewer_slots_than_run_lets_nothing_start_until_enough_have_ended() -> None:
    world = world_of(4, a=1, b=1)
    launch(world, "a", 4)
    launch(world, "b", 4)
    world.settle()
    assert runs(world) == {"a": 2, "b": 2}
    world.restart(FairQueueing("fair", 1, {"a": 1, "b": 1}))
    world.settle()
    for left in (4, 3, 2, 1, 1):
        assert runs(world).total() == left
        assert left == 1 or not world.units
        world.finish(next(pod.name for pod in world.pods.values() if pod.node and not pod.finished))
        # What ends is replaced before the policy hears of it, where its node has a unit left.
        world.schedule()
        assert runs(world).total() <= (left - 1 or 1)
        world.settle()


@pytest.mark.parametrize(("slots", "weights"), [(-1, {"a": 1}), (1, {"a": 0}), (1, {"A b": 1})])
def test_what_makes_no_sense_is_refused(slots: int, weights: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"slots is|weight of queue|is not a DNS label"):
        FairQueueing("fair", slots, weights)


def test_a_task_of_no_queue_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a queue; the queues are a, b"):
        world_of(1, a=1, b=1).ask("t", "c")


class Orders(PolicyMachine):
    """Never do more run than there are slots, and none is idle in the end while somebody waits who has room."""

    slots = 4

    def policy(self) -> FairQueueing:
        return FairQueueing("fair", self.slots, {"a": 1, "b": 2, "c": 3})

    @rule(queue=st.sampled_from("abc"), cpu=st.integers(1, 3))
    def launch(self, queue: str, cpu: int) -> None:
        self.asked += 1
        self.world.launch(f"t{self.asked}", queue, cpu=cpu)

    @rule(queue=st.sampled_from("abc"))
    def one_is_asked_for_and_never_launched(self, queue: str) -> None:
        self.asked += 1
        self.world.ask(f"t{self.asked}", queue)

    def may_wait(self, pod: Pod) -> bool:
        return sum(len(self.tasks_on(name)) for name in self.world.nodes) == self.slots

    @invariant()
    def no_more_run_than_there_are_slots(self) -> None:
        assert sum(len(self.tasks_on(name)) for name in self.world.nodes) <= self.slots

    def at_rest(self) -> None:
        """When all can run anywhere, parts are by weight."""
        for name in sorted(self.world.pods):
            self.world.delete(name)
        for name in sorted(self.world.nodes):
            self.world.cordon(name, False)
        self.world.add_node(nodes({"last": 40})[0])
        self.world.pass_time(600)
        for queue in "abc":
            for i in range(self.slots):
                self.world.launch(f"last-{queue}{i}", queue)
        self.world.hear()
        self.world.pass_time(600)
        assert runs(self.world) == {"a": 1, "b": 1, "c": 2}


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
