"""Mutants: deliberate bugs in the running service, each breaking one thing that must hold.

    with MUTANTS["conflict-is-success"].put_in():
        ...

A mutant replaces a function of the service by one that is wrong in one way, and puts the right one back at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import msgspec

from extender.adapters.kubernetes.reflectors.reflector import EXPIRED, Reflector
from extender.adapters.kubernetes.writers import writers
from extender.app import pod_edits
from extender.app.cycle import bind as binds
from extender.app.cycle.pod_events import PodEvents
from extender.app.cycle.scheduler import Scheduler
from extender.app.effects import binding_cycle as scheduling
from extender.app.effects.permit_gates import PermitGates
from extender.app.objects import known
from extender.app.objects.expiry import Expiry
from extender.app.resources import node_status as write_back
from extender.availability import Permit
from extender.core.election import Election
from extender.core.gangs.cycle import permit_barrier as barrier
from extender.core.gangs.cycle import quorum as quorums
from extender.core.gangs.placement import placement as placing
from extender.core.gangs.state.partial_gangs import Proof, Trial
from extender.core.ledger.ledger import HoldingKind, Ledger
from extender.core.ledger.node_rows import NodeRows
from extender.filters.escher_policies.anti_affinity import PolicyAntiAffinity
from extender.kube.client.fenced import Fenced
from extender.kube.errors import Occupied, Refused, Unavailable

Make = Callable[[Any], Any]
"""Makes the wrong function from the right one."""


@dataclass(frozen=True)
class Mutant:
    """`breaks`: what no longer holds. `changes`: owner, name in it, and how to change it."""

    breaks: str
    changes: tuple[tuple[Any, str, Make], ...]

    @contextmanager
    def put_in(self) -> Iterator[None]:
        """Puts the bug in until the block ends."""
        with ExitStack() as stack:
            for owner, name, make in self.changes:
                stack.enter_context(patch.object(owner, name, make(getattr(owner, name))))
            yield


def _mutant(breaks: str, owner: Any, name: str, make: Make) -> Mutant:
    return Mutant(breaks, ((owner, name, make),))


def _does_nothing(right: Any) -> Any:
    return lambda *given, **named: None


def _always(answer: Any) -> Make:
    return lambda right: lambda *given, **named: answer


# -- Bindings -------------------------------------------------------------------------------------------------------


def _conflict_is_success(right: Any) -> Any:
    async def try_to_write(self: Any, pod: Any, node: Any, said: Any, tries: Any) -> None:
        try:
            await right(self, pod, node, said, tries)
        except Occupied:
            tries.said = said

    return try_to_write


def _lost_answer_is_success(right: Any) -> Any:
    async def try_to_write(self: Any, pod: Any, node: Any, said: Any, tries: Any) -> None:
        try:
            await right(self, pod, node, said, tries)
        except Unavailable:
            tries.said = said

    return try_to_write


def _without_attempt(right: Any) -> Any:
    def bind(self: Any, pod: Any, node: Any, annotations: Any) -> Any:
        return right(self, pod, node, {})

    return bind


def _second_bind_succeeds(right: Any) -> Any:
    async def bind(self: Any, pod: Any, node: Any) -> str:
        found: str = "" if pod.uid in self._binding else await right(self, pod, node)
        return found

    return bind


# -- the barrier, and gangs in part ----------------------------------------------------------------------------------


def _one_short(right: Any) -> Any:
    return lambda gang: right(gang) - 1


def _in_vain(right: Any) -> Any:
    """Takes any bound member as proof that the gang is bound in part."""

    def proven_part(placed: Any, unplaced: Any, trial: Any, quorum: int) -> Any:
        placed = list(placed)
        found = right(placed, unplaced, trial, quorum)
        return found or (Proof("guessed", quorum, quorum, tuple(placed), (), 0) if placed else None)

    return proven_part


def _in_part(right: Any) -> Any:
    """A transaction of the ledger that conflicts in one part keeps its other parts."""

    def commit(ledger: Any, claims: Any, releasing: Any = ()) -> None:
        for claim in claims:
            ledger.commit([claim], releasing=releasing)

    return commit


# -- the ledger ------------------------------------------------------------------------------------------------------


def _counts_twice(right: Any) -> Any:
    def confirm(self: Any, uid: Any, *, on: Any, units: Any, owner: Any = None) -> None:
        before = self.holding(uid)
        right(self, uid, on=on, units=units, owner=owner)
        if before is not None and before.kind is HoldingKind.BOUND:
            for resource, number in units.items():
                self.rows[on].held[resource] = self.rows[on].held.get(resource, 0) + number

    return confirm


# -- facts -----------------------------------------------------------------------------------------------------------


def _not_after_410(right: Any) -> Any:
    """After 410, goes on at the newest version without a list: the events between are lost."""

    async def list_(self: Any, reason: str) -> None:
        if reason != EXPIRED:
            await right(self, reason)
            return
        body = await self._requests.request("GET", f"{self._kind.path}?limit=1")
        self._version = self._kind.read_page(body).version

    return list_


def _never_gone(right: Any) -> Any:
    """Takes from a list what exists, but does not drop what the list lacks."""

    async def list_(self: Any, reason: str) -> None:
        sink = self._sink
        first = not self.synced.is_set()

        class Adding:
            def replace(self, items: Any) -> Any:
                if first:
                    return sink.replace(items)
                for each in items:
                    sink.upsert(each)
                return ()

        self._sink = Adding()
        try:
            await right(self, reason)
        finally:
            self._sink = sink

    return list_


def _skips(right: Any) -> Any:
    """After a failure, goes on at the newest version and skips the events before it."""

    async def watch(self: Any) -> None:
        try:
            await right(self)
        except Unavailable:
            body = await self._requests.request("GET", f"{self._kind.path}?limit=1")
            self._version = self._kind.read_page(body).version
            raise

    return watch


# -- writes to nodes and objects -------------------------------------------------------------------------------------


def _without_allocatable(right: Any) -> Any:
    def encode(body: Any) -> bytes:
        if "allocatable" in body.get("status", ()):
            body = {"status": {"capacity": body["status"]["capacity"]}}
        return msgspec.json.encode(body)

    return encode


def _leaves_keys(right: Any) -> Any:
    async def advertise(self: Any, node: Any, desired: Any, absent: Any) -> Any:
        return await right(self, node, desired, ())

    return advertise


def _gives_up(right: Any) -> Any:
    """Does not repeat a request that failed once."""

    async def until_answered(do: Any, *given: Any, **named: Any) -> Any:
        try:
            return await do()
        except Unavailable as error:
            raise Refused(503, str(error)) from error

    return until_answered


def _as_it_left_it(right: Any) -> Any:
    def stated(self: Any, seen: Any) -> Any:
        written = self._written.get(seen.name)
        return right(self, seen) if written is None else written[1]

    return stated


# -- leadership -----------------------------------------------------------------------------------------------------


def _for_ever(right: Any) -> Any:
    """A replica that has led leads for ever."""

    def leads(self: Any, now: float) -> bool:
        return bool(right(self, now)) or self._sent is not None

    return leads


def _unfenced(right: Any) -> Any:
    async def request(self: Any, method: str, path: str, body: Any = None, **named: Any) -> bytes:
        answer: bytes = await self._inner.request(method, path, body, **named)
        return answer

    return request


def _at_once(right: Any) -> Any:
    """A follower does not wait until the lease of another replica has run out."""
    return lambda self, now: True


MUTANTS: Mapping[str, Mutant] = {
    "conflict-is-success": _mutant(
        "A Binding that is refused with 409 is taken for written.",
        scheduling.BindingCycle, "_try_to_write", _conflict_is_success,
    ),
    "lost-answer-is-success": _mutant(
        "A Binding that nobody answered is taken for written.",
        scheduling.BindingCycle, "_try_to_write", _lost_answer_is_success,
    ),
    "binding-without-attempt": _mutant(
        "A Binding does not say with whom the pod was bound.", writers.ApiBinder, "bind", _without_attempt
    ),
    "second-bind-succeeds": _mutant(
        "A bind that comes again while the first is under way is answered with success.",
        scheduling.BindingCycle, "bind", _second_bind_succeeds,
    ),
    "refused-bind-keeps-room": _mutant(
        "What was held for a pod whose Binding was refused is not given back.", binds.Binds, "_let_go", _does_nothing
    ),
    "unheard-refusal": _mutant(
        "The gang does not hear that a member's Binding has failed.", barrier.Barrier, "failed", _does_nothing
    ),
    "barrier-one-short": _mutant(
        "The barrier opens when one member of the quorum is not there yet.", barrier, "_lacking", _one_short
    ),
    "barrier-never-turns-back": _mutant(
        "Who waits at a barrier whose plan is given up is not told.", PermitGates, "let",
        lambda right: lambda self, uid, refusal, attempt=None: None if refusal else right(self, uid, refusal, attempt),
    ),
    "attempt-needs-one": _mutant(
        "A pod says that it was bound by itself, and so nothing proves that its gang is bound in part.",
        Trial, "marks",
        lambda right: lambda self, joins: {
            uid: replace(each, needed=1) for uid, each in right(self, joins).items()
        },
    ),
    "eviction-without-proof": _mutant(
        "A gang of which fewer than its quorum are bound counts as proven to be a part.",
        quorums, "proven_part", _in_vain,
    ),
    "part-stays": _mutant(
        "A part of a gang that was not completed in time is left bound.", quorums.Quorums, "not_completed", _always(())
    ),
    "plan-in-part": _mutant(
        "A gang's places are reserved one by one, and kept where others conflict.", placing, "commit", _in_part
    ),
    "reservation-for-ever": _mutant(
        "What has passed its deadline is not released.", Ledger, "expire", _always([])
    ),
    "no-deadline": _mutant(
        "Nobody looks when deadlines pass.", Scheduler, "next_deadline", _always(None)
    ),
    "counts-twice": _mutant(
        "A pod that is seen bound a second time is counted a second time.", Ledger, "confirm", _counts_twice
    ),
    "deleted-pod-holds": _mutant(
        "A pod that is deleted holds what it held.", PodEvents, "forget",
        lambda right: lambda self, uid: self._cache.drop(uid) and None,
    ),
    "finished-pod-holds": _mutant(
        "A pod that has finished holds what it held.", PodEvents, "_finish", _does_nothing
    ),
    "lost-node-stays": _mutant("A node that is gone is counted on.", Scheduler, "_drop_node", _does_nothing),
    "one-too-many": _mutant(
        "A pod is let onto a node that is short of a little.", NodeRows, "short", _always(None)
    ),
    "no-list-after-410": _mutant(
        "What happened while a watch had expired is never listed.", Reflector, "_list", _not_after_410
    ),
    "list-adds-only": _mutant(
        "What a list does not name any more is kept.", Reflector, "_list", _never_gone
    ),
    "list-leaves-pods": _mutant(
        "A pod that was known as bound, or about to go, stays so whatever a list says.", PodEvents, "_undone",
        _always(()),
    ),
    "watch-skips": _mutant(
        "A watch that failed is taken up at the newest version, and not at the one reached.",
        Reflector, "_watch", _skips,
    ),
    "capacity-alone": _mutant(
        "Ephemeral resources are written to a node's capacity and not to its allocatable.",
        writers, "_encode", _without_allocatable,
    ),
    "keys-stay": _mutant(
        "A resource that is deleted stays in nodes' status.", writers.ApiNodeStatusWriter, "advertise", _leaves_keys
    ),
    "write-back-gives-up": _mutant(
        "A node's status that could not be written is not written again, nor looked at.",
        write_back, "until_answered", _gives_up,
    ),
    "write-back-believes-itself": _mutant(
        "A node is taken to say what was written to it, whatever a kubelet has made of it.",
        write_back.WriteBack, "_stated", _as_it_left_it,
    ),
    "lost-wake": _mutant(
        "A wake, or the opening of a gate, that failed is not tried again.", pod_edits, "until_answered", _gives_up
    ),
    "older-is-believed": _mutant(
        "What is older than what is known of an object is taken all the same.", known, "older", _always(False)
    ),
    "never-ends": _mutant(
        "A resource whose time to live is over stays.", Expiry, "why", _always("")
    ),
    "policy-unheeded": _mutant(
        "Nobody keeps off others for a policy's sake.", PolicyAntiAffinity, "filter", _always(None)
    ),
    "fence-unasked": _mutant(
        "A write may begin though this replica does not lead any more.", Permit, "check", _does_nothing
    ),
    "leads-for-ever": _mutant(
        "Who has led decides on when its lease has run out.", Election, "leads", _for_ever
    ),
    "writes-unfenced": _mutant(
        "A write of a leader may take as long as it takes.", Fenced, "request", _unfenced
    ),
    "takes-over-at-once": _mutant(
        "A follower takes the lease before it has run out.", Election, "_may_write", _at_once
    ),
}  # fmt: skip
"""The bugs, by name."""
