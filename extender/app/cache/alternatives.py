"""Alternatives: when the next of those that a pod has is to govern it, for it has no place under the present one.

Each is tried for as long as is said in the first round; in each round after it for twice as long as in the one before,
up to a minute: for whoever has none for hours, turns are work for nothing, of ours and, where a gang is planned anew
for each, of everybody's. Knows since when pods wait; must not know what governs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from extender.core.policy_matching import Choice
from extender.kube.names import PodUid

_SPARE = 64
LONGEST = 60.0
"""Seconds; who says more is tried for as long as that."""


@dataclass(slots=True)
class _Wait:
    choice: Choice
    until: float
    """Then the next one's turn comes."""
    turns: int = 0

    def turn(self, now: float) -> None:
        """The next one's has come."""
        self.turns += 1
        seconds, rounds = self.choice.seconds, self.turns // self.choice.alternatives
        self.until = now + max(seconds, min(seconds * 2.0 ** min(rounds, 16), LONGEST))


class Alternatives:
    def __init__(self) -> None:
        self._waits: dict[PodUid, dict[str, _Wait]] = {}
        """By pod, and the name of the choice."""
        self._due: list[tuple[float, PodUid, str]] = []
        """Each of these, and some that are none any more."""
        self._most_due = _SPARE

    def waits(self, uid: PodUid, choices: Iterable[Choice], now: float) -> None:
        """The pod has no place, and these alternatives."""
        known, found = self._waits.pop(uid, {}), dict[str, _Wait]()
        for choice in choices:
            wait = known.get(choice.name)
            if wait is None or wait.choice != choice:
                wait = _Wait(choice, now + choice.seconds)
                heappush(self._due, (wait.until, uid, choice.name))
            found[choice.name] = wait
        if found:
            self._waits[uid] = found
        if len(self._due) > self._most_due:
            self._due = [each for each in self._due if self._is_due(*each)]
            heapify(self._due)
            self._most_due = 2 * len(self._due) + _SPARE

    def forget(self, uid: PodUid) -> None:
        """It has its place, or is gone."""
        self._waits.pop(uid, None)

    def next_deadline(self) -> float | None:
        while self._due and not self._is_due(*self._due[0]):
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def due(self, now: float) -> Iterator[tuple[PodUid, str]]:
        """The next one's turn has come for these; they wait for the one after it. Who is not taken stays due."""
        while (when := self.next_deadline()) is not None and when <= now:
            _, uid, which = heappop(self._due)
            wait = self._waits[uid][which]
            wait.turn(now)
            heappush(self._due, (wait.until, uid, which))
            yield uid, which

    def _is_due(self, when: float, uid: PodUid, which: str) -> bool:
        wait = self._waits.get(uid, {}).get(which)
        return wait is not None and wait.until == when
