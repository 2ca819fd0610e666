"""Marks: which state of an object came of which write of ours, though the network lost, repeated or delayed it.

Each write leaves a mark of its own in the object. Found there, it says that the write was done, be it that its answer
never came, or that it was refused because it arrived twice. A creation that was not answered may arrive at any later
time; once another call has settled what is to be there, its mark is void, and an object that bears it is a stray.

The mark of a write of a transaction that was announced (`app.intents`) names the transaction, and has a digest of what
the object's spec asks for then: whoever finds it can tell the write, and whether the spec was edited since.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from datetime import UTC, datetime

from extender.app.catalog import Identity
from extender.app.ports import EphemeralResource

_REMEMBERED = 4096


class Marks:
    """`unique` gives a new text without a dot at every call."""

    def __init__(self, unique: Callable[[], str] = lambda: os.urandom(8).hex()) -> None:
        self.new = unique
        self._unanswered: dict[Identity, set[str]] = {}
        self._void: dict[str, None] = {}

    def of(self, transaction: str, resource: EphemeralResource) -> str:
        """That of a write of the transaction which leaves the object as `resource`."""
        return f"{transaction}.{digest(resource)}.{self.new()}"

    def like(self, mark: str) -> str:
        """Another, which says the same of transaction and digest."""
        return ".".join([*mark.split(".")[:-1], self.new()])

    def unanswered(self, name: Identity, mark: str) -> None:
        """A creation with this mark may have been done, or may be some day."""
        self._unanswered.setdefault(name, set()).add(mark)
        if len(self._unanswered) > _REMEMBERED:
            del self._unanswered[next(iter(self._unanswered))]

    def settle(self, name: Identity, there: str) -> None:
        """What is there, with the mark `there` (empty: nothing), is what shall be: other creations are void."""
        for mark in self._unanswered.pop(name, set()) - {there}:
            self.void(mark)

    def void(self, mark: str) -> None:
        """This mark, or all of a transaction, count for nothing: an object that bears one is a stray."""
        self._void[mark] = None
        if len(self._void) > _REMEMBERED:
            del self._void[next(iter(self._void))]

    def is_void(self, mark: str) -> bool:
        return mark in self._void or transaction_of(mark) in self._void


def transaction_of(mark: str) -> str:
    """The transaction whose write left this mark; empty if it was none that was announced."""
    transaction, dot, _ = mark.partition(".")
    return transaction if dot else ""


def is_as_marked(resource: EphemeralResource) -> bool:
    """Whether its spec is what the transaction wrote whose mark it bears."""
    return resource.mark.split(".")[1:2] == [digest(resource)]


def digest(resource: EphemeralResource) -> str:
    """The same for two specs if they ask for the same, and else, but for one chance in 2^48, another."""
    choice, ends = resource.choice, resource.expires_at
    asked = (
        sorted(resource.nodes.items()),
        resource.capacity,
        choice and (choice.node, _sorted(choice.available), _sorted(choice.labels), choice.limit),
        resource.owner and (resource.owner.name, resource.owner.uid),
        # As it comes back from the API server, to the microsecond.
        None if ends is None else datetime.fromtimestamp(ends, UTC).isoformat(),
    )
    return hashlib.blake2b(repr(asked).encode(), digest_size=6).hexdigest()


def _sorted(mapping: object) -> object:
    return sorted(mapping.items()) if isinstance(mapping, dict) else mapping


def is_same_state(one: EphemeralResource | None, other: EphemeralResource | None) -> bool:
    """Whether nobody has written the spec between the two: status, labels and the like may differ."""
    if one is None or other is None:
        return one is other
    return (one.mark, one.deleting, digest(one)) == (other.mark, other.deleting, digest(other))
