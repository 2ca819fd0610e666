"""Soft constraints for applications: a task runs once, under the first of its requirements that can be had in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.core.cluster import Node
from extender.esl.base import CancelTask, Effect, LaunchTask, PodRequirement, TimePassed
from extender.esl.policies.soft import Soft
from extender.kube.names import CPU, NodeName, ResourceKey
from tests.esl.policy_world import MILLI, PolicyWorld, nodes

GPU = ResourceKey("nvidia.com/gpu")
TPU = ResourceKey("google.com/tpu")


def data(name: str) -> ResourceKey:
    return ResourceKey(f"app.escher.dev/default.{name}")


def any_of(*alternatives: Mapping[ResourceKey, int], wait: float = 5.0) -> Soft:
    """The same alternatives for each task."""
    said = [PodRequirement({str(key): str(units) for key, units in each.items()}) for each in alternatives]
    return Soft("soft", lambda task: said, wait=wait)


def runs(world: PolicyWorld, task: str) -> list[str]:
    """The nodes that pods of the task were ever bound to."""
    return [node for name, node in world.bound if name == f"soft--{task}"]


# -- scenario 11, and others like it


def mission_world() -> PolicyWorld:
    preferences = ({data("data1"): 1, TPU: 1}, {data("data2"): 1, TPU: 1}, {data("data1"): 1})
    there = [Node(NodeName("n1"), {CPU: 8 * MILLI, GPU: 1}), Node(NodeName("n2"), {CPU: 8 * MILLI, TPU: 1})]
    world = PolicyWorld(any_of(*preferences), there)
    world.units = {(NodeName("n1"), data("data1")): 5, (NodeName("n2"), data("data2")): 5}
    return world


def test_the_third_preference_wins_after_ten_seconds_and_the_task_runs_once_even_if_the_first_is_possible_later() -> (
    None
):
    world = mission_world()
    world.ask("t", needs={CPU: MILLI, GPU: 1})
    world.pass_time(9.9)
    assert runs(world, "t") == []
    world.pass_time(0.2)
    assert runs(world, "t") == ["n1"]
    assert world.pods["soft--t"].requests == {CPU: MILLI, GPU: 1, data("data1"): 1}
    world.add_node(Node(NodeName("n3"), {CPU: 8 * MILLI, GPU: 1, TPU: 1}))
    world.units[NodeName("n3"), data("data1")] = 5
    world.pass_time(100)
    assert runs(world, "t") == ["n1"]
    world.finish("soft--t")
    world.pass_time(100)
    world.delete("soft--t")
    world.pass_time(100)
    assert runs(world, "t") == ["n1"]
    assert world.pods == {}


@pytest.mark.parametrize(("possible", "wait"), [(0, 5.0), (1, 5.0), (3, 2.0), (4, 0.5)])
def test_the_first_that_is_possible_wins_when_those_before_have_been_tried(possible: int, wait: float) -> None:
    keys = [data(f"d{i}") for i in range(5)]
    world = PolicyWorld(any_of(*({key: 1} for key in keys), wait=wait), nodes({"n1": 8}))
    for key in keys[possible:]:
        world.units[NodeName("n1"), key] = 1
    world.ask("t")
    world.settle()
    if possible:
        world.pass_time(wait * possible - 0.01)
        assert runs(world, "t") == []
        world.pass_time(0.02)
    assert runs(world, "t") == ["n1"]
    assert keys[possible] in world.pods["soft--t"].requests


def test_what_becomes_possible_after_the_last_was_tried_is_tried_again_with_longer_waits() -> None:
    world = PolicyWorld(any_of({data("a"): 1}, {data("b"): 1}), nodes({"n1": 8}))
    world.ask("t")
    launched: list[float] = []

    def noted(effect: Effect) -> str:
        launched.extend([world.now] if isinstance(effect, LaunchTask) else ())
        return ""

    world.refuse = noted
    world.pass_time(320)
    assert list(world.pods) == ["soft--t"]
    assert [time - 100 for time in launched] == [0, 5, 10, 20, 30, 50, 70, 110, 150, 230, 310]
    world.units[NodeName("n1"), data("a")] = 1
    world.pass_time(1000)
    assert runs(world, "t") == ["n1"]


def test_a_task_with_one_alternative_is_never_cancelled() -> None:
    world = PolicyWorld(any_of({data("a"): 1}), nodes({"n1": 8}))
    world.ask("t")
    world.settle()
    before = world.pods["soft--t"].uid
    world.pass_time(1000)
    assert world.pods["soft--t"].uid == before
    assert world.esl.next_deadline() is None


def test_two_tasks_asked_for_at_one_moment_each_run_once_and_the_second_takes_what_is_left() -> None:
    world = PolicyWorld(any_of({data("a"): 1}, {data("b"): 1}), nodes({"n1": 8}))
    world.units = {(NodeName("n1"), data("a")): 1, (NodeName("n1"), data("b")): 1}
    world.ask("t"), world.ask("u")
    world.pass_time(6)
    assert sorted(world.bound) == [("soft--t", "n1"), ("soft--u", "n1")]


def test_whoever_has_no_alternative_or_one_that_no_pod_can_meet_is_refused_and_nothing_is_left_of_it() -> None:
    world = PolicyWorld(Soft("soft", lambda task: []), nodes({"n1": 8}))
    with pytest.raises(ValueError, match="no alternative"):
        world.ask("t")
    other = PodRequirement({}, scheduler_name="another")
    world = PolicyWorld(Soft("soft", lambda task: [PodRequirement({}), other]), nodes({"n1": 8}))
    with pytest.raises(ValueError, match="one pod cannot have schedulerName"):
        world.ask("t")
    world.pass_time(100)
    assert world.pods == {}


# -- what else may come


def waiting_world() -> PolicyWorld:
    """One task, which waits for its first alternative."""
    world = PolicyWorld(any_of({data("a"): 1}, {data("b"): 1}), nodes({"n1": 8}))
    world.ask("t")
    world.settle()
    return world


def test_a_task_that_ran_and_was_evicted_is_told_of_and_runs_again_only_when_it_is_released_and_asked_for_anew() -> (
    None
):
    world = waiting_world()
    world.units[NodeName("n1"), data("a")] = 1
    world.settle()
    world.delete("soft--t")
    world.ask("t")
    world.pass_time(100)
    assert runs(world, "t") == ["n1"]
    assert [notice.text for notice in world.notices] == [
        "pod soft--t ran and is gone; release and ask again to recreate it"
    ]
    world.release("t")
    world.ask("t")
    world.pass_time(100)
    assert runs(world, "t") == ["n1", "n1"]


def test_a_pod_that_others_delete_before_it_is_bound_is_launched_again_with_the_same_alternative() -> None:
    world = waiting_world()
    world.pass_time(5.1)
    before = world.pods["soft--t"]
    world.delete("soft--t")
    world.settle()
    assert world.pods["soft--t"].requests == before.requests == {data("b"): 1}
    assert world.pods["soft--t"].uid != before.uid


def test_a_released_task_that_waits_is_cancelled_and_one_that_runs_is_left_alone() -> None:
    world = waiting_world()
    world.ask("u")
    world.units[NodeName("n1"), data("a")] = 1
    while not world.bound:
        world.settle()
    ((running, _),) = world.bound
    world.release("t")
    world.release("u")
    world.pass_time(100)
    assert set(world.pods) == {running}


def test_a_task_that_is_released_before_its_pod_is_there_leaves_none_behind() -> None:
    world = PolicyWorld(any_of({data("a"): 1}), nodes({"n1": 8}))
    world.ask("t")
    world.release("t")
    world.pass_time(100)
    assert world.pods == {}
    assert world.esl.tasks == {}


def test_a_pod_of_a_life_before_that_waits_goes_when_its_task_is_released() -> None:
    world = waiting_world()
    world.restart(any_of({data("a"): 1}, {data("b"): 1}))
    world.release("t")
    world.pass_time(100)
    assert world.pods == {}
    assert world.esl.tasks == {}


def test_an_application_that_begins_anew_goes_on_where_its_pod_is_and_launches_nothing_that_ran() -> None:
    world = waiting_world()
    world.pass_time(5.1)
    world.restart(any_of({data("a"): 1}, {data("b"): 1}))
    world.ask("t")
    world.pass_time(4)
    assert world.pods["soft--t"].requests == {data("b"): 1}
    world.units[NodeName("n1"), data("b")] = 1
    world.settle()
    world.finish("soft--t")
    world.settle()
    world.restart(any_of({data("a"): 1}, {data("b"): 1}))
    world.ask("t")
    world.settle()
    world.delete("soft--t")
    world.pass_time(100)
    assert runs(world, "t") == ["n1"]


def test_a_launch_that_is_refused_is_told_of_and_tried_again() -> None:
    world = PolicyWorld(any_of({data("a"): 1}), nodes({"n1": 8}))
    world.units[NodeName("n1"), data("a")] = 1
    world.refuse = lambda effect: "quota exceeded" if isinstance(effect, LaunchTask) else ""
    world.ask("t")
    world.settle()
    assert [notice.text for notice in world.notices] == ["pod soft--t cannot be created: quota exceeded"]
    world.refuse = lambda effect: ""
    world.pass_time(5)
    assert runs(world, "t") == ["n1"]


def test_a_pod_of_somebody_else_by_the_name_is_left_alone_and_told_of() -> None:
    world = PolicyWorld(any_of({data("a"): 1}, {}), nodes({"n1": 8}))
    foreign = world.create("soft--t", PodRequirement({str(data("b")): "1"}))
    world.ask("t")
    world.pass_time(20)
    assert world.pods["soft--t"] == foreign
    assert world.notices[0].text == "pod soft--t cannot be created: another pod has that name"
    world.delete("soft--t")
    world.pass_time(20)
    assert runs(world, "t") == ["n1"]


def test_a_cancellation_that_may_not_be_is_tried_again_later_and_meanwhile_the_pod_stays() -> None:
    world = waiting_world()
    world.refuse = lambda effect: "forbidden" if isinstance(effect, CancelTask) else ""
    before = world.pods["soft--t"].uid
    world.pass_time(12)
    assert world.pods["soft--t"].uid == before
    world.refuse = lambda effect: ""
    world.pass_time(6)
    assert world.pods["soft--t"].requests == {data("b"): 1}


# -- any order


class Orders(RuleBasedStateMachine):
    """Tasks come and go, what they prefer too, and nodes; the application dies and asks again; effects and news are
    late."""

    KEYS = tuple(data(name) for name in "abc")

    def __init__(self) -> None:
        super().__init__()
        self.world = PolicyWorld(self.policy(), nodes({"n1": 2, "n2": 2}), apart=True)
        self.asked: dict[str, Mapping[ResourceKey, int]] = {}
        self.may_run: Counter[str] = Counter()
        """By task: how often it may be bound."""

    def policy(self) -> Soft:
        return any_of(*({key: 1} for key in self.KEYS))

    @rule(name=st.sampled_from("tuv"), cpu=st.integers(1, 2))
    def ask(self, name: str, cpu: int) -> None:
        needs = self.asked.setdefault(name, {CPU: cpu * MILLI})
        self.may_run[name] = max(1, self.may_run[name])
        self.world.ask(name, needs=needs)

    @precondition(lambda self: self.asked)
    @rule(pick=st.integers(0, 1000))
    def release(self, pick: int) -> None:
        name = sorted(self.asked)[pick % len(self.asked)]
        del self.asked[name]
        self.may_run[name] += 1
        self.world.release(name)

    @precondition(lambda self: self.world.actions())
    @rule(pick=st.integers(0, 1000))
    def something_happens(self, pick: int) -> None:
        actions = self.world.actions()
        actions[pick % len(actions)]()

    @rule(pick=st.integers(0, 1000), key=st.sampled_from(KEYS), units=st.integers(0, 2))
    def somebody_sets(self, pick: int, key: ResourceKey, units: int) -> None:
        if self.world.nodes:
            self.world.units[sorted(self.world.nodes)[pick % len(self.world.nodes)], key] = units

    @precondition(lambda self: self.world.esl.next_deadline() is not None)
    @rule()
    def a_deadline_passes(self) -> None:
        self.world.now = max(self.world.now, self.world.esl.next_deadline() or 0.0)
        self.world.perform(self.world.esl.handle(TimePassed(), self.world.now))

    @precondition(lambda self: self.world.pods)
    @rule(pick=st.integers(0, 1000), kept=st.booleans())
    def a_pod_ends(self, pick: int, kept: bool) -> None:
        pod = self.world.pods[sorted(self.world.pods)[pick % len(self.world.pods)]]
        if kept and pod.node is not None:
            self.world.finish(pod.name)
        else:
            self.world.delete(pod.name)

    @rule()
    def a_node_comes(self) -> None:
        self.world.add_node(nodes({f"m{len(self.world.bound)}-{len(self.world.nodes)}": 2})[0])

    @precondition(lambda self: self.world.nodes)
    @rule(pick=st.integers(0, 1000))
    def a_node_is_lost(self, pick: int) -> None:
        self.world.lose_node(sorted(self.world.nodes)[pick % len(self.world.nodes)])

    @rule()
    def the_application_dies(self) -> None:
        """It knows what it wants. Of what ran and is gone it knows nothing."""
        for name in self.may_run:
            if f"soft--{name}" not in self.world.pods and runs(self.world, name):
                self.may_run[name] += 1
        self.world.restart(self.policy())
        for name, needs in self.asked.items():
            self.world.ask(name, needs=needs)

    @invariant()
    def no_task_runs_more_often_than_it_may(self) -> None:
        for name, most in self.may_run.items():
            assert len(runs(self.world, name)) <= most, (name, self.world.bound)

    def teardown(self) -> None:
        """In the end each task that is wanted has run or can be had nowhere; then nothing is left that waits."""
        self.world.pass_time(3000)
        self.no_task_runs_more_often_than_it_may()
        for name, needs in self.asked.items():
            pod = self.world.pods.get(f"soft--{name}")
            assert pod is not None or runs(self.world, name)
            if pod is not None and pod.node is None:
                for node in self.world.nodes:
                    room = self.world.left(node, CPU) >= needs[CPU]
                    assert not (room and any(self.world.left(node, key) > 0 for key in self.KEYS)), (name, node)
        for name in list(self.asked):
            self.world.release(name)
        self.world.pass_time(3000)
        label = self.world.esl.label
        assert all(pod.node for pod in self.world.pods.values() if pod.labels.get(label) in self.asked)


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
