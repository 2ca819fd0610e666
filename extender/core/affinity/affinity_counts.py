"""Counts by topology domain for the rules of `affinity_rules`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from extender.core.affinity.constraints import AffinityTerm, Spread
from extender.kube.names import NodeName


@dataclass(slots=True)
class Away:
    """An anti-affinity term with counts by topology value; values without pods are absent.

    `meant`: pods that the term selects. `having`: pods that have it."""

    term: AffinityTerm
    meant: dict[str, int] = field(default_factory=dict)
    having: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Near:
    """Affinity terms; counts of pods that match all, by topology key and value, without zeros."""

    terms: tuple[AffinityTerm, ...]
    there: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass(slots=True)
class Even:
    """A spread constraint and its eligible nodes, with the counted pods by topology domain."""

    spread: Spread
    eligible: Collection[NodeName]
    counts: dict[str, int]
    levels: dict[int, int] = field(default_factory=dict)
    """How many topology domains have each count."""
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
        """An even part of all expected pods."""
        return -(-self.spread.tasks // max(1, len(self.counts)))

    @property
    def minimum(self) -> int:
        return 0 if len(self.counts) < self.spread.min_domains else self.least
