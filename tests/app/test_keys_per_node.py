"""A node has at most so many ephemeral resources: what is one too many is refused with numbers, none is half done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.app.cache.cache import Rules
from extender.app.contracts.api import Outcome, SetResource, Transact
from extender.app.contracts.errors import Invalid
from extender.app.contracts.ports import EphemeralResource
from extender.app.cycle.scheduler import Scheduler
from extender.app.resources.set_resource import Resources
from extender.core.cluster import Node
from extender.core.ledger.ledger import Mode
from extender.core.names import EphemeralName
from extender.kube.names import NodeName
from tests.app.fakes import ApiServer, LoopClock, every_node, on_node
from tests.app.world import World
from tests.builders import node
from tests.core.gang_world import FixedClock
from tests.performing import Performing, replaced

pytestmark = pytest.mark.anyio
N1, N2 = NodeName("n1"), NodeName("n2")
FULL = "node n1 has 2 ephemeral resources; the limit is 2 (max_ephemeral_resources_per_node)"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Two nodes that may have two resources each; n1 has `a` and `b`."""
    made = World(rules=Rules(keys_per_node=2))
    made.add_nodes("n1", "n2")
    async with made.running():
        for name in ("a", "b"):
            await made.set(name, 1, "n1")
        yield made
        await made.quiet()
        made.audit()


def written(name: str, nodes: Mapping[NodeName, int] | None = None, **facts: Any) -> EphemeralResource:
    """An object as kubectl makes it."""
    return EphemeralResource(EphemeralName("team", name), nodes or {}, **facts)


def said(world: World, name: str) -> tuple[bool, str, str]:
    """What its Ready condition says: whether, why, in words."""
    *_, (_, ready, reason, message) = [each for each in world.api.store.statuses if each[0] == f"team/{name}"]
    return ready, reason, message


# -- the management API ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [on_node("n1"), every_node()])
async def test_one_too_many_is_refused_with_the_numbers_and_is_nowhere(world: World, where: Any) -> None:
    with pytest.raises(Invalid) as refused:
        await world.set("c", 1, where)
    assert (refused.value.field, refused.value.detail) == ("node_spec", FULL)
    assert world.capacity("c") == {}
    assert ("team", "c") not in world.api.objects


async def test_what_is_there_can_be_changed_and_renewed(world: World) -> None:
    await world.set("a", 7, "n1", ttl_seconds=60.0)
    assert world.capacity("a") == {"n1": 7}


async def test_there_is_room_again_when_one_is_deleted(world: World) -> None:
    await world.set("a", 0, "n1")
    await world.set("c", 1, "n1")
    assert world.capacity("c") == {"n1": 1}


async def test_other_nodes_have_room(world: World) -> None:
    await world.set("c", 1, "n2")
    assert world.capacity("c") == {"n2": 1}


async def transact(world: World, *names: str, on: str, mode: Mode, dry_run: bool = False) -> Outcome:
    wishes = [SetResource(name=EphemeralName("team", name), capacity=1, choice=on_node(on)) for name in names]
    return await world.transactions.transact(Transact(operations=wishes, mode=mode, dry_run=dry_run))


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_transaction_that_adds_one_too_many_adds_none(world: World, dry_run: bool) -> None:
    outcome = await transact(world, "c", "d", "e", on="n2", mode=Mode.ALL_OR_NOTHING, dry_run=dry_run)
    assert [each.index for each in outcome.refused] == [2]
    assert (outcome.refused[0].field, "the limit is 2" in outcome.refused[0].detail) == ("node_spec", True)
    assert not outcome.committed
    assert all(("team", name) not in world.api.objects for name in "cde")


async def test_a_transaction_that_may_be_done_in_part_adds_those_for_which_there_is_room(world: World) -> None:
    outcome = await transact(world, "c", "d", "e", on="n2", mode=Mode.INCREMENTAL)
    assert list(outcome.committed) == [0, 1]
    assert world.capacity("d") == {"n2": 1}
    assert world.capacity("e") == {}


# -- kubectl -----------------------------------------------------------------------------------------------------


async def test_an_object_of_kubectl_is_in_force_nowhere_and_says_why(world: World) -> None:
    world.api.put(written("c", {N1: 1, N2: 1}))
    await world.quiet()
    assert world.capacity("c") == {}
    assert said(world, "c") == (False, "TooManyKeys", f"{FULL}; this one comes into force when one of them is gone")
    assert (await world.resources.get_resource(EphemeralName("team", "c"))).problem == FULL


async def test_so_is_one_that_chooses_its_nodes(world: World) -> None:
    world.api.put(written("c", capacity=3, choice=every_node()))
    await world.quiet()
    assert world.capacity("c") == {}
    assert said(world, "c")[1] == "TooManyKeys"
    await world.set("a", 0, "n1")
    await world.quiet()
    assert world.capacity("c") == {"n1": 3, "n2": 3}
    assert said(world, "c")[:2] == (True, "Set")
    world.agree()


async def test_the_oldest_that_waits_is_in_force_when_one_is_gone(world: World) -> None:
    for name in "dc":
        world.api.put(written(name, {N1: 1}))
        await world.quiet()
    await world.set("b", 0, "n1")
    await world.quiet()
    assert (world.capacity("c"), world.capacity("d")) == ({}, {"n1": 1})
    assert [said(world, name)[0] for name in "cd"] == [False, True]


async def test_one_that_runs_and_wants_a_full_node_besides_goes_on_where_it_is(world: World) -> None:
    world.api.put(written("c", {N2: 1}))
    await world.quiet()
    world.api.put(written("c", {N2: 5, N1: 1}))
    await world.quiet()
    assert world.capacity("c") == {"n2": 5}
    assert said(world, "c")[1] == "TooManyKeys"


async def test_what_nodes_say_already_stays_though_the_limit_is_lower_now() -> None:
    before = World()
    before.add_nodes("n1")
    async with before.running():
        for name in "abc":
            await before.set(name, 1, "n1")
    after = World(rules=Rules(keys_per_node=2))
    after.api.objects, after.api.nodes = before.api.objects, before.api.nodes
    async with after.running():
        after.do(replaced(after.scheduler, Node, before.api.nodes.values()))
        after.resources.known.replace(before.api.objects.values())
        await after.quiet()
    assert len(after.stated("n1")) == 3
    after.agree()


# -- in any order ------------------------------------------------------------------------------------------------

KEYS = [EphemeralName("team", name) for name in "abcd"]
steps = st.lists(
    st.tuples(st.sampled_from(KEYS), st.dictionaries(st.sampled_from([N1, N2]), st.integers(1, 3)), st.floats(0, 9)),
    max_size=20,
)


@given(steps)
def test_in_no_order_of_objects_has_a_node_too_many_and_who_fits_does_not_wait(changes: list[Any]) -> None:
    scheduler = Scheduler(FixedClock(), Rules(keys_per_node=2))
    replaced(scheduler, Node, [node("n1"), node("n2")])
    resources = Resources(scheduler, Performing(), ApiServer(LoopClock()).store)
    known, capacities = resources.known, resources.capacities
    for number, (name, nodes, created) in enumerate(changes):
        facts = {"created": created, "resource_version": str(number + 1)}
        before = known.get(name)
        if before is not None and not nodes:
            known.remove(before.item)
            continue
        facts["uid"] = before.item.uid if before is not None else f"u{number}"
        known.upsert(EphemeralResource(name, nodes, **facts))
        for row in scheduler.cache.ledger.rows.values():
            assert len(row.ephemeral) <= 2
        for each in KEYS:
            entry = known.get(each)
            waits = entry is not None and capacities.withheld(each) is not None
            if waits and entry is not None:
                assert capacities.first_full(each.key(), entry.item.desired()) is not None, f"{each} waits and fits"
    assert capacities.repair() == 0
