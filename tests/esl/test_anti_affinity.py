"""Anti-affinity for applications: no node ever has two tasks of one group, whatever happens in whatever order."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.esl.policies.anti_affinity import AntiAffinity
from tests.esl.policy_world import PolicyWorld, nodes

GROUPS = ("web", "db")


def test_of_four_tasks_on_three_nodes_three_run_apart_and_one_waits() -> None:
    world = PolicyWorld(AntiAffinity("apart"), nodes({"n1": 8, "n2": 8, "n3": 8}))
    names = [world.launch(f"t{i}", "web").name for i in range(4)]
    world.settle()
    assert sorted(map(str, world.where(*names))) == ["None", "n1", "n2", "n3"]
    world.launch("other", "db")
    world.settle()
    assert world.where("other") != [None]


def test_whoever_waits_is_placed_when_one_has_finished() -> None:
    world = PolicyWorld(AntiAffinity("apart"), nodes({"n1": 8}))
    world.launch("a", "web"), world.launch("b", "web")
    world.settle()
    ((first, _),) = world.bound
    world.finish(first)
    world.settle()
    assert {name for name, _ in world.bound} == {"a", "b"}


def test_nothing_is_left_when_all_have_finished() -> None:
    world = PolicyWorld(AntiAffinity("apart"), nodes({"n1": 8, "n2": 8}))
    world.launch("a", "web")
    world.settle()
    assert world.capacity("web") == {"n1": 1, "n2": 1}
    world.finish("a")
    world.settle()
    assert world.units == {}


class Orders(RuleBasedStateMachine):
    """Tasks come and go, nodes too, kubelets forget, the application dies; effects and news are late."""

    def __init__(self) -> None:
        super().__init__()
        self.world = PolicyWorld(AntiAffinity("apart"), nodes({"n1": 4, "n2": 4}))
        self.asked = 0

    @rule(group=st.sampled_from(GROUPS))
    def launch(self, group: str) -> None:
        self.asked += 1
        self.world.launch(f"t{self.asked}", group)

    @precondition(lambda self: self.world.actions())
    @rule(pick=st.integers(0, 1000))
    def something_happens(self, pick: int) -> None:
        actions = self.world.actions()
        actions[pick % len(actions)]()

    @precondition(lambda self: any(pod.node for pod in self.world.pods.values()))
    @rule(pick=st.integers(0, 1000), kept=st.booleans())
    def one_ends(self, pick: int, kept: bool) -> None:
        running = [pod.name for pod in self.world.pods.values() if pod.node]
        (self.world.finish if kept else self.world.delete)(running[pick % len(running)])

    @rule()
    def a_node_comes(self) -> None:
        self.world.add_node(nodes({f"m{len(self.world.nodes)}": 4})[0])

    @precondition(lambda self: self.world.nodes)
    @rule(pick=st.integers(0, 1000), gone=st.booleans())
    def a_node_is_lost_or_forgets(self, pick: int, gone: bool) -> None:
        name = sorted(self.world.nodes)[pick % len(self.world.nodes)]
        (self.world.lose_node if gone else self.world.reset_node)(name)

    @rule()
    def the_application_dies(self) -> None:
        self.world.restart(AntiAffinity("apart"))

    @invariant()
    def no_node_has_two_of_a_group(self) -> None:
        label = self.world.esl.group_label
        there = Counter((pod.node, pod.labels[label]) for name in self.world.nodes for pod in self.world.running(name))
        assert all(count == 1 for count in there.values()), there

    def teardown(self) -> None:
        """In the end whoever waits has been placed, or every node has one of its group."""
        self.world.pass_time(300)
        self.no_node_has_two_of_a_group()
        label = self.world.esl.group_label
        for pod in self.world.pods.values():
            if pod.node is None:
                for name in self.world.nodes:
                    full = self.world.left(name, next(iter(pod.requests))) < 1000
                    assert full or any(other.labels[label] == pod.labels[label] for other in self.world.running(name))


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
