"""Alternatives: when the next of those that a pod has is to govern it, for it has no place under the present one.

Knows since when pods wait; must not know what governs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from extender.kube.names import PodUid


class Alternatives:
    def __init__(self) -> None:
        self._waits: dict[PodUid, dict[str, tuple[float, float]]] = {}
        """By pod, and what has alternatives for it: when the next one's turn comes, and how long each is tried for."""
        self._due: list[tuple[float, PodUid, str]] = []
        """Each of these, and some that are none any more."""

    def waits(self, uid: PodUid, alternatives: Iterable[tuple[str, float]], now: float) -> None:
        """The pod has no place, and these alternatives, each to be tried for so many seconds."""
        known, found = self._waits.pop(uid, {}), dict[str, tuple[float, float]]()
        for which, seconds in alternatives:
            found[which] = known[which] if which in known and known[which][1] == seconds else (now + seconds, seconds)
            if which not in known or known[which] != found[which]:
                heappush(self._due, (found[which][0], uid, which))
        if found:
            self._waits[uid] = found

    def forget(self, uid: PodUid) -> None:
        """It has its place, or is gone."""
        self._waits.pop(uid, None)

    def next_deadline(self) -> float | None:
        while self._due and not self._is_due(*self._due[0]):
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def due(self, now: float) -> list[tuple[PodUid, str]]:
        """The next one's turn has come for these; they wait for the one after it."""
        found: list[tuple[PodUid, str]] = []
        while (when := self.next_deadline()) is not None and when <= now:
            _, uid, which = heappop(self._due)
            seconds = self._waits[uid][which][1]
            self._waits[uid][which] = (now + seconds, seconds)
            heappush(self._due, (now + seconds, uid, which))
            found.append((uid, which))
        return found

    def _is_due(self, when: float, uid: PodUid, which: str) -> bool:
        waits = self._waits.get(uid, {}).get(which)
        return waits is not None and waits[0] == when
