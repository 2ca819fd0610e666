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
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import structlog

from extender.app.catalog import Catalog, Entry, Identity
from extender.app.locks import NameLocks
from extender.app.marks import Marks, is_as_marked, is_same_state, transaction_of
from extender.app.ports import (
    NO_CHOICE,
    EphemeralResource,
    Former,
    Gone,
    Intent,
    Occupied,
    Refused,
    ResourceStore,
    Unavailable,
)
from extender.core.names import EphemeralName

_log = structlog.get_logger(__name__)

LEFT_TO_OTHERS = 60.0
"""Seconds for which the intent of another service is left to it."""
_ATTEMPTS = 8
_REMEMBERED = 4096
_PREFIX = "transaction-"

Known = Mapping[Identity, EphemeralResource | None]
"""The objects that a transaction may write, as they are known before it."""


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
    """`refresh`: the catalog knows of an object what the store says now."""

    def __init__(
        self,
        catalog: Catalog,
        store: ResourceStore,
        marks: Marks,
        locks: NameLocks,
        refresh: Callable[[Identity], Awaitable[Entry | None]],
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._marks = marks
        self._locks = locks
        self._refresh = refresh
        self._live: set[str] = set()
        """Transactions that are under way here."""
        self._left: dict[str, None] = {}
        """Those that ended here otherwise than they should, of which something may have to be taken back."""
        self.began = float("-inf")
        """The steady moment from which on intents that are new are of another service, or of ours."""

    # -- for whoever carries a transaction out ---------------------------------------------------------------------

    async def announce(self, known: Known, deletes: Iterable[Identity]) -> Announced:
        """What may be written is durable. `end` is to follow. Raises Unavailable, NotAnnounced."""
        transaction = self._marks.new()
        deciding, *others = dict.fromkeys(namespace for namespace, _ in known)
        announced = Announced(transaction, deciding, tuple(others), dict(known))
        going = set(deletes)
        self._live.add(transaction)
        try:
            for each in (deciding, *others):
                formers = [Former(n, was, (ns, n) in going) for (ns, n), was in known.items() if ns == each]
                if each == deciding:
                    intent = Intent(transaction, tuple(formers), others=announced.others)
                else:
                    intent = Intent(transaction, tuple(formers), deciding=deciding)
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
        self._catalog.learn(stored)

    async def withdraw(self, announced: Announced) -> bool | None:
        """The transaction is in force; False if it was given up meanwhile; None if its intent is not there any more.

        Raises Unavailable: it may be in force, or not.
        """
        where = (announced.deciding, _PREFIX + announced.transaction)
        for _ in range(_ATTEMPTS):
            entry = self._catalog.get(where)
            if entry is None:
                return None
            if entry.resource.intent is None or entry.resource.intent.given_up:
                return False
            if await self._delete(entry.resource):
                await asyncio.gather(*(self._tidy(each, announced.transaction) for each in announced.others))
                return True
            await self._refresh(where)
        raise Unavailable(f"the intent {'/'.join(where)} is changed by others faster than it can be deleted", 1.0)

    async def _tidy(self, namespace: str, transaction: str) -> None:
        """The intent is gone, if it can be now: it decides nothing any more."""
        entry = self._catalog.get((namespace, _PREFIX + transaction))
        try:
            if entry is not None and not await self._delete(entry.resource):
                await self._refresh((namespace, _PREFIX + transaction))
        except (Unavailable, Refused) as error:
            _log.info("an intent is deleted later", name=f"{namespace}/{_PREFIX}{transaction}", why=str(error))

    async def _delete(self, bearer: EphemeralResource) -> bool:
        """Whether it could be, as it is known; if not, it is another by now, or gone."""
        try:
            left = await self._store.delete(bearer.name, if_version=bearer.resource_version, there=True)
        except (Occupied, Gone):
            return False
        self._catalog.deleted(bearer.name, bearer, left)
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
            if len(self._left) > _REMEMBERED:
                del self._left[next(iter(self._left))]

    def _is_known(self, namespace: str, transaction: str) -> bool:
        return self._catalog.get((namespace, _PREFIX + transaction)) is not None

    # -- what is left of others ------------------------------------------------------------------------------------

    def unfinished(self) -> int:
        """How many intents there are that no transaction which is under way here has stored."""
        return sum(name[1].removeprefix(_PREFIX) not in self._live for name in self._catalog.intents)

    def due(self, now: float) -> list[Identity]:
        """Intents that are to be resolved at this steady moment."""
        return [name for name in self._catalog.intents if self._due_at(name) <= now]

    def next_due(self, now: float) -> float | None:
        """The steady moment at which there is one more."""
        moments = (self._due_at(name) for name in self._catalog.intents)
        return min((each for each in moments if now < each < float("inf")), default=None)

    def _due_at(self, name: Identity) -> float:
        entry = self._catalog.get(name)
        if entry is None or entry.resource.intent is None or entry.resource.intent.transaction in self._live:
            return float("inf")
        is_ours = entry.since <= self.began or entry.resource.intent.transaction in self._left
        return entry.since + (0.0 if is_ours else LEFT_TO_OTHERS)

    async def resolve(self, name: Identity) -> None:
        """The transaction of this intent is taken back, or was in force, and the intent is gone. Raises Unavailable."""
        entry = await self._refresh(name)
        intent = None if entry is None else entry.resource.intent
        if entry is None or intent is None or entry.resource.deleting:
            return
        if intent.deciding:
            deciding = await self._refresh((intent.deciding, name[1]))
            # Ours decides itself. Of others nothing is to be learned, and they may speak of each other for ever.
            if deciding is not None and _speaks_of(deciding, intent.transaction, deciding=""):
                await self.resolve((intent.deciding, name[1]))
            else:
                await self._delete(entry.resource)
            return
        others = [each for ns in intent.others if (each := await self._refresh((ns, name[1]))) is not None]
        parts = [entry, *(each for each in others if _speaks_of(each, intent.transaction, deciding=name[0]))]
        names = [(each.resource.name.namespace, former.name) for each in parts for former in _formers(each)]
        async with self._locks.hold(names):
            await self._take_back(name, intent.transaction, parts)

    async def _take_back(self, name: Identity, transaction: str, parts: list[Entry]) -> None:
        entry = await self._refresh(name)
        intent = None if entry is None else entry.resource.intent
        if entry is None or intent is None or entry.resource.deleting or transaction in self._live:
            return
        bearer = entry.resource
        if not intent.given_up:
            try:
                bearer = await self._store.annotate(
                    bearer.name, intent=replace(intent, given_up=True), if_version=bearer.resource_version
                )
            except (Occupied, Gone) as error:
                raise Unavailable(f"the intent {bearer.name} is being changed by others", 1.0) from error
            self._catalog.learn(bearer)
        self._marks.void(transaction)
        for part in parts:
            for former in _formers(part):
                await self._restore((part.resource.name.namespace, former.name), former, transaction, name)
        for part in reversed(parts):
            await self._delete(bearer if part is parts[0] else part.resource)
        _log.warning("a transaction that was not finished is taken back", transaction=transaction, name="/".join(name))

    async def _restore(self, name: Identity, former: Former, transaction: str, deciding: Identity) -> None:
        """The object is what it was, unless others made something else of it, or the API server will not have it."""
        refused = False
        for _ in range(_ATTEMPTS):
            entry = await self._refresh(name)
            now = None if entry is None else entry.resource
            try:
                if not refused:
                    await self._restore_from(now, former, transaction, deciding)
                elif now is not None and transaction_of(now.mark) == transaction:
                    await self._spare(now)
                return
            except (Occupied, Gone):
                continue
            except Refused as error:
                _log.error("what a transaction wrote cannot be taken back", name="/".join(name), why=str(error))
                if refused:
                    return
                refused = True
        raise Unavailable(f"{'/'.join(name)} is changed by others faster than it can be taken back", retry_after=1.0)

    async def _spare(self, now: EphemeralResource) -> None:
        """The object stays as it is, and its mark is not void."""
        version = now.resource_version
        self._catalog.learn(await self._store.annotate(now.name, mark=self._marks.new(), if_version=version))

    async def _restore_from(
        self, now: EphemeralResource | None, former: Former, transaction: str, deciding: Identity
    ) -> None:
        was = former.resource
        if now is None:
            # Another service may have taken it back meanwhile, and somebody deleted the object since.
            if was is not None and former.deletes and await self._is_there(deciding, transaction):
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
                self._catalog.deleted(now.name, now, await self._store.delete(now.name, if_version=version))
            else:
                await self._merge_back(now, was)
        elif is_same_state(now, was):
            await self._spare(now)

    async def _is_there(self, deciding: Identity, transaction: str) -> bool:
        entry = await self._refresh(deciding)
        return entry is not None and _speaks_of(entry, transaction)

    async def _create_again(self, was: EphemeralResource, transaction: str) -> None:
        if not was.nodes or was.choice is None:
            self._catalog.learn(await self._store.create(was))
            return
        # The definition lets nobody create both. Until it has both it is a write of the transaction's, to be restored.
        bare = replace(was, nodes={})
        made = await self._store.create(replace(bare, mark=self._marks.of(transaction, bare)))
        self._catalog.learn(made)
        await self._merge_back(made, was)

    async def _merge_back(self, now: EphemeralResource, was: EphemeralResource) -> None:
        stored = await self._store.merge(
            now.name,
            {node: was.nodes.get(node) for node in {**now.nodes, **was.nodes}},
            owner=was.owner,
            expires_at=was.expires_at,
            made=None if was.made == now.made else was.made or NO_CHOICE,
            mark=was.mark or self._marks.new(),
            if_version=now.resource_version,
        )
        self._catalog.learn(stored)


def _name(namespace: str, transaction: str) -> EphemeralName:
    return EphemeralName(namespace, _PREFIX + transaction)


def _speaks_of(entry: Entry, transaction: str, deciding: str | None = None) -> bool:
    """Whether it is an intent of that transaction, and says that this namespace's decides; empty: that it does."""
    intent = entry.resource.intent
    if intent is None or intent.transaction != transaction or entry.resource.deleting:
        return False
    return deciding is None or intent.deciding == deciding


def _formers(entry: Entry) -> tuple[Former, ...]:
    return () if entry.resource.intent is None else entry.resource.intent.formers
