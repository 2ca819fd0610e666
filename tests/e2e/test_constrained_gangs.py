"""Gangs whose members require something of each other: the real kube-scheduler judges what Escher has planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from extender.core.gangs.state.gang import HOPELESS
from loadtests.shared.pods import Json
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import REAL_ONLY
from tests.e2e.workload import GANG_APPROACHES, Arena

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.parametrize("scheduler", GANG_APPROACHES),
]

ZONE = "e2e.test/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def zones(arena: Arena, layout: str) -> dict[str, str]:
    """Nodes of 8 CPU in these zones; the zone of each."""
    found = dict(zip(arena.nodes(len(layout)), layout, strict=True))
    for name, zone in found.items():
        arena.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {ZONE: zone}}})
    return found


def gang(arena: Arena, size: int, scheduler: str, *, cpu: int = 8, **spec: Any) -> list[Json]:
    members = arena.gang("train", size, scheduler, cpu=cpu)
    for member in members:
        member["metadata"]["labels"]["app"] = "train"
        member["spec"] |= spec
    return members


def term(key: str = ZONE) -> list[Json]:
    return [{"labelSelector": {"matchLabels": {"app": "train"}}, "topologyKey": key}]


def where(arena: Arena, names: Sequence[str], zone_of: dict[str, str]) -> str:
    return "".join(sorted(zone_of[node] for node in arena.until_bound(names).values()))


def test_members_that_want_to_be_together_are_in_a_zone_that_has_room_for_all(arena: Arena, scheduler: str) -> None:
    zone_of = zones(arena, "aabbb")
    near = {"podAffinity": {REQUIRED: term()}}
    assert where(arena, arena.create(*gang(arena, 3, scheduler, affinity=near)), zone_of) == "bbb"


def test_members_that_want_to_be_apart_are_each_in_a_zone_of_its_own(arena: Arena, scheduler: str) -> None:
    zone_of = zones(arena, "aaabc")
    apart = {"podAntiAffinity": {REQUIRED: term()}}
    assert where(arena, arena.create(*gang(arena, 3, scheduler, affinity=apart)), zone_of) == "abc"


def test_one_that_could_be_placed_nowhere_is_told_so_and_placed_when_a_zone_is_added(
    arena: Arena, scheduler: str
) -> None:
    zone_of = zones(arena, "aab")
    apart = {"podAntiAffinity": {REQUIRED: term()}}
    names = arena.create(*gang(arena, 3, scheduler, affinity=apart))
    eventually(lambda: HOPELESS in str(arena.until_rejected(names)), what="being told that there is no place")
    assert not arena.bound()
    [added] = arena.nodes(1)
    arena.api.patch(f"/api/v1/nodes/{added}", {"metadata": {"labels": {ZONE: "c"}}})
    assert where(arena, names, zone_of | {added: "c"}) == "abc"


@REAL_ONLY
def test_members_that_are_to_be_spread_are_equally_many_in_each_zone(arena: Arena, scheduler: str) -> None:
    zone_of = zones(arena, "aaaabbcc")
    even = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "train"}},
    }
    names = arena.create(*gang(arena, 6, scheduler, topologySpreadConstraints=[even]))
    assert where(arena, names, zone_of) == "aabbcc"


@REAL_ONLY
def test_members_with_a_host_port_are_each_on_a_node_of_its_own_that_has_it_free(arena: Arena, scheduler: str) -> None:
    nodes = arena.nodes(5)
    listens = [{"containerPort": 7000, "hostPort": 7000}]
    [taken] = arena.create(with_ports(arena.pod("other", scheduler, cpu=1), listens))
    there = arena.until_bound([taken])[taken]
    members = [with_ports(each, listens) for each in gang(arena, 4, scheduler, cpu=1)]
    assert set(arena.until_bound(arena.create(*members)).values()) == set(nodes) - {there}


def with_ports(pod: Json, listens: list[Json]) -> Json:
    pod["spec"]["containers"][0]["ports"] = listens
    return pod
