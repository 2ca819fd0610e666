"""What rarely happens to a transaction: several writes of one name, of which one is not answered; an intent that is
refused, or that a call leaves behind which is cancelled just then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from extender.app.contracts.api import SetResource
from extender.app.contracts.ports import EphemeralResource
from extender.app.cycle.event_handlers import Facts
from extender.app.observability.flight_recorder import FlightRecorder
from extender.core.cluster import Node
from extender.core.names import EphemeralName
from extender.kube.errors import Occupied, Unavailable
from extender.kube.names import NodeName
from tests.app.fakes import Fault, every_node, unavailable
from tests.app.test_transaction_crashes import Both
from tests.app.test_transactions_in_trouble import run, setting, there
from tests.app.world import World

pytestmark = pytest.mark.anyio
REMOVED = SetResource(name=EphemeralName("team", "r"), capacity=0, choice=every_node())

# -- several writes of one name


@pytest.mark.parametrize("seconds", [0.4, 20.0], ids=["for a moment", "for longer than is waited"])
@pytest.mark.parametrize("after", [False, True], ids=["lost on the way there", "lost on the way back"])
@pytest.mark.parametrize("exists", [False, True])
async def test_a_deletion_that_is_not_answered_takes_back_what_the_name_was_before_all(
    world: World, exists: bool, after: bool, seconds: float
) -> None:
    if exists:
        await world.set("r", 1, "n1")
    await world.quiet(10)
    before = there(world)
    world.api.latency = 0.01
    world.api.forever.append(unavailable(after=after, of="delete team/r"))
    running = asyncio.create_task(run(world, setting("r", 5), REMOVED, setting("s", 1)))
    await asyncio.sleep(seconds)
    world.api.forever.clear()
    with pytest.raises(Unavailable):
        await running
    await world.quiet(120)
    assert there(world) == before
    world.agree()


@pytest.mark.parametrize("after", [False, True], ids=["lost on the way there", "lost on the way back"])
async def test_a_change_that_is_not_answered_takes_back_the_creation_before_it(world: World, after: bool) -> None:
    world.api.faults.append(unavailable(after=after, of="merge team/r"))
    with pytest.raises(Unavailable):
        await run(world, setting("r", 5), setting("r", 6, "n2"), setting("s", 1))
    await world.quiet(120)
    assert there(world) == {}
    world.agree()


@pytest.mark.parametrize(
    "wishes", [[setting("r", 5), setting("r", 6, "n2"), setting("s", 1)], [setting("r", 5), REMOVED, setting("r", 2)]]
)
async def test_one_name_written_twice_is_in_force_though_the_last_answer_is_lost(
    world: World, wishes: Sequence[SetResource]
) -> None:
    world.api.faults.append(unavailable(after=True, of="delete escher-system/transaction"))
    assert (await run(world, *wishes)).committed == [0, 1, 2]
    assert there(world)["r"] == ({"n1": 2} if REMOVED in wishes else {"n1": 5, "n2": 6})
    await world.quiet()
    world.agree()


async def test_an_object_with_finalizers_is_not_deleted_bit_by_bit(world: World) -> None:
    await world.set("r", 1, "n1")
    await world.set("r", 1, "n2")
    world.api.keep(replace(world.api.objects["team", "r"], finalizers=("x.io/keep",)), spec=False)
    await world.quiet(10)
    outcome = await run(world, setting("r", 0), setting("r", 0, "n2"), setting("s", 1))
    assert [(each.index, each.field) for each in outcome.refused] == [(1, "name")]
    assert "delete it in a separate call" in outcome.refused[0].detail
    assert not world.api.objects["team", "r"].deleting
    assert there(world) == {"r": {"n1": 1, "n2": 1}}
    await world.quiet()
    world.agree()


# -- intents


async def test_a_call_that_is_cancelled_while_its_intent_is_being_stored_leaves_none(world: World) -> None:
    world.api.latency = 1.0
    running = asyncio.create_task(run(world, setting("r", 1), setting("s", 1, namespace="other")))
    await asyncio.sleep(1.5)
    assert world.api.calls[-1].startswith("create escher-system/transaction")
    world.api.forever.append(unavailable(of="delete escher-system/transaction"))
    running.cancel()
    await asyncio.wait([running])
    world.api.forever.clear()
    await world.quiet(120)
    assert there(world) == {}
    assert world.api.intents == {}
    world.agree()


async def test_an_intent_that_meets_a_conflict_of_quotas_is_tried_again_by_the_caller(world: World) -> None:
    conflict = Occupied(409, "Operation cannot be fulfilled on resourcequotas")
    world.api.faults.append(Fault(conflict, of="create escher-system/transaction"))
    with pytest.raises(Unavailable, match="resourcequotas") as told:
        await run(world, setting("r", 1), setting("s", 1))
    assert told.value.retry_after == 1
    assert (await run(world, setting("r", 1), setting("s", 1))).committed == [0, 1]
    world.agree()


# -- a second service


class Slow:
    """A way to the store on which each call takes a while more."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, what: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **options: Any) -> Any:
            await asyncio.sleep(0.3)
            return await getattr(self._store, what)(*arguments, **options)

        return call


async def test_what_a_second_attempt_deletes_is_not_made_again_by_a_service_that_still_takes_the_first_one_back(
    world: World,
) -> None:
    """A rolling update: the new service gives up what it finds under way, and the old one's caller tries again."""
    await world.set("r", 2, "n1")
    await world.quiet(5)
    api, create = world.api, world.api.store.create
    api.latency = 0.05
    waits = [3.0]

    async def late_at_first(item: EphemeralResource, **options: Any) -> EphemeralResource:
        if item.name.name == "s0" and waits:
            await asyncio.sleep(waits.pop())
        return await create(item, **options)

    api.store.create = late_at_first  # type: ignore[method-assign]
    wishes = [*(setting(f"s{i}", 1) for i in range(20)), REMOVED]
    first = asyncio.create_task(run(world, *wishes))
    await asyncio.sleep(0.3)
    anew = World(api=api)
    for part in (anew.resources.writing, anew.resources.taking_back, anew.resources.undoing, anew.conditions):
        part._store = cast(Any, Slow(api.store))
    for kept in (anew.intents, anew.intents.writing):
        kept._store = cast(Any, Slow(api.intent_store))
    anew.list()
    api.nodes_watch.sink = Both(
        *(Facts(Node, each.scheduler, each, FlightRecorder(api.clock)) for each in (world, anew))
    )
    api.resources_watch.sink = Both(world.resources.known, anew.resources.known)
    api.intents_watch.sink = Both(world.intents.known, anew.intents.known)
    async with anew.running():
        with pytest.raises(Unavailable, match="another Escher instance"):
            await first
        assert (await run(world, *wishes)).committed == list(range(21))
        await world.quiet(100)
        assert there(world) == {f"s{i}": {"n1": 1} for i in range(20)}
        anew.agree()
    world.agree()


async def test_what_no_watch_has_told_of_is_deleted_beside_another_write_with_an_intent(world: World) -> None:
    """A crash between the two writes would leave half of it."""
    announced: list[Any] = []
    announce = world.intents.announce

    async def noted(known: Any, deletes: Any) -> Any:
        announced.append(set(known))
        return await announce(known, deletes)

    cast(Any, world.intents).announce = noted
    world.api.resources_watch.held = True
    world.api.put(EphemeralResource(REMOVED.name, {NodeName("n1"): 3}))
    await run(world, setting("a", 1), REMOVED)
    assert announced == [{("team", "a"), ("team", "r")}]
    assert len(there(world)) == 1
