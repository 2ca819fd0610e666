"""What would be: gangs that do not exist yet, nodes drained and added, quorums lowered; by the rules that decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.app.contracts.errors import Invalid, NotFound
from extender.app.contracts.simulation_changes import (
    Added,
    Drained,
    Ended,
    Offered,
    PolicySet,
    QuorumSet,
    Released,
    Uncordoned,
)
from extender.app.contracts.simulation_request import (
    GangThere,
    PodsAsked,
    PodThere,
    SimulationRequest,
    SimulationResult,
)
from extender.app.explain.simulate import simulate_on
from extender.core.gang_ask import GangAsk, derived_key
from extender.core.ledger.ledger import Holder, Holding, HoldingKind
from extender.core.names import EphemeralName, GangKey
from extender.core.policies.policy_types import HOSTNAME, AntiAffinity, PolicyInForce
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.app.world import World
from tests.builders import gang_pods, node, pod, units

pytestmark = pytest.mark.anyio
N1, N2, N3 = NodeName("n1"), NodeName("n2"), NodeName("n3")
"""Of 8 CPU each."""


def gang(count: int, cpu: int = 4000, **more: Any) -> PodsAsked:
    given: dict[str, Any] = {"name": "big", "labels": {}, "node_selector": {}, "gang": True, **more}
    return PodsAsked(namespace="default", count=count, each=units({"cpu": cpu}), **given)


def simulate(world: World, *changes: Any, ask: Any = None) -> SimulationResult:
    return simulate_on(world.scheduler, SimulationRequest(changes, ask))


def nodes_of(found: SimulationResult) -> list[str | None]:
    return [place.node for place in found.places]


async def test_a_gang_that_would_fit_is_told_where_each_member_would_be(world: World) -> None:
    found = simulate(world, ask=gang(6))
    assert found.fits
    assert sorted(map(str, nodes_of(found))) == ["n1", "n1", "n2", "n2", "n3", "n3"]
    assert found.explanation is None


async def test_one_that_would_not_fit_is_told_why_with_numbers(world: World) -> None:
    found = simulate(world, ask=gang(7))
    assert not found.fits
    assert found.places == []
    assert found.explanation is not None
    assert "6 of 7" in found.explanation.summary
    assert any("1 more members" in remedy for remedy in found.explanation.remedies)


async def test_who_tries_many_things_is_told_whether_it_fits_and_not_why_not(world: World) -> None:
    found = simulate_on(world.scheduler, SimulationRequest((), gang(7)), explains=False)
    assert (found.fits, found.explanation) == (False, None)


async def test_nodes_like_one_that_is_there_would_make_room(world: World) -> None:
    assert simulate(world, Added(N1, 1), ask=gang(7)).fits


async def test_what_others_hold_counts(world: World) -> None:
    world.start_pod("p", {"cpu": 5000}, on="n1")
    assert not simulate(world, ask=gang(6)).fits


async def test_when_a_pod_has_ended_there_is_room(world: World) -> None:
    world.start_pod("p", {"cpu": 5000}, on="n1")
    assert simulate(world, Ended("team", "p"), ask=gang(6)).fits


async def test_a_drained_nodes_pods_are_told_where_they_could_go_and_who_could_not(world: World) -> None:
    world.start_pod("large", {"cpu": 7000}, on="n1")
    world.start_pod("small", {"cpu": 1000}, on="n1")
    world.start_pod("other", {"cpu": 2000}, on="n2")
    world.start_pod("third", {"cpu": 2000}, on="n3")
    found = simulate(world, Drained(N1))
    assert not found.fits
    assert {place.pod: place.node in (N2, N3) for place in found.moved} == {"team/large": False, "team/small": True}


async def test_the_next_finds_what_the_one_before_has_left(world: World) -> None:
    found = simulate(world, ask=gang(4, 5000, gang=False))
    assert (found.fits, [place.node is None for place in found.places]) == (False, [False, False, False, True])
    assert found.explanation is not None


@pytest.mark.parametrize(("changes", "fits"), [([], False), ([Uncordoned(N1)], True)])
async def test_a_cordoned_node_takes_pods_once_it_is_not(world: World, changes: Any, fits: bool) -> None:
    world.scheduler.observe(node("n1", unschedulable=True))
    assert simulate(world, *changes, ask=gang(6)).fits is fits


async def test_a_gang_that_waits_would_go_with_a_lower_quorum(world: World) -> None:
    for member in gang_pods("train", 7, {"cpu": 4000}):
        world.scheduler.observe(member)
    key = GangKey("default", "train")
    assert not simulate(world, ask=GangThere(key)).fits
    assert simulate(world, QuorumSet(key, 6), ask=GangThere(key)).fits


async def test_a_gang_would_be_placed_otherwise_were_there_a_policy(world: World) -> None:
    for name in ("n1", "n2", "n3"):
        world.scheduler.observe(node(name, labels={HOSTNAME: name}))
    apart = PolicyInForce(AntiAffinity(), selector=())
    assert simulate(world, PolicySet("default", "apart", apart), ask=gang(3, 1000)).fits
    assert simulate(world, PolicySet("default", "apart", None)).fits
    refused = simulate(world, PolicySet("default", "apart", apart), ask=gang(4, 1000, name="larger"))
    assert not refused.fits
    assert simulate(world, PolicySet("default", "apart", None), ask=gang(4, 1000, name="third")).fits


async def test_a_pod_that_waits_would_go_when_another_has_ended(world: World) -> None:
    for name in ("n1", "n2", "n3"):
        world.start_pod(f"on-{name}", {"cpu": 7000}, on=name)
    world.start_pod("waits", {"cpu": 4000})
    there = PodThere("team", "waits")
    refused = simulate(world, ask=there)
    assert not refused.fits
    assert refused.explanation is not None
    assert "requested 4 cpu" in refused.explanation.summary
    assert nodes_of(simulate(world, Ended("team", "on-n2"), ask=there)) == [N2]


@pytest.mark.parametrize(
    ("changes", "ask", "field"),
    [
        ([Drained(NodeName("n9"))], None, "node"),
        ([Added(N1, 0)], None, "count"),
        ([Added(N1, 6000), Added(N2, 6000)], None, "changes"),
        ([Ended("team", "nobody")], None, "pod"),
        ([Released("team", "nobody")], None, "holder"),
        ([Offered(EphemeralName("team", "data"), NodeName("n9"), 1)], None, "node"),
        ([QuorumSet(GangKey("default", "none"), 2)], None, "gang"),
        ([], GangThere(GangKey("default", "none")), "gang"),
        ([], PodThere("team", "nobody"), "pod"),
        ([], gang(0), "count"),
    ],
)
async def test_what_is_not_there_is_told(world: World, changes: Any, ask: Any, field: str) -> None:
    with pytest.raises((NotFound, Invalid)) as refused:
        simulate(world, *changes, ask=ask)
    assert refused.value.field == field


@pytest.mark.parametrize("own", [(), ("zone",)])
async def test_nodes_may_be_added_in_places_of_their_own(world: World, own: tuple[str, ...]) -> None:
    for name in ("n1", "n2", "n3"):
        world.scheduler.observe(node(name, labels={HOSTNAME: name, "zone": "a"}))
    apart = PolicyInForce(AntiAffinity(topology_key="zone"), selector=())
    found = simulate(world, PolicySet("default", "apart", apart), Added(N1, 2, own), ask=gang(3, 1000))
    assert found.fits is bool(own)


async def test_a_resource_may_be_offered_and_what_a_claim_holds_released(world: World) -> None:
    data = ResourceKey("escher.dev/team.data")
    waits = PodsAsked(namespace="team", name="reader", each=units({"cpu": 100, data: 1}))
    assert not simulate(world, ask=waits).fits
    name = EphemeralName("team", "data")
    owner = GangKey("agents", "claim:a")
    claim = Holding(Holder("claim:agents/a"), N2, {data: 2}, HoldingKind.RESERVATION, owner, world.clock.steady() + 60)
    assert nodes_of(simulate(world, Offered(name, N2, 2), ask=replace(waits, name="first"))) == [N2]
    simulate(world, Ended("team", "first-0"))
    world.do(world.scheduler.commit([claim]))
    assert not simulate(world, ask=replace(waits, name="second")).fits
    assert nodes_of(simulate(world, Released("agents", "a"), ask=replace(waits, name="third"))) == [N2]
    # Nobody has set it.
    world.scheduler.set_capacity(N2, data, 0)


async def test_whoever_waits_too_and_may_be_tried_first_has_the_place(world: World) -> None:
    world.start_pod("full", {"cpu": 8000}, on="n1")
    for name in ("n2", "n3"):
        world.start_pod(f"more-{name}", {"cpu": 6000}, on=name)
    for name in ("early", "late"):
        waits = world.start_pod(name, {"cpu": 6000})
        world.do(world.scheduler.filter(waits, []))
    assert not simulate(world, Ended("team", "more-n2"), ask=PodThere("team", "late")).fits
    assert simulate(world, Ended("team", "more-n3"), ask=PodThere("team", "late")).fits


async def test_gangs_that_share_a_name_are_asked_about_by_their_longer_ones(world: World) -> None:
    keys = [derived_key("default", "Job", "train", group, f"uid-{group}") for group in ("batch", "batch.example.org")]
    for key in keys:
        world.do(world.scheduler.observe(pod(f"of-{key.group}", gang=GangAsk(key, 2, 4.0))))
    longer = [GangKey("default", f"job.train@{key.group}") for key in keys]
    for changes, ask in [((), GangThere(longer[0])), ((QuorumSet(longer[1], 1),), GangThere(longer[0]))]:
        assert not simulate(world, *changes, ask=ask).fits
    with pytest.raises(Invalid) as several:
        simulate(world, QuorumSet(GangKey("default", "job.train"), 1))
    assert (several.value.field, several.value.value) == ("gang", "job.train")
    with pytest.raises(Invalid, match=r"gang default/job\.train exists already"):
        simulate(world, ask=gang(1, name="job.train"))
    assert simulate(world, QuorumSet(longer[0], 1), ask=GangThere(longer[0])).fits
    for key in keys:
        world.do(world.scheduler.forget(world.scheduler.cache.pods[PodUid(f"uid-of-{key.group}")]))
