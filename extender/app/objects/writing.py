"""Writing: brings an object to what a call wants, despite other writers and lost answers.

The caller decides what to do from what is known at the moment (`steps`), and decides again if another writer was
faster. Each write names the version that it changes and leaves a mark. The mark identifies a write that arrived twice,
or whose answer is lost. Writes to one name come one after another: callers hold its lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic

import structlog

from extender.app.contracts.errors import BeingDeleted, Invalid, ManagementError, NotFound, VersionConflict
from extender.app.contracts.kind import C, Named, O, ObjectStore, identity
from extender.app.objects.known import Entry, Known
from extender.app.objects.locks import NameLocks
from extender.app.objects.steps import Broken, Change, Create, Delete, Nothing, Step, Unsure, Written
from extender.app.objects.write_ids import WriteIds
from extender.kube.errors import Gone, Occupied, Refused, Terminating, Unavailable, rights_may_come

_log = structlog.get_logger(__name__)

_ATTEMPTS = 8

Plan = Callable[[Entry[O] | None], tuple[Step[O, C], str]]
"""The step from what is known of an object to what is wanted, and the mark that it leaves."""


class Writing(Generic[O, C]):
    """Writes objects of one kind. `kind`: its name in the log."""

    def __init__(self, kind: str, known: Known[O], store: ObjectStore[O, C, Any], marks: WriteIds) -> None:
        self.locks = NameLocks()
        self._kind = kind
        self._known = known
        self._store = store
        self._marks = marks

    async def refresh(self, name: Named) -> Entry[O] | None:
        """Reads the object from the store; returns what is then known of it. Raises Unavailable."""
        entry, asked = self._known.get(name), self._known.asking(name)
        try:
            with rights_may_come():
                self._known.set_stored(await self._store.get(name), asked)
        except Gone:
            if entry is not None:
                self._known.end(name, entry.item.uid)
            self._known.doubtful.pop(asked.name, None)
        return self._known.get(name)

    async def write(
        self, name: Named, plan: Plan[O, C], *, if_version: str | None = None, dry_run: bool = False
    ) -> Written[O, C]:
        """Writes the object as planned. The caller holds the name's lock.

        Raises what `plan` does, NotFound, Invalid, BeingDeleted; VersionConflict if `if_version` does not hold;
        Unavailable; Unsure if it may have been done all the same; Broken if a defect hides whether it was."""
        for _ in range(_ATTEMPTS):
            entry = self._known.get(name)
            step, mark = plan(entry)
            attempt = Written(name, None if entry is None else entry.item, None, step, mark)
            try:
                after = await self.carry_out(attempt, dry_run=dry_run)
            except (Occupied, Gone) as error:
                try:
                    now = await self._make_sure(attempt, if_version, error)
                except Unavailable as silence:
                    raise self._unsure(attempt, silence, dry_run) from silence
                if now is None or now.mark != mark:
                    continue
                after = now
            except Refused as error:
                raise refused_creation(name, error) from error
            except Unavailable as error:
                raise self._unsure(attempt, error, dry_run) from error
            except Exception as error:
                raise Broken(attempt) from error
            return replace(attempt, after=after)
        raise Unavailable(f"other clients change {name} faster than Escher can set it", retry_after=1.0)

    async def carry_out(self, attempt: Written[O, C], *, dry_run: bool = False) -> O | None:
        """Does the step once; returns what it left. Raises Unavailable, Gone, Occupied, Refused."""
        name, mark = attempt.name, attempt.mark
        match attempt.step:
            case Nothing(stays):
                return stays
            case Create(item):
                stored = await self._store.create(replace(item, mark=mark), dry_run=dry_run)
            case Change(what, version):
                stored = await self._store.merge(name, what, mark=mark, if_version=version, dry_run=dry_run)
            case Delete(item, version):
                left = await self._store.delete(name, if_version=version, dry_run=dry_run)
                if not dry_run:
                    self.deleted(item, left)
                return left
        if not dry_run:
            if isinstance(attempt.step, Create):
                self._marks.created(identity(name), mark)
            self._known.set_stored(stored)
        return stored

    def deleted(self, item: O, left: O | None) -> None:
        """Escher has deleted the object: it is gone, or `left` waits for finalizers."""
        if left is None:
            self._marks.deleted(identity(item.name), item.mark, item.uid, self._known.clock.steady())
        self._known.deleted(item, left)

    def _unsure(self, attempt: Written[O, C], error: Unavailable, dry_run: bool) -> Unsure[O, C]:
        if isinstance(attempt.step, Create) and not dry_run:
            self._marks.unanswered(identity(attempt.name), attempt.mark)
        return Unsure(attempt, error)

    async def _make_sure(self, attempt: Written[O, C], if_version: str | None, error: Refused) -> O | None:
        """What exists and blocks the write, which may be tried again; or raises for the caller.

        It has the mark of this write if the write arrived twice, and this was the second time."""
        if isinstance(attempt.step, Create) and isinstance(error, Gone):
            raise refused_creation(attempt.name, error) from error
        now = await self.refresh(attempt.name)
        is_ours = now is not None and now.item.mark == attempt.mark
        if if_version is not None and not is_ours and not _is_at(now, if_version):
            raise version_conflict(attempt.name, if_version, now) from error
        return None if now is None else now.item

    async def delete(
        self,
        name: Named,
        is_meant: Callable[[O], bool] = lambda item: True,
        *,
        if_version: str | None = None,
        dry_run: bool = False,
    ) -> tuple[O | None, O | None]:
        """Deletes the object; returns what it was, and what finalizers still hold of it.

        The caller holds the name's lock. Raises VersionConflict, Invalid, Unavailable."""
        entry = self._known.get(name) or await self.refresh(name)
        for _ in range(_ATTEMPTS):
            if entry is None or not is_meant(entry.item):
                if entry is None and not dry_run:
                    self.settled(name)
                return None, None
            # Only the known version is deleted: if the request arrives late, what was set since is spared.
            try:
                left = await self._store.delete(name, if_version=entry.meant_by(if_version), dry_run=dry_run)
            except Occupied as error:
                entry = await self.refresh(name)
                if if_version is not None and not _is_at(entry, if_version):
                    raise version_conflict(name, if_version, entry) from error
                continue
            except Refused as error:
                raise Invalid("name", str(name), f"the API server refuses it: {error}") from error
            if not dry_run:
                self.deleted(entry.item, left)
                self.settled(name)
            return entry.item, left
        raise Unavailable(f"other clients change {name} faster than Escher can delete it", retry_after=1.0)

    def settled(self, name: Named) -> None:
        """What is known of the object is final, and creations still on their way are void."""
        entry = self._known.get(name)
        self._marks.settle(identity(name), "" if entry is None else entry.item.mark)

    def is_stray(self, entry: Entry[O]) -> bool:
        """Whether a call that was given up made it late, or a creation that arrived again."""
        item = entry.item
        return self._marks.is_void(item.mark) or self._marks.is_again(item.mark, item.uid, entry.since)

    async def collect(self, name: Named, why: Callable[[Entry[O]], str]) -> None:
        """Deletes the object if it still has a reason to go and has not changed since.

        Raises Unavailable, Refused."""
        async with self.locks.hold([identity(name)]):
            entry = self._known.get(name)
            reason = "" if entry is None else why(entry)
            if entry is None or not reason:
                return
            try:
                left = await self._store.delete(entry.item.name, if_version=entry.item.resource_version)
            except Occupied:
                # It was changed, perhaps renewed: its new state is looked at.
                await self.refresh(name)
                return
            self.deleted(entry.item, left)
            _log.info("an object is garbage-collected", kind=self._kind, name=str(name), why=reason)

    async def ask_about(self, name: Named) -> None:
        """Asks about the object if it is in doubt. Raises Unavailable, Refused."""
        async with self.locks.hold([identity(name)]):
            if identity(name) in self._known.doubtful:
                await self.refresh(name)


def _is_at(entry: Entry[Any] | None, version: str) -> bool:
    return entry is not None and version in (entry.version, entry.item.resource_version)


def version_conflict(name: Named, expected: str, now: Entry[Any] | None) -> VersionConflict:
    said = f"{name} does not exist" if now is None else f"{name} is at version {now.version}"
    return VersionConflict("If-Match", expected, f"{said}; expected version {expected}")


def refused_creation(name: Named, error: Refused) -> ManagementError:
    """The error for the API server's refusal of this object, or of one beside it."""
    namespace = name.namespace
    if isinstance(error, Gone):
        return NotFound("namespace", namespace, f"there is no namespace {namespace}: {error}")
    if isinstance(error, Terminating):
        said = f"namespace {namespace} is being deleted, and nothing new can be created in it: {error}"
        return BeingDeleted("namespace", namespace, said)
    return Invalid("name", str(name), f"the API server refuses it: {error}")
