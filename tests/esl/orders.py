"""Everything that may happen around a policy for applications, in any order, as a Hypothesis state machine.

Who tests a policy derives from `Orders` and says which tasks there are, what must never be, and who may wait in the
end. News of pods and of nodes come by two ways here, and some nodes are filled by pods that the policy never sees.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.core.cluster import Pod
from extender.esl.runtime.policy_esl import PolicyEsl
from extender.kube.names import CPU, NodeName
from tests.esl.policy_world import MILLI, PolicyWorld, nodes

PICK = st.integers(0, 1000)
LONG = 2000.0


class Orders(RuleBasedStateMachine):
    cpus = 4

    def __init__(self) -> None:
        super().__init__()
        self.world = PolicyWorld(self.policy(), nodes({"n1": self.cpus, "n2": self.cpus}), apart=True)
        self.world.at_one_sitting = True
        self.serial = 0
        self._checked = 0

    # -- what a policy's test says --------------------------------------------------------------------------------

    def policy(self) -> PolicyEsl:
        raise NotImplementedError

    def check(self) -> None:
        """What must never be."""
        raise NotImplementedError

    def may_wait(self, pod: Pod) -> bool:
        """Whether it is right that this one still waits when all has come to rest."""
        raise NotImplementedError

    def check_binding(self, pod: str, node: NodeName) -> None:
        """What must be when a pod is bound."""

    # -- what happens -----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.actions())
    @rule(pick=PICK)
    def something_happens(self, pick: int) -> None:
        actions = self.world.actions()
        actions[pick % len(actions)]()

    @precondition(lambda self: any(pod.node for pod in self.world.pods.values()))
    @rule(pick=PICK, kept=st.booleans())
    def one_ends(self, pick: int, kept: bool) -> None:
        running = [pod.name for pod in self.world.pods.values() if pod.node and not pod.finished]
        if running:
            (self.world.finish if kept else self.world.delete)(running[pick % len(running)])

    @rule()
    def a_node_comes(self) -> None:
        self.serial += 1
        self.world.add_node(nodes({f"m{self.serial}": self.cpus})[0])

    @precondition(lambda self: self.world.nodes)
    @rule(pick=PICK, how=st.sampled_from(["lost", "forgets", "cordoned", "uncordoned", "lost for a moment"]))
    def something_is_with_a_node(self, pick: int, how: str) -> None:
        name = sorted(self.world.nodes)[pick % len(self.world.nodes)]
        node = self.world.nodes[name]
        match how:
            case "lost":
                self.world.lose_node(name)
            case "lost for a moment":
                self.world.lose_node(name)
                self.world.add_node(node)
            case "forgets":
                self.world.reset_node(name)
            case _:
                self.world.cordon(name, how == "cordoned")

    @rule(cpu=st.integers(1, 4), unseen=st.booleans())
    def somebody_else_comes(self, cpu: int, unseen: bool) -> None:
        self.serial += 1
        self.world.create(f"other{self.serial}", None, {CPU: cpu * MILLI}, namespace="elsewhere" if unseen else "")

    @rule()
    def the_application_dies(self) -> None:
        self.world.restart(self.policy())

    @rule(seconds=st.sampled_from([1, 6, 31]))
    def time_passes(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    @invariant()
    def what_must_never_be_is_not(self) -> None:
        bound, self._checked = self.world.bound[self._checked :], len(self.world.bound)
        for pod, node in bound:
            if pod in self.world.pods and self.mine(self.world.pods[pod]):
                self.check_binding(pod, node)
        self.check()

    def teardown(self) -> None:
        """Who can be placed is placed in the end, and nothing is left behind when all is over."""
        world = self.world
        for task in [task for task in world.esl.tasks if task not in world.pods]:
            world.release(task)
        world.pass_time(LONG)
        self.what_must_never_be_is_not()
        waiting = [pod for pod in world.pods.values() if pod.node is None and self.mine(pod)]
        for pod in waiting:
            assert self.may_wait(pod), (pod.name, pod.requests, world.units, world.where(*world.pods))
        for name in list(world.pods):
            world.delete(name)
        world.settle()
        for task in list(world.esl.tasks):
            world.release(task)
        world.pass_time(LONG)
        assert [world.units, world.esl.tasks] == [{}, {}]

    # -- words ------------------------------------------------------------------------------------------------------

    def mine(self, pod: Pod) -> bool:
        return self.world.esl.label in pod.labels

    def group(self, pod: Pod) -> str:
        return pod.labels.get(self.world.esl.group_label, "")

    def running(self, node: str) -> list[Pod]:
        return [pod for pod in self.world.running(node) if self.mine(pod)]

    def has_room(self, node: NodeName, pod: Pod, cpu: int = 0) -> bool:
        """Whether, but for the policy, the pod could go there."""
        asked = cpu * MILLI or pod.requests.get(CPU, 0)
        return not self.world.nodes[node].unschedulable and self.world.left(node, CPU) >= asked

    def roomy(self, pod: Pod, cpu: int = 0) -> list[NodeName]:
        return [node for node in self.world.nodes if self.has_room(node, pod, cpu)]
