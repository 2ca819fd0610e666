"""What the service writes on objects that tenants write too (marks, choices, policies, status) is a hint: a lie there
reaches the author's own objects, and no other namespace. Marks of transactions: `test_intents`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.app.cache.cache import Rules
from extender.app.contracts.kind import Declared, Identity
from extender.app.contracts.ports import EphemeralResource, MadeChoice, NodeChoice, PodOwner
from extender.core.names import EphemeralName
from extender.core.policies.policy_types import PolicySpec
from extender.core.tenancy.isolation import UNLIMITED, Allowance, Counted
from extender.kube.names import NodeName, PodUid
from tests.app.world import World

pytestmark = pytest.mark.anyio
N1, N2, N3 = NodeName("n1"), NodeName("n2"), NodeName("n3")
MINE, THEIRS = EphemeralName("team", "mine"), EphemeralName("other", "theirs")
LIMITED = Rules(
    allowances=(UNLIMITED, {"team": Allowance({Counted.UNITS: 10, Counted.POLICIES: 1}, nodes={"pool": ("a",)})})
)


def limited(api: World | None = None) -> World:
    """Namespace `team` may have ten units, one policy, and nodes n1 and n2."""
    made = World(rules=LIMITED, api=None if api is None else api.api)
    if api is None:
        made.add_nodes("n1", "n2", labels={"pool": "a"})
        made.add_nodes("n3")
    return made


async def begin(world: World) -> None:
    await world.set("theirs", 4, "n3", namespace="other")
    await world.quiet()


def as_theirs_was(world: World) -> None:
    assert world.api.objects["other", "theirs"].nodes == {N3: 4}
    assert world.capacity("theirs", "other") == {"n3": 4}
    world.audit()


async def test_a_choice_that_was_not_made_gives_no_node_outside_of_the_domain_and_no_more_than_the_quota() -> None:
    """escher.dev/chosen: the nodes that a rule took, one of them gone for good."""
    world = limited()
    async with world.running():
        await begin(world)
        made = MadeChoice(500, NodeChoice(limit=3), (N1, N3, NodeName("gone")))
        world.api.put(EphemeralResource(MINE, {N1: 1, N3: 1, NodeName("gone"): 1}, made=made))
        await world.quiet(300)
        assert world.capacity("mine").keys() <= {"n1", "n2"}
        assert sum(world.capacity("mine").values()) <= 10
        as_theirs_was(world)


@pytest.mark.parametrize("policy", ["queue/theirs", "queue/other", "signal/mine", "other/queue", "/", "x" * 500])
async def test_who_says_that_a_policy_has_set_an_object_loses_that_object(policy: str) -> None:
    """escher.dev/policy: what no policy of the object's own namespace has set is removed."""
    world = limited()
    async with world.running():
        await begin(world)
        world.api.put(EphemeralResource(MINE, {N1: 1}, policy=policy))
        await world.quiet(100)
        as_theirs_was(world)


async def test_nodes_in_a_status_count_as_nodes_of_the_spec_do() -> None:
    """Who may write status writes what nodeSpec chose."""
    world = limited()
    async with world.running():
        await begin(world)
        mine = world.api.put(EphemeralResource(MINE, {N1: 1}))
        world.api.keep(replace(mine, chosen={N1: 7, N2: 90, N3: 5}), spec=False)
        await world.quiet(100)
        assert "n3" not in world.capacity("mine")
        assert sum(world.capacity("mine").values()) <= 10
        as_theirs_was(world)


async def test_a_status_that_says_it_was_in_force_keeps_after_a_restart_its_own_units_alone() -> None:
    """What it keeps is its own key's: beyond quota and domain, at most. No role of ours lets people write status."""
    world = limited()
    async with world.running():
        await begin(world)
        mine = world.api.put(EphemeralResource(MINE, {N1: 50}))
        await world.quiet()
        assert world.capacity("mine") == {}
        world.api.keep(replace(world.api.objects["team", "mine"], said_unready=False), spec=False)
    anew = limited(world)
    anew.list()
    async with anew.running():
        await anew.quiet()
        assert anew.capacity("mine") in ({}, {"n1": 50})
        assert mine.uid == anew.api.objects["team", "mine"].uid
        as_theirs_was(anew)
        assert (await anew.set("more", 3, "n1", namespace="other")).nodes == {N1: 3}


async def test_a_status_that_says_a_policy_was_in_force_passes_the_quota_of_its_own_namespace_alone() -> None:
    world = limited()
    async with world.running():
        for namespace in ("team", "other"):
            for name in ("one", "two"):
                await _put(world, namespace, name)
        await world.quiet()
        in_force = set(world.policy_matching)
        assert len([name for name in in_force if name.namespace == "other"]) == 2
        assert len([name for name in in_force if name.namespace == "team"]) <= 2


async def _put(world: World, namespace: str, name: str) -> None:
    spec = PolicySpec("balance", {})
    stored = await world.policy_store.create(Declared(Identity(namespace, name), spec))
    lying = replace(stored, in_force=spec, observed_generation=stored.generation)
    world.policies.tending.known.upsert(lying)


@pytest.mark.parametrize("owner", ["of another namespace", "of nobody"])
async def test_an_owner_that_is_not_ones_own_ends_ones_own_object_at_most(owner: str) -> None:
    world = limited()
    async with world.running():
        await begin(world)
        uid = world.start_pod("theirs", {"cpu": 1}, on="n3").uid if owner == "of another namespace" else PodUid("none")
        world.api.put(EphemeralResource(MINE, {N1: 1}, owner=PodOwner("theirs", uid)))
        await world.quiet(300)
        as_theirs_was(world)


async def test_finalizers_and_deletion_hold_ones_own_key_alone() -> None:
    world = limited()
    async with world.running():
        await begin(world)
        held = tuple(f"x.io/{number}" for number in range(100))
        world.api.put(EphemeralResource(MINE, {N1: 1}, finalizers=held))
        world.api.delete("team", "mine")
        await world.quiet(100)
        assert world.capacity("mine") == {}
        as_theirs_was(world)
