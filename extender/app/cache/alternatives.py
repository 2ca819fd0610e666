"""Alternatives: when a pod that has no node is matched by the next of its alternatives.

Each is tried for the time that its choice states in the first round. Each later round takes twice as long as the one
before, up to a minute: if a pod finds no node for hours, turns are useless work. If its gang is planned again for each
turn, they also delay all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from extender.core.policies.policy_matching import Choice
from extender.kube.names import PodUid

_SPARE = 64
LONGEST = 60.0
"""Seconds; an alternative that states more is tried for that time."""


@dataclass(slots=True)
class _Wait:
    choice: Choice
    until: float
    """When the turn of the next alternative comes."""
    turns: int = 0

    def turn(self, now: float) -> None:
        """The turn of the next alternative has come."""
        self.turns += 1
        seconds, rounds = self.choice.seconds, self.turns // self.choice.alternatives
        self.until = now + max(seconds, min(seconds * 2.0 ** min(rounds, 16), LONGEST))


class Alternatives:
    def __init__(self) -> None:
        self._waits: dict[PodUid, dict[str, _Wait]] = {}
        """By pod, and the name of the choice."""
        self._due: list[tuple[float, PodUid, str]] = []
        """An entry for each of these, and some that are out of date."""
        self._most_due = _SPARE

    def waits(self, uid: PodUid, choices: Iterable[Choice], now: float) -> None:
        """The pod has no node, and has these alternatives."""
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
        """The pod has a node, or is gone."""
        self._waits.pop(uid, None)

    def next_deadline(self) -> float | None:
        while self._due and not self._is_due(*self._due[0]):
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def due(self, now: float) -> Iterator[tuple[PodUid, str]]:
        """Yields pods whose next alternative has its turn; a pod that is not yielded stays due."""
        while (when := self.next_deadline()) is not None and when <= now:
            _, uid, which = heappop(self._due)
            wait = self._waits[uid][which]
            wait.turn(now)
            heappush(self._due, (wait.until, uid, which))
            yield uid, which

    def _is_due(self, when: float, uid: PodUid, which: str) -> bool:
        wait = self._waits.get(uid, {}).get(which)
        return wait is not None and wait.until == when
