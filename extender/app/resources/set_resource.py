"""Set resource: sets, reads and deletes ephemeral resources, in step with the API server.

Durable first: a call writes the object, then takes the store's answer, then answers its caller. The store's answer
changes the ledger, whose effect is the write to node status. The watch's echo then finds nothing new. Writes to one
name come one after another; names are independent. A refused call has changed nothing. After Unavailable the write may
or may not have happened; the watch shows which.

`set_resource_plan.plan` decides what is written; this module writes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import structlog

from extender.app.contracts.api import ResourceState, SetResource
from extender.app.contracts.effects import Performer
from extender.app.contracts.errors import NotFound
from extender.app.contracts.kind import Identity, identity
from extender.app.contracts.ports import EphemeralResource, ResourceChange, ResourceStore
from extender.app.cycle.scheduler import Scheduler
from extender.app.objects.effective import Effective
from extender.app.objects.known import Entry, Known
from extender.app.objects.steps import Change, Delete, Nothing, Written
from extender.app.objects.write_ids import WriteIds
from extender.app.objects.writing import Writing
from extender.app.resources.capacity import Capacities
from extender.app.resources.intent_log import Announced
from extender.app.resources.node_status import WriteBack
from extender.app.resources.quota import Underway, amount_of
from extender.app.resources.reconciler import KIND, Placements, digest, is_same_state
from extender.app.resources.rollback import Rollback
from extender.app.resources.set_resource_plan import (
    Done,
    Step,
    departed,
    for_good,
    held,
    nodes_of,
    outcome,
    plan,
    spread,
)
from extender.app.undo_write import TakingBack
from extender.core.names import EphemeralName
from extender.kube.errors import Gone, Occupied
from extender.kube.names import NodeName

_log = structlog.get_logger(__name__)

_ADVERTISE_WITHIN = 2.0
"""Seconds for which an answer waits until its nodes state what was set; then it comes anyway."""


class Overtaken(Exception):
    """Other writers have changed an object since its transaction was announced."""

    def __init__(self, name: EphemeralName) -> None:
        super().__init__(f"other clients change {name} faster than Escher can set it together with the rest")


class Resources:
    """`known` is the sink of the watch. `write_back`: answers wait for it; None: nodes not written.

    `require_finished` raises if a transaction that is not in force may have written one of these objects. Its rollback
    would also undo what was answered about an object that was not written again.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        performer: Performer,
        store: ResourceStore,
        write_back: WriteBack | None = None,
        marks: WriteIds | None = None,
        require_finished: Callable[[Collection[Identity]], None] = lambda names: None,
    ) -> None:
        in_force = Effective(KIND)
        self.known: Known[EphemeralResource] = Known(scheduler.cache.clock, in_force.take, self._settle)
        self.capacities = Capacities(scheduler, performer, in_force, self.known.notify)
        self.placements = Placements(scheduler.cache, self.capacities)
        self._marks = marks or WriteIds()
        self.writing: Writing[EphemeralResource, ResourceChange] = Writing(KIND.name, self.known, store, self._marks)
        self.taking_back = TakingBack(self.known, store, self._marks, self.writing)
        self.undoing = Rollback(self.known, store, self._marks, self.writing)
        self._scheduler = scheduler
        self._performer = performer
        self._write_back = write_back
        self._require_finished = require_finished

    def _settle(self) -> None:
        self.capacities.admit()
        self._performer.do(self._scheduler.settle())

    # -- reading -------------------------------------------------------------------------------------------------

    async def get_resource(self, name: EphemeralName) -> ResourceState:
        """Raises NotFound."""
        entry = self.known.get(name)
        if entry is None or entry.item.name != name:
            raise NotFound("name", str(name), f"there is no {'shared ' if name.shared else ''}resource {name}")
        return self._state(entry.item, entry.version)

    def all(self) -> list[EphemeralResource]:
        """Returns every object that is known."""
        return [entry.item for entry in self.known.entries()]

    async def list_resources(self, namespace: str) -> Sequence[ResourceState]:
        return [
            self._state(entry.item, entry.version)
            for entry in self.known.entries()
            if entry.item.name.namespace == namespace
        ]

    def _state(self, resource: EphemeralResource, version: str) -> ResourceState:
        """Returns the object as callers see it. An object that waits for its key has no nodes."""
        key = self.capacities.key_of(resource.name)
        problem = held(resource) if resource.deleting else resource.problem
        if not problem and (rival := self.capacities.rival_of(resource.name)):
            problem = f"{key} belongs to namespace {rival.namespace}, which had it first"
        if not problem and (withheld := self.capacities.withheld(resource.name)) is not None:
            problem = withheld.said
        return ResourceState(
            name=resource.name,
            key=key,
            nodes=self._nodes_of(resource, problem),
            version=version,
            owner=resource.owner,
            expires_at=resource.expires_at,
            problem=problem,
            finalizers=resource.finalizers if resource.deleting else (),
            exports=resource.exports,
        )

    def _nodes_of(self, resource: EphemeralResource, problem: str) -> Mapping[NodeName, int]:
        """Returns what is in force of the object if it has a problem; else all that is desired."""
        withheld = problem and self.capacities.withheld(resource.name)
        return (
            self.capacities.in_force(resource.name)
            if withheld and not resource.deleting
            else {}
            if problem
            else resource.desired()
        )

    # -- writing -------------------------------------------------------------------------------------------------

    async def set_resource(self, request: SetResource) -> ResourceState:
        """The resource is stored, in the ledger, and in node status unless that takes long.

        The answer waits for node status for at most `_ADVERTISE_WITHIN` seconds, and does not say whether it is there.
        The metric `escher_write_back_pending` and node status say it. Raises Invalid, BeingDeleted, VersionConflict,
        OutsideDomain, QuotaExceeded, NotFound, NotYet, Unavailable.
        """
        async with self.writing.locks.hold([identity(request.name)]):
            await self.look_before(request)
            with self.capacities.underway() as underway:
                written = await self.write(request, underway)
            answer = self.outcome(request.name, written)
        if not request.dry_run:
            await self.advertised(nodes_of(written.step))
        return answer

    def outcome(self, name: EphemeralName, written: Done) -> ResourceState:
        """Returns the answer to the caller of a write."""
        after = written.after
        if after is None or not (after.desired() or after.problem or after.deleting):
            return ResourceState(name=name, key=self.capacities.key_of(name), nodes={})
        entry = self.known.get(name)
        known = entry is not None and entry.item.resource_version == after.resource_version
        return self._state(after, entry.version if entry is not None and known else after.resource_version)

    async def advertised(self, nodes: Iterable[NodeName]) -> None:
        """Waits until the nodes state what is desired, or `_ADVERTISE_WITHIN` has passed."""
        if self._write_back is not None:
            await self._write_back.settled(nodes, _ADVERTISE_WITHIN)

    async def write(self, request: SetResource, underway: Underway, announced: Announced | None = None) -> Done:
        """Writes the object as the request asks. Notes its room in the quota in `underway`.

        The caller holds the name's lock, and has called `look_before`. Raises as `set_resource`; Unsure if the write
        may have happened all the same, Broken if a defect hides that. As part of what is `announced` also Overtaken.
        """
        own_mark = self._marks.new()

        def decide(entry: Entry[EphemeralResource] | None) -> tuple[Step, str]:
            if announced is not None and not self._is_as_announced(request.name, announced):
                raise Overtaken(request.name)
            step = plan(request, entry, self.capacities, self._scheduler.cache)
            self.may_have(underway, request.name, step, entry)
            if announced is None and isinstance(step, Nothing | Delete):
                self._require_finished([identity(request.name)])
            if announced is not None and isinstance(step, Delete) and step.item.finalizers:
                # Operations of one name that are no deletion when judged alone may be one in sequence.
                raise for_good(step.item)
            return step, own_mark if announced is None else self._mark(announced, step, entry)

        dry = request.dry_run
        written = await self.writing.write(request.name, decide, if_version=request.if_version, dry_run=dry)
        if announced is not None:
            announced.known[identity(request.name)] = written.after
        if not dry:
            self.writing.settled(request.name)
        return written

    def may_have(
        self, underway: Underway, name: EphemeralName, step: Step, entry: Entry[EphemeralResource] | None
    ) -> None:
        """Reserves room for what exists, and for what the step leaves: it may be rolled back."""
        after = outcome(step, None if entry is None else entry.item)
        underway.may_have(name, amount_of(self.capacities.in_force(name)))
        underway.may_have(name, amount_of({} if after is None else after.desired()))

    def _is_as_announced(self, name: EphemeralName, announced: Announced) -> bool:
        entry = self.known.get(name)
        return is_same_state(None if entry is None else entry.item, announced.known[identity(name)])

    def _mark(self, announced: Announced, step: Step, entry: Entry[EphemeralResource] | None) -> str:
        after = outcome(step, None if entry is None else entry.item)
        return self._marks.new() if after is None else self._marks.of(announced.transaction, digest(after))

    async def look_before(self, request: SetResource) -> None:
        """Reads the object from the store if the watch may be behind it.

        An object that is being deleted may be gone. An object that is to be deleted and not known may exist.
        """
        entry = self.known.get(request.name)
        if entry.item.deleting if entry is not None else request.capacity == 0:
            await self.writing.refresh(request.name)

    async def delete_resource(
        self, name: EphemeralName, *, if_version: str | None = None, dry_run: bool = False
    ) -> ResourceState | None:
        """Deletes the object from every node; does nothing if it does not exist.

        Raises VersionConflict, Invalid, NotYet, Unavailable.

        Returns the object if finalizers hold it; it is in force on no node.
        """
        async with self.writing.locks.hold([identity(name)]):
            self._require_finished([identity(name)])
            was, left = await self.writing.delete(
                name, lambda there: there.name.shared == name.shared, if_version=if_version, dry_run=dry_run
            )
        if not dry_run and was is not None:
            await self.advertised(was.desired())
        return None if left is None else self._state(left, left.resource_version)

    async def spread(
        self, name: EphemeralName, units: Mapping[NodeName, int], policy: str = ""
    ) -> Mapping[NodeName, str]:
        """As `set_resource`, in one write: sets the units of each of these nodes (0: none).

        Other nodes stay as they were. Returns the nodes that cannot have it, and why: they stay, too. `policy`: see
        `set_resource_plan.spread`.

        Raises Invalid, BeingDeleted, NotYet, Unavailable, Refused.
        """
        why: Mapping[NodeName, str] = {}

        def decide(entry: Entry[EphemeralResource] | None) -> tuple[Step, str]:
            nonlocal why
            step, why = spread(name, units, entry, self.capacities, policy)
            if isinstance(step, Nothing | Delete):
                self._require_finished([identity(name)])
            self.may_have(underway, name, step, entry)
            return step, mark

        mark = self._marks.new()
        async with self.writing.locks.hold([identity(name)]):
            entry = self.known.get(name)
            if entry.item.deleting if entry is not None else not any(units.values()):
                await self.writing.refresh(name)
            with self.capacities.underway() as underway:
                written = await self.writing.write(name, decide)
            self.writing.settled(name)
            # Other objects may have taken the last room on a node since the decision.
            there, withheld = self.capacities.in_force(name), self.capacities.withheld(name)
            if withheld is not None:
                why = {**{node: withheld.said for node, n in units.items() if there.get(node, 0) < n}, **why}
        await self.advertised(nodes_of(written.step))
        return why

    async def remove_of_policy(self, name: Identity, policy: str) -> None:
        """Deletes what that policy has set, nothing of others. Raises Invalid, Unavailable."""
        async with self.writing.locks.hold([name]):
            await self.writing.delete(name, lambda there: there.policy == policy and not there.deleting)

    async def replace_departed(self, name: Identity) -> None:
        """Replaces nodes that have left for good if a rule chose them.

        See `set_resource_plan.departed`. Raises Unavailable, Refused.
        """
        async with self.writing.locks.hold([name]):
            entry = self.known.get(name)
            step = None if entry is None else departed(entry, self._scheduler.cache)
            if entry is None or not isinstance(step, Change):
                return
            attempt = Written(name, entry.item, None, step, self._marks.new())
            try:
                await self.writing.carry_out(attempt)
            except (Occupied, Gone):
                # Changed meanwhile, perhaps set again: the next round looks at it again.
                await self.writing.refresh(name)
                return
            _log.info("nodes that left the cluster are replaced", name=str(name), nodes=list(step.what.nodes))
