"""Quotas of ephemeral resources, units and claims: what is too much is refused with numbers, and waits if kubectl wrote
it; what is there stays; in whatever order things happen or are found again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.app.cache.cache import Rules
from extender.app.contracts.api import Claim, Outcome, Release, SetResource, Transact
from extender.app.contracts.errors import Invalid, QuotaExceeded
from extender.app.contracts.kind import Identity
from extender.app.contracts.ports import EphemeralResource, NodeChoice
from extender.app.cycle.scheduler import Scheduler
from extender.app.objects.known import Known
from extender.app.resources.capacity import Capacities
from extender.app.resources.quota import Amount
from extender.app.resources.set_resource import Resources
from extender.core.cluster import Node
from extender.core.ledger.ledger import Mode
from extender.core.names import EphemeralName
from extender.core.tenancy.isolation import UNLIMITED, Allowance, Counted
from extender.kube.names import CPU, NodeName, ResourceKey
from tests.app.fakes import ApiServer, LoopClock, every_node, on_node
from tests.app.world import World
from tests.builders import node
from tests.core.gang_world import FixedClock
from tests.performing import Performing, replaced

pytestmark = pytest.mark.anyio
N1, N2 = NodeName("n1"), NodeName("n2")
R, U, C = Counted.RESOURCES, Counted.UNITS, Counted.CLAIMS


def limited(**most: int) -> Rules:
    """Namespace `team` may have so much; others without a limit."""
    return Rules(allowances=(UNLIMITED, {"team": allowance(**most)}))


def allowance(**most: int) -> Allowance:
    return Allowance({Counted(name): number for name, number in most.items()})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Two nodes; the namespace may have two resources, and ten units of them."""
    made = World(rules=limited(resources=2, units=10, claims=2))
    made.add_nodes("n1", "n2")
    async with made.running():
        yield made
        await made.quiet()
        check(made)


def check(world: World) -> None:
    world.audit()
    assert list(world.resources.capacities.quota.violations(world.resources.capacities.recount())) == []


def used(world: World, namespace: str = "team") -> tuple[int, int]:
    amount = world.resources.capacities.quota.used(namespace)
    return amount.resources, amount.units


def written(name: str, nodes: Mapping[NodeName, int] | None = None, **facts: Any) -> EphemeralResource:
    """An object as kubectl makes it."""
    return EphemeralResource(EphemeralName("team", name), nodes or {}, **facts)


def said(world: World, name: str) -> tuple[bool, str, str]:
    """What its Ready condition says: whether, why, in words."""
    *_, (_, ready, reason, message) = [each for each in world.api.store.statuses if each[0] == f"team/{name}"]
    return ready, reason, message


def restarted(before: World, rules: Rules) -> World:
    """Another life of the service, on the same API server."""
    after = World(rules=rules)
    after.api.objects, after.api.nodes = before.api.objects, before.api.nodes
    after.api.revision = before.api.revision
    return after


# -- the management API ------------------------------------------------------------------------------------------


async def test_one_resource_too_many_is_refused_with_the_numbers_and_is_nowhere(world: World) -> None:
    await world.set("a", 1, "n1")
    await world.set("b", 1, "n1")
    with pytest.raises(QuotaExceeded) as refused:
        await world.set("c", 1, "n2")
    assert str(refused.value) == (
        "exceeded quota of namespace team: requested: resources=1, used: resources=2, limited: resources=2"
    )
    assert (refused.value.field, refused.value.over.limit) == ("name", 2)
    assert ("team", "c") not in world.api.objects
    await world.set("a", 0, "n1")
    await world.set("c", 1, "n2")
    assert used(world) == (2, 2)


async def test_units_count_on_all_nodes_together(world: World) -> None:
    await world.set("a", 5, every_node())
    with pytest.raises(QuotaExceeded, match="requested: units=1, used: units=10, limited: units=10") as refused:
        await world.set("b", 1, "n1")
    assert refused.value.field == "capacity"
    with pytest.raises(QuotaExceeded, match="requested: units=2, used: units=10"):
        await world.set("a", 6, every_node())
    assert world.capacity("a") == {"n1": 5, "n2": 5}


async def test_to_move_and_to_renew_are_not_to_have_more(world: World) -> None:
    world.add_nodes("n1", labels={"pool": "a"})
    world.add_nodes("n2", labels={"pool": "b"})
    await world.set("a", 10, NodeChoice(labels={"pool": "a"}))
    await world.set("a", 10, NodeChoice(labels={"pool": "a"}), ttl_seconds=60.0)
    await world.set("a", 10, NodeChoice(labels={"pool": "b"}))
    assert world.capacity("a") == {"n2": 10}


async def test_others_are_not_concerned_and_shared_ones_are_their_creators(world: World) -> None:
    await world.set("a", 10, "n1", shared=True)
    await world.set("a", 10, "n1", namespace="other")
    assert (used(world), used(world, "other")) == ((1, 10), (1, 10))
    with pytest.raises(QuotaExceeded):
        await world.set("b", 1, "n1")


async def test_of_many_at_once_as_many_are_set_as_there_may_be() -> None:
    world = World(latency=0.05, rules=limited(resources=3, units=100))
    world.add_nodes("n1")
    async with world.running():
        names = [f"r{number}" for number in range(12)]
        answers = await asyncio.gather(*(world.set(name, 1, "n1") for name in names), return_exceptions=True)
        assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 9
        assert (len(world.api.objects), used(world)) == (3, (3, 3))
        await world.quiet()
        check(world)
        world.agree()


async def test_a_write_that_fails_gives_its_room_back(world: World) -> None:
    world.api.namespaces = set()
    with pytest.raises(Exception, match="there is no namespace"):
        await world.set("a", 10, "n1")
    world.api.namespaces = None
    await world.set("b", 10, "n1")
    assert used(world) == (1, 10)


async def test_a_dry_run_says_the_same_and_uses_nothing(world: World) -> None:
    await world.set("a", 10, "n1", dry_run=True)
    with pytest.raises(QuotaExceeded):
        await world.set("a", 11, "n1", dry_run=True)
    assert used(world) == (0, 0)


# -- transactions ------------------------------------------------------------------------------------------------


async def transact(world: World, *units: int, mode: Mode, dry_run: bool = False) -> Outcome:
    """Resources a, b ... with so many units each."""
    wishes = [
        SetResource(name=EphemeralName("team", name), capacity=number, choice=on_node("n1"))
        for name, number in zip("abcdef", units, strict=False)
    ]
    return await world.transactions.transact(Transact(operations=wishes, mode=mode, dry_run=dry_run))


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_transaction_that_adds_too_much_adds_nothing(world: World, dry_run: bool) -> None:
    outcome = await transact(world, 6, 6, mode=Mode.ALL_OR_NOTHING, dry_run=dry_run)
    assert not outcome.committed
    assert [(each.index, each.field) for each in outcome.refused] == [(1, "capacity")]
    assert "requested: units=6, used: units=6, limited: units=10" in outcome.refused[0].detail
    assert (used(world), dict(world.api.objects)) == ((0, 0), {})


async def test_an_incremental_one_adds_what_there_is_room_for(world: World) -> None:
    outcome = await transact(world, 6, 6, 4, 1, mode=Mode.INCREMENTAL)
    assert list(outcome.committed) == [0, 2]
    assert used(world) == (2, 10)


async def test_two_transactions_at_once_do_not_share_the_last_room() -> None:
    world = World(latency=0.05, rules=limited(units=10))
    world.add_nodes("n1")
    async with world.running():
        wishes = [SetResource(name=EphemeralName("team", n), capacity=3, choice=on_node("n1")) for n in "abcd"]
        both = (Transact(operations=wishes[:2]), Transact(operations=wishes[2:]))
        done = await asyncio.gather(*map(world.transactions.transact, both))
        assert sorted(len(outcome.committed) for outcome in done) == [0, 2]
        assert used(world) == (2, 6)
        check(world)


async def test_what_a_transaction_took_away_is_given_back_though_others_want_the_room() -> None:
    world = World(latency=0.05, rules=limited(units=10))
    world.add_nodes("n1")
    async with world.running():
        await world.set("a", 10, "n1")
        lower = SetResource(name=EphemeralName("team", "a"), capacity=1, choice=on_node("n1"))
        claim = Claim(namespace="team", holder="x", node=N1, units={CPU: 99_000}, ttl_seconds=9.0)
        nobody = SetResource(name=EphemeralName("other", "a"), capacity=1, choice=on_node("n1"))
        world.api.namespaces = {"team"}
        taken = asyncio.create_task(world.transactions.transact(Transact(operations=[lower, nobody, claim])))
        await asyncio.sleep(0.12)
        with pytest.raises(QuotaExceeded):
            await world.set("b", 9, "n1")
        assert not (await taken).committed
        assert world.capacity("a") == {"n1": 10}
        check(world)


async def test_claims_are_counted_by_holder(world: World) -> None:
    def claim(holder: str, namespace: str = "team") -> Claim:
        return Claim(namespace=namespace, holder=holder, node=N1, units={CPU: 10}, ttl_seconds=60.0)

    async def run(*operations: Any, mode: Mode = Mode.ALL_OR_NOTHING) -> Outcome:
        return await world.transactions.transact(Transact(operations=operations, mode=mode))

    too_many = await run(claim("a"), claim("b"), claim("c"))
    assert [(each.index, each.field) for each in too_many.refused] == [(2, "holder")]
    assert "requested: claims=1, used: claims=2, limited: claims=2" in too_many.refused[0].detail
    assert (await run(claim("a"), claim("b"), claim("c"), mode=Mode.INCREMENTAL)).committed == [0, 1]
    assert (await run(claim("a"), claim("x", "other"))).committed == [0, 1]
    assert not (await run(claim("c"))).committed
    assert (await run(Release(namespace="team", holder="a"), claim("c"))).committed == [0, 1]
    assert world.isolating.quota("team").counted[C] == (2, 2)


# -- kubectl -----------------------------------------------------------------------------------------------------


async def test_an_object_of_kubectl_says_why_it_is_not_in_force_and_is_as_soon_as_there_is_room(world: World) -> None:
    await world.set("a", 8, "n1")
    world.api.put(written("b", {N1: 2, N2: 2}))
    await world.quiet()
    message = "exceeded quota of namespace team: requested: units=4, used: units=8, limited: units=10"
    assert said(world, "b") == (
        False,
        "QuotaExceeded",
        f"{message}; this one comes into force when the quota allows it",
    )
    assert world.capacity("b") == {}
    assert (await world.resources.get_resource(EphemeralName("team", "b"))).problem == message
    await world.set("a", 6, "n1")
    assert world.capacity("b") == {"n1": 2, "n2": 2}
    await world.quiet()
    assert said(world, "b")[:2] == (True, "Set")
    world.agree()


async def test_one_that_chooses_its_nodes_waits_as_well(world: World) -> None:
    await world.set("a", 8, "n1")
    world.api.put(written("b", capacity=2, choice=every_node()))
    await world.quiet()
    assert (said(world, "b")[1], world.capacity("b")) == ("QuotaExceeded", {})
    await world.set("a", 0, "n1")
    await world.quiet()
    assert (said(world, "b")[1], world.capacity("b")) == ("Set", {"n1": 2, "n2": 2})


async def test_one_that_asks_for_more_keeps_what_it_had_and_gives_back_what_it_no_longer_asks_for(world: World) -> None:
    world.api.put(written("b", {N1: 4}))
    await world.quiet()
    world.api.put(written("b", {N1: 20}))
    await world.quiet()
    assert (said(world, "b")[1], world.capacity("b"), world.stated("n1")) == ("QuotaExceeded", {"n1": 4}, {"b": 4})
    world.api.put(written("b", {N1: 3}))
    await world.quiet()
    assert (said(world, "b")[1], used(world)) == ("Set", (1, 3))


async def test_the_oldest_comes_first_and_who_fits_passes_who_does_not(world: World) -> None:
    await world.set("a", 10, "n1")
    for name, number in (("d", 9), ("c", 3), ("b", 3)):
        world.api.put(written(name, {N1: number}))
        await world.quiet()
    await world.set("a", 5, "n1")
    assert [world.capacity(name) for name in "dcb"] == [{}, {"n1": 3}, {}]
    await world.quiet()
    assert [world.isolating.quota("team").waiting[each] for each in (R, U)] == [1, 1]


# -- the quota changes -------------------------------------------------------------------------------------------


async def test_a_lower_quota_takes_nothing_away_and_a_higher_one_lets_in_who_waits(world: World) -> None:
    await world.set("a", 6, "n1")
    world.isolating.set(UNLIMITED, {"team": allowance(resources=1, units=3)})
    await world.quiet()
    assert (world.capacity("a"), world.stated("n1")) == ({"n1": 6}, {"a": 6})
    await world.set("a", 5, "n1")
    with pytest.raises(QuotaExceeded):
        await world.set("a", 6, "n1")
    world.api.put(written("b", {N1: 7}))
    await world.quiet()
    assert (said(world, "b")[1], world.capacity("b")) == ("QuotaExceeded", {})
    world.isolating.set(UNLIMITED, {})
    assert world.capacity("b") == {"n1": 7}
    await world.quiet()
    assert said(world, "b")[1] == "Set"


# -- restart -----------------------------------------------------------------------------------------------------


async def life_before() -> World:
    """`z` has all of its six units, `y` four of its eight, and the older `a` waits."""
    before = World(rules=limited(units=10))
    before.add_nodes("n1", "n2")
    async with before.running():
        await before.set("z", 6, "n1")
        before.api.put(written("y", {N2: 4}))
        await before.quiet()
        before.api.put(written("y", {N2: 8}))
        before.api.put(written("a", {N1: 3}))
        await before.quiet()
        assert [before.capacity(name) for name in "zya"] == [{"n1": 6}, {"n2": 4}, {}]
    before.api.objects = {
        where: replace(item, created=0.0) if where[1] == "a" else item for where, item in before.api.objects.items()
    }
    return before


@pytest.mark.parametrize("order", ["zya", "ayz", "yaz"])
@pytest.mark.parametrize("units", [10, 5])
async def test_after_a_restart_the_same_are_in_force_in_whatever_order_they_are_found(order: str, units: int) -> None:
    before = await life_before()
    after = restarted(before, limited(units=units))
    async with after.running():
        after.do(replaced(after.scheduler, Node, before.api.nodes.values()))
        after.resources.known.replace([before.api.objects["team", name] for name in order])
        assert [after.capacity(name) for name in "zya"] == [{"n1": 6}, {"n2": 4}, {}]
        await after.quiet()
        assert (after.stated("n1"), after.stated("n2")) == ({"z": 6}, {"y": 4})
        check(after)


async def test_what_was_in_force_on_a_node_that_is_away_is_so_after_a_restart() -> None:
    before = await life_before()
    after = restarted(before, limited(units=10))
    away = after.api.nodes.pop(N1)
    async with after.running():
        after.do(replaced(after.scheduler, Node, after.api.nodes.values()))
        after.resources.known.replace([before.api.objects["team", name] for name in "ayz"])
        await after.quiet()
        after.api.put_node(away)
        await after.quiet()
        assert [after.capacity(name) for name in "zya"] == [{"n1": 6}, {"n2": 4}, {}]
        check(after)


# -- in any order ------------------------------------------------------------------------------------------------

NAMES = [EphemeralName("team", name) for name in "abc"] + [EphemeralName("other", "a")]
changes = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES), st.dictionaries(st.sampled_from([N1, N2]), st.integers(1, 4))),
    st.tuples(st.just("quota"), st.integers(0, 4), st.integers(0, 12)),
    st.tuples(st.just("restart"), st.permutations(range(4)), st.none()),
)


class Life:
    """One life of the service after another, on the same objects."""

    def __init__(self) -> None:
        self.objects: dict[EphemeralName, EphemeralResource] = {}
        self.stated: dict[tuple[NodeName, ResourceKey], int] = {}
        self.limits = (4, 12)
        self.version = 0
        self.begin(list(NAMES))

    def begin(self, order: list[EphemeralName]) -> None:
        resources, units = self.limits
        self.scheduler = Scheduler(FixedClock(), limited(resources=resources, units=units))
        has = [{key: units for (where, key), units in self.stated.items() if where == name} for name in (N1, N2)]
        replaced(self.scheduler, Node, [node("n1", {CPU: 8000, **has[0]}), node("n2", {CPU: 8000, **has[1]})])
        made = Resources(self.scheduler, Performing(), ApiServer(LoopClock()).store)
        self.known: Known[EphemeralResource] = made.known
        self.capacities: Capacities = made.capacities
        self.known.replace([self.objects[name] for name in order if name in self.objects])

    def write(self, name: EphemeralName, nodes: Mapping[NodeName, int]) -> None:
        self.version += 1
        known = self.objects.pop(name, None)
        if not nodes and known is not None:
            self.known.remove(known)
        if nodes:
            generation, uid = (known.generation + 1, known.uid) if known else (1, f"u{self.version}")
            created = known.created if known else float(self.version)
            version = str(self.version)
            facts = {"generation": generation, "uid": uid, "created": created, "resource_version": version}
            self.objects[name] = EphemeralResource(name, nodes, **facts)  # type: ignore[arg-type]
            self.known.upsert(self.objects[name])

    def say(self) -> None:
        """Nodes and statuses say what is in force."""
        self.stated = {
            (where, key): units
            for where, row in self.scheduler.cache.ledger.rows.items()
            for key, units in row.ephemeral.items()
        }
        for name, item in self.objects.items():
            unready = self.capacities.withheld(name) is not None
            self.objects[name] = replace(item, said_unready=unready, observed_generation=item.generation)

    def has(self) -> dict[EphemeralName, dict[NodeName, int]]:
        return {name: dict(self.capacities.in_force(name)) for name in self.objects}


@given(st.lists(changes, max_size=25))
def test_nobody_new_is_ever_over_the_quota_and_who_fits_does_not_wait(steps: list[Any]) -> None:
    life = Life()
    for what, first, second in steps:
        before, had = life.capacities.quota.used("team"), life.has()
        match what:
            case "write":
                life.write(first, second)
            case "quota":
                life.limits = (first, second)
                now = allowance(resources=first, units=second)
                life.scheduler.cache.isolation.set(UNLIMITED, {"team": now})
                life.capacities.look_again()
            case "restart":
                life.say()
                life.begin([NAMES[each] for each in first])
                assert life.has() == had, "who is in force is another after a restart"
        after = life.capacities.quota.used("team")
        resources, units = life.limits
        assert after.resources <= max(before.resources, resources)
        assert after.units <= max(before.units, units)
        assert list(life.capacities.quota.violations(life.capacities.recount())) == []
        for name, item in life.objects.items():
            withheld = life.capacities.withheld(name)
            if withheld is None:
                assert life.has()[name] == item.desired()
            else:
                assert life.capacities.over(name, item.desired()) is not None, f"{name} waits and fits"
    assert life.capacities.repair() == 0


def test_an_amount_is_counted_as_people_do() -> None:
    assert Amount(1, 5).beyond(Amount(1, 3)) == Amount(0, 2)


async def test_an_error_of_another_kind_comes_first(world: World) -> None:
    with pytest.raises(Invalid, match="there is no node n9"):
        await world.set("a", 99, "n9")
    assert Identity("team", "a") not in world.api.objects
