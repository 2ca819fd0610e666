"""Ephemeral resources: set, read, deleted; and kept in step with their objects in the API server.

Durable first: a call writes the object, takes the store's answer into the catalog (and so into the ledger, whose
effect is the write-back to nodes), and answers its caller. The watch's echo then finds nothing new. Writes to one name
come one after another; names are independent. A call that is refused has changed nothing; after Unavailable the write
may or may not have happened, and the watch will tell.

What is decided (`steps.plan`) is apart from how it is written (here). Must not know HTTP, nor how objects are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import structlog

from extender.app.catalog import Catalog, Entry, Identity, identity
from extender.app.intents import Announced, Intents
from extender.app.keeper import Keeper
from extender.app.locks import NameLocks
from extender.app.management import Invalid, NotFound, ResourceState, SetResource, VersionConflict
from extender.app.marks import Marks, is_same_state
from extender.app.ports import EphemeralResource, Gone, Occupied, Refused, ResourceStore, Unavailable
from extender.app.steps import Change, Create, Delete, Nothing, Step, departed, for_good, held, outcome, plan
from extender.app.undoing import Undoing
from extender.app.written import Broken, Overtaken, Unsure, Written, refused_creation
from extender.core.names import EphemeralName, NodeName, ResourceKey

_log = structlog.get_logger(__name__)

ADVERTISE_WITHIN = 2.0
"""For how many seconds an answer waits until its nodes say what was set. It comes then in any case."""
_ATTEMPTS = 8


class Advertising(Protocol):
    """What of `write_back.WriteBack` is needed here."""

    async def settled(self, nodes: Iterable[NodeName], within: float) -> bool: ...


class Resources:
    """`catalog` is the sink of the watch. `write_back`: what answers wait for; None where nodes are not written."""

    def __init__(
        self,
        keeper: Keeper,
        store: ResourceStore,
        write_back: Advertising | None = None,
        marks: Marks | None = None,
    ) -> None:
        self.catalog = Catalog(keeper)
        self.locks = NameLocks()
        self.marks = marks or Marks()
        self.intents = Intents(self.catalog, store, self.marks, self.locks, self.refresh)
        self.undoing = Undoing(self.catalog, store, self.marks, self.refresh)
        self._keeper = keeper
        self._store = store
        self._write_back = write_back

    # -- reading -------------------------------------------------------------------------------------------------

    async def get_resource(self, name: EphemeralName) -> ResourceState:
        """Raises NotFound."""
        entry = self.catalog.get(name)
        if entry is None or entry.resource.name != name or entry.resource.intent is not None:
            raise NotFound("name", str(name), f"there is no {'shared ' if name.shared else ''}resource {name}")
        return self.state(entry.resource, entry.version)

    async def list_resources(self, namespace: str) -> Sequence[ResourceState]:
        return [
            self.state(entry.resource, entry.version)
            for entry in self.catalog.entries()
            if entry.resource.name.namespace == namespace and entry.resource.intent is None
        ]

    def state(self, resource: EphemeralResource, version: str) -> ResourceState:
        """The object as callers see it. One that waits for its key has no nodes, and says so."""
        holder = self.catalog.holder_of(self._key(resource.name))
        problem = held(resource) if resource.deleting else resource.problem
        if not problem and holder is not None and identity(holder) != identity(resource.name):
            problem = f"{self._key(resource.name)} belongs to namespace {holder.namespace}, which had it first"
        if not problem:
            problem = self.catalog.crowded_out(resource.name)
        return ResourceState(
            name=resource.name,
            key=self._key(resource.name),
            nodes={} if problem else resource.desired(),
            version=version,
            owner=resource.owner,
            expires_at=resource.expires_at,
            problem=problem,
            finalizers=resource.finalizers if resource.deleting else (),
        )

    def _key(self, name: EphemeralName) -> ResourceKey:
        return name.key(self._keeper.ledger.domain)

    # -- writing -------------------------------------------------------------------------------------------------

    async def set_resource(self, request: SetResource) -> ResourceState:
        """Durable, in the ledger, and on the nodes' status unless that takes long (see ADVERTISE_WITHIN).

        The answer does not say which of the two it was: `escher_write_back_pending` and node status do.
        Raises Invalid, BeingDeleted, VersionConflict, NotFound, Unavailable.
        """
        async with self.locks.hold([identity(request.name)]):
            await self.look_before(request)
            written = await self.write(request)
            answer = self.outcome(written)
        if not request.dry_run:
            await self.advertised(written.nodes)
        return answer

    def outcome(self, written: Written) -> ResourceState:
        """What the caller of a write is told."""
        after = written.after
        if after is None or not (after.desired() or after.problem or after.deleting):
            return ResourceState(name=written.request.name, key=self._key(written.request.name), nodes={})
        entry = self.catalog.get(written.request.name)
        known = entry is not None and entry.resource.resource_version == after.resource_version
        return self.state(after, entry.version if entry is not None and known else after.resource_version)

    async def advertised(self, nodes: Iterable[NodeName]) -> None:
        """The nodes say what is desired, or ADVERTISE_WITHIN has passed."""
        if self._write_back is not None:
            await self._write_back.settled(nodes, ADVERTISE_WITHIN)

    async def write(self, request: SetResource, announced: Announced | None = None) -> Written:
        """The object says what the request asks for. The caller holds the name's lock, and has had a `look_before`.

        Raises as `set_resource`; Unsure where the object may say so all the same. As part of what is `announced` also
        Overtaken, and Broken.
        """
        own_mark = self.marks.new()
        for _ in range(_ATTEMPTS):
            entry = self.catalog.get(request.name)
            if announced is not None and not self._is_as_announced(request.name, announced):
                raise Overtaken(request.name)
            step, nodes = plan(request, entry, self.catalog, self._keeper)
            if announced is not None and isinstance(step, Delete) and step.resource.finalizers:
                # Of several operations of one name none need be a deletion when it is looked at alone.
                raise for_good(step.resource)
            mark = own_mark if announced is None else self._mark(announced, step, entry)
            attempt = Written(request, None if entry is None else entry.resource, None, nodes, step, mark)
            try:
                after = await self._carry_out(attempt)
            except (Occupied, Gone) as error:
                try:
                    now = await self._make_sure(attempt, error)
                except Unavailable as silence:
                    raise self._unsure(attempt, silence) from silence
                if now is None or now.mark != mark:
                    continue
                after = now
            except Refused as error:
                raise refused_creation(request.name, error) from error
            except Unavailable as error:
                raise self._unsure(attempt, error) from error
            except Exception as error:
                raise Broken(attempt) from error
            if announced is not None:
                announced.known[identity(request.name)] = after
            if not request.dry_run:
                self.undoing.settled(request.name)
            return replace(attempt, after=after)
        raise Unavailable(f"{request.name} is changed by others faster than it can be set", retry_after=1.0)

    def _is_as_announced(self, name: EphemeralName, announced: Announced) -> bool:
        entry = self.catalog.get(name)
        return is_same_state(None if entry is None else entry.resource, announced.known[identity(name)])

    def _mark(self, announced: Announced, step: Step, entry: Entry | None) -> str:
        after = outcome(step, None if entry is None else entry.resource)
        return self.marks.new() if after is None else self.marks.of(announced.transaction, after)

    def _unsure(self, attempt: Written, error: Unavailable) -> Unsure:
        if isinstance(attempt.step, Create) and not attempt.request.dry_run:
            self.marks.unanswered(identity(attempt.request.name), attempt.mark)
        return Unsure(attempt, error)

    async def _carry_out(self, attempt: Written) -> EphemeralResource | None:
        name, dry, mark = attempt.request.name, attempt.request.dry_run, attempt.mark
        match attempt.step:
            case Nothing(stays):
                return stays
            case Create(resource):
                stored = await self._store.create(replace(resource, mark=mark), dry_run=dry)
            case Change() as change:
                stored = await self._merge(name, change, mark, dry_run=dry)
            case Delete(resource, version):
                left = await self._store.delete(name, if_version=version, dry_run=dry)
                if not dry:
                    self.catalog.deleted(name, resource, left)
                return left
        if not dry:
            self.catalog.learn(stored)
        return stored

    async def _merge(
        self, name: EphemeralName, change: Change, mark: str, *, dry_run: bool = False
    ) -> EphemeralResource:
        return await self._store.merge(
            name,
            change.nodes,
            owner=change.owner,
            expires_at=change.expires_at,
            made=change.made,
            mark=mark,
            if_version=change.version,
            dry_run=dry_run,
        )

    async def _make_sure(self, attempt: Written, error: Refused) -> EphemeralResource | None:
        """What is there, and in the way of the write, which may be tried again; or the caller is told.

        It bears our mark if the write arrived twice, and this was the second time.
        """
        request = attempt.request
        if isinstance(attempt.step, Create) and isinstance(error, Gone):
            raise refused_creation(request.name, error) from error
        now = await self.refresh(request.name)
        is_ours = now is not None and now.resource.mark == attempt.mark
        if request.if_version is not None and not is_ours and not _is_at(now, request.if_version):
            raise version_conflict(request.name, request.if_version, now) from error
        return None if now is None else now.resource

    async def look_before(self, request: SetResource) -> None:
        """What is planned on is what the store says, where the watch may be behind it.

        An object that is being deleted may be gone, and one that is to be deleted and not known may be there.
        """
        entry = self.catalog.get(request.name)
        if entry.resource.deleting if entry is not None else request.capacity == 0:
            await self.refresh(request.name)

    async def refresh(self, name: EphemeralName | Identity) -> Entry | None:
        """The catalog knows of the object what the store says now."""
        entry, asked = self.catalog.get(name), self.catalog.asking(name)
        try:
            found = await self._store.get(name if isinstance(name, EphemeralName) else EphemeralName(*name))
            self.catalog.learn(found, asked)
        except Gone:
            if entry is not None:
                self.catalog.end(name, entry.resource.uid)
            self.catalog.doubtful.pop(asked.name, None)
        return self.catalog.get(name)

    async def delete_resource(
        self, name: EphemeralName, *, if_version: str | None = None, dry_run: bool = False
    ) -> ResourceState | None:
        """It is gone from every node. Nothing if it was not there. Raises VersionConflict, Unavailable.

        What is answered is held by finalizers, in force nowhere.
        """
        async with self.locks.hold([identity(name)]):
            nodes, left = await self._delete(name, if_version, dry_run)
        if not dry_run:
            await self.advertised(nodes)
        return None if left is None else self.state(left, left.resource_version)

    async def _delete(
        self, name: EphemeralName, if_version: str | None, dry_run: bool
    ) -> tuple[Sequence[NodeName], EphemeralResource | None]:
        entry = self.catalog.get(name) or await self.refresh(name)
        for _ in range(_ATTEMPTS):
            if entry is None or entry.resource.name.shared != name.shared:
                if entry is None and not dry_run:
                    self.undoing.settled(name)
                return (), None
            # As it is known, and no other: should this arrive late, what was set since is spared.
            version = entry.resource.resource_version if if_version in (None, entry.version) else if_version
            try:
                left = await self._store.delete(name, if_version=version, dry_run=dry_run)
            except Occupied as error:
                entry = await self.refresh(name)
                if if_version is not None and not _is_at(entry, if_version):
                    raise version_conflict(name, if_version, entry) from error
                continue
            except Refused as error:
                raise Invalid("name", str(name), f"the API server refuses it: {error}") from error
            if not dry_run:
                self.catalog.deleted(name, entry.resource, left)
                self.undoing.settled(name)
            return list(entry.resource.desired()), left
        raise Unavailable(f"{name} is changed by others faster than it can be deleted", retry_after=1.0)

    async def collect(self, name: Identity, is_due: Callable[[Entry], bool], why: str) -> None:
        """The object is gone if it is still due when its turn comes, and nobody has changed it since we looked.

        Raises Unavailable, Refused.
        """
        async with self.locks.hold([name]):
            entry = self.catalog.get(name)
            if entry is None or not is_due(entry):
                return
            try:
                left = await self._store.delete(entry.resource.name, if_version=entry.resource.resource_version)
            except Occupied:
                # Changed, perhaps renewed: looked at again with what it says now.
                await self.refresh(name)
                return
            self.catalog.deleted(name, entry.resource, left)
            _log.info("an ephemeral resource is collected", name="/".join(name), why=why)

    async def replace_departed(self, name: Identity) -> None:
        """Nodes that have left for good are replaced, where a rule chose them: see `steps.departed`.

        Raises Unavailable, Refused.
        """
        async with self.locks.hold([name]):
            entry = self.catalog.get(name)
            step = None if entry is None else departed(entry, self._keeper)
            if entry is None or not isinstance(step, Change):
                return
            try:
                stored = await self._merge(entry.resource.name, step, self.marks.new())
            except (Occupied, Gone):
                # Changed, perhaps set anew: looked at again in the next round.
                await self.refresh(name)
                return
            self.catalog.learn(stored)
            _log.info("nodes that have left are replaced", name="/".join(name), nodes=list(step.nodes))


def _is_at(entry: Entry | None, version: str) -> bool:
    return entry is not None and version in (entry.version, entry.resource.resource_version)


def version_conflict(name: EphemeralName, expected: str, now: Entry | None) -> VersionConflict:
    said = f"{name} is not there" if now is None else f"{name} is at version {now.version} now"
    return VersionConflict("If-Match", expected, f"{said}, not at {expected}")
