"""Compositions of policies for applications: all of several, any of several, and what can never be."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.esl.base import TimePassed
from extender.esl.compositions.composed import AllOf, AnyOf
from extender.esl.policies.anti_affinity import AntiAffinity
from extender.esl.policies.co_location import KnownGroup
from extender.esl.policies.data_locality import DataLocality
from extender.esl.policies.soft import Soft
from extender.esl.runtime.policy_esl import UNLIMITED, PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import CPU, InvalidName, NodeName, ResourceKey
from extender.kube.quantities import Vector
from tests.esl.policy_world import MILLI, PolicyWorld, nodes


class Together(PolicyEsl):
    """Each group where its first is: that sets a mark, and the others ask for it."""

    def requires(self, task: Task) -> Vector:
        return {} if first(self, task) else {self.key(task.group): 1}

    def capacities(self, now: float) -> Wanted:
        wanted: dict[NodeName, dict[ResourceKey, int]] = defaultdict(dict)
        for pod in self.view.running(self.label):
            group = pod.labels[self.group_label]
            if pod.node is not None and not pod.requests.get(self.key(group)):
                wanted[pod.node][self.key(group)] = UNLIMITED
        return wanted


class Balance(PolicyEsl):
    """So many groups a node: the first of each counts."""

    def __init__(self, name: str, most: int) -> None:
        super().__init__(name)
        self.most = most

    def requires(self, task: Task) -> Vector:
        return {self.key("lb"): 1} if first(self, task) else {}

    def capacities(self, now: float) -> Wanted:
        return {node: {self.key("lb"): self.most} for node in self.view.nodes} if self.tasks else {}


class Pinned(PolicyEsl):
    """Only where it says."""

    def __init__(self, name: str, *where: str) -> None:
        super().__init__(name)
        self.where = [NodeName(node) for node in where]

    def requires(self, task: Task) -> Vector:
        return {self.key("here"): 1}

    def capacities(self, now: float) -> Wanted:
        return {node: {self.key("here"): UNLIMITED} for node in self.where} if self.tasks else {}

    def possible_nodes(self, task: Task) -> Collection[NodeName]:
        return self.where


def first(policy: PolicyEsl, task: Task) -> bool:
    return next(each.name for each in policy.tasks.values() if each.group == task.group) == task.name


def begun(policy: PolicyEsl, cpus: dict[str, int], **labels: dict[str, str]) -> PolicyWorld:
    """All nodes are known."""
    world = PolicyWorld(policy, nodes(cpus, **labels))
    world.restart(policy)
    return world


# -- scenario 9


@pytest.mark.parametrize(("pairs", "most", "on"), [(2, 1, 2), (4, 2, 2), (3, 1, 3)])
@pytest.mark.parametrize("seed", range(5))
def test_each_pair_is_together_and_no_node_has_more_pairs_than_one(pairs: int, most: int, on: int, seed: int) -> None:
    both = AllOf("pairs", Together("co"), Balance("lb", most))
    world = PolicyWorld(both, nodes({f"n{i}": 8 for i in range(on)}), seed=seed)
    for i in range(2 * pairs):
        world.launch(f"t{i}", f"g{i // 2}")
    world.settle()
    where = [world.where(f"t{2 * i}", f"t{2 * i + 1}") for i in range(pairs)]
    assert all(a == b for a, b in where)
    assert Counter(a for a, _ in where) == {f"n{i}": most for i in range(on)}


def test_a_pair_more_than_there_is_room_for_waits_as_a_whole_and_comes_when_another_has_gone() -> None:
    world = PolicyWorld(AllOf("pairs", Together("co"), Balance("lb", 1)), nodes({"n1": 8}))
    for i in range(4):
        world.launch(f"t{i}", f"g{i // 2}")
    world.settle()
    waiting = [name for name in world.pods if world.pods[name].node is None]
    assert waiting in (["t0", "t1"], ["t2", "t3"])
    for name in set(world.pods) - set(waiting):
        world.finish(name)
    world.settle()
    assert world.where(*waiting) == ["n1", "n1"]


def test_nothing_is_left_of_any_part_when_all_is_over() -> None:
    world = PolicyWorld(AllOf("pairs", Together("co"), AntiAffinity("apart")), nodes({"n1": 8, "n2": 8}))
    world.launch("a", "g")
    world.settle()
    assert world.units
    world.finish("a")
    world.settle()
    assert world.units == {}


# -- any of several


def test_a_task_that_cannot_be_apart_is_anywhere_after_a_while_and_the_first_policy_forgets_it() -> None:
    apart, anywhere = AntiAffinity("apart"), Pinned("anywhere", "n1", "n2")
    world = begun(AnyOf("either", apart, anywhere, wait=3), {"n1": 8, "n2": 8})
    for i in range(3):
        world.ask(f"t{i}", "web")
    world.pass_time(2.9)
    assert sorted(map(str, world.where("either--t0", "either--t1", "either--t2"))) == ["None", "n1", "n2"]
    world.pass_time(1)
    assert len(world.bound) == 3
    assert len(apart.tasks) == 2
    assert len(anywhere.tasks) == 1
    for name in list(world.pods):
        world.finish(name)
    world.pass_time(10)
    assert world.units == {}


def test_of_two_compositions_any_will_do() -> None:
    """Near the data and apart, or near the data."""
    strict = AllOf("strict", DataLocality("near1", {"d": ["n1"]}), AntiAffinity("apart"))
    world = begun(AnyOf("either", strict, DataLocality("near2", {"d": ["n1"]})), {"n1": 8, "n2": 8})
    world.ask("t0", "d"), world.ask("t1", "d")
    world.settle()
    assert Counter(world.where("either--t0", "either--t1")) == {"n1": 1, None: 1}
    world.pass_time(6)
    assert world.where("either--t0", "either--t1") == ["n1", "n1"]


def test_a_released_task_is_known_to_no_part() -> None:
    either = AnyOf("either", Pinned("p", "n9"), Pinned("q", "n8"))
    world = begun(either, {"n1": 8})
    world.ask("t")
    world.pass_time(7)
    world.release("t")
    world.pass_time(7)
    assert world.pods == {}
    assert [policy.tasks for policy in either.policies()] == [{}, {}, {}]
    assert world.units == {}


# -- what can never be


def test_what_no_node_can_ever_have_is_told_at_once_with_numbers_and_only_once() -> None:
    world = begun(AllOf("both", Pinned("p", "n1"), Pinned("q", "n2")), {"n1": 8, "n2": 8})
    world.ask("t")
    expected = "no node can ever take task 't'. Of 2 nodes: policy p: 1; policy q: 1; none meets all"
    assert [(notice.policy, notice.task, notice.text) for notice in world.notices] == [("both", "t", expected)]
    world.pass_time(100)
    world.ask("t")
    assert len(world.notices) == 1


def test_physical_needs_and_node_labels_count_beside_the_policies() -> None:
    world = begun(AllOf("both", Pinned("p", "n1", "n2")), {"n1": 4, "n2": 8, "n3": 16}, n1={"zone": "a"})
    world.ask("big", needs={CPU: 9 * MILLI})
    world.ask("fits", needs={CPU: 8 * MILLI})
    world.ask("labelled", needs={CPU: 5 * MILLI}, node_labels={"zone": "a"})
    assert [notice.text for notice in world.notices] == [
        "no node can ever take task 'big'. Of 3 nodes: cpu 9: 1; policy p: 2; none meets all",
        "no node can ever take task 'labelled'. Of 3 nodes: cpu 5: 2; labels zone=a: 1; policy p: 2; none meets all",
    ]


def test_a_node_that_comes_ends_the_trouble_and_when_it_is_lost_it_is_told_again() -> None:
    world = begun(AllOf("both", Pinned("p", "n2")), {"n1": 8})
    world.launch("t")
    assert len(world.notices) == 1
    world.add_node(nodes({"n2": 0})[0])
    world.settle()
    assert len(world.notices) == 1, "it has no cpu, so nothing has changed"
    world.add_node(nodes({"n2": 8})[0])
    world.settle()
    assert world.where("t") == ["n2"]
    world.launch("u", cpu=8)
    world.settle()
    world.lose_node("n2")
    world.settle()
    assert [notice.task for notice in world.notices] == ["t", "u"]


def test_a_policy_that_is_not_yet_furnished_a_full_node_and_a_cordoned_one_are_no_reason_for_alarm() -> None:
    world = begun(AllOf("both", DataLocality("near"), Together("co")), {"n1": 4})
    world.launch("reader", "d")
    world.create("full", needs={CPU: 4 * MILLI})
    world.settle()
    world.launch("other", "d", cpu=4)
    world.pass_time(100)
    assert world.where("reader", "other") == [None, None]
    assert world.notices == []


def test_nothing_is_told_before_all_nodes_are_known() -> None:
    world = PolicyWorld(AllOf("both", Pinned("p", "n2")), nodes({"n1": 8, "n2": 8}))
    world.launch("t")
    world.settle()
    assert world.notices == []


def test_of_alternatives_one_that_is_possible_is_enough() -> None:
    world = begun(AnyOf("either", Pinned("p", "n9"), Pinned("q", "n1")), {"n1": 8})
    world.ask("t", needs={CPU: MILLI})
    world.pass_time(10)
    assert world.notices == []
    assert world.where("either--t") == ["n1"]
    world = begun(AnyOf("either", Pinned("p", "n9"), Pinned("q", "n8")), {"n1": 8})
    world.ask("t", needs={CPU: MILLI})
    assert [notice.text for notice in world.notices] == [
        "no node can ever take task 't'. Of 1 nodes: cpu 1: 1; policy p or q: 0; none meets all"
    ]


def together_on(*where: str, needs: int = 4) -> AllOf:
    return AllOf("both", KnownGroup("near", size=2, needs={CPU: needs * MILLI}), Pinned("p", *where))


def test_a_known_group_for_all_of_which_no_node_is_large_enough_is_told_until_one_comes() -> None:
    world = begun(together_on("n1", "n3"), {"n1": 3, "n2": 8})
    world.launch("a", "g", cpu=2)
    world.launch("b", "g", cpu=2)
    why = "Of 2 nodes: cpu 2: 2; policy near: 1; policy p: 1; none meets all"
    assert [notice.text for notice in world.notices] == [f"no node can ever take task '{name}'. {why}" for name in "ab"]
    world.add_node(nodes({"n3": 8})[0])
    # Nobody comes to n2, which has room for all too: the other is tried after a while.
    world.pass_time(2 * KnownGroup.patience)
    assert world.where("a", "b") == ["n3", "n3"]
    assert len(world.notices) == 2


@pytest.mark.parametrize("seed", range(10))
def test_a_known_group_that_has_a_node_is_not_told_however_full_or_small_that_becomes(seed: int) -> None:
    both = together_on("n1")
    world = PolicyWorld(both, nodes({"n1": 4, "n2": 8}), seed=seed)
    world.restart(both)
    world.launch("a", "g", cpu=2)
    world.settle()
    world.add_node(nodes({"n1": 3})[0])
    world.launch("b", "g", cpu=1)
    world.settle()
    assert world.where("a", "b") == ["n1", "n1"]
    assert world.notices == []


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "has no parts"),
        ([Pinned("a"), AllOf("b", Pinned("a"))], "two policies have the name 'a'"),
        ([Pinned("whole")], "two policies have the name 'whole'"),
        ([AntiAffinity("a", namespace="other")], "policy 'a' has namespace 'other', and 'whole' has 'default'"),
        ([AntiAffinity("a", scheduler="other")], "policy 'a' has scheduler 'other'"),
        ([Soft("a", lambda task: [])], "policy 'a' launches pods itself"),
    ],
)
def test_policies_that_cannot_be_parts_of_one_are_refused(parts: list[PolicyEsl], why: str) -> None:
    for composition in (AllOf, AnyOf):
        with pytest.raises(ValueError, match=why):
            composition("whole", *parts)


def test_a_task_that_one_part_refuses_is_known_to_none() -> None:
    both = AllOf("both", AntiAffinity("apart"), DataLocality("near"))
    world = begun(both, {"n1": 8})
    with pytest.raises(InvalidName, match="name of the data"):
        world.ask("t")
    world.settle()
    assert [policy.tasks for policy in both.policies()] == [{}, {}, {}]
    assert world.units == {}


class Orders(RuleBasedStateMachine):
    """Readers of data are apart from each other near it, or after a while near it together; nodes come and go, the
    application dies and asks again, pods end, effects and news are late."""

    def __init__(self) -> None:
        super().__init__()
        self.world = PolicyWorld(self.policy(), nodes({"n1": 2, "n2": 2}), apart=True)
        self.asked: dict[str, str] = {}

    @staticmethod
    def policy() -> AnyOf:
        holders = {data: ["n1", "n2"] for data in "de"}
        strict = AllOf("strict", DataLocality("near", holders), AntiAffinity("apart"))
        return AnyOf("either", strict, DataLocality("loose", holders))

    @rule(name=st.sampled_from("tuvw"), data=st.sampled_from("de"))
    def ask(self, name: str, data: str) -> None:
        self.world.ask(name, self.asked.setdefault(name, data), needs={CPU: MILLI})

    @precondition(lambda self: self.asked)
    @rule(pick=st.integers(0, 1000))
    def release(self, pick: int) -> None:
        name = sorted(self.asked)[pick % len(self.asked)]
        del self.asked[name]
        self.world.release(name)

    @precondition(lambda self: self.world.actions())
    @rule(pick=st.integers(0, 1000))
    def something_happens(self, pick: int) -> None:
        actions = self.world.actions()
        actions[pick % len(actions)]()

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

    @rule(name=st.sampled_from(["n1", "n2", "n3"]))
    def a_node_comes_or_is_lost(self, name: str) -> None:
        if name in self.world.nodes:
            self.world.lose_node(name)
        else:
            self.world.add_node(nodes({name: 2})[0])

    @rule()
    def the_application_dies(self) -> None:
        self.world.restart(self.policy())
        for name, data in self.asked.items():
            self.world.ask(name, data, needs={CPU: MILLI})

    @invariant()
    def readers_are_near_and_those_who_shall_be_are_apart(self) -> None:
        apart = self.world.esl.policies()[3]
        for node in self.world.nodes:
            running = self.world.running(node)
            assert not running or node in ("n1", "n2")
            groups = Counter(pod.labels[apart.group_label] for pod in running if apart.label in pod.labels)
            assert all(count == 1 for count in groups.values()), groups

    def teardown(self) -> None:
        """In the end whoever is asked for runs, or has run, or there is no room near its data; then nothing is left."""
        self.world.pass_time(3000)
        self.readers_are_near_and_those_who_shall_be_are_apart()
        for name in self.asked:
            pod = self.world.pods.get(f"either--{name}")
            assert pod is not None or any(bound == f"either--{name}" for bound, _ in self.world.bound)
            if pod is not None and pod.node is None:
                for node in {NodeName("n1"), NodeName("n2")} & self.world.nodes.keys():
                    assert self.world.left(node, CPU) < MILLI
        for name in list(self.asked):
            self.world.release(name)
        for pod in list(self.world.pods.values()):
            self.world.delete(pod.name)
        self.world.pass_time(3000)
        esl = self.world.esl
        assert self.world.units == {}
        assert all(policy.tasks == {} for policy in esl.policies())
        assert self.world.pods == {}


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
