"""Intent log: makes transactions over several objects atomic, also if the service crashes.

The API server writes one object at a time. So the service stores an intent before the first write of such a
transaction: what each object was before. The intent is an object of its own kind in the service's own namespace.
Tenants write nothing there, so its content is trusted. The transaction is in force from the moment that its intent is
deleted, which is one write. The caller gets its answer after that. An intent that exists means: its transaction is not
in force.

A request may arrive twice, the second time when its transaction is in force and its service has crashed. So an intent
is created empty, and gets its content by a second write that names the version of the first. Then a creation that
arrives again has no effect, and the second write is refused.

A transaction that is not in force is rolled back:

1. The intent gets `given_up`. From then on its transaction cannot come into force, even if its service still writes:
   that service deletes the intent only at the version that it knows.
2. Each object that is as the transaction wrote it (its mark shows that) becomes what it was. An object that was edited
   since stays as it is. An object that was not written gets a new version. So a write on its way that names the known
   version is refused. A creation on its way has a mark that is void now.
3. The intent is deleted. A service that crashes before that begins again at 1. If a creation was not found, the intent
   stays for 60 s, about that object alone. The creation may still arrive, and a service that starts meanwhile learns
   from the intent that its mark is void.

An intent of a former process is found in the first list, and given up at once. An intent of another running service is
left to it for 60 s. If a person deletes an intent by hand, what its transaction has written stays."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog

from extender.app.contracts.errors import Invalid, NotYet
from extender.app.contracts.kind import Declared, Identity, Replacement
from extender.app.contracts.ports import Clock, EphemeralResource, Former, Intent, IntentStore
from extender.app.objects.expiry import Expiry, Moment, Work
from extender.app.objects.known import Entry, Known
from extender.app.objects.write_ids import WriteIds
from extender.app.objects.writing import Writing
from extender.app.undo_write import TakingBack
from extender.core.common.bounded import Bounded
from extender.kube.errors import Gone, Occupied, Refused, Unavailable

_log = structlog.get_logger(__name__)

MOST_UNFINISHED = 256
"""Most intents at once: each is kept in memory, and read again after a restart."""
_LEFT_TO_OTHERS = 60.0
"""Seconds for which the intent of another service is left to it."""
_ON_ITS_WAY = 60.0
"""Seconds for which a creation that was not answered may still arrive."""
_ATTEMPTS = 8
_REMEMBERED = 4096
_PREFIX = "transaction-"

Before = Mapping[Identity, EphemeralResource | None]
"""The objects that a transaction may write, as they are known before it."""


class NotAnnounced(Invalid):
    """The intent cannot be stored, and nothing of the transaction is written."""

    def __init__(self, objects: int, why: str) -> None:
        super().__init__("operations", objects, f"{objects} objects cannot be written in one transaction: {why}")


@dataclass(slots=True)
class Announced:
    """A transaction whose intent is stored."""

    transaction: str
    known: dict[Identity, EphemeralResource | None]
    """The objects as the transaction's own writes have left them so far."""


class IntentLog(Expiry[Declared[Intent]]):
    """`known` is the sink of the kind's watch.

    `namespace`: the service's own, and the only one that is read. `listed`: whether the stored intents have been read;
    None while that is not known."""

    def __init__(
        self,
        store: IntentStore,
        taking_back: TakingBack,
        clock: Clock,
        *,
        namespace: str,
        listed: Callable[[], bool | None] = lambda: True,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.known: Known[Declared[Intent]] = Known(clock)
        self.namespace = namespace
        self.began = float("-inf")
        """Steady time: intents that are known later are from another service, or from this one."""
        self._store = store
        self._taking_back = taking_back
        self._listed = listed
        self._live: set[str] = set()
        """Transactions that are under way in this process."""
        self._left: Bounded[str, None] = Bounded(_REMEMBERED)
        """Transactions that failed in this process: their writes may have to be rolled back."""
        self._lingering: Bounded[str, float] = Bounded(_REMEMBERED)
        """Rolled-back transactions with a creation that may still arrive, and when to end each."""
        self.writing = Writing("TransactionIntent", self.known, store, WriteIds())
        super().__init__(self.known, self.writing, clock, chance=chance)

    # -- for the transaction that is carried out -------------------------------------------------------------------

    async def announce(self, known: Before, deletes: Iterable[Identity]) -> Announced:
        """Stores the intent. The caller has just called `require_finished`, and calls `end` later.

        Raises Unavailable, NotYet, NotAnnounced."""
        if not self._listed():
            raise NotAnnounced(len(known), self._advice("it cannot be read there"))
        there = len(self._live | {_transaction(entry.item.name) for entry in self.known.entries()})
        if there >= MOST_UNFINISHED:
            said = f"{there} transactions over several objects are unfinished (limit {MOST_UNFINISHED}): try again"
            raise NotYet("operations", len(known), said, retry_after=1)
        going = set(deletes)
        announced = Announced(self._taking_back.marks.new(), dict(known))
        self._live.add(announced.transaction)
        try:
            formers = tuple(Former(name, was, name in going) for name, was in known.items())
            await self._store_intent(announced.transaction, Intent(formers))
        except BaseException as error:
            self.end(announced, over=False)
            if isinstance(error, Refused):
                raise NotAnnounced(len(known), self._advice(str(error))) from error
            raise
        return announced

    def require_finished(self, names: Collection[Identity]) -> None:
        """Checks that no other unfinished transaction names these objects and may be rolled back.

        Raises NotYet; Unavailable while that is not known."""
        if self._listed() is None:
            raise Unavailable("the intents of earlier transactions have not been read yet", retry_after=1.0)
        if (unfinished := self._unfinished_over(names)) is not None:
            said = f"an earlier transaction that names {unfinished} must be rolled back first: try again"
            raise NotYet("operations", len(names), said, retry_after=1)

    def _advice(self, why: str) -> str:
        return (
            f"Escher stores their former state in a TransactionIntent in namespace {self.namespace}, and {why}. If "
            "the namespace, the kind (deploy/crds) or Escher's rights are missing, create them "
            "(docs/operations.md#permissions); or write fewer objects, or use mode incremental"
        )

    async def _store_intent(self, transaction: str, intent: Intent) -> None:
        """Raises Unavailable, Refused."""
        name, empty = self._name(transaction), Intent(())
        created = await self._written(name, empty, self._store.create(Declared(name, empty)))
        content = self._store.merge(name, Replacement(empty, intent), if_version=created.resource_version)
        try:
            self.known.set_stored(await self._written(name, intent, content))
        except Gone as error:
            raise Unavailable(f"another client deleted the intent {name}", retry_after=1.0) from error

    async def _written(self, name: Identity, intent: Intent, write: Awaitable[Declared[Intent]]) -> Declared[Intent]:
        """Returns the intent as it is stored. Raises Unavailable, Refused."""
        try:
            return await write
        except Occupied as error:
            # The request has arrived twice, as no other service knows the name; or two writes took of one quota at
            # once.
            with suppress(Refused):
                if (stored := await self._store.get(name)).spec == intent:
                    return stored
            raise Unavailable(f"the intent {name} cannot be stored: {error}", retry_after=1.0) from error

    async def withdraw(self, announced: Announced) -> bool | None:
        """Puts the transaction in force; False: it was given up, None: its intent is gone.

        Raises Unavailable: it may be in force, or not.
        """
        name = self._name(announced.transaction)
        for _ in range(_ATTEMPTS):
            entry = self.known.get(name)
            if entry is None:
                return None
            if entry.item.spec is None or entry.item.spec.given_up:
                return False
            if await self._delete(entry.item):
                return True
            await self._writing.refresh(name)
        raise Unavailable(f"other clients change the intent {name} faster than Escher can delete it", 1.0)

    async def _delete(self, stored: Declared[Intent]) -> bool:
        """Deletes the intent at its known version; False if it has changed since, or is gone."""
        try:
            left = await self._store.delete(stored.name, if_version=stored.resource_version, there=True)
        except (Occupied, Gone):
            return False
        self.known.deleted(stored, left)
        return True

    async def close(self, announced: Announced, on_their_way: Collection[Identity] = ()) -> bool:
        """Removes the intent, and returns whether that succeeded.

        Nothing of the transaction is left, except creations `on_their_way` that may still arrive."""
        name = self._name(announced.transaction)
        try:
            if (entry := self.known.get(name)) is not None and not await self._close(entry.item, on_their_way):
                await self._writing.refresh(name)
        except (Unavailable, Refused) as error:
            _log.info("an intent is deleted later", name=str(name), why=str(error))
        return self.known.get(name) is None or announced.transaction in self._lingering

    async def _close(self, stored: Declared[Intent], on_their_way: Collection[Identity]) -> bool:
        """Deletes the intent, or keeps it for these creations until they can arrive no more.

        Returns False if the intent has changed since. Raises Unavailable, Refused.
        """
        intent, transaction = stored.spec, _transaction(stored.name)
        until = self._lingering.get(transaction)
        if intent is None or not on_their_way or (until is not None and until <= self.now().steady):
            return await self._delete(stored)
        self._taking_back.marks.void(transaction)
        left = tuple(former for former in intent.formers if former.name in on_their_way)
        try:
            change = Replacement(intent, replace(intent, formers=left, given_up=True))
            self.known.set_stored(await self._store.merge(stored.name, change, if_version=stored.resource_version))
        except (Occupied, Gone):
            return False
        self._lingering[transaction] = self.now().steady + _ON_ITS_WAY
        self.nudge()
        return True

    def end(self, announced: Announced, *, over: bool) -> None:
        """Ends the transaction. `over`: nothing of it is left to be rolled back."""
        self._live.discard(announced.transaction)
        if not over:
            self._left[announced.transaction] = None
        if not over or self.known.get(self._name(announced.transaction)) is not None:
            self.nudge()

    def _name(self, transaction: str) -> Identity:
        return Identity(self.namespace, _PREFIX + transaction)

    # -- what is left of others ------------------------------------------------------------------------------------

    def unfinished(self) -> int:
        """Counts the intents that no running transaction of this process has stored."""
        over = (_transaction(name) for name in self._stored())
        return sum(each not in self._live and each not in self._lingering for each in over)

    def _unfinished_over(self, names: Collection[Identity]) -> Identity | None:
        """Returns an object of these that another intent names: it may hold half a transaction."""
        over = (name for transaction, name in self._not_in_force() if transaction not in self._live and name in names)
        return next(over, None)

    def is_about(self, name: Identity) -> bool:
        """Returns whether an unfinished transaction may have written it. O(names in intents)."""
        return any(each == name for _, each in self._not_in_force())

    def _not_in_force(self) -> Iterator[tuple[str, Identity]]:
        """Yields transactions not in force that may have left something, with each object named."""
        for entry in self.known.entries():
            transaction = _transaction(entry.item.name)
            if entry.item.spec is not None and transaction not in self._lingering:
                yield from ((transaction, former.name) for former in entry.item.spec.formers)

    def _stored(self) -> Sequence[Identity]:
        return [entry.item.name for entry in self.known.entries() if not entry.item.deleting]

    async def run(self, after: Sequence[asyncio.Event] = ()) -> None:
        """As `Expiry.run`. `after`: the first lists of intents, and of what transactions write."""
        for event in after:
            await event.wait()
        self.began = self.now().steady
        await super().run()

    def consider(self, entry: Entry[Declared[Intent]], now: Moment) -> None:
        super().consider(entry, now)
        if entry.item.problem:
            said = "an intent is invalid: Escher rolls nothing back by it; look at it and delete it"
            _log.warning(said, name=str(entry.item.name), why=entry.item.problem)
        self.nudge()

    def more_due(self, steady: float) -> tuple[Iterable[tuple[Identity, Work]], float | None]:
        moments = {name: self._due_at(name) for name in self._stored()}
        due = [(name, self.resolve) for name, when in moments.items() if when <= steady]
        return due, min((when for when in moments.values() if steady < when < float("inf")), default=None)

    def _due_at(self, name: Identity) -> float:
        entry, transaction = self.known.get(name), _transaction(name)
        if entry is None or entry.item.spec is None or transaction in self._live:
            return float("inf")
        if (until := self._lingering.get(transaction)) is not None:
            return until
        is_ours = entry.since <= self.began or transaction in self._left
        return entry.since + (0.0 if is_ours else _LEFT_TO_OTHERS)

    async def resolve(self, name: Identity) -> None:
        """Rolls the intent's transaction back, and deletes the intent. Raises Unavailable."""
        found = await self._look(name)
        if found is None:
            return
        async with self._taking_back.locks.hold(former.name for former in found[1].formers):
            await self._take_back(name)

    async def _look(self, name: Identity) -> tuple[Declared[Intent], Intent] | None:
        """Returns the intent if it exists and is not being deleted."""
        entry = await self._writing.refresh(name)
        if entry is None or entry.item.spec is None or entry.item.deleting:
            return None
        return entry.item, entry.item.spec

    async def _take_back(self, name: Identity) -> None:
        found, transaction = await self._look(name), _transaction(name)
        if found is None or transaction in self._live:
            return
        stored, intent = found
        if not intent.formers:
            # Nothing was written under it. A repeated creation may have the mark of a transaction that is in force.
            await self._delete(stored)
            return
        if not intent.given_up:
            try:
                change = Replacement(intent, replace(intent, given_up=True))
                stored = await self._store.merge(name, change, if_version=stored.resource_version)
            except (Occupied, Gone) as error:
                raise Unavailable(f"other clients are changing the intent {name}", 1.0) from error
            self.known.set_stored(stored)
        self._taking_back.marks.void(transaction)

        async def still() -> bool:
            return await self._look(name) is not None

        for former in intent.formers:
            await self._taking_back.restore(former, transaction, still)
        creations = (former.name for former in intent.formers if former.resource is None)
        was_known = transaction in self._lingering
        await self._close(stored, [each for each in creations if self._taking_back.is_gone(each)])
        if was_known:
            return
        _log.warning("an unfinished transaction is rolled back", transaction=transaction, name=str(name))


def _transaction(name: Identity) -> str:
    return name.name.removeprefix(_PREFIX)
