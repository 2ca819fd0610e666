"""Preemptions without effect: evictions for a gang that was not bound, counted by hour and gang.

A preemption whose gang was then bound no longer counts: a job that is created again every few minutes may preempt each
time. The others count for their gang while it exists, and afterwards for every gang of its namespace: a new name gives
no new start. All gangs of a namespace, existing or not, may have `NAMESPACE_TIMES` as many. Undecided preemptions count
as well.

`preemption` decides whether one was without effect.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from math import inf

from extender.core.gangs.preemption.preemption_limits import Bounds, Exhausted
from extender.core.gangs.preemption.victim_rules import HOUR, Maker, Tenant
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid

NAMESPACE_TIMES = 4
"""The bound on all gangs of a namespace, as a multiple of the bound on one gang."""


@dataclass(frozen=True, slots=True)
class Spent:
    """A preemption whose gang is not bound: when it began, and how many pods were evicted."""

    gang: GangKey
    at: float
    pods: int


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a preemption depends on. Owners count, not single pods, because evicted pods come again."""

    members: tuple[float, int]
    capacity: int
    makers: frozenset[Maker]

    def is_nothing_new(self, earlier: Circumstances) -> bool:
        return (self.members, self.capacity) == (earlier.members, earlier.capacity) and self.makers <= earlier.makers


@dataclass(slots=True)
class Order:
    """A preemption that is under way, or waits for its gang to be bound."""

    nodes: frozenset[NodeName]
    began: float
    circumstances: Circumstances | None
    evicting: bool = True
    had_room: bool = False
    """Whether its gang has found room since: pods that have not left stay, even if that failed."""
    failed: bool = False
    """Whether a plan of its gang failed while pods were still evicted."""
    told: bool = False
    """Whether kube-scheduler was told to keep room for the gang's members."""
    evicted: dict[PodUid, tuple[Maker, ...]] = field(default_factory=dict)
    """The evicted pods, with their owners."""
    struck: set[Maker] = field(default_factory=set)
    retaken: set[Tenant] = field(default_factory=set)
    """Namespaces whose new pods came where their evicted pods had been."""

    def take_retakers(self) -> list[Tenant]:
        """Each of these once, when the eviction is over."""
        found = [] if self.evicting else sorted(self.retaken.difference(self.struck))
        self.struck.update(found)
        return found


@dataclass(slots=True)
class History:
    """What was without effect for one gang since it was last bound."""

    vain: int = 0
    not_before: float = 0.0
    circumstances: Circumstances | None = None
    """Circumstances of the last preemption without effect."""


class Vain:
    """`living`: the existing gangs."""

    def __init__(self, living: Container[GangKey]) -> None:
        self._living = living
        self.spent: dict[str, list[Spent]] = {}
        """By namespace, oldest first."""

    def add(self, spent: Spent) -> None:
        """Adds a preemption without effect. The bounds limit how many there are."""
        self.spent.setdefault(spent.gang.namespace, []).append(spent)

    def prune(self, now: float) -> None:
        """Drops what is over an hour old."""
        kept = {name: [each for each in spent if each.at > now - HOUR] for name, spent in self.spent.items()}
        self.spent = {name: spent for name, spent in kept.items() if spent}

    def exhausted(
        self, gang: GangKey, units: Sequence[int], bounds: Bounds, undecided: Sequence[Spent], now: float
    ) -> Exhausted | None:
        """Whether the bounds allow the gang no other preemption, of units of these sizes.

        While nothing was without effect, a unit larger than the bound counts as one pod: it cannot leave in part, and
        its author decides its size.
        """
        for spent, times in self._scopes(gang, undecided, now):
            pods = sum(each.pods for each in spent)
            more = sum(1 if not pods and size > bounds.pods > 0 else size for size in units)
            if len(spent) >= times * bounds.preemptions or pods + more > times * bounds.pods:
                return Exhausted(len(spent), pods, bounds, of_namespace=times > 1)
        return None

    def left(self, gang: GangKey, bounds: Bounds, undecided: Sequence[Spent], now: float) -> int:
        """How many pods the bounds let leave for the gang now."""
        scopes = self._scopes(gang, undecided, now)
        return min(times * bounds.pods - sum(each.pods for each in spent) for spent, times in scopes)

    def _scopes(self, gang: GangKey, undecided: Sequence[Spent], now: float) -> tuple[tuple[list[Spent], int], ...]:
        """What counts for the gang within the hour, and which multiple of its bound applies."""
        of_all = [each for each in self._of(gang.namespace, undecided) if each.at > now - HOUR]
        mine = [each for each in of_all if each.gang == gang or each.gang not in self._living]
        return (mine, 1), (of_all, NAMESPACE_TIMES)

    def helps_at(self, gang: GangKey, undecided: Sequence[Spent], now: float) -> float:
        """When the first of them counts no more; infinite: there is none."""
        ends = (each.at + HOUR for each in self._of(gang.namespace, undecided))
        return min((end for end in ends if end > now), default=inf)

    def _of(self, namespace: str, undecided: Sequence[Spent]) -> list[Spent]:
        return [*self.spent.get(namespace, ()), *(each for each in undecided if each.gang.namespace == namespace)]
