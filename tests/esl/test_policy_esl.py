"""What holds of every policy for applications, whatever it says."""

from __future__ import annotations

import pytest

from extender.core.cluster import Pod
from extender.esl.base import PodGone, PodSeen
from extender.esl.policies.anti_affinity import AntiAffinity
from extender.esl.policies.queue import Queue
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


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("old", ["deleted", "finished", "finished, and deleted later"])
def test_a_task_is_not_over_while_another_pod_of_it_waits_made_again_by_its_controller(old: str, seed: int) -> None:
    """As of a Deployment that is rolled out, or of a Job whose pod has failed."""
    mutex = Queue("mutex", capacity=1)
    world = PolicyWorld(mutex, nodes({"n1": 8}), seed=seed)
    requirement = world.ask("web")
    world.create("web-1", requirement)
    world.settle()
    assert world.where("web-1") == ["n1"]
    if old == "finished, and deleted later":
        world.finish("web-1")
        world.settle()
    world.create("web-2", requirement)
    world.pass_time(60)
    if old != "finished":
        world.delete("web-1")
    else:
        world.finish("web-1")
    world.pass_time(60)
    assert world.where("web-2") == ["n1"]
    world.finish("web-2")
    world.pass_time(60)
    assert (mutex.tasks, world.units) == ({}, {})


def test_news_of_a_pod_that_finished_long_ago_does_not_end_the_task_that_was_made_again() -> None:
    mutex = Queue("mutex", capacity=1)
    world = PolicyWorld(mutex, nodes({"n1": 8}))
    world.create("web-1", world.ask("web"))
    world.settle()
    world.finish("web-1")
    world.settle()
    world.create("web-2", world.ask("web"), {CPU: 9 * MILLI})
    world.pass_time(60)
    world.finish("web-1")
    world.pass_time(60)
    world.add_node(nodes({"n2": 16})[0])
    world.pass_time(120)
    assert world.where("web-2") == ["n2"]
