"""Load balancing for applications: known numbers are split evenly, unknown ones stay even while they grow."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from extender.core.cluster import Pod
from extender.esl.policies.balance import Balance, DynamicBalance
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import CPU
from extender.kube.quantities import Vector
from tests.esl.policy_machine import PICK, PolicyMachine
from tests.esl.policy_world import PolicyWorld, nodes


def world_of(esl: PolicyEsl, cpus: dict[str, int], seed: int = 0, **labels: dict[str, str]) -> PolicyWorld:
    """The policy knows the nodes: they are what it goes by."""
    world = PolicyWorld(esl, nodes(cpus, **labels), seed=seed)
    world.settle()
    return world


def counts(world: PolicyWorld) -> dict[str, int]:
    """How many tasks each node runs."""
    return {name: sum(world.esl.label in pod.labels for pod in world.running(name)) for name in world.nodes}


@pytest.mark.parametrize(("tasks", "cluster"), [(4, 2), (7, 3), (5, 5), (2, 3)])
def test_of_a_known_number_no_node_has_more_than_its_part_rounded_up(tasks: int, cluster: int) -> None:
    world = world_of(Balance("even", tasks), {f"n{i}": 8 for i in range(cluster)}, seed=tasks)
    for i in range(tasks):
        world.launch(f"t{i}")
    world.settle()
    assert sum(counts(world).values()) == tasks
    assert max(counts(world).values()) == -(-tasks // cluster)


def test_four_tasks_on_two_nodes_are_two_and_two() -> None:
    world = world_of(Balance("even", 4), {"n1": 8, "n2": 8})
    for i in range(4):
        world.launch(f"t{i}")
    world.settle()
    assert counts(world) == {"n1": 2, "n2": 2}


def test_when_a_node_is_lost_the_others_are_given_its_part() -> None:
    world = world_of(Balance("even", 4), {"n1": 8, "n2": 8})
    for i in range(4):
        world.launch(f"t{i}")
    world.settle()
    world.lose_node("n2")
    for i in range(4, 6):
        world.launch(f"t{i}")
    world.settle()
    assert counts(world) == {"n1": 4}


def test_nodes_where_no_task_can_ever_go_have_no_part() -> None:
    world = world_of(Balance("even", 4), {"n1": 8, "n2": 8, "n3": 8}, n1={"disk": "ssd"}, n2={"disk": "ssd"})
    for i in range(4):
        world.launch(f"t{i}", node_labels={"disk": "ssd"})
    world.settle()
    assert counts(world) == {"n1": 2, "n2": 2, "n3": 0}


def test_who_said_too_few_is_not_left_waiting() -> None:
    world = world_of(Balance("even", 2), {"n1": 8, "n2": 8})
    for i in range(6):
        world.launch(f"t{i}")
    world.settle()
    assert counts(world) == {"n1": 3, "n2": 3}


@pytest.mark.parametrize("seed", range(5))
def test_ten_tasks_of_an_unknown_number_on_two_nodes_all_run_five_and_five(seed: int) -> None:
    world = world_of(DynamicBalance("even"), {"n1": 16, "n2": 16}, seed=seed)
    for i in range(10):
        world.launch(f"t{i}")
    world.settle()
    assert counts(world) == {"n1": 5, "n2": 5}


def test_a_node_that_is_full_of_others_pods_holds_nobody_up() -> None:
    world = world_of(DynamicBalance("even"), {"n1": 8, "n2": 8})
    world.create("other", None, {CPU: 8000}, {})
    world.settle()
    for i in range(6):
        world.launch(f"t{i}")
    world.settle()
    assert sorted(counts(world).values()) == [0, 6]


def test_when_tasks_have_ended_whoever_comes_goes_where_there_are_fewest() -> None:
    world = world_of(DynamicBalance("even", slack=0), {"n1": 16, "n2": 16})
    for i in range(8):
        world.launch(f"t{i}")
    world.settle()
    for pod in world.running("n1"):
        world.finish(pod.name)
    world.settle()
    assert counts(world) == {"n1": 0, "n2": 4}, "nothing is moved"
    for i in range(8, 12):
        world.launch(f"t{i}")
    world.settle()
    assert counts(world) == {"n1": 4, "n2": 4}


def writes_of_one_that_ends_and_one_that_comes(slack: int) -> int:
    """How often nodes are changed for it, on four nodes with three tasks each."""
    world = world_of(DynamicBalance("even", slack=slack), {f"n{i}": 16 for i in range(4)})
    for i in range(12):
        world.launch(f"t{i}")
    world.settle()
    changes = [0]

    def count_it(effect: object) -> str:
        changes[0] += 1
        return ""

    world.refuse = count_it
    world.finish("t0")
    world.settle()
    world.launch("next")
    world.settle()
    there = counts(world).values()
    assert sum(there) == 12
    assert max(there) - min(there) <= 1 + slack
    return changes[0]


def test_with_slack_one_that_ends_and_one_that_comes_change_no_node() -> None:
    assert writes_of_one_that_ends_and_one_that_comes(slack=0) == 8
    assert writes_of_one_that_ends_and_one_that_comes(slack=1) == 0


class ByTheBook(PolicyEsl):
    """Raised when no node has a unit left, lowered when all have."""

    level = 1

    def requires(self, task: Task) -> Vector:
        return {self.key("all"): 1}

    def capacities(self, now: float) -> Wanted:
        key = self.key("all")
        if all(self.view.units.get((node, key)) == self.level for node in self.view.nodes):
            left = [self.view.left(node, key) for node in self.view.nodes]
            if all(units <= 0 for units in left):
                self.level += 1
            elif self.level > 1 and all(units > 0 for units in left):
                self.level -= 1
        return {node: {key: self.level} for node in self.view.nodes}


def test_the_rule_of_the_book_never_comes_to_rest_and_ours_does() -> None:
    worlds = [world_of(esl, {"n1": 8, "n2": 8}) for esl in (ByTheBook("even"), DynamicBalance("even", slack=0))]
    for world in worlds:
        world.launch("a"), world.launch("b")
    with pytest.raises(AssertionError, match="never comes to rest"):
        worlds[0].settle(most=2000)
    worlds[1].settle(most=50)
    assert worlds[1].capacity("all") == {"n1": 2, "n2": 2}


@pytest.mark.parametrize(("floor", "slack"), [(0, 1), (1, -1)])
def test_floor_and_slack_that_mean_nothing_are_refused(floor: int, slack: int) -> None:
    with pytest.raises(ValueError, match="floor must be at least 1 and slack at least 0"):
        DynamicBalance("even", floor=floor, slack=slack)


class Known(PolicyMachine):
    """The number is known: what nodes have never exceeds the largest part that there was reason for."""

    tasks = 4

    def policy(self) -> Balance:
        return Balance("even", self.tasks)

    def may_wait(self, pod: Pod) -> bool:
        nodes = [node for node in self.world.nodes.values() if not node.unschedulable]
        known = sum(1 for pod in self.world.pods.values() if self.mine(pod) and not pod.finished)
        part = -(-max(self.tasks, known) // max(1, len(nodes)))
        return all(len(self.tasks_on(node.name)) >= part for node in nodes if self.has_room(pod, node))

    @rule()
    def launch(self) -> None:
        self.asked += 1
        self.world.launch(f"t{self.asked}")

    @invariant()
    def nothing_is_given_for_which_there_was_no_reason(self) -> None:
        assert all(units <= max(self.tasks, self.asked) for units in self.world.units.values())

    def at_rest(self) -> None:
        """After all that, a number that comes anew is split evenly."""
        for name in sorted(self.world.pods):
            self.world.delete(name)
        for task in list(self.world.esl.tasks):
            self.world.release(task)
        self.world.pass_time(600)
        open_nodes = [name for name, node in self.world.nodes.items() if not node.unschedulable]
        for i in range(self.tasks):
            self.world.launch(f"last{i}")
        self.world.pass_time(600)
        there = {name: len(self.tasks_on(name)) for name in open_nodes}
        if open_nodes:
            assert sum(there.values()) == self.tasks
            assert max(there.values()) <= -(-self.tasks // len(open_nodes)), there


class Unknown(PolicyMachine):
    """The number is not known. While tasks only come, and there is room, numbers differ by one at most."""

    cpus = 40

    def __init__(self) -> None:
        self.slack = 1
        super().__init__()
        self.only_growth = True

    @initialize(slack=st.sampled_from((0, 1)))
    def begin(self, slack: int) -> None:
        self.slack = slack
        self.world = PolicyWorld(self.policy(), [self.node("n1"), self.node("n2"), self.node("n3")])

    def policy(self) -> DynamicBalance:
        return DynamicBalance("even", slack=self.slack)

    @rule(number=st.integers(1, 4))
    def launch(self, number: int) -> None:
        for _ in range(number):
            self.asked += 1
            self.world.launch(f"t{self.asked}")

    @rule(pick=PICK)
    def one_is_asked_for_and_never_launched(self, pick: int) -> None:
        self.asked += 1
        self.world.ask(f"t{self.asked}")

    def happened(self) -> None:
        self.only_growth = False

    @invariant()
    def while_tasks_only_come_numbers_differ_by_one_at_most(self) -> None:
        there = Counter({name: len(self.tasks_on(name)) for name in self.world.nodes})
        if self.only_growth and there:
            assert max(there.values()) - min(there.values()) <= 1, there

    def at_rest(self) -> None:
        """Whoever comes at rest goes where there are `slack` more at most than on the emptiest node with room."""
        for i in range(6):
            before = {name: len(self.tasks_on(name)) for name in self.world.nodes}
            pod = self.world.launch(f"late{i}")
            room = [before[name] for name, node in self.world.nodes.items() if self.has_room(pod, node)]
            self.world.pass_time(600)
            if room:
                chosen = self.world.pods[pod.name].node
                assert chosen is not None
                assert before[chosen] <= min(room) + self.slack


TestKnown = Known.TestCase
TestKnown.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestUnknown = Unknown.TestCase
TestUnknown.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
