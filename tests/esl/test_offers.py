"""What was offered counts for a while after it is gone, and what nobody takes counts as offered in vain."""

from __future__ import annotations

import math

import pytest

from extender.esl.base import (
    CapacityConfirmed,
    CapacitySeen,
    NodeGone,
    NodeSeen,
    PodSeen,
    RemoveCapacity,
    SetCapacity,
)
from extender.esl.policies.anti_affinity import AntiAffinity
from extender.esl.runtime.offers import Offers
from extender.esl.runtime.policy_esl import Task
from extender.kube.names import CPU, InvalidName, NodeName, ResourceKey
from tests.esl.policy_world import PolicyWorld, nodes

NODE, KEY = NodeName("n1"), ResourceKey("example.com/a.p--x")
PLACE = (NODE, KEY)


def test_what_a_node_had_until_lately_may_still_be_taken() -> None:
    offers = Offers(grace=5, patience=math.inf)
    offers.note({PLACE: 3}, (), 0)
    offers.note({PLACE: 2}, (), 10)
    offers.note({}, (), 12)
    assert [offers.exposed(NODE, KEY), offers.due()] == [3, 15]
    offers.note({}, (), 15)
    assert [offers.exposed(NODE, KEY), offers.due()] == [2, 17]
    offers.note({}, (), 17)
    assert [offers.exposed(NODE, KEY), offers.due(), offers.exposing(KEY)] == [0, None, set()]


def test_what_is_offered_anew_is_not_forgotten_with_what_was_before() -> None:
    offers = Offers(grace=5, patience=math.inf)
    for now, there in enumerate(({PLACE: 1}, {}, {PLACE: 1}, {PLACE: 1})):
        offers.note(there, (), float(now))
    offers.note({PLACE: 1}, (), 30)
    assert [offers.exposed(NODE, KEY), offers.exposing(KEY), offers.due()] == [1, {NODE}, None]


def test_what_nobody_takes_for_long_enough_was_offered_in_vain() -> None:
    offers = Offers(grace=0, patience=30)
    offers.note({PLACE: 1}, [PLACE], 100)
    offers.note({PLACE: 1}, [PLACE], 129)
    assert [offers.in_vain(NODE, KEY), offers.due()] == [-math.inf, 130]
    offers.note({PLACE: 1}, [PLACE], 130)
    assert [offers.in_vain(NODE, KEY), offers.due()] == [130, 160]
    offers.note({PLACE: 1}, (), 140)
    assert offers.due() is None


def test_a_node_is_told_the_next_only_when_it_has_answered_the_last() -> None:
    policy = AntiAffinity("apart")
    policy.begin([NodeSeen(node) for node in nodes({"n1": 8})], 0)
    key = policy.key("web")
    assert policy.ask(Task("a", "web"), 0)[1] == [SetCapacity(NODE, key, 1)]
    assert [policy.release("a", 0), policy.ask(Task("a", "web"), 0)[1], policy.release("a", 0)] == [[], [], []]
    assert policy.handle(CapacityConfirmed(NODE, key, 1), 0) == [RemoveCapacity(NODE, key)]


def test_what_is_under_way_to_a_node_that_was_lost_and_came_again_is_waited_for() -> None:
    policy = AntiAffinity("apart")
    (node,) = nodes({"n1": 8})
    policy.begin([NodeSeen(node)], 0)
    policy.ask(Task("a", "web"), 0)
    key = policy.key("web")
    told = [policy.handle(event, 0) for event in (NodeGone(NODE), NodeSeen(node), CapacityConfirmed(NODE, key, 0))]
    assert told == [[], [], [SetCapacity(NODE, key, 1)]]


def test_who_begins_decides_by_all_that_there_is_whatever_comes_first() -> None:
    policy = AntiAffinity("apart")
    world = PolicyWorld(policy, nodes({"n1": 8}))
    pod = world.launch("a", "web")
    seen = [NodeSeen(node) for node in world.nodes.values()]
    key = policy.key("web")
    assert AntiAffinity("apart").begin([*seen, CapacitySeen(NODE, key, 1), PodSeen(pod)], 0) == []


def test_an_ask_that_no_resource_can_be_named_after_leaves_nothing_behind() -> None:
    world = PolicyWorld(AntiAffinity("apart"), nodes({"n1": 8}))
    with pytest.raises(InvalidName, match="63"):
        world.ask("t", "g" * 60)
    assert world.esl.tasks == {}
    world.launch("a", "web")
    world.settle()
    assert world.where("a") == ["n1"]


def test_a_label_that_no_answer_of_ours_said_is_no_task() -> None:
    world = PolicyWorld(AntiAffinity("apart"), nodes({"n1": 8}))
    said = world.esl.requirement(Task("t", "web", {CPU: 1}))
    labels = {**said.labels, world.esl.group_label: "g" * 60}
    world.create("stray", type(said)(said.resources, labels))
    world.settle()
    assert world.esl.tasks == {}
