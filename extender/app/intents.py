"""Intents: whatever line the service dies at, in the end all of a transaction over several objects is in force or none.

The API server writes one object at a time. So, before the first write of such a transaction, an intent is stored: what
each object was before. It is an annotation of an EphemeralResource of its own, without units, one in each namespace
concerned; the first decides. The transaction is in force from the moment that the deciding intent is deleted, which is
one write, and nobody is answered before. An intent that is found means that its transaction is not in force, and it
is taken back:

1. The deciding intent says `given_up`. From then on its transaction cannot come into force, though whoever began it
   should still be at it: it deletes the intent only at the version that it knows.
2. Each object that is as the transaction wrote it (its mark tells) becomes what it was. One that somebody has edited
   since is left to them. One that was not written gets a new version, so that a write which is still on its way, and
   names the version that was known, is refused; a creation on its way bears a mark that is void now.
3. The intents are deleted, the deciding one last: dying on the way, one begins again at 1.

An intent of a former life is found in the first list, and given up at once; that of another service which runs beside
is left to it for a minute. Each namespace has an intent of its own since what it says of former states is believed:
whoever may write it may write the objects that it is about. Whoever deletes the deciding intent has decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import structlog

from extender.app.ephemeral_resources import digest, is_as_marked, is_same_state
from extender.app.objects.kind import Identity
from extender.app.objects.known import Known
from extender.app.objects.marks import Marks, transaction_of
from extender.app.objects.writing import Writing
from extender.app.ports import EphemeralResource, Former, Intent, ResourceChange, ResourceStore
from extender.app.steps import restoring
from extender.core.bounded import Bounded
from extender.core.names import EphemeralName
from extender.kube.errors import Gone, Occupied, Refused, Unavailable

_log = structlog.get_logger(__name__)

_LEFT_TO_OTHERS = 60.0
"""Seconds for which the intent of another service is left to it."""
_ATTEMPTS = 8
_REMEMBERED = 4096
_PREFIX = "transaction-"


Before = Mapping[Identity, EphemeralResource | None]
"""The objects that a transaction may write, as they are known before it."""


class _Stored(NamedTuple):
    """An intent, and the object of which it is an annotation."""

    bearer: EphemeralResource
    intent: Intent


class NotAnnounced(Exception):
    """The API server refuses an intent in this namespace; nothing of the transaction is written."""

    def __init__(self, namespace: str, error: Refused) -> None:
        super().__init__(f"no intent can be stored in namespace {namespace}: {error}")
        self.namespace = namespace
        self.error = error


@dataclass(slots=True)
class Announced:
    """A transaction whose intents are stored. `deciding`: the namespace of the one that decides."""

    transaction: str
    deciding: str
    others: tuple[str, ...]
    known: dict[Identity, EphemeralResource | None]
    """As its own writes have left them so far."""


class Intents:
    def __init__(
        self,
        objects: Known[EphemeralResource],
        store: ResourceStore,
        marks: Marks,
        writing: Writing[EphemeralResource, ResourceChange],
    ) -> None:
        self.stored: dict[Identity, None] = {}
        """Objects that are no resources, and keep what a transaction is about to do."""
        self._known = objects
        self._store = store
        self._marks = marks
        self._writing = writing
        objects.listeners.append(self._hear)
        self._live: set[str] = set()
        """Transactions that are under way here."""
        self._left: Bounded[str, None] = Bounded(_REMEMBERED)
        """Those that ended here otherwise than they should, of which something may have to be taken back."""
        self.began = float("-inf")
        """The steady moment from which on intents that are new are of another service, or of ours."""

    def _hear(self, name: Identity) -> None:
        entry = self._known.get(name)
        self.stored.pop(name, None)
        if entry is not None and entry.item.intent is not None and not entry.item.deleting:
            self.stored[name] = None

    # -- for whoever carries a transaction out ---------------------------------------------------------------------

    async def announce(self, known: Before, deletes: Iterable[Identity]) -> Announced:
        """What may be written is durable. `end` is to follow. Raises Unavailable, NotAnnounced."""
        transaction = self._marks.new()
        deciding, *others = dict.fromkeys(namespace for namespace, _ in known)
        announced = Announced(transaction, deciding, tuple(others), dict(known))
        going = set(deletes)
        self._live.add(transaction)
        try:
            for each in (deciding, *others):
                formers = tuple(Former(n, was, (ns, n) in going) for (ns, n), was in known.items() if ns == each)
                decides = each == deciding
                intent = Intent(transaction, formers, "" if decides else deciding, announced.others if decides else ())
                await self._store_intent(each, intent)
        except NotAnnounced:
            over = False
            try:
                over = await self.close(announced)
            finally:
                self.end(announced, over=over)
            raise
        except BaseException:
            self.end(announced, over=False)
            raise
        return announced

    async def _store_intent(self, namespace: str, intent: Intent) -> None:
        name = _name(namespace, intent.transaction)
        try:
            stored = await self._store.create(EphemeralResource(name, {}, intent=intent, mark=self._marks.new()))
        except Occupied as error:
            # It has arrived twice: nobody else knows its name. Or two have taken of one quota at the same moment.
            try:
                stored = await self._store.get(name)
            except Refused:
                raise Unavailable(f"the intent {name} cannot be stored: {error}", retry_after=1.0) from error
        except Refused as error:
            raise NotAnnounced(namespace, error) from error
        self._known.learn(stored)

    async def withdraw(self, announced: Announced) -> bool | None:
        """The transaction is in force; False if it was given up meanwhile; None if its intent is not there any more.

        Raises Unavailable: it may be in force, or not.
        """
        where = _name(announced.deciding, announced.transaction)
        for _ in range(_ATTEMPTS):
            entry = self._known.get(where)
            if entry is None:
                return None
            if entry.item.intent is None or entry.item.intent.given_up:
                return False
            if await self._delete(entry.item):
                await asyncio.gather(*(self._tidy(each, announced.transaction) for each in announced.others))
                return True
            await self._writing.refresh(where)
        raise Unavailable(f"the intent {where} is changed by others faster than it can be deleted", 1.0)

    async def _tidy(self, namespace: str, transaction: str) -> None:
        """The intent is gone, if it can be now: it decides nothing any more."""
        name = _name(namespace, transaction)
        entry = self._known.get(name)
        try:
            if entry is not None and not await self._delete(entry.item):
                await self._writing.refresh(name)
        except (Unavailable, Refused) as error:
            _log.info("an intent is deleted later", name=str(name), why=str(error))

    async def _delete(self, bearer: EphemeralResource) -> bool:
        """Whether it could be, as it is known; if not, it is another by now, or gone."""
        try:
            left = await self._store.delete(bearer.name, if_version=bearer.resource_version, there=True)
        except (Occupied, Gone):
            return False
        self._known.deleted(bearer, left)
        return True

    async def close(self, announced: Announced) -> bool:
        """The intents are gone, now that nothing of the transaction is left. Whether they could be deleted."""
        for namespace in (*reversed(announced.others), announced.deciding):
            await self._tidy(namespace, announced.transaction)
        return not any(self._is_known(each, announced.transaction) for each in (announced.deciding, *announced.others))

    def end(self, announced: Announced, *, over: bool) -> None:
        """The transaction is under way no more. `over`: nothing of it is left to be taken back."""
        self._live.discard(announced.transaction)
        if not over or any(self._is_known(each, announced.transaction) for each in announced.others):
            self._left[announced.transaction] = None

    def _is_known(self, namespace: str, transaction: str) -> bool:
        return self._known.get(_name(namespace, transaction)) is not None

    # -- what is left of others ------------------------------------------------------------------------------------

    def unfinished(self) -> int:
        """How many intents there are that no transaction which is under way here has stored."""
        return sum(name.name.removeprefix(_PREFIX) not in self._live for name in self.stored)

    def due(self, now: float) -> list[Identity]:
        """Intents that are to be resolved at this steady moment."""
        return [name for name in self.stored if self._due_at(name) <= now]

    def next_due(self, now: float) -> float | None:
        """The steady moment at which there is one more."""
        moments = (self._due_at(name) for name in self.stored)
        return min((each for each in moments if now < each < float("inf")), default=None)

    def _due_at(self, name: Identity) -> float:
        entry = self._known.get(name)
        if entry is None or entry.item.intent is None or entry.item.intent.transaction in self._live:
            return float("inf")
        is_ours = entry.since <= self.began or entry.item.intent.transaction in self._left
        return entry.since + (0.0 if is_ours else _LEFT_TO_OTHERS)

    async def resolve(self, name: Identity) -> None:
        """The transaction of this intent is taken back, or was in force, and the intent is gone. Raises Unavailable."""
        found = await self._look(name)
        if found is None:
            return
        transaction = found.intent.transaction
        if found.intent.deciding:
            there = Identity(found.intent.deciding, name.name)
            # Ours decides itself. Of others nothing is to be learned, and they may speak of each other for ever.
            if _decided_by(await self._look(there), transaction, ""):
                await self.resolve(there)
            else:
                await self._delete(found.bearer)
            return
        others = [await self._look(Identity(namespace, name.name)) for namespace in found.intent.others]
        parts = [found, *(each for each in others if each and _decided_by(each, transaction, name.namespace))]
        names = [Identity(each.bearer.name.namespace, former.name) for each in parts for former in each.intent.formers]
        async with self._writing.locks.hold(names):
            await self._take_back(name, transaction, parts)

    async def _look(self, where: Identity) -> _Stored | None:
        """The intent that is there, and is not on its way out."""
        entry = await self._writing.refresh(where)
        if entry is None or entry.item.intent is None or entry.item.deleting:
            return None
        return _Stored(entry.item, entry.item.intent)

    async def _take_back(self, name: Identity, transaction: str, parts: Sequence[_Stored]) -> None:
        found = await self._look(name)
        if found is None or transaction in self._live:
            return
        bearer, intent = found
        if not intent.given_up:
            try:
                bearer = await self._store.annotate(
                    bearer.name, intent=replace(intent, given_up=True), if_version=bearer.resource_version
                )
            except (Occupied, Gone) as error:
                raise Unavailable(f"the intent {bearer.name} is being changed by others", 1.0) from error
            self._known.learn(bearer)
        self._marks.void(transaction)
        for part in parts:
            for former in part.intent.formers:
                await self._restore(Identity(part.bearer.name.namespace, former.name), former, transaction, name)
        for part in reversed(parts):
            await self._delete(bearer if part is parts[0] else part.bearer)
        _log.warning("a transaction that was not finished is taken back", transaction=transaction, name=str(name))

    async def _restore(self, name: Identity, former: Former, transaction: str, deciding: Identity) -> None:
        """The object is what it was, unless others made something else of it, or the API server will not have it."""
        refused = False
        for _ in range(_ATTEMPTS):
            entry = await self._writing.refresh(name)
            now = None if entry is None else entry.item
            try:
                if not refused:
                    await self._restore_from(now, former, transaction, deciding)
                elif now is not None and transaction_of(now.mark) == transaction:
                    await self._spare(now)
                return
            except (Occupied, Gone):
                continue
            except Refused as error:
                _log.error("what a transaction wrote cannot be taken back", name=str(name), why=str(error))
                if refused:
                    return
                refused = True
        raise Unavailable(f"{name} is changed by others faster than it can be taken back", retry_after=1.0)

    async def _spare(self, now: EphemeralResource) -> None:
        """The object stays as it is, and its mark is not void."""
        version = now.resource_version
        self._known.learn(await self._store.annotate(now.name, mark=self._marks.new(), if_version=version))

    async def _restore_from(
        self, now: EphemeralResource | None, former: Former, transaction: str, deciding: Identity
    ) -> None:
        was = former.resource
        if now is None:
            # Another service may have taken it back meanwhile, and somebody deleted the object since.
            if was is not None and former.deletes:
                stored = await self._look(deciding)
                if stored is not None and stored.intent.transaction == transaction:
                    await self._create_again(was, transaction)
            return
        if now.deleting:
            return
        version = now.resource_version
        if transaction_of(now.mark) == transaction:
            if not is_as_marked(now):
                _log.warning("a write is not taken back: the object has changed since", name=str(now.name))
                await self._spare(now)
            elif was is None:
                self._known.deleted(now, await self._store.delete(now.name, if_version=version))
            else:
                await self._merge_back(now, was)
        elif is_same_state(now, was):
            await self._spare(now)

    async def _create_again(self, was: EphemeralResource, transaction: str) -> None:
        if not was.nodes or was.choice is None:
            self._known.learn(await self._store.create(was))
            return
        # The definition lets nobody create both. Until it has both it is a write of the transaction's, to be restored.
        bare = replace(was, nodes={})
        made = await self._store.create(replace(bare, mark=self._marks.of(transaction, digest(bare))))
        self._known.learn(made)
        await self._merge_back(made, was)

    async def _merge_back(self, now: EphemeralResource, was: EphemeralResource) -> None:
        change, mark = restoring(now, was, {**now.nodes, **was.nodes}), was.mark or self._marks.new()
        stored = await self._store.merge(now.name, change, mark=mark, if_version=now.resource_version)
        self._known.learn(stored)


def _name(namespace: str, transaction: str) -> EphemeralName:
    return EphemeralName(namespace, _PREFIX + transaction)


def _decided_by(stored: _Stored | None, transaction: str, deciding: str) -> bool:
    """Whether it is an intent of that transaction, and says that this namespace's decides; empty: that it does."""
    return stored is not None and (stored.intent.transaction, stored.intent.deciding) == (transaction, deciding)
