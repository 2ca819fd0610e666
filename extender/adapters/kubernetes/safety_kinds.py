"""Narrowing: the kinds by which people narrow what Escher may do, and what is true while one of them cannot be read.

Nothing is decided before each of them is known, but for those that the settings do without: these are not read at all.
One that helps, and narrows nothing (Jobs), is waited for as long as a start may take, and one without which the rest
works (budgets) not at all. Must not know what is in them.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Sequence
from typing import Any

from extender.adapters.kubernetes.optional_kind import OptionalKind

START_SECONDS = 60.0
"""For how long a kind that helps may be refused before this runs without it: rights may come a moment after us."""


class SafetyKinds:
    """`without`: names of the kinds that are not read; `beside`: those that are not waited for."""

    def __init__(
        self, kinds: Sequence[OptionalKind], without: Collection[str] = (), *, beside: Sequence[OptionalKind] = ()
    ) -> None:
        self._unread = [each for each in (*kinds, *beside) if each.kind in without]
        self._stated = sorted(without)
        self._kinds = [each for each in kinds if each.kind not in without]
        self._read = [*self._kinds, *(each for each in beside if each.kind not in without)]

    @property
    def known(self) -> bool:
        return all(each.known.is_set() for each in self._kinds)

    async def until_known(self) -> None:
        for each in self._kinds:
            await each.known.wait()

    def waits_for(self) -> dict[str, str]:
        """Kinds that are not known yet, and why; empty where nothing has gone wrong so far."""
        return {each.kind: each.lost.why for each in self._kinds if not each.known.is_set()}

    def is_patient(self) -> bool:
        """Whether one is waited for now that could be gone without."""
        return any(each.lost.seconds > 0 for each in self._kinds if not (each.narrows or each.known.is_set()))

    def without(self) -> list[str]:
        """Kinds that this runs without, by the settings or since they cannot be read."""
        return [*self._stated, *(each.kind for each in self._read if each.goes_without)]

    def there(self) -> list[OptionalKind]:
        """Those that are read, but for what the cluster does not have."""
        return [each for each in self._read if not each.is_absent]

    def ages(self) -> dict[str, float]:
        """Seconds since anything was heard of each that narrows."""
        return {each.kind: age for each in self._narrowing() if (age := each.reflector.age) is not None}

    def lost_for(self) -> dict[str, float]:
        """Seconds for which each that narrows could not be followed."""
        return {each.kind: each.reflector.lost.seconds for each in self._narrowing()}

    def work(self) -> list[Coroutine[Any, Any, None]]:
        for each in self._unread:
            each.go_without()
        return [each.run() for each in self._read]

    def _narrowing(self) -> list[OptionalKind]:
        return [each for each in self._kinds if each.narrows and each.there]
