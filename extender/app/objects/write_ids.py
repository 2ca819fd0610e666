"""Write ids: which write produced an object's state, though writes get lost, repeated or delayed.

Each write leaves a mark of its own in the object. If the mark is found there, the write was done, though its answer
never came or it was refused because it arrived twice. A creation that was not answered may arrive at any later time.
Once another call has settled what is to exist, its mark is void, and an object that has it is a stray. A creation that
was answered may arrive again. If a call of Escher's has deleted the object meanwhile, what it creates is a stray too,
for a while. Later, it could be a user's own copy of the deleted object.

The mark of a write of an announced transaction (`app.resources.intent_log`) names the transaction, and has a digest of
the spec that the write leaves. It identifies the write, and shows whether the spec was edited since.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import inf

from extender.app.contracts.kind import Identity
from extender.core.common.bounded import Bounded

_REMEMBERED = 4096
_ARRIVES_AGAIN = 10.0
"""Seconds."""


class WriteIds:
    """`unique` gives a new text without a dot at every call."""

    def __init__(self, unique: Callable[[], str] = lambda: os.urandom(8).hex()) -> None:
        self.new = unique
        self._unanswered: Bounded[Identity, set[str]] = Bounded(_REMEMBERED)
        self._void: Bounded[str, None] = Bounded(_REMEMBERED)
        self._created: Bounded[Identity, str] = Bounded(_REMEMBERED)
        self._deleted: Bounded[str, tuple[str, float]] = Bounded(_REMEMBERED)
        """By mark: the UID of the deleted object, and until when a creation may arrive again."""

    def of(self, transaction: str, digest: str) -> str:
        """The mark of a write of the transaction that leaves a spec with this digest."""
        return f"{transaction}.{digest}.{self.new()}"

    def like(self, mark: str) -> str:
        """Another mark with the same transaction and digest."""
        return ".".join([*mark.split(".")[:-1], self.new()])

    def unanswered(self, name: Identity, mark: str) -> None:
        """A creation with this mark may have been done, or may be done later."""
        self._unanswered.setdefault(name, set()).add(mark)

    def settle(self, name: Identity, there: str) -> None:
        """The object with the mark `there` (empty: none) is final: other creations are void."""
        for mark in self._unanswered.pop(name, set()) - {there}:
            self.void(mark)

    def void(self, mark: str) -> None:
        """The mark, or all marks of a transaction, are void: an object with one is a stray."""
        self._void[mark] = None

    def created(self, name: Identity, mark: str) -> None:
        """A creation with this mark was answered."""
        self._created[name] = mark

    def deleted(self, name: Identity, mark: str, uid: str, now: float) -> None:
        """A call of Escher's has deleted the object, which had this mark."""
        for each in {mark, self._created.pop(name, "")} - {""}:
            self._deleted[each] = (uid, now + _ARRIVES_AGAIN)

    def restored(self, mark: str) -> None:
        """An object with this mark is to exist again."""
        self._deleted.pop(mark, None)

    def is_again(self, mark: str, uid: str, seen: float) -> bool:
        """Whether a repeated creation made the object with this mark, first seen at `seen`.

        An object with the UID of the deleted one is no repetition: etcd was restored."""
        deleted, until = self._deleted.get(mark, (uid, -inf))
        return deleted != uid and seen <= until

    def is_void(self, mark: str) -> bool:
        return mark in self._void or transaction_of(mark) in self._void


def transaction_of(mark: str) -> str:
    """The transaction whose write left this mark; empty if none was announced."""
    transaction, dot, _ = mark.partition(".")
    return transaction if dot else ""


def digest_of(mark: str) -> str:
    """The digest of the spec that the transaction's write left; empty if none was announced."""
    return mark.split(".")[1] if transaction_of(mark) else ""
