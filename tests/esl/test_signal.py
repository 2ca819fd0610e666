"""Signals for applications: no task starts before all that it comes after have succeeded, and every one does then."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from extender.core.cluster import Pod
from extender.esl.base import CapacityConfirmed, PodSeen, SetCapacity
from extender.esl.policies.signal import Signal
from extender.esl.runtime.policy_esl import Task
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.esl.orders import PICK, Orders
from tests.esl.policy_world import PolicyWorld, nodes

GRAPH = {"b": ["a"], "c": ["a"], "d": ["b", "c"], "f": ["e"], "g": ["a", "e", "f"]}
BARRIER = {"last": ["a", "b", "c"]}


@pytest.mark.parametrize("order", ["abc", "cab", "bca"])
def test_a_successor_of_three_starts_only_when_all_three_have_succeeded(order: str) -> None:
    world = PolicyWorld(Signal("go", after=BARRIER), nodes({"n1": 8, "n2": 8}))
    world.launch("last")
    for name in order:
        world.launch(name)
    for name in order:
        world.settle()
        assert world.where("last") == [None]
        world.finish(name)
    world.settle()
    assert world.where("last") != [None]


def test_one_that_failed_signals_nothing_until_it_is_made_again_and_succeeds() -> None:
    world = PolicyWorld(Signal("go", after={"b": ["a"]}), nodes({"n1": 8}))
    world.launch("a"), world.launch("b")
    world.settle()
    world.finish("a", succeeded=False)
    world.settle()
    assert world.where("b") == [None]
    world.delete("a")
    world.launch("a")
    world.settle()
    world.finish("a")
    world.settle()
    assert world.where("b") == ["n1"]


def test_a_signal_outlives_the_pod_that_gave_it_and_the_application() -> None:
    world = PolicyWorld(Signal("go", after=BARRIER), nodes({"n1": 8}))
    for name in ("last", "a", "b", "c"):
        world.launch(name)
    world.settle()
    for name in ("a", "b"):
        world.finish(name)
        world.settle()
        world.delete(name)
        world.settle()
    world.restart(Signal("go", after=BARRIER))
    world.pass_time(600)
    assert world.where("last") == [None]
    world.finish("c")
    world.add_node(nodes({"n2": 8})[0])
    world.settle()
    assert world.where("last") != [None]


def test_the_last_one_that_waits_may_be_evicted_and_made_again_by_somebody_else_across_a_restart() -> None:
    world = PolicyWorld(Signal("go", after={"b": ["a"]}), nodes({"n1": 8}))
    world.launch("a"), world.launch("b")
    world.settle()
    world.finish("a")
    world.settle()
    world.delete("a")
    requirement = world.esl.requirement(Task("b"))
    world.delete("b")
    world.settle()
    world.restart(Signal("go", after={"b": ["a"]}))
    world.settle()
    world.create("b", requirement)
    world.settle()
    assert world.where("b") == ["n1"]


def test_an_application_may_say_itself_what_has_succeeded() -> None:
    world = PolicyWorld(Signal("go", after={"b": ["upload"]}), nodes({"n1": 8}))
    world.launch("b")
    world.settle()
    assert isinstance(world.esl, Signal)
    world.perform(world.esl.succeeded("upload", world.now))
    world.settle()
    assert world.where("b") == ["n1"]


def test_a_graph_runs_in_its_order() -> None:
    after = {"b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["d", "a"]}
    world = PolicyWorld(Signal("go", after=after), nodes({"n1": 8}))
    for name in "edcba":
        world.launch(name)
    for _ in range(5):
        world.settle()
        for pod in [pod for pod in world.pods.values() if pod.node and not pod.finished]:
            world.finish(pod.name)
    order = [name for name, _ in world.bound]
    assert sorted(order) == [*"abcde"]
    assert all(order.index(before) < order.index(task) for task, befores in after.items() for before in befores)


def test_signals_go_when_nobody_has_been_there_for_a_while() -> None:
    world = PolicyWorld(Signal("go", after={"b": ["a"]}), nodes({"n1": 8}))
    world.launch("a"), world.launch("b")
    world.settle()
    world.finish("a")
    world.settle()
    world.delete("b")
    world.pass_time(59)
    assert world.capacity("a") == {"n1": 1_000_000}
    world.pass_time(2)
    assert world.units == {}


def test_tasks_that_would_wait_for_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="a, b would wait"):
        Signal("go", after={"a": ["b"], "b": ["a"], "c": ["a2"]})


class Graph(Orders):
    names = "abcdefg"

    def __init__(self) -> None:
        super().__init__()
        self.succeeded: set[str] = set()
        self.world.add_node(nodes({"n0": 100})[0])
        for name in reversed(self.names):
            self.world.launch(name)

    def policy(self) -> Signal:
        return Signal("go", after=GRAPH)

    @precondition(lambda self: any(pod.node for pod in self.world.pods.values()))
    @rule(pick=PICK, well=st.booleans())
    def one_ends(self, pick: int, well: bool) -> None:
        """One that fails or is evicted is made again, with what it was told."""
        running = [pod for pod in self.world.pods.values() if pod.node and not pod.finished and self.mine(pod)]
        if not running:
            return
        pod = running[pick % len(running)]
        if well:
            self.world.finish(pod.name)
            self.succeeded.add(pod.name)
        else:
            self.world.delete(pod.name)
            self.world.launch(pod.name)

    @rule(pick=PICK)
    def one_that_was_seen_to_succeed_is_removed(self, pick: int) -> None:
        over = [pod.name for pod in self.world.pods.values() if pod.finished]
        if over:
            self.world.settle()
            self.world.delete(over[pick % len(over)])

    @precondition(lambda self: "n0" in self.world.nodes)
    @rule(pick=PICK, how=st.sampled_from(["forgets", "cordoned", "uncordoned"]))
    def something_is_with_a_node(self, pick: int, how: str) -> None:
        name = sorted(self.world.nodes)[pick % len(self.world.nodes)]
        if how == "forgets":
            self.world.reset_node(name)
            self.world.settle()
        else:
            self.world.cordon(name, how == "cordoned")

    def check(self) -> None:
        """It is checked when something is bound."""

    def check_binding(self, pod: str, node: NodeName) -> None:
        assert self.succeeded >= {*GRAPH.get(pod, ())}, pod

    def may_wait(self, pod: Pod) -> bool:
        return not self.roomy(pod) or not self.succeeded >= {*GRAPH.get(pod.name, ())}


TestGraph = Graph.TestCase
TestGraph.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_signal_on_thousands_of_nodes_costs_each_of_their_answers_no_look_at_all_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0

    def owns(self: Signal, resource: ResourceKey) -> bool:
        nonlocal looked_at
        looked_at += 1
        return resource.startswith(self._prefix)

    monkeypatch.setattr(Signal, "owns", owns)
    signal = Signal("go", after={"b": ["a"]})
    world = PolicyWorld(signal, nodes({f"n{i}": 8 for i in range(300)}))
    world.settle()
    world.launch("a"), world.launch("b")
    world.settle()
    under_way = [each for each in signal.succeeded("a", world.now) if isinstance(each, SetCapacity)]
    answers = [CapacityConfirmed(each.node, each.resource, each.units) for each in under_way]
    looked_at = 0
    world.esl.handle_all(answers, world.now)
    assert len(answers) == 300
    assert looked_at < 10 * len(answers)


def test_a_pod_of_another_namespace_gives_no_signal() -> None:
    world = PolicyWorld(Signal("go", after={"b": ["a"]}), nodes({"n1": 8}))
    world.launch("b")
    world.settle()
    foreign = Pod(PodUid("x"), "elsewhere", "a", {}, labels={world.esl.label: "a"}, finished=True, succeeded=True)
    world.perform(world.esl.handle(PodSeen(foreign), world.now))
    world.settle()
    assert world.where("b") == [None]
