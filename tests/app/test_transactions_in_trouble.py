"""Transactions that meet defects, people and an API server that is slow: what they answer, and what is there then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from extender.app.contracts.api import Claim, Operation, Outcome, Release, SetResource, Transact
from extender.app.contracts.kind import Named
from extender.app.contracts.ports import EphemeralResource
from extender.app.resources import set_resource as resources_module
from extender.app.resources.set_resource_plan import plan
from extender.core.ledger.holdings import Mode
from extender.core.names import EphemeralName
from extender.kube.errors import Refused, Unavailable
from extender.kube.names import NodeName
from tests.app.fakes import Fault, on_node, twice, unavailable
from tests.app.world import World
from tests.builders import pod, units

pytestmark = pytest.mark.anyio
N1 = NodeName("n1")


def setting(name: str, capacity: int, on: str = "n1", namespace: str = "team") -> SetResource:
    return SetResource(name=EphemeralName(namespace, name), capacity=capacity, choice=on_node(on))


def claim(holder: str, cpu: int = 1000, on: str = "n1") -> Claim:
    return Claim(namespace="team", holder=holder, node=NodeName(on), units=units(cpu=cpu), ttl_seconds=600)


async def run(world: World, *operations: Operation, mode: Mode = Mode.ALL_OR_NOTHING, dry_run: bool = False) -> Outcome:
    return await world.transactions.transact(Transact(operations=operations, mode=mode, dry_run=dry_run))


def there(world: World) -> dict[str, dict[str, int]]:
    found = world.api.objects.items()
    return {name: {str(node): units for node, units in each.nodes.items()} for (_, name), each in found}


def held(world: World) -> dict[str, int]:
    return {each.holder: sum(each.units.values()) for each in world.scheduler.cache.ledger.rows.holdings()}


def fails(world: World, monkeypatch: pytest.MonkeyPatch, part: str, *, of: str, after: bool) -> None:
    """The named method of the store raises what nobody expects, before or after the call for this object is done."""
    done = getattr(world.api.store, part)

    async def broken(what: Any, *more: Any, **options: Any) -> Any:
        name = what.name if isinstance(what, EphemeralResource) else what
        if name.name != of:
            return await done(what, *more, **options)
        if after:
            await done(what, *more, **options)
        raise KeyError("a defect")

    monkeypatch.setattr(world.api.store, part, broken)


# -- defects


def broken_plan(name: str) -> Callable[..., Any]:
    def broken(request: SetResource, *more: Any) -> Any:
        if request.name.name == name:
            raise KeyError("a defect")
        return plan(request, *more)

    return broken


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("latency", [0.0, 0.1])
async def test_a_defect_while_the_second_object_is_planned_takes_back_the_first(
    world: World, monkeypatch: pytest.MonkeyPatch, mode: Mode, latency: float
) -> None:
    await world.set("there", 1, "n1")
    await world.quiet(10)
    world.api.latency = latency
    monkeypatch.setattr(resources_module, "plan", broken_plan("s"))
    with pytest.raises(KeyError, match="a defect"):
        await run(world, setting("there", 5), setting("r", 1), setting("s", 1), claim("a"), mode=mode)
    assert (there(world), held(world)) == ({"there": {"n1": 1}}, {})
    await world.quiet()
    world.agree()


@pytest.mark.parametrize("after", [False, True], ids=["before it is written", "after it is written"])
@pytest.mark.parametrize(
    ("part", "wish"),
    [("create", setting("new", 1)), ("merge", setting("there", 5)), ("delete", setting("gone", 0))],
    ids=["create", "merge", "delete"],
)
async def test_a_defect_while_an_object_is_written_takes_back_what_was(
    world: World, monkeypatch: pytest.MonkeyPatch, part: str, wish: SetResource, after: bool
) -> None:
    await world.set("there", 1, "n1")
    await world.set("gone", 2, "n1")
    await world.quiet(10)
    fails(world, monkeypatch, part, of=wish.name.name, after=after)
    with pytest.raises(KeyError, match="a defect"):
        await run(world, setting("first", 1), setting("more", 1, "n2"), wish)
    await world.quiet()
    assert there(world) == {"there": {"n1": 1}, "gone": {"n1": 2}}
    world.agree()


async def test_a_defect_after_the_claims_were_made_gives_them_up_and_restores_those_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(world, claim("a", 2000), claim("b", 3000))
    before = held(world)

    async def broken(*_: Any) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(world.intents, "withdraw", broken)
    release = Release(namespace="team", holder="b")
    with pytest.raises(KeyError, match="a defect"):
        await run(world, setting("r", 1), setting("s", 1), claim("a", 4000), release, claim("c", 1000))
    assert held(world) == before
    assert there(world) == {}
    await world.quiet()
    world.agree()


async def test_a_claim_that_is_taken_back_is_given_up_though_what_it_replaced_has_no_room_any_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(world, claim("a", 6000))

    async def broken(*_: Any) -> None:
        world.do(world.scheduler.observe(pod("other", {"cpu": 8000}, node=NodeName("n1"))))
        raise KeyError("a defect")

    monkeypatch.setattr(world.intents, "withdraw", broken)
    with pytest.raises(KeyError, match="a defect"):
        await run(world, setting("r", 1), setting("s", 1), claim("a", 1000, on="n2"))
    assert list(held(world)) == ["uid-other"]
    await world.quiet()
    world.agree()


async def test_a_defect_while_it_is_taken_back_leaves_that_to_the_intent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    undo = world.resources.undoing.undo

    async def broken(*_: Any) -> None:
        raise KeyError("another defect")

    monkeypatch.setattr(world.resources.undoing, "undo", broken)
    world.api.faults.append(Fault(Refused(422, "no such luck"), of="create team/s"))
    with pytest.raises(KeyError, match="another defect"):
        await run(world, setting("r", 1), setting("s", 1))
    monkeypatch.setattr(world.resources.undoing, "undo", undo)
    await world.quiet(1)
    assert there(world) == {}
    world.agree()


# -- people, and other services


async def test_an_edit_between_the_intent_and_the_write_is_respected_and_the_rest_is_done_on_top_of_it(
    world: World,
) -> None:
    await world.set("r", 1, "n1")
    await world.set("s", 1, "n1")
    await world.quiet(10)
    world.api.latency = 1.0
    running = asyncio.create_task(run(world, setting("r", 5), setting("s", 5)))
    await asyncio.sleep(4.5)
    assert "merge team/r" in world.api.calls
    world.api.put(replace(world.api.objects["team", "r"], nodes={N1: 1, NodeName("n2"): 7}))
    assert (await running).committed == [0, 1]
    assert there(world) == {"r": {"n1": 5, "n2": 7}, "s": {"n1": 5}}
    await world.quiet()
    world.agree()


async def test_what_others_change_all_the_time_is_given_up_with_a_word_and_leaves_nothing(world: World) -> None:
    await world.set("r", 1, "n1")
    await world.set("s", 1, "n1")
    await world.quiet(10)
    merge = world.api.store.merge

    async def edited(name: Named, *more: Any, **options: Any) -> EphemeralResource:
        if name.name == "r":
            world.api.put(replace(world.api.objects["team", "r"], nodes={N1: world.api.revision}))
        return await merge(name, *more, **options)

    world.api.store.merge = edited  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="other clients change team/r faster than Escher can set it together") as told:
        await run(world, setting("r", 5), setting("s", 5))
    assert told.value.retry_after == 1
    assert there(world)["s"] == {"n1": 1}
    await world.quiet()
    assert there(world).keys() == {"r", "s"}
    world.agree()


async def test_status_that_is_written_meanwhile_is_in_nobodys_way(world: World) -> None:
    await world.set("r", 1, "n1")
    await world.set("s", 1, "n1")
    await world.quiet(10)
    world.api.latency = 1.0
    running = asyncio.create_task(run(world, setting("r", 5), setting("s", 5)))
    await asyncio.sleep(2.5)
    now = world.api.objects["team", "r"]
    world.api.keep(replace(now, observed_generation=7), spec=False)
    assert (await running).committed == [0, 1]
    assert len([call for call in world.api.calls if call.startswith("create escher-system/transaction")]) == 1
    await world.quiet()
    world.agree()


async def test_objects_that_came_and_went_behind_our_back_are_noticed(world: World) -> None:
    await world.set("gone", 1, "n1")
    await world.quiet(10)
    world.api.resources_watch.held = True
    world.api.drop("team", "gone")
    world.api.put(EphemeralResource(EphemeralName("team", "new"), {NodeName("n2"): 3}))
    assert (await run(world, setting("gone", 5), setting("new", 5))).committed == [0, 1]
    assert there(world) == {"gone": {"n1": 5}, "new": {"n1": 5, "n2": 3}}
    world.api.resources_watch.deliver()
    await world.quiet()
    world.agree()


async def test_who_deletes_the_intent_has_decided_that_what_is_written_stands(world: World) -> None:
    world.api.latency = 1.0
    running = asyncio.create_task(run(world, setting("r", 1), setting("s", 1)))
    await asyncio.sleep(4.5)
    [intent] = world.api.intents
    world.api.drop_intent(intent)
    assert (await running).committed == [0, 1]
    assert there(world) == {"r": {"n1": 1}, "s": {"n1": 1}}
    await world.quiet()
    world.agree()


# -- finalizers


async def test_what_could_not_be_taken_back_is_refused_before_anything_is_written(world: World) -> None:
    await world.set("r", 1, "n1")
    world.api.keep(replace(world.api.objects["team", "r"], finalizers=("x.io/keep",)), spec=False)
    await world.quiet(10)
    calls = len(world.api.calls)
    outcome = await run(world, setting("s", 1), setting("r", 0))
    assert [(each.index, each.field) for each in outcome.refused] == [(1, "name")]
    assert "team/r has finalizers (x.io/keep)" in outcome.refused[0].detail
    assert len(world.api.calls) == calls
    assert (await run(world, setting("s", 1), setting("r", 0), mode=Mode.INCREMENTAL)).committed == [0, 1]
    world.api.let_go("team", "r")
    await world.quiet()
    world.agree()


async def test_a_single_deletion_of_it_is_done(world: World) -> None:
    await world.set("r", 1, "n1")
    world.api.keep(replace(world.api.objects["team", "r"], finalizers=("x.io/keep",)), spec=False)
    await world.quiet(10)
    outcome = await run(world, setting("r", 0))
    assert outcome.committed == [0]
    assert outcome.resources[0].finalizers == ("x.io/keep",)


# -- an API server that answers late, or not


@pytest.mark.parametrize("late", [0.3, 5.0])
@pytest.mark.parametrize("wish", [setting("there", 5), setting("gone", 0)], ids=["merge", "delete"])
async def test_a_write_that_arrives_after_it_was_taken_back_is_refused(
    world: World, wish: SetResource, late: float
) -> None:
    await world.set("there", 1, "n1")
    await world.set("gone", 2, "n1")
    await world.quiet(10)
    call = "merge" if wish.capacity else "delete"
    world.api.faults.append(unavailable(of=f"{call} {wish.name}", late=late))
    with pytest.raises(Unavailable):
        await run(world, setting("first", 1), wish)
    await world.quiet(20)
    assert there(world) == {"there": {"n1": 1}, "gone": {"n1": 2}}
    world.agree()


@pytest.mark.parametrize("of", ["create escher-system/transaction", "delete escher-system/transaction"])
async def test_an_intent_that_arrives_twice_is_one(world: World, of: str) -> None:
    world.api.faults.append(twice(of))
    assert (await run(world, setting("r", 1), setting("s", 1))).committed == [0, 1]
    assert there(world) == {"r": {"n1": 1}, "s": {"n1": 1}}
    await world.quiet()
    world.agree()


@pytest.mark.parametrize("after", [False, True], ids=["lost on the way there", "lost on the way back"])
async def test_an_answer_that_is_lost_at_the_end_is_found_out_about(world: World, after: bool) -> None:
    world.api.faults.append(unavailable(after=after, of="delete escher-system/transaction"))
    assert (await run(world, setting("r", 1), setting("s", 1), claim("a"))).committed == [0, 1, 2]
    assert there(world) == {"r": {"n1": 1}, "s": {"n1": 1}}
    await world.quiet()
    world.agree()


@pytest.mark.parametrize("after", [False, True], ids=["lost on the way there", "lost on the way back"])
@pytest.mark.parametrize("deletes", [False, True])
async def test_a_transaction_that_cannot_be_decided_is_once_the_api_server_answers(
    world: World, after: bool, deletes: bool
) -> None:
    await world.set("old", 1, "n1")
    await world.quiet(10)
    wishes = [setting("old", 0), setting("r", 1)] if deletes else [setting("r", 1), setting("s", 1)]
    world.api.faults.append(unavailable(30.0, after=after, of="delete escher-system/transaction"))
    with pytest.raises(Unavailable, match="is in force, or will be rolled back"):
        await run(world, *wishes, claim("a"))
    assert held(world) == {}
    await world.quiet(60)
    before, done = (
        {"old": {"n1": 1}},
        {"r": {"n1": 1}} if deletes else {"old": {"n1": 1}, "r": {"n1": 1}, "s": {"n1": 1}},
    )
    assert there(world) == (done if after else before)
    world.agree()


async def test_the_api_server_that_is_away_at_the_worst_moment_leaves_no_half(world: World) -> None:
    """From the first write on, for longer than anybody tries to take something back."""
    world.api.latency = 0.1
    running = asyncio.create_task(run(world, setting("r", 1), setting("s", 1), setting("r", 2, "n2")))
    await asyncio.sleep(0.55)
    world.api.forever.append(unavailable())
    with pytest.raises(Unavailable):
        await running
    await world.quiet(600)
    world.api.forever.clear()
    await world.quiet(120)
    assert there(world) == {}
    world.agree()


async def test_a_dry_run_announces_nothing(world: World) -> None:
    assert (await run(world, setting("r", 1), setting("s", 1), dry_run=True)).committed == [0, 1]
    assert not [call for call in world.api.calls if "transaction" in call]
