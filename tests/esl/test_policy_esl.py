"""What holds of every policy for applications, whatever it says."""

from __future__ import annotations

from extender.core.cluster import Pod
from extender.esl.anti_affinity import AntiAffinity
from extender.esl.base import PodGone, PodSeen
from extender.kube.names import CPU, NodeName, PodUid
from tests.esl.policy_world import MILLI, PolicyWorld, nodes


def test_a_pod_of_another_namespace_uses_room_and_is_no_task_whatever_it_is_labelled() -> None:
    world = PolicyWorld(AntiAffinity("apart"), nodes({"n1": 4}))
    world.launch("a", "web")
    world.settle()
    esl = world.esl
    labels = {esl.label: "a", esl.group_label: "db"}
    foreign = Pod(PodUid("x"), "elsewhere", "a", {CPU: MILLI}, node=NodeName("n1"), labels=labels)
    world.perform(esl.handle(PodSeen(foreign), world.now))
    world.settle()
    assert world.capacity("db") == {}
    assert esl.view.left(NodeName("n1"), CPU) == 2 * MILLI
    assert [pod.namespace for pod in esl.view.alive(esl.label)] == ["default"]
    world.perform(esl.handle(PodGone("elsewhere", "a"), world.now))
    world.settle()
    assert set(esl.tasks) == {"a"}
    assert world.capacity("web") == {"n1": 1}


def test_a_task_that_is_known_by_its_pod_alone_ends_with_it_though_it_was_never_bound() -> None:
    world = PolicyWorld(AntiAffinity("apart"), nodes({"n1": 0}))
    world.launch("a", "web")
    world.settle()
    world.restart(AntiAffinity("apart"))
    world.settle()
    assert world.capacity("web") == {"n1": 1}
    world.delete("a")
    world.settle()
    assert world.units == {}


def test_who_begins_anew_changes_nothing_where_all_is_as_it_should_be() -> None:
    world = PolicyWorld(AntiAffinity("apart"), nodes({"n1": 4, "n2": 4}))
    world.launch("a", "web")
    world.settle()
    world.restart(AntiAffinity("apart"))
    assert world.actions() == []
