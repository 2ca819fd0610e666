"""Marks: which state of an object came of which write of ours, though the network lost, repeated or delayed it.

Each write leaves a mark of its own in the object. Found there, it says that the write was done, be it that its answer
never came, or that it was refused because it arrived twice. A creation that was not answered may arrive at any later
time; once another call has settled what is to be there, its mark is void, and an object that bears it is a stray. A
creation that was answered may arrive again: if a call of ours has deleted the object meanwhile, what it makes is a
stray too, for a while. Longer, it could be an object that a user deleted through us and creates from a copy of it.

The mark of a write of a transaction that was announced (`app.resources.intent_log`) names the transaction, and has a
digest of what the object's spec asks for then: whoever finds it can tell the write, and whether the spec was edited
since.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import inf

from extender.app.objects.kind import Identity
from extender.core.bounded import Bounded

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
        """By the mark: the UID of the object that was deleted, and until when another one that bears the mark came of a
        creation that arrived again."""

    def of(self, transaction: str, digest: str) -> str:
        """That of a write of the transaction which leaves the object with a spec of this digest."""
        return f"{transaction}.{digest}.{self.new()}"

    def like(self, mark: str) -> str:
        """Another, which says the same of transaction and digest."""
        return ".".join([*mark.split(".")[:-1], self.new()])

    def unanswered(self, name: Identity, mark: str) -> None:
        """A creation with this mark may have been done, or may be some day."""
        self._unanswered.setdefault(name, set()).add(mark)

    def settle(self, name: Identity, there: str) -> None:
        """What is there, with the mark `there` (empty: nothing), is what shall be: other creations are void."""
        for mark in self._unanswered.pop(name, set()) - {there}:
            self.void(mark)

    def void(self, mark: str) -> None:
        """This mark, or all of a transaction, count for nothing: an object that bears one is a stray."""
        self._void[mark] = None

    def created(self, name: Identity, mark: str) -> None:
        """A creation with this mark was answered."""
        self._created[name] = mark

    def deleted(self, name: Identity, mark: str, uid: str, now: float) -> None:
        """A call of ours has deleted the object, which had this mark."""
        for each in {mark, self._created.pop(name, "")} - {""}:
            self._deleted[each] = (uid, now + _ARRIVES_AGAIN)

    def restored(self, mark: str) -> None:
        """An object with this mark is to be there again."""
        self._deleted.pop(mark, None)

    def is_again(self, mark: str, uid: str, seen: float) -> bool:
        """Whether the object with this mark, first seen then, came of a creation that arrived again. One with the UID
        of the object that was deleted did not: etcd was restored."""
        deleted, until = self._deleted.get(mark, (uid, -inf))
        return deleted != uid and seen <= until

    def is_void(self, mark: str) -> bool:
        return mark in self._void or transaction_of(mark) in self._void


def transaction_of(mark: str) -> str:
    """The transaction whose write left this mark; empty if it was none that was announced."""
    transaction, dot, _ = mark.partition(".")
    return transaction if dot else ""


def digest_of(mark: str) -> str:
    """That of the spec which the transaction's write left; empty if it was none that was announced."""
    return mark.split(".")[1] if transaction_of(mark) else ""
