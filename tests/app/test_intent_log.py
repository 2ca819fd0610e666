"""Intents: stored where the service alone writes, bounded, and believed there alone. What tenants write of the kind, or
of the form that came before it, moves nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import structlog

from extender.app.contracts.errors import NotYet
from extender.app.contracts.kind import Declared, Identity
from extender.app.contracts.ports import EphemeralResource, Former, Intent
from extender.app.resources import intent_log as intents
from extender.app.resources.intent_log import NotAnnounced
from extender.app.resources.reconciler import digest
from extender.core.ledger.holdings import Mode
from extender.core.names import EphemeralName
from extender.kube.errors import Gone, Refused, Unavailable
from extender.kube.names import NodeName
from tests.app.fakes import OWN, twice, unavailable
from tests.app.test_transactions_in_trouble import run, setting, there
from tests.app.world import World

pytestmark = pytest.mark.anyio
N1 = NodeName("n1")


async def test_what_is_stored_of_a_transaction_stands_in_the_services_own_namespace_alone(world: World) -> None:
    world.api.latency = 1.0
    running = asyncio.create_task(run(world, setting("r", 1), setting("s", 1, namespace="other")))
    await asyncio.sleep(2.5)
    assert [name.namespace for name in world.api.intents] == [OWN]
    assert await world.resources.list_resources("team") == []
    await running
    assert world.api.intents == {}
    world.agree()


@pytest.mark.parametrize("after", [0.5, 70.0])
async def test_an_intent_whose_creation_arrives_again_takes_nothing_back_of_what_was_answered_as_in_force(
    world: World, after: float
) -> None:
    world.api.latency = 1.0
    running = asyncio.create_task(run(world, setting("r", 1), setting("s", 1)))
    await asyncio.sleep(2.5)
    [stored] = world.api.intents.values()
    assert (await running).committed == [0, 1]
    await asyncio.sleep(after)
    world.api.put_intent(replace(stored, uid="another", spec=Intent(())))
    await world.quiet(100)
    assert world.api.intents == {}
    assert there(world) == {"r": {"n1": 1}, "s": {"n1": 1}}
    world.agree()


@pytest.mark.parametrize("write", ["create", "merge"])
async def test_a_write_of_an_intent_that_arrives_again_in_the_next_life_takes_nothing_back(
    world: World, write: str
) -> None:
    world.api.faults.append(twice(f"{write} {OWN}/", late=20.0))
    assert (await run(world, setting("r", 1), setting("s", 1))).committed == [0, 1]
    async with World(api=world.api).running() as anew:
        await anew.quiet(100)
        assert anew.api.intents == {}
        assert there(anew) == {"r": {"n1": 1}, "s": {"n1": 1}}
        anew.agree()


@pytest.mark.parametrize(
    "refusal",
    [Gone(404, 'namespaces "escher-system" not found'), Refused(403, "forbidden"), Refused(413, "1,200,000 bytes")],
)
async def test_without_a_place_for_its_intent_a_transaction_is_refused_and_single_writes_go_on(
    world: World, refusal: Refused
) -> None:
    world.api.intent_store.refuse = refusal
    with pytest.raises(NotAnnounced) as told:
        await run(world, setting("r", 1), setting("s", 1, namespace="other"))
    for said in (str(refusal), "TransactionIntent", OWN, "deploy/crds", "incremental"):
        assert said in told.value.detail
    assert (told.value.field, told.value.value) == ("operations", 2)
    assert there(world) == {}
    assert (await run(world, setting("r", 1))).committed == [0]
    assert (await run(world, setting("s", 1), setting("t", 1), mode=Mode.INCREMENTAL)).committed == [0, 1]
    world.api.intent_store.refuse = None
    assert (await run(world, setting("r", 2), setting("s", 2))).committed == [0, 1]
    await world.quiet()
    world.agree()


@pytest.mark.parametrize(("listed", "told"), [(None, Unavailable), (False, NotAnnounced)])
async def test_nothing_is_announced_that_the_next_life_could_not_read(
    world: World, listed: bool | None, told: type[Exception]
) -> None:
    world.intents._listed = lambda: listed
    with pytest.raises(told):
        await run(world, setting("r", 1), setting("s", 1))
    assert there(world) == {}
    assert world.api.intents == {}


async def test_there_are_no_more_unfinished_intents_than_a_number(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intents, "MOST_UNFINISHED", 3)
    world.api.latency = 1.0
    first = [asyncio.create_task(run(world, setting(f"r{n}", 1), setting(f"s{n}", 1))) for n in range(3)]
    await asyncio.sleep(0.5)
    with pytest.raises(NotYet, match=r"3 transactions over several objects are unfinished \(limit 3\)") as told:
        await run(world, setting("r", 1), setting("s", 1))
    assert told.value.retry_after == 1
    assert [each.committed for each in await asyncio.gather(*first)] == [[0, 1]] * 3
    assert (await run(world, setting("r", 1), setting("s", 1))).committed == [0, 1]
    await world.quiet()
    world.agree()


async def test_an_intent_that_cannot_be_understood_is_counted_and_never_believed(world: World) -> None:
    await world.set("r", 1, "n1")
    await world.quiet()
    before = there(world)
    with structlog.testing.capture_logs() as logs:
        world.api.put_intent(Declared(Identity(OWN, "transaction-x"), None, "spec.objects: expected array, got str"))
        await world.quiet(200)
    assert there(world) == before
    assert list(world.api.intents) == [(OWN, "transaction-x")]
    assert world.intents.unfinished() == 1
    assert any(each["log_level"] == "warning" and "spec.objects" in each.get("why", "") for each in logs)
    assert (await run(world, setting("r", 2), setting("s", 2))).committed == [0, 1]


# -- marks, which stand on the tenants' objects


async def left_behind(world: World, *formers: Former) -> str:
    """The intent of a service that died; its transaction."""
    world.api.put_intent(Declared(Identity(OWN, "transaction-t"), Intent(formers)))
    return "t"


def marked(name: EphemeralName, units: int, transaction: str = "t") -> EphemeralResource:
    """The object, with a mark that says of a transaction that it wrote this."""
    bare = EphemeralResource(name, {N1: units})
    return replace(bare, mark=f"{transaction}.{digest(bare)}.0123456789abcdef")


async def test_a_forged_mark_has_the_own_object_deleted_and_no_other(world: World) -> None:
    """The transaction was the operator's, over two namespaces; its name stands in the mark of each object."""
    mine, others = EphemeralName("team", "mine"), EphemeralName("other", "theirs")
    await world.set("theirs", 4, "n1", namespace="other")
    await world.quiet()
    world.api.put(marked(mine, 3))
    await left_behind(world, Former(Identity("team", "data"), None), Former(Identity("other", "data"), None))
    await world.quiet(200)
    assert {name for _, name in world.api.objects} == {others.name}
    assert world.api.intents == {}
    world.agree()


async def test_a_mark_that_is_copied_onto_what_the_intent_does_not_name_raises_nothing(world: World) -> None:
    data = Identity("team", "data")
    was = EphemeralResource(EphemeralName("team", "data"), {N1: 1})
    world.api.put(marked(EphemeralName("team", "data"), 7))
    world.api.put(marked(EphemeralName("other", "data"), 9))
    await left_behind(world, Former(data, was))
    await world.quiet(200)
    assert world.api.objects["team", "data"].nodes == {N1: 1}
    assert ("other", "data") not in world.api.objects, "it bore the mark of a transaction that was given up"
    world.agree()


async def test_who_edits_under_a_forged_digest_has_the_own_object_made_what_it_was(world: World) -> None:
    """And who takes the mark off keeps what was written there: the others of the transaction are taken back."""
    was = EphemeralResource(EphemeralName("team", "a"), {N1: 1})
    world.api.put(replace(marked(EphemeralName("team", "a"), 5), mark="mine"))
    world.api.put(marked(EphemeralName("other", "a"), 5))
    formers = [Former(Identity("team", "a"), was), Former(Identity("other", "a"), None)]
    await left_behind(world, *formers)
    await world.quiet(200)
    assert {where[0]: dict(each.nodes) for where, each in world.api.objects.items()} == {"team": {N1: 5}}
    world.agree()


async def test_taking_one_transaction_back_hides_nothing_that_another_has_to_take_back(world: World) -> None:
    """The later one was given up before it wrote, on top of what the earlier one had written of the same object."""
    data, was = Identity("team", "data"), EphemeralResource(EphemeralName("team", "data"), {N1: 1})
    half = marked(EphemeralName("team", "data"), 7, "first")
    world.api.put(half)
    later = Declared(Identity(OWN, "transaction-later"), Intent((Former(data, half),)))
    world.api.put_intent(later)
    await world.quiet(70)
    assert world.api.objects["team", "data"].nodes == {N1: 7}
    world.api.put_intent(Declared(Identity(OWN, "transaction-first"), Intent((Former(data, was),))))
    await world.quiet(200)
    assert world.api.objects["team", "data"].nodes == {N1: 1}
    assert world.api.intents == {}
    world.agree()


async def test_what_was_written_by_half_does_not_end_before_it_is_taken_back(world: World) -> None:
    """What was there before has no end, and an intent of another service is left to it for a minute."""
    name = EphemeralName("team", "data")
    bare = EphemeralResource(name, {N1: 7}, expires_at=world.clock.now() + 20)
    world.api.put(replace(bare, mark=f"t.{digest(bare)}.0123456789abcdef"))
    await asyncio.sleep(1)
    await left_behind(world, Former(Identity("team", "data"), EphemeralResource(name, {N1: 1})))
    await world.quiet(40)
    assert ("team", "data") in world.api.objects
    await world.quiet(60)
    after = world.api.objects["team", "data"]
    assert (after.nodes, after.expires_at) == ({N1: 1}, None)
    world.agree()


async def test_a_creation_that_arrives_when_the_next_life_has_begun_is_no_part_of_a_transaction_taken_back(
    world: World,
) -> None:
    world.api.faults.append(unavailable(of="create team/s", late=20.0))
    with pytest.raises(Unavailable):
        await run(world, setting("r", 1), setting("s", 1))
    assert there(world) == {}
    async with World(api=world.api).running() as anew:
        await anew.quiet(100)
        assert there(anew) == {}
        assert anew.api.objects == {}
        assert anew.api.intents == {}
        anew.agree()


async def test_what_is_left_of_an_intent_for_that_takes_nothing_back_of_what_is_set_since(world: World) -> None:
    await world.set("gone", 1, "n1")
    world.api.faults.append(unavailable(of="create team/s", late=20.0))
    with pytest.raises(Unavailable):
        await run(world, setting("gone", 0), setting("s", 1))
    assert there(world) == {"gone": {"n1": 1}}
    assert [[former.name for former in each.spec.formers] for each in world.api.intents.values() if each.spec] == [
        [Identity("team", "s")]
    ]
    assert world.intents.unfinished() == 0
    await world.resources.delete_resource(EphemeralName("team", "gone"))
    assert (await run(world, setting("s", 2), setting("t", 2))).committed == [0, 1]
    async with World(api=world.api).running() as anew:
        await anew.quiet(100)
        assert there(anew) == {"s": {"n1": 2}, "t": {"n1": 2}}
        assert anew.api.intents == {}
        anew.agree()


async def test_a_transaction_waits_for_an_earlier_one_over_the_same_object_to_be_taken_back(world: World) -> None:
    await world.set("r", 1, "n1")
    await world.quiet()
    before = world.api.objects["team", "r"]
    world.api.put_intent(Declared(Identity(OWN, "transaction-x"), Intent((Former(Identity("team", "r"), before),))))
    await asyncio.sleep(1)
    with pytest.raises(NotYet, match="an earlier transaction that names team/r") as told:
        await run(world, setting("r", 2), setting("s", 2))
    assert told.value.retry_after == 1
    assert (await run(world, setting("t", 2), setting("s", 2))).committed == [0, 1]
    await world.quiet(100)
    assert world.api.intents == {}
    assert (await run(world, setting("r", 2), setting("s", 3))).committed == [0, 1]
    world.agree()


@pytest.mark.parametrize("how", ["transaction", "incremental", "set", "delete", "spread"])
async def test_what_a_transaction_not_in_force_has_deleted_counts_for_nobody_as_deleted(world: World, how: str) -> None:
    """It is made again when that one is taken back, under whoever was told that it is gone."""
    name = EphemeralName("team", "r")
    await world.set("r", 1, "n1")
    await world.set("d", 1, "n1")
    await world.quiet()
    before = world.api.objects["team", "r"]

    async def remove() -> None:
        match how:
            case "transaction":
                await run(world, setting("r", 0), setting("d", 0))
            case "incremental":
                for refused in (await run(world, setting("r", 0), mode=Mode.INCREMENTAL)).refused:
                    raise NotYet("operations", 1, refused.detail, retry_after=1)
            case "set":
                await world.resources.set_resource(setting("r", 0))
            case "delete":
                await world.resources.delete_resource(name)
            case _:
                await world.resources.spread(name, {N1: 0})

    world.api.delete("team", "r")
    former = Former(Identity("team", "r"), before, deletes=True)
    world.api.put_intent(Declared(Identity(OWN, "transaction-x"), Intent((former,))))
    await asyncio.sleep(1)
    with pytest.raises(NotYet, match="an earlier transaction that names team/r"):
        await remove()
    assert there(world)["d"] == {"n1": 1}
    await world.quiet(100)
    assert there(world)["r"] == {"n1": 1}
    await remove()
    await world.quiet(100)
    assert "r" not in there(world)
    world.agree()
