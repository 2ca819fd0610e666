"""Counts that the rules of `neighbours` are decided by: who is meant, near, or in which area, by topology value."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from extender.core.constraints import AffinityTerm, Spread
from extender.kube.names import NodeName


@dataclass(slots=True)
class Away:
    """An anti-affinity term: by value of its topology key, how many are meant by it, and how many have it; values of
    none are absent."""

    term: AffinityTerm
    meant: dict[str, int] = field(default_factory=dict)
    having: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Near:
    """The affinity terms of a pod: who matches all of them counts for each, by topology key and value; those of none
    are absent."""

    terms: tuple[AffinityTerm, ...]
    there: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass(slots=True)
class Even:
    """A spread constraint on the nodes that count for it: how many there are by value of its topology key."""

    spread: Spread
    eligible: Collection[NodeName]
    counts: dict[str, int]
    levels: dict[int, int] = field(default_factory=dict)
    """How many values have each count."""
    least: int = 0

    def __post_init__(self) -> None:
        for count in self.counts.values():
            self.levels[count] = self.levels.get(count, 0) + 1
        self.least = min(self.levels, default=0)

    def add(self, value: str, by: int) -> None:
        before = self.counts[value]
        self.counts[value] = before + by
        self.levels[before] -= 1
        self.levels[before + by] = self.levels.get(before + by, 0) + 1
        self.least = min(self.least, before + by)
        while not self.levels.get(self.least):
            self.least += 1

    @property
    def most(self) -> int:
        """An even part of all that there will be."""
        return -(-self.spread.tasks // max(1, len(self.counts)))

    @property
    def minimum(self) -> int:
        return 0 if len(self.counts) < self.spread.min_domains else self.least
