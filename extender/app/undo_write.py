"""Undo: an object is what it was before a transaction, unless others have changed it since.

An intent (`app.resources.intent_log`) has the former state. The object's own mark says that the transaction has written
the object. The object's owner may forge the mark: then that one object is restored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from extender.app.contracts.kind import Identity
from extender.app.contracts.ports import EphemeralResource, Former, ResourceChange, ResourceStore
from extender.app.objects.known import Known
from extender.app.objects.write_ids import WriteIds, transaction_of
from extender.app.objects.writing import Writing
from extender.app.resources.reconciler import digest, is_as_marked, is_same_state
from extender.app.resources.set_resource_plan import restoring
from extender.kube.errors import Gone, Occupied, Refused, Unavailable, rights_may_come

_log = structlog.get_logger(__name__)

_ATTEMPTS = 8

Still = Callable[[], Awaitable[bool]]
"""Whether the intent still exists. Raises Unavailable."""


class TakingBack:
    def __init__(
        self,
        known: Known[EphemeralResource],
        store: ResourceStore,
        marks: WriteIds,
        writing: Writing[EphemeralResource, ResourceChange],
    ) -> None:
        self.marks = marks
        self.locks = writing.locks
        self._known = known
        self._store = store
        self._writing = writing

    async def restore(self, former: Former, transaction: str, still: Still) -> None:
        """Restores the object, unless others have changed it or the API server refuses that.

        The caller holds its lock. Raises Unavailable."""
        refused = False
        for _ in range(_ATTEMPTS):
            entry = await self._writing.refresh(former.name)
            now = None if entry is None else entry.item
            try:
                with rights_may_come():
                    if not refused:
                        await self._restore_from(now, former, transaction, still)
                    elif now is not None and transaction_of(now.mark) == transaction:
                        await self._spare(now)
                return
            except (Occupied, Gone):
                continue
            except Refused as error:
                _log.error("a transaction's write cannot be rolled back", name=str(former.name), why=str(error))
                if refused:
                    return
                refused = True
        raise Unavailable(f"{former.name} is changed by others faster than Escher can roll it back", retry_after=1.0)

    def is_gone(self, name: Identity) -> bool:
        """Whether no such object is known."""
        return self._known.get(name) is None

    async def _restore_from(
        self, now: EphemeralResource | None, former: Former, transaction: str, still: Still
    ) -> None:
        was = former.resource
        if now is None:
            # Another service may have restored the object meanwhile, and the object was deleted since.
            if was is not None and former.deletes and await still():
                await self._create_again(was, transaction)
            return
        if now.deleting:
            return
        if transaction_of(now.mark) == transaction:
            if not is_as_marked(now):
                _log.warning("a write is not rolled back: the object has changed since", name=str(now.name))
                await self._spare(now)
            elif was is None:
                self._writing.deleted(now, await self._store.delete(now.name, if_version=now.resource_version))
            else:
                await self._merge_back(now, was)
        elif is_same_state(now, was):
            # The transaction's write that is still on its way names the version that the object had. A write of another
            # transaction that is not over must be recognized by that one's intent.
            await self._spare(now, self.marks.like(now.mark) if transaction_of(now.mark) else "")

    async def _spare(self, now: EphemeralResource, mark: str = "") -> None:
        """Keeps the object, at another version, with this mark; empty: one that is not void."""
        version = now.resource_version
        self._known.set_stored(await self._store.annotate(now.name, mark=mark or self.marks.new(), if_version=version))

    async def _create_again(self, was: EphemeralResource, transaction: str) -> None:
        self.marks.restored(was.mark)
        if not was.nodes or was.choice is None:
            self._known.set_stored(await self._store.create(was))
            return
        # The CRD lets no client create nodes and choice at once. Until it has both, the object is a write of the
        # transaction, to be restored.
        bare = replace(was, nodes={})
        made = await self._store.create(replace(bare, mark=self.marks.of(transaction, digest(bare))))
        self._known.set_stored(made)
        await self._merge_back(made, was)

    async def _merge_back(self, now: EphemeralResource, was: EphemeralResource) -> None:
        change, mark = restoring(now, was, {**now.nodes, **was.nodes}), was.mark or self.marks.new()
        stored = await self._store.merge(now.name, change, mark=mark, if_version=now.resource_version)
        self._known.set_stored(stored)
