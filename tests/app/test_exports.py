"""Exports: the owner of an ephemeral resource says which other namespaces may use it, and says so no more."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from extender.adapters.state_dump import written
from extender.app.contracts.api import Claim, Outcome, SetResource, Transact
from extender.app.contracts.ports import EphemeralResource, NodeChoice
from extender.app.explain.snapshot import records, reopened
from extender.app.resources.reconciler import digest
from extender.core.ledger.ledger import Mode
from extender.core.names import EphemeralName
from extender.core.tenancy.tenancy import FOREIGN
from extender.kube.errors import Unavailable
from extender.kube.names import NodeName, ResourceKey
from tests.app.fakes import unavailable
from tests.app.world import World
from tests.builders import pod, units

pytestmark = pytest.mark.anyio
R = ResourceKey("escher.dev/team.r")
N1 = NodeName("n1")
NUMBERS = count()


def passes(world: World, namespace: str = "other") -> bool:
    asking = pod(f"p{next(NUMBERS)}", {R: 1}, namespace=namespace)
    verdict = world.do(world.scheduler.filter(asking, [N1]))
    if not verdict.passed:
        assert verdict.unresolvable == {N1: FOREIGN}
    world.do(world.scheduler.forget(asking))
    return bool(verdict.passed)


async def test_a_resource_is_exported_to_the_namespaces_that_its_owner_names(world: World) -> None:
    await world.set("r", 2, "n1", exports=("other",))
    assert [passes(world, each) for each in ("team", "other", "third")] == [True, True, False]


async def test_a_call_that_says_nothing_of_exports_leaves_them_and_an_empty_list_ends_them(world: World) -> None:
    await world.set("r", 2, "n1", exports=("other",))
    assert (await world.set("r", 3, "n1")).exports == ("other",)
    assert passes(world)
    assert (await world.set("r", 3, "n1", exports=())).exports == ()
    assert not passes(world)


async def test_a_new_export_wakes_the_pods_that_wait_for_it(world: World) -> None:
    await world.set("r", 2, "n1")
    waiting = pod("waiting", {R: 1}, namespace="other")
    world.do(world.scheduler.observe(waiting))
    assert not world.do(world.scheduler.filter(waiting, [N1])).passed
    await world.set("r", 2, "n1", exports=("other",))
    assert world.woken == ["waiting"]
    world.do(world.scheduler.forget(waiting))


async def test_an_export_goes_with_its_object_and_comes_with_what_kubectl_writes(world: World) -> None:
    await world.set("r", 2, "n1", exports=("other",))
    await world.resources.delete_resource(EphemeralName("team", "r"))
    await world.set("r", 2, "n1")
    assert not passes(world)
    [there] = world.api.objects.values()
    world.resources.known.set_stored(replace(there, exports=("other",), resource_version=world.api.next_version()))
    assert passes(world)
    [there] = world.api.objects.values()
    world.resources.known.set_stored(replace(there, exports=(), resource_version=world.api.next_version()))


async def test_a_transaction_that_fails_takes_an_export_back(world: World) -> None:
    await world.set("r", 2, "n1")
    wanted = SetResource(name=EphemeralName("team", "r"), capacity=2, choice=NodeChoice(node=N1), exports=("other",))
    claim = Claim(namespace="team", holder="a", node=N1, units=units({R: 3}), ttl_seconds=60)
    outcome = await world.transactions.transact(Transact(operations=[wanted, claim], mode=Mode.ALL_OR_NOTHING))
    assert outcome.refused
    assert not passes(world)


async def test_a_write_whose_answer_is_lost_is_taken_back_with_its_export(world: World) -> None:
    await world.set("r", 2, "n1")
    await world.set("s", 2, "n1")
    wishes = [
        SetResource(name=EphemeralName("team", name), capacity=2, choice=NodeChoice(node=N1), exports=("other",))
        for name in "rs"
    ]
    world.api.faults.append(unavailable(after=True, of="merge team/s"))
    with pytest.raises(Unavailable):
        await world.transactions.transact(Transact(operations=wishes, mode=Mode.ALL_OR_NOTHING))
    assert [each.exports for each in world.api.objects.values()] == [(), ()]
    assert not passes(world)


async def claimed(world: World, namespace: str) -> Outcome:
    claim = Claim(namespace=namespace, holder="a", node=N1, units=units({R: 1}), ttl_seconds=60)
    return await world.transactions.transact(Transact(operations=[claim], mode=Mode.ALL_OR_NOTHING))


async def test_another_namespace_claims_what_is_exported_to_it_and_nothing_else(world: World) -> None:
    await world.set("r", 2, "n1")
    [refused] = (await claimed(world, "other")).refused
    assert (refused.field, refused.detail) == (
        "units",
        "escher.dev/team.r belongs to another namespace, which does not export it to other",
    )
    await world.set("r", 2, "n1", exports=("other",))
    assert (await claimed(world, "other")).refused == []


async def test_a_copy_of_the_state_knows_exports(world: World) -> None:
    await world.set("r", 2, "n1", exports=("other",))
    told = list(records(world.scheduler, world.resources.all(), world.resources.capacities))
    assert written(told)
    assert reopened(told).scheduler.cache.tenancy.may_use("other", R)


def test_a_digest_of_what_exports_nothing_is_as_before() -> None:
    plain = EphemeralResource(EphemeralName("team", "r"), {N1: 2})
    assert digest(plain) == "d97843fe5cce"
    assert digest(replace(plain, exports=("other",))) != digest(plain)
