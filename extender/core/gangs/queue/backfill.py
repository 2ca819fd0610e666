"""The backfill reservation: room kept idle for one waiting gang until its whole quorum has room.

Only gangs before that one in turn, and pods of a higher priority, may take the reserved room. `BackfillLimits` has two
bounds:

- *Progress.* The reserved places have to reach a new maximum, by at least a hundredth of all. A part of a place counts
  by its scarcest resource. After `seconds` without progress the reservation ends.
- *Share.* While it progresses, up to `share` of the cluster may be reserved: of each resource, of the capacity of all
  present nodes. More may be reserved only for `seconds` on end. Then all is given back, because a part of its need is
  of no use to a gang. For as long as the share was exceeded, no reservation exceeds it again.

So more than the share is never idle for longer than `seconds` on end, over all gangs. Nor is it idle for more than half
of any long time. Only free room is reserved: room of leaving pods counts when they have left.

`queue` decides whose turn it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from extender.core.cluster import Pod
from extender.core.common.backoff import doubled
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.preemption.feasibility import Feasibility
from extender.core.gangs.state.gang import Gang
from extender.core.ledger.audit import Violation
from extender.core.ledger.ledger import Holder, Ledger
from extender.core.ledger.units import add
from extender.core.names import GangKey
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

RECHOOSE_SECONDS = 60.0
"""Seconds without news after which the places to reserve are chosen again."""
_STEPS = 100
"""Progress is a new maximum of what is reserved, in this number of steps from nothing to all."""
_LONGEST_PAUSE = 86_400.0
_LATE = 1.0
"""Seconds by which an alarm may ring late."""


@dataclass(frozen=True, slots=True)
class BackfillLimits:
    """`share`: part of the cluster that may be reserved while the reservation progresses.

    `seconds`: the longest time with more than that, or without progress."""

    share: float = 0.25
    seconds: float = 600.0

    def pause(self, rounds: int) -> float:
        """Seconds without a reservation after this number of lost turns: doubled, at most a day."""
        return doubled(self.seconds, rounds - 1, max(_LONGEST_PAUSE, self.seconds))


DEFAULT_LIMITS = BackfillLimits()


@dataclass(frozen=True, slots=True)
class IdleAccount:
    """The state of `Savings`, with the same names."""

    resting: bool = False
    seconds_over: float = 0.0
    over: bool = False
    as_of: float = 0.0
    best: int = -1
    progressed_at: float = 0.0


@dataclass(slots=True)
class Savings:
    """Account of the reserved room on one ledger. Times are monotonic seconds."""

    ledger: Ledger
    thrift: BackfillLimits = DEFAULT_LIMITS
    resting: bool = False
    """Whether no gang may reserve more than the share."""
    seconds_over: float = 0.0
    """Seconds with more than the share reserved; it falls at the same rate while less is reserved."""
    _over: bool = False
    _as_of: float = 0.0
    _best: int = -1
    _progressed_at: float = 0.0

    # -- account -------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Room is now reserved for another gang."""
        self._best, self._progressed_at = -1, now

    @property
    def account(self) -> IdleAccount:
        over, best = self._over, self._best
        return IdleAccount(self.resting, self.seconds_over, over, self._as_of, best, self._progressed_at)

    def resume(self, account: IdleAccount) -> None:
        """Restores the account, on a ledger with the same reservations."""
        self.resting, self.seconds_over, self._over = account.resting, account.seconds_over, account.over
        self._as_of, self._best, self._progressed_at = account.as_of, account.best, account.progressed_at

    def progress(self, part: float, now: float) -> None:
        """`part`: the part of the gang's need that is reserved now."""
        steps = int(_STEPS * part + 1e-6)
        if steps > self._best:
            self._best, self._progressed_at = steps, now

    @property
    def depends_on_time(self) -> bool:
        """Whether anything is reserved, or was lately."""
        return self._over or self.resting or bool(self.seconds_over or self.ledger.totals.saved)

    def on_time(self, now: float) -> bool:
        """Accounts for the time since the last call; returns whether more may be reserved now."""
        self.seconds_over, self._as_of = self.seconds_over_at(now), max(now, self._as_of)
        self._over = self._is_over()
        if self.seconds_over >= self.thrift.seconds:
            self.resting = True
        elif self.resting and not self.seconds_over:
            self.resting = False
            # Until now the gang could get no further.
            self._progressed_at = self._as_of
            return True
        return False

    def seconds_over_at(self, now: float) -> float:
        """`seconds_over` at that time, if nothing changes."""
        passed = max(0.0, now - self._as_of)
        return max(0.0, self.seconds_over + (passed if self._over else -passed))

    def _is_over(self) -> bool:
        return any(units > self._limit_of(resource) for resource, units in self.ledger.totals.saved.items())

    # -- end of a reservation ------------------------------------------------------------------------------------

    def must_end(self) -> bool:
        """Whether the reservation is to be given back, as of the last `heed_time`."""
        return (self.resting and self._over) or self._as_of >= self._progressed_at + self.thrift.seconds

    def next_deadline(self, *, saving: bool) -> float | None:
        """When there is work, if nothing changes. `saving`: whether a gang has a reservation."""
        known = [self._progressed_at + self.thrift.seconds] if saving else []
        if self._over:
            known.append(self._as_of + max(0.0, self.thrift.seconds - self.seconds_over))
        elif self.resting:
            known.append(self._as_of + self.seconds_over)
        return min(known, default=None)

    # -- amount of a reservation ---------------------------------------------------------------------------------

    @property
    def share(self) -> float:
        """The largest share of any resource that is reserved."""
        total = self.ledger.totals.capacity
        shares = (units / max(units, total.get(resource, 0)) for resource, units in self.ledger.totals.saved.items())
        return max(shares, default=0.0)

    def limit(self) -> Mapping[ResourceKey, int] | None:
        """How much of each resource may be reserved now; None: any amount."""
        return {each: self._limit_of(each) for each in self.ledger.totals.capacity} if self.resting else None

    def _limit_of(self, resource: ResourceKey) -> int:
        return int(self.ledger.totals.capacity.get(resource, 0) * self.thrift.share)

    def suffices(self, places: Iterable[Vector]) -> bool:
        """Whether all these places together may be reserved now."""
        limit = self.limit()
        return limit is None or all(units <= limit.get(resource, 0) for resource, units in add(places).items())

    def violations(self, *, saving: bool) -> Iterator[Violation]:
        """`saving`: whether a gang has a reservation."""
        if self._is_over() and not self._over:
            yield Violation("saved_share", f"{self.share:.0%} of a resource is reserved, and its time is not counted")
        if self._over and self.seconds_over > self.thrift.seconds + _LATE:
            yield Violation("saved_share", f"{self.share:.0%} of a resource reserved for {self.seconds_over:.0f} s")
        if saving and self._as_of > self._progressed_at + self.thrift.seconds + _LATE:
            yield Violation("saved_share", f"no progress for {self._as_of - self._progressed_at:.0f} s")


class SavedRoom:
    def __init__(self, ledger: Ledger, places: Places, feasibility: Feasibility, thrift: BackfillLimits) -> None:
        self.gang: Gang | None = None
        """The gang with the reservation."""
        self.savings = Savings(ledger, thrift)
        self._places = places
        self._feasibility = feasibility
        self._gave_way: tuple[GangKey, int] | None = None
        self.awaited: Callable[[GangKey], Sequence[NodeName]] = lambda key: ()
        """The nodes on which victims leave for that gang."""

    # -- reserved room -------------------------------------------------------------------------------------------

    def begin(self, gang: Gang, nodes: Sequence[NodeName] | None, now: float) -> None:
        """Reserves room for this gang and no other, on these nodes; None: on any."""
        if self.gang is not gang:
            self.give_back()
            self.gang = gang
            self.savings.begin(now)
        self._save(gang, nodes, now)

    def save(self, gains: Collection[NodeName], now: float) -> None:
        """Reserves what is free on the nodes that the gang waits for, or on nodes with gains."""
        if self.gang is not None and not self._save_awaited(self.gang, now):
            waits_for = [held.node for held in self._places.unbound(self.gang)]
            nodes = list(dict.fromkeys((*waits_for, *gains))) if waits_for else None
            self._save(self.gang, nodes, now)

    def save_more(self, now: float) -> None:
        """Reserves more, on any node, because the limit has risen."""
        if self.gang is not None:
            if not self._save_awaited(self.gang, now):
                self._save(self.gang, None, now)
            self.savings.on_time(now)

    def _save_awaited(self, gang: Gang, now: float) -> bool:
        """Reserves only where victims leave for the gang; returns whether it then holds a place.

        More may be free elsewhere meanwhile, but other pods would take the room of the victims."""
        nodes = self.awaited(gang.key)
        if nodes:
            self._save(gang, nodes, now)
        return bool(nodes) and bool(self._places.unbound(gang))

    def _save(self, gang: Gang, nodes: Sequence[NodeName] | None, now: float) -> None:
        part = self._feasibility.save(gang, nodes, now + RECHOOSE_SECONDS, self.savings.limit())
        self.savings.progress(part, now)

    def give_back(self) -> None:
        """Ends the reservation."""
        if self.gang is not None:
            self._places.release(self.gang)
            self.gang = None

    def leave(self, gang: Gang) -> None:
        """The gang waits no more. Its plan takes its reservation, or the caller releases it."""
        if self.gang is gang:
            self.gang = None

    # -- gangs that may use it -----------------------------------------------------------------------------------

    def suffices(self, gang: Gang) -> bool:
        """Whether all that the gang needs may be reserved for it now."""
        return self.savings.suffices(self._feasibility.asked(gang))

    def usable_by(self, gang: Gang) -> Sequence[Holder]:
        """Holders reserved for the gang itself, or for one behind it."""
        if self.gang is None or self.gang.turn < gang.turn:
            return ()
        return [held.holder for held in self._places.unbound(self.gang)]

    def gives_way_to(self, pod: Pod) -> Mapping[NodeName, Sequence[Holder]]:
        """By node, what a gang of lower priority than this pod has reserved. The pod is in no gang."""
        found: dict[NodeName, list[Holder]] = {}
        if self.gang is not None and pod.priority > self.gang.terms.claims:
            for held in self._places.unbound(self.gang):
                found.setdefault(held.node, []).append(held.holder)
        return found

    def with_news_for_others(self, gains: Collection[NodeName]) -> Collection[NodeName]:
        """Nodes with gains, and those where the reservation yields to more pods than last time."""
        before, gang = self._gave_way, self.gang
        self._gave_way = None if gang is None else (gang.key, gang.terms.claims)
        if gang is None or self._gave_way == before:
            return gains
        return dict.fromkeys((*gains, *(held.node for held in self._places.unbound(gang))))

    def violations(self) -> Iterator[Violation]:
        yield from self.savings.violations(saving=self.gang is not None)
