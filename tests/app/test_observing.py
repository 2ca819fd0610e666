"""Observing: what would have been refused is told, of whom and why; nothing is refused, and nothing is held for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extender.app.cache.dry_run import HOLDS_GOOD
from extender.core.gang_ask import MalformedAsk
from extender.core.gangs.state.gang import NO_ROOM
from extender.core.names import GangKey
from extender.core.safety_switches import Act, Withheld
from extender.kube.names import NodeName
from tests.builders import gang_pods, node, pod
from tests.core.gang_world import GangWorld

N0 = NodeName("n0")
FULL = {"cpu": 8000}


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld()
    made.add_node(node("n0"))
    made.hold(observe_only=True)
    yield made
    made.check()


def refused(*about: str, gang: str = "") -> Withheld:
    return Withheld(Act.REFUSE, "default", GangKey("default", gang) if gang else None, about)


def test_a_pod_that_would_not_be_refused_is_not_told_of(world: GangWorld) -> None:
    ordinary = pod("ordinary")
    world.create(ordinary)
    world.filter(ordinary, [N0])
    world.bind(ordinary.uid)
    assert world.withheld == []


def test_a_member_that_would_be_refused_is_told_of_with_its_gang_and_why(world: GangWorld) -> None:
    members = gang_pods("train", 2, FULL)
    world.create(*members)
    world.filter(members[0], [N0])
    assert world.withheld == [refused("default/train-0", NO_ROOM, gang="train")]


def test_a_pod_that_no_node_has_its_resource_for_is_told_of_at_filter_and_at_bind(world: GangWorld) -> None:
    asking = pod("asking", {"escher.dev/default.data": 1})
    world.create(asking)
    world.filter(asking, [N0])
    world.bind(asking.uid)
    assert world.withheld == [
        refused("default/asking", "requested ephemeral resources do not exist on this node"),
        refused("default/asking", "does not fit on n0"),
    ]


def test_a_pod_that_kube_scheduler_offers_no_node_is_not_refused_by_us(world: GangWorld) -> None:
    asking = pod("asking", {"escher.dev/team.data": 1})
    world.create(asking)
    world.filter(asking, [])
    assert world.withheld == []


def test_a_malformed_ask_is_told_of_with_what_is_wrong(world: GangWorld) -> None:
    ask = MalformedAsk("gang-min-member", "x", "no number", "write one")
    odd = pod("odd", gang=ask)
    world.create(odd)
    world.filter(odd, [N0])
    assert world.withheld == [refused("default/odd", ask.reason)]


def test_what_a_gang_would_be_told_is_worked_out_anew_after_a_while(world: GangWorld) -> None:
    members = gang_pods("train", 2, FULL)
    world.create(*members)
    world.filter(members[0], [N0])
    world.add_node(node("n1"))
    both = list(world.nodes)
    told = []
    for seconds in (HOLDS_GOOD - 1, 1):
        world.pass_time(seconds)
        before = len(world.withheld)
        world.filter(members[1], both)
        told.append([each.about for each in world.withheld[before:]])
    assert told == [[("default/train-1", NO_ROOM)], []]
