"""Rollback: finds out whether a resource was written, and undoes the write if no other followed."""

from __future__ import annotations

from dataclasses import replace

import structlog

from extender.app.contracts.ports import EphemeralResource, ResourceChange, ResourceStore
from extender.app.objects.known import Entry, Known
from extender.app.objects.steps import Delete, Nothing
from extender.app.objects.write_ids import WriteIds
from extender.app.objects.writing import Writing
from extender.app.resources.reconciler import is_same_state
from extender.app.resources.set_resource_plan import Done, nodes_of, restoring
from extender.core.common.bounded import Bounded
from extender.kube.errors import Gone, Occupied, Unavailable

_log = structlog.get_logger(__name__)

_ATTEMPTS = 8
_REMEMBERED = 4096


class Rollback:
    def __init__(
        self,
        known: Known[EphemeralResource],
        store: ResourceStore,
        marks: WriteIds,
        writing: Writing[EphemeralResource, ResourceChange],
    ) -> None:
        self._known = known
        self._store = store
        self._marks = marks
        self._writing = writing
        self._instead: Bounded[str, EphemeralResource] = Bounded(_REMEMBERED)
        """By the mark of a write: what replaces the object that it left, with new mark or UID."""

    async def find_out(self, attempt: Done) -> Done | None:
        """Returns an unanswered write as it was done; None: it was not done, and never will be.

        Raises Unavailable, Refused.
        """
        name = attempt.name
        entry = await self._writing.refresh(name)
        self._writing.settled(name)
        if entry is None:
            return attempt if isinstance(attempt.step, Delete) else None
        there = entry.item
        if there.mark == attempt.mark or (isinstance(attempt.step, Delete) and there.deleting):
            return replace(attempt, after=there)
        if is_same_state(there, attempt.before):
            # The write may still be on its way: at another version it will be refused.
            try:
                mark = self._marks.like(there.mark)
                now = await self._store.annotate(name, mark=mark, if_version=there.resource_version)
                self._known.set_stored(now)
                self._takes_the_place(of=there, now=now)
            except (Occupied, Gone):
                await self._writing.refresh(name)
        return None

    async def undo(self, written: Done) -> None:
        """Makes the object as before the write, unless another writer has changed it since.

        Raises Unavailable, Refused."""
        before, after, name = written.before, written.after, written.name
        after = None if after is None else self._instead.get(after.mark, after)
        if isinstance(written.step, Nothing) or (before is None and after is None):
            return
        if after is not None and after.deleting and before is not None:
            _log.error("a deletion is not rolled back: finalizers hold the object", name=str(name))
            return
        for _ in range(_ATTEMPTS):
            try:
                await self._undo(written, before, after)
                return
            except (Occupied, Gone) as error:
                why = str(error)
                entry = await self._writing.refresh(name)
            if entry is None or after is None or not _is_untouched(entry, after):
                _log.warning("a write is not rolled back: the object has changed since", name=str(name), why=why)
                return
        raise Unavailable(f"other clients change {name} faster than Escher can roll it back", retry_after=1.0)

    async def _undo(self, written: Done, before: EphemeralResource | None, after: EphemeralResource | None) -> None:
        name = written.name
        if after is None:
            assert before is not None
            self._marks.restored(before.mark)
            # The custom resource definition forbids the creation of an object with both nodes and a choice.
            made = await self._store.create(before if before.choice is None else replace(before, nodes={}))
            self._known.set_stored(made)
            if made.nodes != before.nodes:
                await self._merge(before, restoring(made, before, before.nodes), made.resource_version)
            self._takes_the_place(of=before, now=replace(made, nodes=before.nodes))
        elif before is None:
            self._writing.deleted(after, await self._store.delete(name, if_version=self._now_at(after)))
        else:
            nodes = dict.fromkeys(node for each in (*written.earlier, written.step) for node in nodes_of(each))
            await self._merge(before, restoring(after, before, nodes), self._now_at(after))

    def _takes_the_place(self, of: EphemeralResource, now: EphemeralResource) -> None:
        """An earlier write that left `of` counts as having left `now`, if it is rolled back too."""
        if of.mark:
            self._instead[of.mark] = now

    async def _merge(self, before: EphemeralResource, change: ResourceChange, version: str) -> None:
        stored = await self._store.merge(before.name, change, mark=before.mark, if_version=version)
        self._known.set_stored(stored)

    def _now_at(self, after: EphemeralResource) -> str:
        """Returns the object's present version if it is as Escher left it, else that of `after`.

        Status writes, and later writes of Escher that were rolled back, have changed its version."""
        entry = self._known.get(after.name)
        is_same = entry is not None and _is_untouched(entry, after)
        return entry.item.resource_version if entry is not None and is_same else after.resource_version


def _is_untouched(entry: Entry[EphemeralResource], after: EphemeralResource) -> bool:
    """Returns whether the object is as that write left it, except for its status."""
    return entry.item.uid == after.uid and is_same_state(entry.item, after)
