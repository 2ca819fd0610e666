"""Quotas of policies: one too many is refused, or waits; those in force stay so, after restarts too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from extender.app.cache.cache import Rules
from extender.app.contracts.errors import QuotaExceeded
from extender.app.contracts.kind import Declared, Identity
from extender.core.policies.policy_types import PolicySpec
from extender.core.tenancy.isolation import UNLIMITED, Allowance, Counted
from tests.app.policy_store import Object
from tests.app.world import World

pytestmark = pytest.mark.anyio
SPEC, OTHER = PolicySpec("anti-affinity", {}), PolicySpec("bin-packing", {})
MESSAGE = "exceeded quota of namespace team: requested: policies=1, used: policies=2, limited: policies=2"


def rules(policies: int) -> Rules:
    return Rules(allowances=(UNLIMITED, {"team": Allowance({Counted.POLICIES: policies})}))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """The namespace may have two policies, and has `a` and `b`."""
    made = World(rules=rules(2))
    async with made.running():
        for name in "ab":
            await put(made, name)
        yield made
        made.audit()


async def put(world: World, name: str, spec: PolicySpec = SPEC, *, namespace: str = "team") -> None:
    await world.policies.change_policy(Identity(namespace, name), lambda before: spec)


def written(world: World, name: str, spec: PolicySpec = SPEC) -> Object:
    """kubectl writes it, and the watch tells."""
    where = Identity("team", name)
    known = world.policy_store.objects.get(where) or Declared(where, spec, uid=f"uid-{name}")
    version = world.api.next_version()
    made = replace(known, spec=spec, generation=known.generation + 1, resource_version=version)
    world.policy_store.objects[where] = made
    world.policies.sink.upsert(made)
    return made


def in_force(world: World) -> list[str]:
    return sorted(name.name for name in world.policy_matching if name.namespace == "team")


def said(world: World, name: str) -> tuple[bool, str]:
    item = world.policy_store.objects[Identity("team", name)]
    return not item.said_unready, item.said


async def test_one_too_many_is_refused_with_the_numbers(world: World) -> None:
    with pytest.raises(QuotaExceeded) as refused:
        await put(world, "c")
    assert (refused.value.field, str(refused.value)) == ("name", MESSAGE)
    with pytest.raises(QuotaExceeded):
        world.policies.judge_policy(Identity("team", "c"), SPEC)
    assert (in_force(world), Identity("team", "c") in world.policy_store.objects) == (["a", "b"], False)
    await put(world, "c", namespace="other")


async def test_those_that_are_there_can_be_changed(world: World) -> None:
    await put(world, "a", OTHER)
    assert world.policies.judge_policy(Identity("team", "a"), SPEC).ready
    assert world.policies.get_policy(Identity("team", "a")).spec == OTHER


async def test_one_that_is_deleted_makes_room(world: World) -> None:
    await world.policies.delete_policy(Identity("team", "a"))
    await put(world, "c")
    assert in_force(world) == ["b", "c"]


async def test_of_many_at_once_as_many_are_made_as_there_may_be() -> None:
    world = World(rules=rules(2))
    async with world.running():
        answers = await asyncio.gather(*(put(world, name) for name in "abcdef"), return_exceptions=True)
        assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 4
        assert len(world.policy_store.objects) == len(in_force(world)) == 2


async def test_one_of_kubectl_says_why_it_waits_and_is_in_force_when_there_is_room(world: World) -> None:
    written(world, "c")
    written(world, "d")
    await world.quiet()
    assert (in_force(world), said(world, "c")) == (["a", "b"], (False, MESSAGE))
    assert world.isolating.quota("team").waiting[Counted.POLICIES] == 2
    await world.policies.delete_policy(Identity("team", "a"))
    assert in_force(world) == ["b", "c"]
    await world.quiet()
    assert said(world, "c")[0]
    world.isolating.set(UNLIMITED, {})
    assert in_force(world) == ["b", "c", "d"]


@pytest.mark.parametrize("limit", [2, 1])
@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
async def test_after_a_restart_the_same_are_in_force_though_there_may_be_fewer(
    world: World, limit: int, order: str
) -> None:
    written(world, "c")
    await world.quiet()
    # It is not understood any more: what it said before is in force.
    written(world, "b", PolicySpec("nonsense", {}))
    await world.quiet()
    after = World(rules=rules(limit))
    after.policy_store.objects = world.policy_store.objects
    after.policies.sink.replace([world.policy_store.objects[Identity("team", name)] for name in order])
    assert in_force(after) == ["a", "b"]
    assert after.policies.quota.used("team") == 2
