"""Transactions: scenario 18 of mission.md, several objects as one, and nothing left behind of what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.app.contracts.api import Claim, Operation, Outcome, Release, SetResource, Transact
from extender.app.contracts.ports import EphemeralResource, PodOwner
from extender.core.ledger.holdings import Detection, Mode, Stale
from extender.core.ledger.ledger import Holder
from extender.core.ledger.units import Short
from extender.core.names import EphemeralName
from extender.kube.errors import Occupied, Refused, Unavailable
from extender.kube.names import NodeName, ResourceKey
from tests.app.fakes import Fault, every_node, on_node, twice, unavailable
from tests.app.world import World
from tests.builders import units

pytestmark = pytest.mark.anyio
N1 = NodeName("n1")
R = "escher.dev/team.r"
GB = 10**9


def claim(holder: str, *, on: str = "n1", **asks: int) -> Claim:
    return Claim(namespace="team", holder=holder, node=NodeName(on), units=units(asks), ttl_seconds=60)


def claim_r(holder: str, number: int, *, on: str = "n1", namespace: str = "team") -> Claim:
    return Claim(namespace=namespace, holder=holder, node=NodeName(on), units=units({R: number}), ttl_seconds=60)


def setting(name: str, capacity: int, on: str = "n1", *, if_version: str | None = None) -> SetResource:
    return SetResource(name=EphemeralName("team", name), capacity=capacity, choice=on_node(on), if_version=if_version)


async def run(world: World, *operations: Operation, mode: Mode = Mode.ALL_OR_NOTHING, dry_run: bool = False) -> Outcome:
    return await world.transactions.transact(Transact(operations=operations, mode=mode, dry_run=dry_run))


def held(world: World) -> list[str]:
    return sorted(holding.holder for holding in world.scheduler.cache.ledger.rows.holdings())


@pytest.fixture
def small(world: World) -> World:
    """A node of 1 CPU and 2 GB, as in the thesis."""
    world.add_nodes("small", has={"cpu": 1000, "memory": 2 * GB})
    return world


async def _claim_as_read(world: World, detection: Detection, mode: Mode = Mode.ALL_OR_NOTHING) -> list[Outcome]:
    """Two agents claim what they decided on the same private copy."""
    read = {state.node: state.sequence for state in world.queries.cluster_state()}
    return [
        await world.transactions.transact(
            Transact(
                operations=[claim(agent, on="small", cpu=250, memory=3 * GB // 4)],
                mode=mode,
                detection=detection,
                read=read,
            )
        )
        for agent in ("one", "two")
    ]


async def test_by_resource_fit_both_agents_commit(small: World) -> None:
    outcomes = await _claim_as_read(small, Detection.RESOURCE_FIT)
    assert [outcome.committed for outcome in outcomes] == [[0], [0]]
    assert held(small) == ["claim:team/one", "claim:team/two"]


@pytest.mark.parametrize("mode", Mode)
async def test_by_sequence_number_the_second_agent_conflicts(small: World, mode: Mode) -> None:
    first, second = await _claim_as_read(small, Detection.SEQUENCE_NUMBER, mode)
    assert (first.committed, second.committed) == ([0], [])
    assert isinstance(second.refused[0].cause, Stale)
    assert held(small) == ["claim:team/one"]


async def test_of_three_claims_of_which_one_is_too_many_two_commit_or_none(small: World) -> None:
    three = [claim(f"agent-{number}", on="small", cpu=400) for number in range(3)]
    before = list(small.queries.cluster_state(node=NodeName("small")))
    outcome = await run(small, *three)
    assert outcome.committed == []
    assert [(refusal.index, refusal.cause) for refusal in outcome.refused] == [(2, Short("cpu", 400, 200))]  # type: ignore[arg-type]
    assert list(small.queries.cluster_state(node=NodeName("small"))) == before
    assert not small.woken
    outcome = await run(small, *three, mode=Mode.INCREMENTAL)
    assert outcome.committed == [0, 1]
    assert held(small) == ["claim:team/agent-0", "claim:team/agent-1"]


async def test_several_objects_are_set_as_one(world: World) -> None:
    outcome = await run(world, setting("r", 4), setting("r", 2, "n2"), setting("s", 1, "n3"))
    assert outcome.committed == [0, 1, 2]
    assert outcome.resources[1].nodes == {"n1": 4, "n2": 2}
    assert (world.stated("n1"), world.stated("n2"), world.stated("n3")) == ({"r": 4}, {"r": 2}, {"s": 1})
    world.agree()


async def test_one_wish_that_cannot_be_met_refuses_all_before_anything_is_written(world: World) -> None:
    outcome = await run(world, setting("r", 4), setting("s", 1, "n9"))
    assert (outcome.committed, outcome.resources) == ([], {})
    assert [(each.index, each.field, each.detail) for each in outcome.refused] == [
        (1, "node_spec", "there is no node n9")
    ]
    assert world.api.calls == []
    outcome = await run(world, setting("r", 4), setting("s", 1, "n9"), mode=Mode.INCREMENTAL)
    assert outcome.committed == [0]
    assert world.capacity("r") == {"n1": 4}


async def test_a_wish_that_what_is_there_does_not_allow_refuses_all_before_anything_is_written(world: World) -> None:
    await world.set("r", 1, "n1", shared=True)
    world.api.calls.clear()
    outcome = await run(world, setting("s", 1), setting("r", 2))
    assert [(each.index, each.field) for each in outcome.refused] == [(1, "shared")]
    assert world.api.calls == []


async def test_what_is_set_can_be_claimed_in_the_same_transaction(world: World) -> None:
    outcome = await run(world, setting("r", 4), claim_r("a", 3), claim_r("b", 2))
    assert [(each.index, each.cause) for each in outcome.refused] == [(2, Short(R, 2, 1))]  # type: ignore[arg-type]
    assert world.api.calls == []
    outcome = await run(world, setting("r", 4), claim_r("a", 3), claim_r("b", 1))
    assert outcome.committed == [0, 1, 2]
    assert world.free("r", "n1") == 0
    outcome = await run(world, setting("r", 1), claim_r("c", 1))
    assert [each.index for each in outcome.refused] == [1]


async def test_a_claim_replaces_what_its_holder_had_and_a_release_makes_room_for_others(world: World) -> None:
    await world.set("r", 4, "n1")
    await run(world, claim_r("a", 4))
    assert (await run(world, claim_r("a", 2))).committed == [0]
    assert world.free("r", "n1") == 2
    outcome = await run(world, Release(namespace="team", holder="a"), claim_r("b", 4))
    assert outcome.committed == [0, 1]
    assert held(world) == ["claim:team/b"]
    # Giving up one's own claim and making it anew is one step too.
    assert (await run(world, Release(namespace="team", holder="b"), claim_r("b", 3))).committed == [0, 1]
    assert world.free("r", "n1") == 1
    waiting = world.start_pod("p", {R: 4})
    world.do(world.scheduler.filter(waiting, [N1]))
    await run(world, Release(namespace="team", holder="b"), Release(namespace="team", holder="nobody"))
    assert world.woken == ["p"]
    assert held(world) == []


async def test_nobody_touches_what_another_namespace_a_pod_or_a_gang_holds(world: World) -> None:
    await world.set("r", 4, "n1")
    running = world.start_pod("p", {R: 1}, on="n1")
    await run(world, claim_r("a", 1))
    await run(world, Release(namespace="other", holder="a"), Release(namespace="team", holder=running.uid))
    assert held(world) == ["claim:team/a", running.uid]
    world.scheduler.cache.tenancy.export(ResourceKey(R), ["other"])
    await run(world, claim_r("a", 1, namespace="other"))
    assert held(world) == ["claim:other/a", "claim:team/a", running.uid]


async def test_claims_that_make_no_sense_are_refused_by_their_field(world: World) -> None:
    outcome = await run(world, claim("a", cpu=1), claim("a", cpu=2), claim("b", on="n9", cpu=1), mode=Mode.INCREMENTAL)
    assert outcome.committed == [0]
    assert [(each.index, each.field, each.detail) for each in outcome.refused] == [
        (1, "holder", "operation 0 has a claim of the same holder; merge the two"),
        (2, "node", "there is no node n9"),
    ]


async def test_a_dry_run_says_what_would_happen(world: World) -> None:
    outcome = await run(world, setting("r", 4), claim_r("a", 3), dry_run=True)
    assert outcome.committed == [0, 1]
    assert outcome.resources[0].nodes == {"n1": 4}
    outcome = await run(world, setting("r", 4), claim_r("a", 5), mode=Mode.INCREMENTAL, dry_run=True)
    assert (outcome.committed, outcome.refused[0].cause) == ([0], Short(R, 5, 4))  # type: ignore[arg-type]
    world.api.faults.append(Fault(Refused(422, "no")))
    outcome = await run(world, setting("r", 4), setting("s", 4), dry_run=True)
    assert outcome.committed == []
    assert (world.api.objects, held(world)) == ({}, [])


async def test_an_object_that_cannot_be_written_has_the_others_taken_back(world: World) -> None:
    await world.set("there", 1, "n1", ttl_seconds=500)
    before = dict(world.api.objects)
    gone = await world.set("gone", 1, "n1")
    operations = [
        setting("new", 1),
        setting("there", 5),
        setting("there", 6, "n2"),
        setting("gone", 0),
        setting("gone", 0, "n2"),
        setting("bad", 1),
    ]
    world.api.faults.append(Fault(Refused(422, "no such luck"), of="create team/bad"))
    outcome = await run(world, *operations, claim("a", cpu=1000))
    assert outcome.committed == []
    assert [(each.index, "no such luck" in each.detail) for each in outcome.refused] == [(5, True)]
    assert world.api.objects.keys() == {("team", "there"), ("team", "gone")}
    assert world.api.objects["team", "there"].nodes == {"n1": 1}
    assert world.api.objects["team", "there"].expires_at == before["team", "there"].expires_at
    assert world.capacity("gone") == gone.nodes
    assert held(world) == []
    await world.quiet(1)
    world.agree()


async def test_every_wish_that_cannot_be_met_is_told(world: World) -> None:
    outcome = await run(world, setting("r", 1, "n8"), setting("s", 1), setting("t", 1, "n9"))
    assert [(each.index, each.detail) for each in outcome.refused] == [
        (0, "there is no node n8"),
        (2, "there is no node n9"),
    ]


async def test_what_was_written_on_several_nodes_is_taken_back_on_each(world: World) -> None:
    await world.set("there", 1, "n1")
    longer = [setting("bad", units) for units in (1, 2, 3, 4, 0)]
    world.api.faults.append(Fault(Refused(422, "no such luck"), of="delete team/bad"))
    outcome = await run(world, setting("there", 5), setting("there", 6, "n2"), *longer)
    assert [each.index for each in outcome.refused] == [6]
    assert {name: each.nodes for (_, name), each in world.api.objects.items()} == {"there": {"n1": 1}}
    await world.quiet(1)
    world.agree()


async def test_what_was_written_several_times_is_as_before_the_first_and_its_owner_stays(world: World) -> None:
    owner = world.start_pod("worker", {}, on="n3")
    await world.set("there", 1, "n1", owner=PodOwner("worker", owner.uid), ttl_seconds=500)
    before = world.api.objects["team", "there"]
    world.api.faults.append(Fault(Refused(422, "no such luck"), of="delete"))
    outcome = await run(world, setting("there", 5), setting("there", 6), setting("there", 0))
    assert [each.index for each in outcome.refused] == [2]
    after = world.api.objects["team", "there"]
    assert (after.nodes, after.owner, after.expires_at) == (before.nodes, before.owner, before.expires_at)
    await world.quiet(1)
    world.agree()


@pytest.mark.parametrize("steps", [(5, 0), (0, 5), (5, 0, 6), (0, 0)], ids=str)
@pytest.mark.parametrize("exists", [True, False])
async def test_what_was_made_and_removed_on_the_way_is_as_before(
    world: World, steps: Sequence[int], exists: bool
) -> None:
    if exists:
        await world.set("r", 1, "n1")
    before = {name: each.nodes for name, each in world.api.objects.items()}
    wishes = [setting("r", units) for units in steps]
    # Of another name, and so at the same time: its last write is refused when all others are done.
    longer = [setting("bad", units) for units in (1, 2, 3, 4, 0)]
    world.api.faults.append(Fault(Refused(422, "no such luck"), of="delete team/bad"))
    outcome = await run(world, *wishes, *longer)
    assert outcome.committed == []
    assert [each.index for each in outcome.refused] == [len(wishes) + 4]
    assert {name: each.nodes for name, each in world.api.objects.items()} == before
    await world.quiet(1)
    world.agree()


async def test_taking_back_is_tried_again_with_growing_pauses(world: World) -> None:
    world.api.faults += [None, None, unavailable(), *(unavailable(of="delete") for _ in range(3))]
    began = world.clock.now()
    with pytest.raises(Unavailable):
        await run(world, setting("r", 1), setting("s", 1))
    assert world.clock.now() - began == pytest.approx(0.2 + 0.4 + 0.8, abs=0.05)
    assert world.capacity("r") == {}
    await world.quiet(1)
    world.agree()


async def test_a_transaction_that_loses_the_api_server_on_the_way_is_taken_back_and_says_so(world: World) -> None:
    world.api.faults += [None, None, unavailable(), unavailable(), unavailable(1.0)]
    with pytest.raises(Unavailable):
        await run(world, setting("r", 1), setting("s", 1), claim("a", cpu=1000))
    assert (world.api.objects, held(world)) == ({}, [])
    await world.quiet(1)
    world.agree()


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize(
    ("last", "call"),
    [(setting("new", 2), "create"), (setting("there", 5, "n2"), "merge"), (setting("there", 0), "delete")],
)
async def test_a_write_whose_answer_is_lost_is_taken_back_as_well(
    world: World, last: SetResource, call: str, lost: bool, mode: Mode
) -> None:
    await world.set("there", 1, "n1", ttl_seconds=500)
    before = {where: (each.nodes, each.expires_at) for where, each in world.api.objects.items()}
    world.api.faults.append(unavailable(after=lost, of=f"{call} {last.name}"))
    with pytest.raises(Unavailable):
        await run(world, last, *([setting("first", 1)] if mode is Mode.ALL_OR_NOTHING else []), mode=mode)
    assert {where: (each.nodes, each.expires_at) for where, each in world.api.objects.items()} == before
    await world.quiet(1)
    world.agree()


async def test_several_writes_whose_answers_are_lost_are_all_taken_back(world: World) -> None:
    world.api.latency = 0.01
    world.api.faults += [None, None, unavailable(after=True), unavailable(after=True)]
    with pytest.raises(Unavailable):
        await run(world, setting("r", 1), setting("s", 1))
    assert world.api.objects == {}
    await world.quiet(1)
    world.agree()


@pytest.mark.parametrize("of", ["create team/new", "merge team/there", "delete team/gone"])
async def test_what_arrived_twice_is_taken_back(world: World, of: str) -> None:
    await world.set("there", 1, "n1")
    await world.set("gone", 1, "n1")
    before = {where: each.nodes for where, each in world.api.objects.items()}
    operations = [setting("new", 1), setting("there", 5), setting("gone", 0), setting("bad", 1)]
    world.api.faults += [None] * ["create", "merge", "delete"].index(of.split()[0]) + [twice(of)]  # in that order
    world.api.faults.append(Fault(Refused(422, "no such luck"), of="create team/bad"))
    assert (await run(world, *operations)).committed == []
    await world.quiet(1)
    assert {where: each.nodes for where, each in world.api.objects.items()} == before
    world.agree()


@pytest.mark.parametrize("of", ["create team/r", "create escher-system/transaction"])
async def test_a_creation_of_a_transaction_that_failed_is_collected_when_it_arrives_late(world: World, of: str) -> None:
    world.api.faults.append(unavailable(of=of, late=5.0))
    with pytest.raises(Unavailable):
        await run(world, setting("r", 1), setting("s", 1))
    await world.quiet(10)
    assert world.api.objects == {}
    world.agree()


async def test_what_others_deleted_while_a_change_was_not_answered_is_not_made_again(world: World) -> None:
    await world.set("r", 1, "n1")
    world.api.latency = 1.0
    world.api.faults.append(unavailable(of="merge"))
    running = asyncio.create_task(run(world, setting("r", 5)))
    await asyncio.sleep(0.5)
    world.api.drop("team", "r")
    with pytest.raises(Unavailable):
        await running
    assert world.api.objects == {}
    await world.quiet()
    world.agree()


async def test_once_a_write_of_a_name_is_refused_no_other_of_it_is_made(world: World) -> None:
    world.api.faults.append(Fault(Refused(422, "no such luck"), of="create team/r"))
    outcome = await run(world, setting("r", 1), setting("r", 2))
    assert [each.index for each in outcome.refused] == [0]
    assert [call for call in world.api.calls if call.endswith(" team/r")] == ["create team/r"]


async def test_a_dry_run_that_is_not_answered_settles_nothing(world: World) -> None:
    world.api.faults += [unavailable(of="create", late=5.0), unavailable(of="create")]
    with pytest.raises(Unavailable):
        await world.set("r", 4, "n1")
    with pytest.raises(Unavailable):
        await run(world, setting("r", 4), dry_run=True)
    await world.quiet(10)
    assert world.capacity("r") == {"n1": 4}
    world.agree()


async def test_what_was_not_answered_and_is_found_done_is_not_told_as_refused_only(world: World) -> None:
    world.api.faults.append(unavailable(after=True, of="create team/s"))
    outcome = await run(world, setting("r", 1), setting("s", 1), mode=Mode.INCREMENTAL)
    assert (outcome.committed, [each.index for each in outcome.refused]) == ([0], [1])
    assert world.api.objects.keys() == {("team", "r")}
    await world.quiet(1)
    world.agree()


async def test_where_it_cannot_be_found_out_whether_it_was_written_nothing_is_taken_back(world: World) -> None:
    world.api.faults += [unavailable(after=True), *(unavailable(of="get") for _ in range(6))]
    with pytest.raises(Unavailable):
        await run(world, setting("r", 1))
    await world.quiet(1)
    assert world.capacity("r") == {"n1": 1}
    world.agree()


async def test_what_somebody_else_wrote_meanwhile_is_not_taken_back(world: World) -> None:
    world.api.latency = 1.0
    world.api.faults.append(unavailable(of="create"))
    running = asyncio.create_task(run(world, setting("r", 1)))
    await asyncio.sleep(1.5)
    world.api.put(EphemeralResource(EphemeralName("team", "r"), {N1: 7}))
    with pytest.raises(Unavailable):
        await running
    assert world.api.objects["team", "r"].nodes == {"n1": 7}
    await world.quiet()
    world.agree()


@pytest.mark.parametrize("exists", [True, False], ids=["changed by us", "made by us"])
async def test_what_somebody_else_has_changed_since_is_left_to_them(world: World, exists: bool) -> None:
    if exists:
        await world.set("r", 1, "n1")
        await world.quiet(10)
    world.api.latency = 1.0
    world.api.faults.append(Fault(Refused(422, "no such luck"), of="delete team/bad"))
    running = asyncio.create_task(run(world, setting("r", 5), *(setting("bad", units) for units in (1, 2, 3, 0))))
    await asyncio.sleep(6.5)
    assert world.api.objects["team", "r"].nodes == {"n1": 5}
    world.api.put(EphemeralResource(EphemeralName("team", "r"), {N1: 7}))
    assert (await running).committed == []
    assert {name: each.nodes for (_, name), each in world.api.objects.items()} == {"r": {"n1": 7}}
    await world.quiet()
    world.agree()


async def test_nobody_waits_for_a_name_while_a_transaction_waits_to_take_something_back(world: World) -> None:
    """The API server asks it to come back tomorrow."""
    world.api.latency = 0.01
    world.api.faults += [unavailable(of="create team/s"), unavailable(86400.0, of="get team/s")]
    running = asyncio.create_task(run(world, setting("r", 1), setting("s", 1)))
    await asyncio.sleep(0.5)
    began = world.clock.now()
    await world.set("s", 3, "n2")
    assert world.clock.now() - began < 5
    with pytest.raises(Unavailable):
        await running
    assert world.clock.now() - began < 60
    assert {name: each.nodes for (_, name), each in world.api.objects.items()} == {"s": {"n2": 3}}
    await world.quiet()
    world.agree()


async def test_what_is_left_is_taken_back_when_it_can_be(world: World) -> None:
    world.api.latency = 0.01
    world.api.faults += [unavailable(of="create team/s"), *(unavailable(4.0, of="delete team/r") for _ in range(2))]
    with pytest.raises(Unavailable):
        await run(world, setting("r", 1), setting("s", 1))
    assert world.api.objects == {}
    await world.quiet()
    world.agree()


async def test_all_that_a_transaction_wrote_of_a_name_is_taken_back_in_its_order(world: World) -> None:
    """What was not answered is found out about first, though that has to wait."""
    await world.set("r", 1, "n1")
    world.api.latency = 0.01
    world.api.faults += [None, unavailable(after=True, of="merge team/r"), unavailable(4.0, of="get team/r")]
    with pytest.raises(Unavailable):
        await run(world, setting("r", 2), setting("r", 3))
    assert world.api.objects["team", "r"].nodes == {"n1": 1}
    await world.quiet()
    world.agree()


async def test_what_cannot_be_taken_back_for_now_is_taken_back_by_its_intent(world: World) -> None:
    with capture_logs() as logs:
        world.api.faults += [unavailable(of="create team/s"), *(unavailable(of="delete team/r") for _ in range(6))]
        with pytest.raises(Unavailable):
            await run(world, setting("r", 1), setting("s", 1))
        assert world.capacity("r") == {"n1": 1}
        await world.quiet(1)
    assert [(each["name"], each["why"]) for each in logs if "not completely rolled back" in each["event"]] == [
        ("team/r", "connection refused")
    ]
    assert world.api.objects == {}
    world.agree()


async def test_what_the_api_server_will_not_have_taken_back_stays_and_is_logged(world: World) -> None:
    world.api.forever.append(Fault(Refused(422, "not this one"), of="delete team/stays"))
    with capture_logs() as logs:
        world.api.faults.append(unavailable(of="create team/u"))
        with pytest.raises(Unavailable):
            await run(world, setting("stays", 1), setting("u", 1))
        assert world.capacity("stays") == {"n1": 1}
        await world.quiet()
    said = [(each["event"], each["name"], each["why"]) for each in logs if each["log_level"] == "error"]
    assert said == [
        ("a transaction is not completely rolled back", "team/stays", "not this one"),
        ("a transaction's write cannot be rolled back", "team/stays", "not this one"),
    ]
    assert world.api.objects.keys() == {("team", "stays")}
    calls = len(world.api.calls)
    await world.quiet(3600)
    assert not [call for call in world.api.calls[calls:] if call.startswith("delete team")], "it is not tried for ever"
    world.agree()


async def test_what_may_not_be_taken_back_for_want_of_rights_is_when_they_come_back(world: World) -> None:
    forbidden = Fault(Refused(403, "forbidden"), of="delete team/r")
    world.api.forever.append(forbidden)
    world.api.faults.append(unavailable(of="create team/s"))
    with pytest.raises(Unavailable):
        await run(world, setting("r", 1), setting("s", 1))
    await world.quiet(600)
    assert world.api.objects.keys() == {("team", "r")}
    world.api.forever.remove(forbidden)
    await world.quiet(600)
    assert world.api.objects == {}
    world.agree()


async def test_a_status_that_may_not_be_written_is_written_when_rights_come_back(world: World) -> None:
    forbidden = Fault(Refused(403, "forbidden"), of="status team/r")
    world.api.forever.append(forbidden)
    await world.set("r", 1, "n1")
    await world.quiet(600)
    assert world.api.store.statuses == []
    world.api.forever.remove(forbidden)
    await world.quiet(60)
    assert [said[:3] for said in world.api.store.statuses] == [("team/r", True, "Set")]


async def test_status_that_is_written_meanwhile_does_not_keep_it_from_being_taken_back(world: World) -> None:
    world.api.faults += [unavailable(of="create team/w"), Fault(Occupied(409, "another version"), of="delete team/v")]
    with pytest.raises(Unavailable):
        await run(world, setting("v", 1), setting("w", 1))
    assert world.api.objects == {}
    await world.quiet()
    world.agree()


async def test_incremental_keeps_what_could_be_written(world: World) -> None:
    world.api.faults += [None, unavailable()]
    outcome = await run(world, setting("r", 1), setting("s", 1), claim("a", cpu=1000), mode=Mode.INCREMENTAL)
    assert outcome.committed == [0, 2]
    assert "cannot be reached" in outcome.refused[0].detail
    world.api.faults += [unavailable()]
    with pytest.raises(Unavailable):
        await run(world, setting("s", 1), mode=Mode.INCREMENTAL)


async def test_room_that_is_lost_while_objects_are_written_undoes_the_transaction(world: World) -> None:
    world.api.latency = 1.0
    running = asyncio.create_task(
        run(world, setting("r", 1), claim("a", cpu=8000), Release(namespace="team", holder="x"))
    )
    await asyncio.sleep(0.5)
    await run(world, claim("thief", cpu=1000))
    outcome = await running
    assert outcome.committed == []
    assert outcome.refused[0].cause == Short("cpu", 8000, 7000)  # type: ignore[arg-type]
    assert world.api.objects == {}
    assert held(world) == ["claim:team/thief"]
    await world.quiet()
    world.agree()


async def test_incremental_releases_though_a_claim_is_refused(small: World) -> None:
    await run(small, claim("old", on="small", cpu=800))
    release = Release(namespace="team", holder="old")
    too_much = claim("new", on="small", cpu=1001)
    assert (await run(small, release, too_much)).committed == []
    assert held(small) == ["claim:team/old"]
    outcome = await run(small, release, too_much, mode=Mode.INCREMENTAL)
    assert (outcome.committed, [each.index for each in outcome.refused]) == ([0], [1])
    assert held(small) == []


async def test_a_version_counts_for_each_operation(world: World) -> None:
    state = await world.set("r", 1, "n1")
    outcome = await run(world, setting("r", 2, if_version="7"), setting("s", 1))
    assert outcome.refused[0].field == "If-Match"
    assert ("team", "s") not in world.api.objects
    assert (await run(world, setting("r", 2, if_version=state.version))).committed == [0]


async def test_transactions_that_name_the_same_objects_in_another_order_do_not_block_each_other(world: World) -> None:
    world.api.latency = 0.1
    names: Sequence[Sequence[str]] = (["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"])
    outcomes = await asyncio.gather(
        *(run(world, *(setting(name, number + 1) for name in order)) for number, order in enumerate(names))
    )
    assert all(outcome.committed == [0, 1, 2] for outcome in outcomes)
    assert world.stated("n1") == {"a": 3, "b": 3, "c": 3}


async def test_every_form_of_node_spec_can_be_used(world: World) -> None:
    everywhere = SetResource(name=EphemeralName("team", "r"), capacity=2, choice=every_node())
    outcome = await run(world, everywhere, *(claim_r(node, 2, on=node) for node in ("n1", "n2", "n3")))
    assert outcome.committed == [0, 1, 2, 3]
    assert world.scheduler.cache.ledger.holding(Holder("claim:team/n3")) is not None
    await run(world, *(Release(namespace="team", holder=node) for node in ("n1", "n2", "n3")))


# -- while a list of pods is being taken in


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_claim_is_not_judged_by_a_part_of_a_list(small: World, dry_run: bool) -> None:
    small.scheduler.cache.whole = False
    with pytest.raises(Unavailable, match="Escher is reading a list of all pods"):
        await run(small, setting("r", 1, on="small"), claim("a", on="small", cpu=100), dry_run=dry_run)
    assert (held(small), small.api.objects) == ([], {})
    small.scheduler.cache.whole = True
    await run(small, claim("a", on="small", cpu=100))
    small.scheduler.cache.whole = False
    await run(small, Release(namespace="team", holder="a"))
    assert held(small) == []


async def test_what_was_written_before_the_list_came_is_taken_back(small: World) -> None:
    put = small.api.store.create

    async def and_a_list_comes(item: EphemeralResource, **options: Any) -> EphemeralResource:
        small.scheduler.cache.whole = False
        return await put(item, **options)

    small.api.store.create = and_a_list_comes  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="Escher is reading a list of all pods"):
        await run(small, setting("r", 1, on="small"), claim("a", on="small", cpu=100))
    small.scheduler.cache.whole = True
    assert (held(small), small.api.objects) == ([], {})
