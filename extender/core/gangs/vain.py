"""Preemptions in vain: pods were evicted for a gang, and it was not bound for that. How many an hour, and for whom.

A preemption that led to its gang being bound counts no more: a job that is made again every few minutes may preempt
each time. One counts for its gang while that gang exists, and afterwards for every gang of its namespace: to come again
under another name is no new start. Of all gangs of a namespace, existing or not, `NAMESPACE_TIMES` as many may be in
vain. Those that are not decided yet count as well.

Knows counts and times. Must not know who was evicted, nor why a preemption came to nothing: see `preemption`.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from math import inf

from extender.core.gangs.preemption.victim_rules import HOUR, Maker, Tenant
from extender.core.gangs.state.preemption_limits import Bounds, Exhausted
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid

NAMESPACE_TIMES = 4
"""How many times the bound of a gang is that of all gangs of its namespace."""


@dataclass(frozen=True, slots=True)
class Spent:
    """A preemption that has not led to its gang being bound: when it began, and how many pods were evicted."""

    gang: GangKey
    at: float
    pods: int


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a preemption depends on. Not who exactly could leave, but whose pods: those that left come again."""

    members: tuple[float, int]
    capacity: int
    makers: frozenset[Maker]

    def is_nothing_new(self, earlier: Circumstances) -> bool:
        return (self.members, self.capacity) == (earlier.members, earlier.capacity) and self.makers <= earlier.makers


@dataclass(slots=True)
class Order:
    """A preemption that is under way or waits for its gang to be bound."""

    nodes: frozenset[NodeName]
    began: float
    circumstances: Circumstances | None
    evicting: bool = True
    had_room: bool = False
    """Whether its gang has found room since: whoever has not left yet stays, also if that came to nothing."""
    told: bool = False
    """Whether kube-scheduler was told to keep room for the gang's members."""
    evicted: dict[PodUid, tuple[Maker, ...]] = field(default_factory=dict)
    """And whose they were."""
    struck: set[Maker] = field(default_factory=set)
    retaken: set[Tenant] = field(default_factory=set)
    """Those of whose namespaces pods have come where others of them had left."""

    def take_retakers(self) -> list[Tenant]:
        """Each of these once, when the eviction is over."""
        found = [] if self.evicting else sorted(self.retaken.difference(self.struck))
        self.struck.update(found)
        return found


@dataclass(slots=True)
class History:
    """What was in vain for one gang since it was bound last."""

    vain: int = 0
    not_before: float = 0.0
    circumstances: Circumstances | None = None
    """Of the last one that was in vain."""


class Vain:
    """`living`: the gangs that there are."""

    def __init__(self, living: Container[GangKey]) -> None:
        self._living = living
        self.spent: dict[str, list[Spent]] = {}
        """By namespace, the oldest first."""

    def add(self, spent: Spent) -> None:
        """It was in vain. No more are kept than can matter: there was none while the bound was met."""
        self.spent.setdefault(spent.gang.namespace, []).append(spent)

    def prune(self, now: float) -> None:
        """What is an hour ago counts no more."""
        kept = {name: [each for each in spent if each.at > now - HOUR] for name, spent in self.spent.items()}
        self.spent = {name: spent for name, spent in kept.items() if spent}

    def exhausted(
        self, gang: GangKey, units: Sequence[int], bounds: Bounds, undecided: Sequence[Spent], now: float
    ) -> Exhausted | None:
        """Whether the bounds leave the gang no other preemption, of units of these sizes.

        While nothing was in vain, a unit that is larger than the bound counts as one pod: it cannot leave in part, and
        its author says how large it is.
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
        """What was in vain within the hour and counts for the gang, and how many times its bound that may be."""
        of_all = [each for each in self._of(gang.namespace, undecided) if each.at > now - HOUR]
        mine = [each for each in of_all if each.gang == gang or each.gang not in self._living]
        return (mine, 1), (of_all, NAMESPACE_TIMES)

    def helps_at(self, gang: GangKey, undecided: Sequence[Spent], now: float) -> float:
        """When the first of them counts no more; infinite: there is none."""
        ends = (each.at + HOUR for each in self._of(gang.namespace, undecided))
        return min((end for end in ends if end > now), default=inf)

    def _of(self, namespace: str, undecided: Sequence[Spent]) -> list[Spent]:
        return [*self.spent.get(namespace, ()), *(each for each in undecided if each.gang.namespace == namespace)]
