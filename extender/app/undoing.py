"""Undoing: a write of a resource is found out about, and taken back, unless somebody has changed the object since.

Must not know why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import structlog

from extender.app.catalog import Catalog, Entry, identity
from extender.app.marks import Marks, is_same_state
from extender.app.ports import NO_CHOICE, EphemeralResource, Gone, Occupied, ResourceStore, Unavailable
from extender.app.steps import Delete, Nothing
from extender.app.written import Written
from extender.core.names import EphemeralName, NodeName

_log = structlog.get_logger(__name__)

_ATTEMPTS = 8
_REMEMBERED = 4096


class Undoing:
    """`refresh`: the catalog knows of an object what the store says now."""

    def __init__(
        self,
        catalog: Catalog,
        store: ResourceStore,
        marks: Marks,
        refresh: Callable[[EphemeralName], Awaitable[Entry | None]],
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._marks = marks
        self._refresh = refresh
        self._instead: dict[str, EphemeralResource] = {}
        """By the mark of a write: what stands for the object that it left, for we gave that another mark or UID."""

    def settled(self, name: EphemeralName) -> None:
        """What is known of the object is what shall be there, and nothing that is still on its way."""
        entry = self._catalog.get(name)
        self._marks.settle(identity(name), "" if entry is None else entry.resource.mark)

    async def find_out(self, attempt: Written) -> Written | None:
        """The write that was not answered, as it was done; None if it was not, and it counts for nothing later either.

        Raises Unavailable, Refused.
        """
        name = attempt.request.name
        entry = await self._refresh(name)
        self.settled(name)
        if entry is None:
            return attempt if isinstance(attempt.step, Delete) else None
        there = entry.resource
        if there.mark == attempt.mark or (isinstance(attempt.step, Delete) and there.deleting):
            return replace(attempt, after=there)
        if is_same_state(there, attempt.before):
            # It may be on its way still: at another version it will be refused.
            try:
                mark = self._marks.like(there.mark)
                now = await self._store.annotate(name, mark=mark, if_version=there.resource_version)
                self._catalog.learn(now)
                self._takes_the_place(of=there, now=now)
            except (Occupied, Gone):
                await self._refresh(name)
        return None

    async def undo(self, written: Written) -> None:
        """The object is as before the write, unless somebody has changed it since. Raises Unavailable, Refused."""
        before, after, name = written.before, written.after, written.request.name
        after = None if after is None else self._instead.get(after.mark, after)
        if isinstance(written.step, Nothing) or (before is None and after is None):
            return
        if after is not None and after.deleting and before is not None:
            _log.error("a deletion is not taken back: finalizers hold the object", name=str(name))
            return
        for _ in range(_ATTEMPTS):
            try:
                await self._undo(written, before, after)
                return
            except (Occupied, Gone) as error:
                why = str(error)
                entry = await self._refresh(name)
            if entry is None or after is None or not _is_untouched(entry, after):
                _log.warning("a write is not taken back: the object has changed since", name=str(name), why=why)
                return
        raise Unavailable(f"{name} is changed by others faster than it can be taken back", retry_after=1.0)

    async def _undo(self, written: Written, before: EphemeralResource | None, after: EphemeralResource | None) -> None:
        name = written.request.name
        if after is None:
            assert before is not None
            # The definition lets nobody create both nodes and a choice.
            made = await self._store.create(before if before.choice is None else replace(before, nodes={}))
            self._catalog.learn(made)
            if made.nodes != before.nodes:
                await self._merge(before, made, before.nodes, made.resource_version)
            self._takes_the_place(of=before, now=replace(made, nodes=before.nodes))
        elif before is None:
            self._catalog.deleted(name, after, await self._store.delete(name, if_version=self._now_at(after)))
        else:
            former = {node: before.nodes.get(node) for node in written.nodes}
            await self._merge(before, after, former, self._now_at(after))

    def _takes_the_place(self, of: EphemeralResource, now: EphemeralResource) -> None:
        """An earlier write of this name that left the one has left the other, should it be taken back as well."""
        if not of.mark:
            return
        self._instead[of.mark] = now
        if len(self._instead) > _REMEMBERED:
            del self._instead[next(iter(self._instead))]

    async def _merge(
        self,
        before: EphemeralResource,
        now: EphemeralResource,
        nodes: Mapping[NodeName, int | None],
        version: str,
    ) -> None:
        stored = await self._store.merge(
            before.name,
            nodes,
            owner=before.owner,
            expires_at=before.expires_at,
            made=None if before.made == now.made else before.made or NO_CHOICE,
            mark=before.mark,
            if_version=version,
        )
        self._catalog.learn(stored)

    def _now_at(self, after: EphemeralResource) -> str:
        """The version of the object where it is as we left it: writes of its status have moved it on since, and later
        writes of ours that were taken back."""
        entry = self._catalog.get(after.name)
        is_same = entry is not None and _is_untouched(entry, after)
        return entry.resource.resource_version if entry is not None and is_same else after.resource_version


def _is_untouched(entry: Entry, after: EphemeralResource) -> bool:
    """Whether the object is as that write left it, but for its status."""
    return entry.resource.uid == after.uid and is_same_state(entry.resource, after)
