"""The ledger against its slow twin, after any sequence of calls: late, repeated, overlapping, in every mode."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from extender.core.ledger import audit as ledger_audit
from extender.core.ledger.ledger import (
    Commit,
    Conflict,
    Detection,
    Holder,
    Holding,
    HoldingKind,
    Ledger,
    Mode,
    Settled,
    Stale,
)
from extender.core.ledger.units import Short
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import claim, slot, units
from tests.core.naive_ledger import NaiveLedger
from tests.core.snapshots import snapshot

NODES = [NodeName(name) for name in ("n1", "n2", "n3")]
PODS = [PodUid(f"pod-{index}") for index in range(4)]
SLOTS = [Holder(f"slot-{index}") for index in range(3)]
OURS = [ResourceKey("escher.dev/team.a"), ResourceKey("escher.dev/team.b")]
RESOURCES = [ResourceKey("cpu"), *OURS]

nodes = st.sampled_from(NODES)
pods = st.sampled_from(PODS)
holders = st.sampled_from([*map(Holder, PODS), *SLOTS])
amounts = st.fixed_dictionaries(
    {}, optional={ResourceKey("cpu"): st.integers(0, 2), OURS[0]: st.integers(0, 2), OURS[1]: st.integers(0, 1)}
)
room = st.fixed_dictionaries({}, optional={ResourceKey("cpu"): st.integers(0, 6), OURS[0]: st.just(9)})
until = st.integers(0, 30).map(float)


def claims_on(some: st.SearchStrategy[NodeName]) -> st.SearchStrategy[Holding]:
    owners = st.sampled_from(["g1", "g2"])
    return st.one_of(
        st.builds(claim, pods, some, amounts, until=st.none() | until, gang=st.none() | owners),
        st.builds(slot, st.sampled_from(SLOTS), some, amounts, until=until, gang=owners),
    )


def several(one: st.SearchStrategy[Holding]) -> st.SearchStrategy[list[Holding]]:
    return st.lists(one, min_size=1, max_size=6, unique_by=lambda claim: claim.holder)


claims = claims_on(nodes)
transactions = several(claims) | nodes.flatmap(lambda node: several(claims_on(st.just(node))))

Cell = tuple[NodeName, ResourceKey]


@dataclass(frozen=True)
class Copy:
    """A private copy of the ledger, and when the twin's rows were read."""

    sequences: dict[NodeName, int]
    read: dict[NodeName, int]


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.twin = NaiveLedger()
        self.over: dict[Cell, int] = {}
        self.copies: list[Copy] = []
        self.now = 0.0

    @initialize()
    def three_nodes_with_room(self) -> None:
        for node in NODES:
            self.set_node(node, units(cpu=3))
        self.set_capacity(NODES[0], OURS[0], 3)

    # -- facts and capacity: these may leave holdings beyond capacity ------------------------------------------------

    @rule(node=nodes, has=room)
    def set_node(self, node: NodeName, has: dict[ResourceKey, int]) -> None:
        with self.fact():
            self.ledger.capacity.set_node(node, has)
            self.twin.facts[node] = {r: number for r, number in has.items() if r not in OURS}

    @rule(node=nodes)
    def remove_node(self, node: NodeName) -> None:
        with self.fact():
            self.ledger.capacity.remove_node(node)
            self.twin.facts.pop(node, None)

    @rule(node=nodes, resource=st.sampled_from(OURS), number=st.integers(0, 6))
    def set_capacity(self, node: NodeName, resource: ResourceKey, number: int) -> None:
        with self.fact():
            self.ledger.capacity.set(node, resource, number)
            ephemeral = self.twin.ephemeral.setdefault(node, {})
            ephemeral[resource] = number
            if not number:
                del ephemeral[resource]

    @rule(uid=pods, node=nodes, asks=amounts)
    def confirm(self, uid: PodUid, node: NodeName, asks: dict[ResourceKey, int]) -> None:
        with self.fact():
            self.ledger.confirm(uid, on=node, units=asks)
            self.twin.confirm(Holder(uid), node, asks)

    @precondition(lambda self: self.twin.holdings)
    @rule(data=st.data(), repeat=st.booleans(), elsewhere=st.none() | nodes)
    def confirm_what_is_held(self, data: st.DataObject, repeat: bool, elsewhere: NodeName | None) -> None:
        held = data.draw(st.sampled_from(list(self.twin.holdings.values())))
        node = elsewhere or held.node
        with self.fact():
            for _ in range(1 + repeat):
                self.ledger.confirm(PodUid(held.holder), on=node, units=held.units)
            self.twin.confirm(held.holder, node, held.units)

    # -- intents: these never do -------------------------------------------------------------------------------------

    @rule(one=claims)
    def claim_alone(self, one: Holding) -> None:
        with self.intent():
            before = full_state(self.ledger)
            held, _ = self.twin.commit([one], Mode.ALL_OR_NOTHING, Detection.RESOURCE_FIT, {}, [])
            if held:
                self.take(one)
                return
            with pytest.raises(Conflict) as refusal:
                self.take(one)
            assert refusal.value.claim == one
            assert full_state(self.ledger) == before, "a refused call left a trace"

    def take(self, one: Holding) -> None:
        if one.kind is HoldingKind.ASSUMPTION:
            self.ledger.assume(PodUid(one.holder), on=one.node, units=one.units, until=one.until, owner=one.owner)
            return
        assert one.owner is not None
        assert one.until is not None
        self.ledger.reserve(one.holder, on=one.node, units=one.units, owner=one.owner, until=one.until)

    @rule()
    def copy(self) -> None:
        seen = snapshot(self.ledger)
        assert seen.rows.keys() == self.twin.facts.keys()
        for node, row in seen.rows.items():
            free = {r: row.capacity.get(r, 0) - row.held.get(r, 0) for r in RESOURCES}
            assert free == {r: self.twin.free(node, r) for r in RESOURCES}
        read = {node: number for node, number in self.twin.claims_on.items() if node in self.twin.facts}
        self.copies.append(Copy(seen.sequences, read))

    @rule(several=transactions, mode=st.sampled_from(Mode), releasing=st.lists(holders, max_size=3))
    def commit(self, several: list[Holding], mode: Mode, releasing: list[Holder]) -> None:
        self.transaction(several, mode, Detection.RESOURCE_FIT, Copy({}, {}), releasing)

    @precondition(lambda self: self.copies)
    @rule(several=transactions, mode=st.sampled_from(Mode), releasing=st.lists(holders, max_size=1), data=st.data())
    def commit_what_was_planned_on_a_copy(
        self, several: list[Holding], mode: Mode, releasing: list[Holder], data: st.DataObject
    ) -> None:
        read = data.draw(st.sampled_from(self.copies))
        self.transaction(several, mode, Detection.SEQUENCE_NUMBER, read, releasing)

    def transaction(
        self, several: list[Holding], mode: Mode, detection: Detection, read: Copy, releasing: list[Holder]
    ) -> None:
        with self.intent():
            before = full_state(self.ledger)
            outcome = self.ledger.commit(
                several, mode=mode, detection=detection, read=read.sequences, releasing=releasing
            )
            held, refused = self.twin.commit(several, mode, detection, read.read, releasing)
            assert [h.holder for h in outcome.committed] == held
            assert [one.holder for one, _ in outcome.conflicts] == refused
            check_causes(outcome)
            if not held:
                assert full_state(self.ledger) == before, "a refused call left a trace"

    @rule(holder=holders)
    def release(self, holder: Holder) -> None:
        with self.intent():
            assert self.ledger.release(holder) == self.twin.holdings.pop(holder, None)

    @rule(uid=pods)
    def forget(self, uid: PodUid) -> None:
        with self.intent():
            assert self.ledger.forget(uid) == self.twin.holdings.pop(Holder(uid), None)

    @rule(holder=holders, deadline=st.none() | until)
    def keep(self, holder: Holder, deadline: float | None) -> None:
        with self.intent():
            held = self.twin.holdings.get(holder)
            if deadline is None and held is not None and held.kind is HoldingKind.RESERVATION:
                self.refuse(lambda: self.ledger.keep(holder, None))
                return
            self.ledger.keep(holder, deadline)
            self.twin.keep(holder, deadline)

    @rule(seconds=st.integers(0, 10))
    def expire(self, seconds: int) -> None:
        self.now += seconds
        with self.intent():
            assert [held.holder for held in self.ledger.expire(self.now)] == self.twin.expire(self.now)
            deadline = self.ledger.next_deadline()
            assert deadline is None or deadline > self.now

    @rule(node=nodes, one=claims)
    def ask_for_the_impossible(self, node: NodeName, one: Holding) -> None:
        self.refuse(lambda: self.ledger.capacity.set(node, OURS[0], -1))
        self.refuse(lambda: self.ledger.capacity.set(node, ResourceKey("cpu"), 1))
        self.refuse(lambda: self.ledger.commit([one, one], mode=Mode.INCREMENTAL))
        self.refuse(lambda: self.ledger.confirm(PodUid("x"), on=node, units=units(cpu=-1)))
        self.refuse(lambda: self.ledger.assume(PodUid("x"), on=node, units=units(cpu=-1), until=None))
        bound = Holding(Holder("x"), node, {}, HoldingKind.BOUND)
        self.refuse(lambda: self.ledger.commit([one, bound], mode=Mode.INCREMENTAL))
        ownerless = Holding(Holder("x"), node, {}, HoldingKind.RESERVATION, None, 1.0)
        self.refuse(lambda: self.ledger.commit([one, ownerless], mode=Mode.INCREMENTAL))

    def refuse(self, call: Callable[[], object]) -> None:
        before = full_state(self.ledger)
        with pytest.raises(ValueError, match=r"\w"):
            call()
        assert full_state(self.ledger) == before, "a refused call left a trace"

    # -- what must hold after every step -----------------------------------------------------------------------------

    def fact(self) -> Step:
        return Step(self, may_exceed=True)

    def intent(self) -> Step:
        return Step(self, may_exceed=False)

    @invariant()
    def totals_and_indexes_equal_their_slow_twins(self) -> None:
        assert ledger_audit.violations(self.ledger) == []
        assert {h.holder: h for h in self.ledger.rows.holdings()} == self.twin.holdings
        assert set(self.ledger.rows.present()) == self.twin.facts.keys()
        for node in NODES:
            for resource in RESOURCES:
                assert self.ledger.rows.free(node, resource) == self.twin.free(node, resource)
        for private in self.copies:
            for node in NODES:
                same = private.read.get(node, -1) == self.twin.claims_on.get(node, -2)
                row = self.ledger.rows.get(node)
                assert (row is not None and row.sequence == private.sequences.get(node)) == same
        for name in ("g1", "g2"):
            owner = GangKey("default", name)
            expected = {h for h, held in self.twin.holdings.items() if held.owner == owner}
            assert {held.holder for held in self.ledger.held_for(owner)} == expected
        for holder in [*map(Holder, PODS), *SLOTS]:
            assert self.ledger.holding(holder) == self.twin.holdings.get(holder)


class Step:
    """One call. Afterwards, what exceeds capacity is what was allowed to, and who gained room is known."""

    def __init__(self, machine: LedgerMachine, may_exceed: bool) -> None:
        self.machine = machine
        self.may_exceed = may_exceed

    def __enter__(self) -> None:
        ledger = self.machine.ledger
        self.free = {(n, r): ledger.rows.free(n, r) for n in ledger.rows.present() for r in RESOURCES}
        self.gains = ledger.changes.gain_count
        ledger.changes.drain_gains()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            return
        machine, ledger = self.machine, self.machine.ledger
        machine.twin.forget_unknown()
        over = {(n, r): -free for n in NODES for r in RESOURCES if (free := machine.twin.free(n, r)) < 0}
        if not self.may_exceed:
            for cell, excess in over.items():
                assert excess <= machine.over.get(cell, 0), f"{cell} exceeds its capacity, and no fact made it"
        machine.over = over
        gained = {
            n
            for n in ledger.rows.present()
            for r in RESOURCES
            if ledger.rows.free(n, r) > max(0, self.free.get((n, r), 0))
        }
        told = ledger.changes.drain_gains()
        assert gained <= told, "a node gained room and nobody was told"
        assert told <= set(ledger.rows.present()), "a node that is away cannot gain room"
        assert (ledger.changes.gain_count > self.gains) or not gained


def full_state(ledger: Ledger) -> dict[str, Any]:
    """`capacity` and `columns` have no state of their own; `rows` and `totals` know when they are equal."""
    parts = {name: part for name, part in vars(ledger).items() if name not in ("capacity", "columns")}
    parts |= {"changes": vars(ledger.changes), "_expiry": vars(ledger._expiry), "sequence": ledger.rows._sequence}
    return copy.deepcopy(parts)


def check_causes(outcome: Commit) -> None:
    for one, cause in outcome.conflicts:
        match cause:
            case Short(resource, asked, free):
                assert asked == one.units[resource] > free
            case Stale(node, read, now):
                assert node == one.node
                assert read != now
            case Settled(node):
                assert node in NODES


def test_the_ledger_equals_its_slow_twin_after_any_sequence_of_calls() -> None:
    examples = settings(max_examples=2 * settings().max_examples, stateful_step_count=40)
    run_state_machine_as_test(LedgerMachine, settings=examples)
