"""What every policy for applications has of the base: a refused ask leaves no trace, who lists does nothing yet, and
who asks for it has one change of a place under way at a time."""

from __future__ import annotations

import pytest

from extender.core.cluster import Node
from extender.esl.base import CapacityConfirmed, NodeSeen, SetCapacity
from extender.esl.policies.anti_affinity import AntiAffinity
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import InvalidName, NodeName
from extender.kube.quantities import Vector
from tests.esl.policy_world import PolicyWorld, nodes

N1 = NodeName("n1")


class Dial(PolicyEsl):
    """Nodes have what the test says."""

    units = 0

    def requires(self, task: Task) -> Vector:
        return {}

    def capacities(self, now: float) -> Wanted:
        return {node: {self.key("x"): self.units} for node in self.view.nodes}


def test_a_refused_ask_leaves_no_trace() -> None:
    esl = AntiAffinity("apart")
    with pytest.raises(InvalidName):
        esl.ask(Task("t", "g" * 63), 0.0)
    assert esl.tasks == {}
    esl.ask(Task("t", "web"), 0.0)
    with pytest.raises(InvalidName):
        esl.ask(Task("t", "g" * 63), 0.0)
    assert esl.tasks["t"].group == "web"


def test_who_is_told_what_there_is_before_anything_is_done_takes_nothing_away_in_between() -> None:
    world = PolicyWorld(AntiAffinity("apart"), nodes({"n1": 8, "n2": 8}))
    world.launch("a", "web")
    world.settle()
    world.restart(AntiAffinity("apart"))
    assert world.actions() == [], "everything is as it was: nothing is to be done"
    assert world.capacity("web") == {"n1": 1, "n2": 1}


def test_a_place_whose_change_is_under_way_is_changed_again_after_it() -> None:
    esl = Dial("dial")
    esl.units = 3
    assert esl.handle(NodeSeen(Node(N1, {})), 0.0) == [SetCapacity(N1, esl.key("x"), 3)]
    esl.units = 1
    assert esl.handle(NodeSeen(Node(N1, {})), 0.0) == []
    assert esl.at_most(N1, esl.key("x")) == 3
    assert esl.handle(CapacityConfirmed(N1, esl.key("x"), 3), 0.0) == [SetCapacity(N1, esl.key("x"), 1)]
    assert esl.at_most(N1, esl.key("x")) == 3, "until the node says otherwise"
    assert esl.handle(CapacityConfirmed(N1, esl.key("x"), 1), 0.0) == []
    assert esl.at_most(N1, esl.key("x")) == 1
