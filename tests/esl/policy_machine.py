"""What may happen to any policy for applications: tasks and nodes come, go and forget, others' pods take room, nodes
are cordoned, the application dies; effects and news are late, in any order.

A test's machine says how to make its policy, launches tasks, and adds what its policy promises. In the end all comes to
rest: whoever waits has no room anywhere, or `may_wait`; and when all is over, nothing is left behind.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from extender.core.cluster import Node, Pod
from extender.esl.runtime.policy_esl import PolicyEsl
from extender.kube.names import CPU, NodeName
from tests.esl.policy_world import MILLI, PolicyWorld, nodes

PICK = st.integers(0, 1000)


class PolicyMachine(RuleBasedStateMachine):
    cpus = 4
    most_nodes = 5

    def __init__(self) -> None:
        super().__init__()
        self.world = PolicyWorld(self.policy(), [self.node("n1"), self.node("n2")])
        self.asked = 0
        self.came = 0

    def policy(self) -> PolicyEsl:
        """A new one, as the application makes it when it starts."""
        raise NotImplementedError

    def node(self, name: str) -> Node:
        return nodes({name: self.cpus})[0]

    def may_wait(self, pod: Pod) -> bool:
        """Whether the policy has it wait, though there is room for it."""
        return False

    def happened(self) -> None:
        """Something that may change what a policy may promise."""

    @precondition(lambda self: self.world.actions())
    @rule(pick=PICK)
    def something_happens(self, pick: int) -> None:
        actions = self.world.actions()
        actions[pick % len(actions)]()

    @rule()
    def all_comes_to_rest(self) -> None:
        self.world.settle()

    @rule(seconds=st.sampled_from((1.0, 30.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @precondition(lambda self: self.world.pods)
    @rule(pick=PICK, kept=st.booleans())
    def one_ends(self, pick: int, kept: bool) -> None:
        """By itself if it runs; others delete it, whether it runs or waits."""
        pod = self.world.pods[sorted(self.world.pods)[pick % len(self.world.pods)]]
        (self.world.finish if kept and pod.node else self.world.delete)(pod.name)
        self.happened()

    @rule(cpu=st.integers(1, 3))
    def a_pod_of_others_comes(self, cpu: int) -> None:
        self.asked += 1
        self.world.create(f"other{self.asked}", None, {CPU: cpu * MILLI})
        self.happened()

    @precondition(lambda self: len(self.world.nodes) < self.most_nodes)
    @rule()
    def a_node_comes(self) -> None:
        self.came += 1
        self.world.add_node(self.node(f"m{self.came}"))
        self.happened()

    @precondition(lambda self: self.world.nodes)
    @rule(pick=PICK, gone=st.booleans())
    def a_node_is_lost_or_forgets(self, pick: int, gone: bool) -> None:
        (self.world.lose_node if gone else self.world.reset_node)(self.pick_node(pick))
        self.happened()

    @precondition(lambda self: self.world.nodes)
    @rule(pick=PICK)
    def a_node_is_cordoned_or_not_any_more(self, pick: int) -> None:
        name = self.pick_node(pick)
        self.world.cordon(name, not self.world.nodes[name].unschedulable)
        self.happened()

    @rule()
    def the_application_dies(self) -> None:
        self.world.restart(self.policy())

    def pick_node(self, pick: int) -> NodeName:
        return sorted(self.world.nodes)[pick % len(self.world.nodes)]

    def mine(self, pod: Pod) -> bool:
        return self.world.esl.label in pod.labels

    def tasks_on(self, node: str) -> list[Pod]:
        return [pod for pod in self.world.running(node) if self.mine(pod)]

    def waiting(self) -> list[Pod]:
        return [pod for pod in self.world.pods.values() if pod.node is None and self.mine(pod)]

    def has_room(self, pod: Pod, node: Node) -> bool:
        """Whether there is a node's own room for it, whatever the policy says."""
        return not node.unschedulable and pod.requests[CPU] <= self.world.left(node.name, CPU)

    def teardown(self) -> None:
        world = self.world
        world.pass_time(600)
        for pod in self.waiting():
            open_to_it = [name for name, node in world.nodes.items() if self.has_room(pod, node)]
            assert not open_to_it or self.may_wait(pod), (pod.name, open_to_it, world.units)
        self.at_rest()
        for task in list(world.esl.tasks):
            world.release(task)
        for name in sorted(world.pods):
            world.delete(name)
        world.pass_time(600)
        assert world.units == {}

    def at_rest(self) -> None:
        """What holds in the end, before all is over."""
