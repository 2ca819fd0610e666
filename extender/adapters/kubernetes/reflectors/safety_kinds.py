"""Safety kinds: the kinds that narrow what Escher may do, and their state while unreadable.

Escher decides nothing before each of them is known, except those that the settings exclude: it does not read these. A
kind that only helps (Jobs) delays the start for a limited time. A kind that the rest does not need (budgets) does not
delay it.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Sequence
from typing import Any

from extender.adapters.kubernetes.reflectors.optional_kind import OptionalKind

START_SECONDS = 60.0
"""Seconds that a start waits for a helping kind, whose permissions may come a little later."""


class SafetyKinds:
    """`without`: names of kinds that are not read. `beside`: kinds that do not delay the start."""

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
        """Kinds that are not known yet, and why; `why` is empty while nothing has failed."""
        return {each.kind: each.lost.why for each in self._kinds if not each.known.is_set()}

    def is_patient(self) -> bool:
        """Whether the start is now waiting for a kind that it can do without."""
        return any(each.lost.seconds > 0 for each in self._kinds if not (each.narrows or each.known.is_set()))

    def without(self) -> list[str]:
        """Kinds that are not read, by the settings or because they cannot be read."""
        return [*self._stated, *(each.kind for each in self._read if each.goes_without)]

    def there(self) -> list[OptionalKind]:
        """Kinds that are read, without those that the cluster lacks."""
        return [each for each in self._read if not each.is_absent]

    def ages(self) -> dict[str, float]:
        """Seconds since the last answer about each narrowing kind."""
        return {each.kind: age for each in self._narrowing() if (age := each.reflector.age) is not None}

    def lost_for(self) -> dict[str, float]:
        """Seconds for which each narrowing kind could not be followed."""
        return {each.kind: each.reflector.lost.seconds for each in self._narrowing()}

    def work(self) -> list[Coroutine[Any, Any, None]]:
        for each in self._unread:
            each.go_without()
        return [each.run() for each in self._read]

    def _narrowing(self) -> list[OptionalKind]:
        return [each for each in self._kinds if each.narrows and each.there]
