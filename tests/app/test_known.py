"""What is known: whatever order news arrive in, it never goes back, and the ledger has what the objects say."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from extender.app.contracts.ports import EphemeralResource
from extender.core.common.bounded import Bounded
from extender.core.names import EphemeralName
from extender.kube.names import NodeName, ResourceKey
from tests.app.fakes import unavailable
from tests.app.world import World

pytestmark = pytest.mark.anyio
NAME = EphemeralName("team", "r")


def _object(units: int = 3, name: EphemeralName = NAME, node: str = "n1") -> EphemeralResource:
    return EphemeralResource(name, {NodeName(node): units})


async def test_a_late_echo_of_an_older_write_does_not_undo_a_newer_one(world: World) -> None:
    world.api.resources_watch.held = True
    for units in (1, 2, 3):
        await world.set("r", units, "n1")
    for _ in range(3):
        world.api.resources_watch.deliver(1)
        assert world.capacity("r") == {"n1": 3}
    assert world.stated("n1") == {"r": 3}


async def test_an_echo_after_the_deletion_revives_nothing(world: World) -> None:
    world.api.resources_watch.held = True
    await world.set("r", 1, "n1")
    await world.set("r", 0, "n1")
    world.api.resources_watch.deliver(1)
    assert world.capacity("r") == {}
    await world.set("r", 2, "n1")
    world.api.resources_watch.deliver()
    assert world.capacity("r") == {"n1": 2}
    world.agree()


async def test_an_answer_that_arrives_after_the_news_of_the_end_revives_nothing(world: World) -> None:
    stored = world.api.put(_object())
    await asyncio.sleep(0)
    world.api.drop("team", "r")
    await asyncio.sleep(1)
    world.resources.known.set_stored(stored)
    assert world.capacity("r") == {}


async def test_a_namesake_takes_the_place_and_late_news_of_the_former_change_nothing(world: World) -> None:
    former = world.api.put(_object(1))
    world.api.resources_watch.held = True
    world.api.drop("team", "r")
    latter = world.api.put(_object(2))
    known = world.resources.known
    known.set_stored(latter)
    known.upsert(former)
    known.remove(former)
    assert world.capacity("r") == {"n1": 2}
    world.api.resources_watch.deliver()
    await world.quiet(1)
    world.agree()
    known.upsert(replace(former, uid="even-older", resource_version="1"))
    assert world.capacity("r") == {"n1": 2}


async def test_a_list_decides_what_is_there(world: World) -> None:
    await world.set("gone", 1, "n1")
    await world.set("stays", 1, "n1")
    await asyncio.sleep(0)
    world.api.objects.pop(("team", "gone"))
    world.api.objects["team", "new"] = replace(
        _object(name=EphemeralName("team", "new")), uid="u", resource_version="999"
    )
    world.resources.known.replace(world.api.objects.values())
    assert world.capacity("gone") == {}
    assert (world.capacity("stays"), world.capacity("new")) == ({"n1": 1}, {"n1": 3})
    await world.quiet(1)
    world.agree()


async def test_what_one_list_had_and_the_next_lacks_is_gone_at_once(world: World) -> None:
    world.api.resources_watch.held = True
    listed = world.api.put(_object())
    world.resources.known.replace([listed])
    assert world.capacity("r") == {"n1": 3}
    world.resources.known.replace([])
    assert world.capacity("r") == {}
    assert not world.resources.known.doubtful, "nobody needs to be asked"


async def test_a_list_that_is_older_than_our_write_does_not_undo_it(world: World) -> None:
    world.api.resources_watch.held = True
    await world.set("r", 1, "n1")
    world.resources.known.replace([])
    assert world.capacity("r") == {"n1": 1}
    await asyncio.sleep(0.1)
    assert world.api.calls[-1] == "get team/r", "the store was asked"
    assert not world.resources.known.doubtful
    world.api.resources_watch.deliver()
    world.agree()


async def test_what_a_list_lacks_and_the_store_does_not_know_is_gone(world: World) -> None:
    world.api.resources_watch.held = True
    await world.set("r", 1, "n1")
    world.api.objects.clear()
    world.api.faults += [unavailable(), unavailable()]
    world.resources.known.replace([])
    await world.quiet(1)
    assert world.capacity("r") == {"n1": 1}
    await world.quiet(5)
    assert world.capacity("r") == {}


async def test_what_the_watch_never_told_of_is_asked_for_in_a_full_round(world: World) -> None:
    world.api.resources_watch.held = True
    await world.set("r", 1, "n1")
    world.api.objects.clear()
    await world.quiet(61)
    assert world.capacity("r") == {}


async def test_what_was_written_lately_is_not_asked_for_in_a_full_round(world: World) -> None:
    """The watch has a while to tell of it."""
    world.api.resources_watch.held = True
    await world.quiet(59)
    await world.set("r", 1, "n1")
    await world.quiet(2)
    assert "get team/r" not in world.api.calls
    await world.quiet(60)
    assert world.api.calls.count("get team/r") == 1


async def test_of_two_objects_with_one_key_the_older_has_it_until_it_goes(world: World) -> None:
    world.api.put(_object(1, EphemeralName("team-x", "s", shared=True)))
    await asyncio.sleep(5)
    world.api.put(_object(2, EphemeralName("team-a", "s", shared=True), node="n2"))
    await world.quiet()
    key = ResourceKey("escher.dev/s")
    ledger = world.scheduler.cache.ledger
    assert (ledger.rows.free(NodeName("n1"), key), ledger.rows.free(NodeName("n2"), key)) == (1, 0)
    assert ("team-a/s", False, "NameTaken") in [said[:3] for said in world.api.store.statuses]
    (loser,) = await world.resources.list_resources("team-a")
    assert (loser.nodes, loser.problem) == ({}, "escher.dev/s belongs to namespace team-x, which had it first")
    assert not world.resources.capacities.has_key(EphemeralName("team-a", "s", shared=True))
    world.api.drop("team-x", "s")
    await world.quiet()
    assert (ledger.rows.free(NodeName("n1"), key), ledger.rows.free(NodeName("n2"), key)) == (0, 2)
    assert world.api.store.statuses[-1] == ("team-a/s", True, "Set", "2 units on 1 nodes")
    world.agree()


async def test_memory_of_what_has_ended_is_bounded(world: World) -> None:
    world.resources.known._ended = Bounded(3)
    for number in range(5):
        world.resources.known.end(NAME, f"uid-{number}")
    assert list(world.resources.known._ended) == ["uid-2", "uid-3", "uid-4"]


async def test_a_ledger_that_was_tampered_with_is_repaired_in_a_full_round(world: World) -> None:
    await world.set("r", 1, "n1")
    world.scheduler.cache.ledger.capacity.set(NodeName("n1"), ResourceKey("escher.dev/team.r"), 9)
    world.scheduler.cache.ledger.capacity.set(NodeName("n2"), ResourceKey("escher.dev/team.x"), 9)
    await world.quiet(61)
    world.agree()


async def test_one_question_about_an_object_is_enough_at_a_time(world: World) -> None:
    world.api.resources_watch.held = True
    await world.set("r", 1, "n1")
    world.api.latency = 1.0
    for _ in range(3):
        world.resources.known.replace([])
        await asyncio.sleep(0.2)
    await world.quiet()
    assert world.api.calls.count("get team/r") == 1
    world.api.resources_watch.deliver()
    world.agree()
