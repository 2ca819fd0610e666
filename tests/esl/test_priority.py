"""Priority for applications: what is urgent goes first, and whoever waits long enough has a turn."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from extender.core.cluster import Pod
from extender.esl.policies.priority import UNITS, Priority
from extender.kube.names import CPU
from tests.esl.policy_machine import PolicyMachine
from tests.esl.policy_world import PolicyWorld, nodes

ASKS = {"urgent": 1, "usual": 30, "rest": 1000}


def world_of(cpus: dict[str, int], patience: float = 600.0, seed: int = 0) -> PolicyWorld:
    world = PolicyWorld(Priority("first", ASKS, patience=patience), nodes(cpus), seed=seed)
    world.settle()
    return world


def test_what_is_less_urgent_waits_while_something_urgent_runs() -> None:
    world = world_of({"n1": 8})
    world.launch("u", "urgent")
    world.settle()
    world.launch("r", "rest")
    world.settle()
    assert world.where("u", "r") == ["n1", None]
    world.finish("u")
    world.settle()
    assert world.where("r") == ["n1"]


def test_nothing_is_stopped_for_anybody() -> None:
    world = world_of({"n1": 8})
    world.launch("r", "rest")
    world.settle()
    world.launch("u", "urgent")
    world.settle()
    assert world.where("r", "u") == ["n1", None]


def waits(world: PolicyWorld, names: list[str], runtime: int, most: int) -> dict[str, float]:
    """How long each waits, while urgent tasks of one CPU come as soon as there is room, and each runs for so long."""
    began, number = world.now, 0
    ends: dict[str, float] = {}
    waited: dict[str, float] = {}
    while len(waited) < len(names) and world.now < began + most:
        for name in [name for name, end in ends.items() if end <= world.now]:
            world.finish(name)
            del ends[name]
        while sum(pod.node is None and pod.name not in names for pod in world.pods.values()) < 3:
            number += 1
            world.launch(f"u{number}", "urgent")
        world.settle()
        for name, pod in world.pods.items():
            if pod.node is not None and not pod.finished and name not in ends:
                # Some run for less: it is a bound.
                ends[name] = world.now + world.dice.randint(1, runtime)
        waited.update({name: world.now - began for name in names if world.pods[name].node and name not in waited})
        world.pass_time(1.0)
    return waited


def test_without_patience_who_needs_an_empty_node_waits_as_long_as_urgent_tasks_come() -> None:
    world = world_of({"n1": 4, "n2": 4}, patience=100_000.0)
    for i in range(8):
        world.launch(f"first{i}", "urgent")
    world.settle()
    world.launch("r", "rest")
    assert waits(world, ["r"], runtime=10, most=500) == {}


@settings(max_examples=20, deadline=None)
@given(number=st.integers(1, 4), cluster=st.integers(1, 3), runtime=st.integers(2, 20), seed=st.integers(0, 100))
def test_the_nth_of_those_that_wait_is_bound_within_patience_and_n_times_the_longest_run(
    number: int, cluster: int, runtime: int, seed: int
) -> None:
    patience = 30.0
    world = world_of({f"n{i}": 4 for i in range(cluster)}, patience, seed)
    for i in range(4 * cluster):
        world.launch(f"first{i}", "urgent")
    world.settle()
    names = [world.launch(f"r{i}", "rest", cpu=1 + i).name for i in range(number)]
    waited = sorted(waits(world, names, runtime, most=1000).values())
    assert len(waited) == number
    # What happens within a second happens here at its end.
    assert all(wait <= patience + (i + 1) * (runtime + 1) for i, wait in enumerate(waited)), waited


def test_the_node_that_is_kept_for_a_turn_lets_in_nobody_else() -> None:
    world = world_of({"n1": 4}, patience=10.0)
    world.launch("a", "urgent"), world.launch("b", "urgent")
    world.settle()
    world.launch("r", "rest")
    world.pass_time(10.0)
    world.finish("a")
    world.launch("late", "urgent")
    world.settle()
    assert world.where("r", "late") == [None, None]
    world.finish("b")
    world.settle()
    assert world.where("r") == ["n1"]
    world.finish("r")
    world.settle()
    assert world.where("late") == ["n1"]


def test_a_turn_stays_where_it_is_while_tasks_end_elsewhere() -> None:
    world = world_of({"n1": 4, "n2": 4}, patience=10.0)
    for i in range(7):
        world.launch(f"u{i}", "urgent")
    world.settle()
    world.launch("r", "rest")
    world.pass_time(10.0)
    (kept,) = (name for name, units in world.capacity("ticket").items() if units < 10_000)
    assert len(world.running(kept)) == 3
    (elsewhere,) = {"n1", "n2"} - {kept}
    for pod in world.running(elsewhere)[1:]:
        world.finish(pod.name)
    world.settle()
    assert [name for name, units in world.capacity("ticket").items() if units < 10_000] == [kept]


def test_a_turn_that_nobody_takes_ends_with_the_pod() -> None:
    world = world_of({"n1": 4}, patience=10.0)
    world.launch("a", "urgent")
    world.settle()
    world.launch("r", "rest")
    world.pass_time(10.0)
    world.launch("late", "urgent")
    world.delete("r")
    world.settle()
    assert world.where("late") == ["n1"]


def test_a_node_that_others_fill_is_not_kept_for_a_turn() -> None:
    world = world_of({"n1": 4, "n2": 4}, patience=10.0)
    world.create("other", None, {CPU: 4000})
    world.settle()
    (others,) = world.where("other")
    for i in range(4):
        world.launch(f"u{i}", "urgent")
    world.settle()
    world.launch("r", "rest")
    world.pass_time(10.0)
    kept = {name for name, units in world.capacity("ticket").items() if units < 10_000}
    assert kept == {"n1", "n2"} - {others}


def test_two_tasks_have_two_tickets_and_one_task_the_same_whoever_asks() -> None:
    world = world_of({"n1": 4})
    first, second = world.ask("a", "rest"), world.ask("b", "rest")
    assert first.resources != second.resources
    assert world.ask("a", "rest").resources == first.resources
    world.create("a", first)
    world.restart(Priority("first", ASKS))
    assert world.ask("a", "rest").resources == first.resources


@pytest.mark.parametrize("units", [0, 1001])
def test_what_no_node_has_cannot_be_asked_for(units: int) -> None:
    with pytest.raises(ValueError, match="write 1 to 1000"):
        Priority("first", {"g": units})


def test_a_task_of_no_group_is_refused() -> None:
    with pytest.raises(ValueError, match="is not one of rest, urgent, usual"):
        world_of({"n1": 4}).ask("t", "unknown")


class Orders(PolicyMachine):
    """What runs on a node never asks for more than its units; in the end, as tasks end, everybody has run."""

    def policy(self) -> Priority:
        return Priority("first", ASKS, patience=60.0)

    @rule(group=st.sampled_from(sorted(ASKS)), cpu=st.integers(1, 3))
    def launch(self, group: str, cpu: int) -> None:
        self.asked += 1
        self.world.launch(f"t{self.asked}", group, cpu=cpu)

    @rule(group=st.sampled_from(sorted(ASKS)))
    def one_is_asked_for_and_never_launched(self, group: str) -> None:
        self.asked += 1
        self.world.ask(f"t{self.asked}", group)

    def may_wait(self, pod: Pod) -> bool:
        """Each node that would have it runs another, and has too few units left or is kept for a turn."""
        esl, world = self.world.esl, self.world
        return all(
            self.tasks_on(name)
            and (
                world.left(name, esl.key("units")) < pod.requests[esl.key("units")]
                or world.capacity("ticket")[name] < 10_000
            )
            for name, node in world.nodes.items()
            if self.has_room(pod, node)
        )

    @invariant()
    def no_node_runs_what_asks_for_more_than_its_units(self) -> None:
        key = self.world.esl.key("units")
        for name in self.world.nodes:
            assert sum(pod.requests[key] for pod in self.tasks_on(name)) <= UNITS

    def at_rest(self) -> None:
        """Each time that those that run end, one at least of those that have room comes in."""
        for other in [pod for pod in self.world.pods.values() if pod.node is None and not self.mine(pod)]:
            self.world.delete(other.name)
        for _ in range(len(self.waiting())):
            possible = [pod for pod in self.waiting() if any(self.fits_alone(pod, name) for name in self.world.nodes)]
            for name in list(self.world.nodes):
                for pod in self.tasks_on(name):
                    self.world.finish(pod.name)
            self.world.pass_time(600)
            assert not possible or any(
                pod.name in self.world.pods and self.world.pods[pod.name].node for pod in possible
            )

    def fits_alone(self, pod: Pod, name: str) -> bool:
        node = next(node for node in self.world.nodes.values() if node.name == name)
        ours = sum(each.requests[CPU] for each in self.tasks_on(name))
        return not node.unschedulable and pod.requests[CPU] <= self.world.left(node.name, CPU) + ours


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
