"""Hoards: room that the service keeps idle for longer than it may, according to its ledger.

It looks once a minute. A backfill reservation above a quarter of the cluster's CPU may last for ten minutes without
progress. The same limit holds for the unused reservations of a gang of any size. Progress is that the units held for
the gang grow, or that a member is bound.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from extender.app.cycle.scheduler import Scheduler
from extender.core.ledger.ledger import HoldingKind
from extender.kube.names import CPU

SHARE, SECONDS, LOOKED_AT_EVERY = 0.25, 600.0, 60.0
_CLAIMED = (HoldingKind.RESERVATION, HoldingKind.ASSUMPTION)


@dataclass
class _Still:
    """The time since which there was no progress on what is held for a gang."""

    since: float
    held: int
    bound: int
    told: bool = False


class Hoards:
    """`found` is called once for each hoard."""

    def __init__(self, found: Callable[[str], None]) -> None:
        self.largest_share = 0.0
        self._found = found
        self._saving: dict[str, _Still] = {}
        self._reserved: dict[str, _Still] = {}

    def look(self, scheduler: Scheduler, now: float) -> None:
        cluster = sum(node.allocatable.get(CPU, 0) for node in scheduler.cache.nodes.values())
        saved: Counter[str] = Counter()
        reserved: Counter[str] = Counter()
        for held in scheduler.cache.ledger.rows.holdings():
            if held.owner is not None and held.kind is not HoldingKind.BOUND:
                into = saved if held.kind is HoldingKind.SAVING else reserved
                into[str(held.owner)] += held.units.get(CPU, 0)
        bound: dict[str, int] = defaultdict(int)
        for key, known in scheduler.cache.gangs.by_key.items():
            bound[str(key)] = len(known.roster.bound)
        self.largest_share = max(self.largest_share, sum(saved.values()) / max(1, cluster))
        large = saved if sum(saved.values()) > SHARE * cluster else Counter()
        for gang, still in self._that_last(self._saving, large, bound, now):
            share = saved[gang] / max(1, cluster)
            self._found(
                f"{share:.0%} of the cluster's CPU is saved for {gang} since {now - still.since:.0f} s, in vain"
            )
        for gang, still in self._that_last(self._reserved, reserved, bound, now):
            self._found(f"{still.held} thousandths of a CPU are reserved for {gang} since {now - still.since:.0f} s")

    def _that_last(
        self, known: dict[str, _Still], held: Counter[str], bound: dict[str, int], now: float
    ) -> Iterator[tuple[str, _Still]]:
        for gang in known.keys() - held.keys():
            del known[gang]
        for gang, units in sorted(held.items()):
            still = known.get(gang)
            if still is None or units > still.held or bound[gang] != still.bound:
                known[gang] = _Still(now, units, bound[gang])
            elif now - still.since > SECONDS + LOOKED_AT_EVERY and not still.told:
                still.told = True
                yield gang, still
