"""Scheduling domains: a namespace touches no node and no name outside of its own; what stands there already stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from extender.app.cache.cache import Rules
from extender.app.contracts.api import Claim, SetResource, Transact
from extender.app.contracts.errors import Invalid, OutsideDomain
from extender.app.contracts.ports import EphemeralResource, NodeChoice
from extender.core.ledger.ledger import Mode
from extender.core.names import EphemeralName
from extender.core.tenancy.isolation import UNLIMITED, Allowance
from extender.kube.names import CPU, NodeName, ResourceKey
from tests.app.fakes import every_node, on_node
from tests.app.world import World

pytestmark = pytest.mark.anyio
N1, N2 = NodeName("n1"), NodeName("n2")
POOL = Allowance(nodes={"pool": ("a",)}, names=("data*", "x?"))
OUTSIDE = "node n3 is outside of the scheduling domain of team: name a node that has pool=a"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """n1 and n2 are in the namespace's domain, n3 and n4 are not."""
    made = World(rules=Rules(allowances=(UNLIMITED, {"team": POOL})))
    made.add_nodes("n1", "n2", labels={"pool": "a"})
    made.add_nodes("n3", labels={"pool": "b"})
    made.add_nodes("n4")
    async with made.running():
        yield made
        await made.quiet()
        made.audit()


def relabel(world: World, name: str, **labels: str) -> None:
    world.add_nodes(name, has={"cpu": 8000}, labels=labels)


def said(world: World, name: str) -> tuple[bool, str, str]:
    *_, (_, ready, reason, message) = [each for each in world.api.store.statuses if each[0] == f"team/{name}"]
    return ready, reason, message


# -- nodes -------------------------------------------------------------------------------------------------------


async def test_a_node_outside_is_refused_with_what_to_do(world: World) -> None:
    with pytest.raises(OutsideDomain) as refused:
        await world.set("data1", 1, "n3")
    assert (refused.value.field, refused.value.detail) == ("node_spec", OUTSIDE)
    assert not world.api.objects
    await world.set("data1", 1, "n3", namespace="other")


async def test_a_node_that_is_not_there_is_said_to_be_none(world: World) -> None:
    with pytest.raises(Invalid, match="there is no node n9"):
        await world.set("data1", 1, "n9")


@pytest.mark.parametrize(
    "choice", [every_node(), NodeChoice(available={CPU: 1000}), NodeChoice(labels={}), NodeChoice(limit=3)]
)
async def test_a_rule_chooses_inside_alone(world: World, choice: NodeChoice) -> None:
    await world.set("data1", 1, choice)
    assert world.capacity("data1") == {"n1": 1, "n2": 1}
    world.api.put(EphemeralResource(EphemeralName("team", "data2"), {}, capacity=1, choice=choice))
    await world.quiet()
    assert world.capacity("data2") == {"n1": 1, "n2": 1}


async def test_a_rule_that_finds_nobody_inside_says_so(world: World) -> None:
    with pytest.raises(Invalid, match="has the labels pool=b, among the 2 nodes of the namespace's scheduling domain"):
        await world.set("data1", 1, NodeChoice(labels={"pool": "b"}))
    relabel(world, "n1")
    relabel(world, "n2")
    with pytest.raises(Invalid, match="none of the 4 nodes is in the namespace's scheduling domain"):
        await world.set("data1", 1, every_node())


async def test_an_object_of_kubectl_is_in_force_on_its_nodes_inside_and_says_which_are_not(world: World) -> None:
    world.api.put(EphemeralResource(EphemeralName("team", "data1"), {N1: 2, NodeName("n3"): 2}))
    await world.quiet()
    assert world.capacity("data1") == {"n1": 2}
    kept = "it keeps there what it had before, and gets no more"
    assert said(world, "data1") == (False, "OutsideDomain", f"{OUTSIDE}; {kept}")
    relabel(world, "n3", pool="a")
    assert world.capacity("data1") == {"n1": 2, "n3": 2}
    await world.quiet()
    assert said(world, "data1")[:2] == (True, "Set")


async def test_on_a_node_that_leaves_the_domain_all_stays_and_nothing_is_new(world: World) -> None:
    await world.set("data1", 4, "n1")
    await world.set("data2", 4, every_node())
    relabel(world, "n1", pool="b")
    await world.quiet()
    assert (world.capacity("data1"), world.capacity("data2")) == ({"n1": 4}, {"n1": 4, "n2": 4})
    await world.set("data1", 4, "n1", ttl_seconds=60.0)
    await world.set("data1", 3, "n1")
    with pytest.raises(OutsideDomain):
        await world.set("data1", 4, "n1")
    with pytest.raises(OutsideDomain):
        await world.set("data3", 1, "n1")
    # The same rule is as it was; another chooses anew, inside alone.
    await world.set("data2", 4, every_node())
    assert world.capacity("data2") == {"n1": 4, "n2": 4}
    await world.set("data2", 5, every_node())
    assert world.capacity("data2") == {"n2": 5}
    await world.set("data1", 0, "n1")
    assert world.capacity("data1") == {}


async def test_it_stays_after_a_restart_too(world: World) -> None:
    await world.set("data1", 4, "n1")
    await world.quiet()
    relabel(world, "n1", pool="b")
    after = World(rules=Rules(allowances=(UNLIMITED, {"team": POOL})))
    after.api.objects, after.api.nodes, after.api.revision = world.api.objects, world.api.nodes, world.api.revision
    async with after.running():
        after.list()
        await after.quiet()
        assert (after.capacity("data1"), after.stated("n1")) == ({"n1": 4}, {"data1": 4})


async def test_a_domain_that_is_narrowed_while_it_runs_takes_nothing_away(world: World) -> None:
    await world.set("data1", 4, every_node())
    world.isolating.set(UNLIMITED, {"team": Allowance(nodes={"pool": ("c",)})})
    await world.quiet()
    assert world.capacity("data1") == {"n1": 4, "n2": 4}
    with pytest.raises(OutsideDomain):
        await world.set("data1", 5, "n1")


async def test_of_several_nodes_at_once_those_outside_are_refused(world: World) -> None:
    name = EphemeralName("team", "data1")
    why = await world.resources.spread(name, {N1: 2, NodeName("n3"): 1, NodeName("n4"): 1})
    assert (world.capacity("data1"), sorted(why)) == ({"n1": 2}, ["n3", "n4"])
    assert why[NodeName("n3")] == OUTSIDE


# -- names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
async def test_a_name_that_does_not_match_is_refused(world: World, shared: bool) -> None:
    with pytest.raises(OutsideDomain) as refused:
        await world.set("secret", 1, "n1", shared=shared)
    assert refused.value.field == "name"
    assert str(refused.value).endswith("is outside of the scheduling domain of team: its names match data*, x?")
    await world.set("x1", 1, "n1", shared=shared)


async def test_an_object_of_kubectl_with_such_a_name_is_in_force_nowhere(world: World) -> None:
    world.api.put(EphemeralResource(EphemeralName("team", "secret"), {N1: 2}))
    await world.quiet()
    assert (world.capacity("secret"), said(world, "secret")[1]) == ({}, "OutsideDomain")


# -- transactions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(Mode))
async def test_a_transaction_does_nothing_outside(world: World, mode: Mode) -> None:
    await world.set("data1", 4, "n1")
    await world.set("secret", 4, "n1", namespace="other")

    def claim(holder: str, node: NodeName, **units: int) -> Claim:
        asks = {ResourceKey(key.replace("__", "escher.dev/").replace("_", ".")): n for key, n in units.items()}
        return Claim(namespace="team", holder=holder, node=node, units=asks, ttl_seconds=9.0)

    operations: list[Any] = [
        claim("a", N1, cpu=1, __team_data1=1),
        claim("b", NodeName("n3"), cpu=1),
        claim("c", N1, __other_secret=1),
        claim("d", N1, __team_secret=1),
        claim("e", N1, __secret=1),
        SetResource(name=EphemeralName("team", "data2"), capacity=1, choice=on_node("n3")),
    ]
    outcome = await world.transactions.transact(Transact(operations=operations, mode=mode))
    refused = [(each.index, each.field) for each in outcome.refused]
    assert sorted(refused) == [(1, "node"), (2, "units"), (3, "units"), (4, "units"), (5, "node_spec")]
    assert list(outcome.committed) == ([0] if mode is Mode.INCREMENTAL else [])
