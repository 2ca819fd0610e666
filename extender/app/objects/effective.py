"""Effective: what of a kind's known objects holds, apart from what their authors wrote last.

The kind's reconcile function decides whenever an object is new, changed or gone. A refused object has a reason, and
what was in force of it before stays in force. After a restart that is what its status remembers. Synchronous;
`followers` act on what is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic

from extender.app.contracts.kind import (
    Declared,
    F,
    Identity,
    KindOfOurs,
    Named,
    NotInForce,
    O,
    Spec,
    Standing,
    Status,
    identity,
)

Follower = Callable[[Identity, F | None, F | None], Iterable[Identity]]
"""Gets what was and is in force of an object (None: nothing). Returns the others it affects."""


@dataclass(frozen=True, slots=True)
class _Held(Generic[O, F]):
    holds: F
    by: O
    """The object as it was when that came into force."""


class Effective(Generic[O, F]):
    def __init__(self, kind: KindOfOurs[O, F]) -> None:
        self.followers: list[Follower[F]] = []
        self._kind = kind
        self._held: dict[Identity, _Held[O, F]] = {}
        self._why_not: dict[Identity, NotInForce] = {}

    def get(self, name: Named) -> F | None:
        held = self._held.get(identity(name))
        return None if held is None else held.holds

    def source(self, name: Named) -> O | None:
        """The object as it was when what is in force of it came into force."""
        held = self._held.get(identity(name))
        return None if held is None else held.by

    def why_not(self, name: Named) -> NotInForce | None:
        """Why the object as it is known is not in force; None if it is, or is being deleted."""
        return self._why_not.get(identity(name))

    def __iter__(self) -> Iterator[Identity]:
        return iter(self._held)

    def refusal(self, item: O) -> NotInForce | None:
        """Why the object would not be in force if it said this; None if it would be."""
        decided = self._kind.reconcile(item, self.get(item.name))
        return decided if isinstance(decided, NotInForce) else None

    def take(self, name: Identity, item: O | None) -> list[Identity]:
        """Takes in the object (None: it is gone); returns the others for which that matters."""
        before = self._held.pop(name, None)
        self._why_not.pop(name, None)
        after = None if item is None else self._decide(name, item, before)
        if after is not None:
            self._held[name] = after
        concerned: dict[Identity, None] = {}
        for follow in self.followers:
            others = follow(name, None if before is None else before.holds, None if after is None else after.holds)
            concerned |= dict.fromkeys(others)
        return list(concerned)

    def _decide(self, name: Identity, item: O, before: _Held[O, F] | None) -> _Held[O, F] | None:
        if item.deleting and not self._kind.holds_until_gone:
            return None
        if before is None or before.by.uid != item.uid:
            # After a restart, or for a new object of the same name: what its predecessor was allowed does not count.
            before = self._remembered(item)
        decided = self._kind.reconcile(item, None if before is None else before.holds)
        if not isinstance(decided, NotInForce):
            return _Held(decided, item)
        self._why_not[name] = decided
        return before if decided.keeps_former else None

    def _remembered(self, item: O) -> _Held[O, F] | None:
        former = self._kind.last_good(item)
        decided = None if former is None else self._kind.reconcile(former, None)
        if former is None or decided is None or isinstance(decided, NotInForce):
            return None
        return _Held(decided, former)


class Standings(Generic[Spec, F]):
    """`conditions.Reports` of a kind whose status says only whether and as what it is in force."""

    def __init__(self, in_force: Effective[Declared[Spec], F]) -> None:
        self._in_force = in_force

    def judge(self, item: Declared[Spec]) -> Standing[Spec]:
        source = self._in_force.source(item.name)
        spec = None if source is None else source.spec
        why = self._in_force.why_not(item.name)
        if why is None:
            return Standing(True, "InForce", "the spec is in force", spec)
        said = why.message if spec is None else f"{why.message}; the former spec stays in force"
        return Standing(False, why.reason, said, spec)

    def is_as_said(self, item: Declared[Spec], status: Standing[Spec]) -> bool:
        return item.in_force == status.in_force

    def can_wait(self, item: Declared[Spec]) -> bool:
        return False

    def may_differ(self, item: Declared[Spec], said: Status | None) -> bool:
        return False
