"""The backfill reservation: room that is saved for one waiting gang, place by place, until its whole quorum has it; how
much of the cluster is kept idle by that, for how long, and when it must end.

Nobody takes what is saved but gangs before that one in turn, and pods of a higher priority. Two bounds,
`BackfillLimits`:

- *Progress.* Saving goes on while it gets somewhere: the places saved, counting a part of a place by its scarcest
  resource, have to reach a new maximum, by a hundredth of all at least. After `seconds` without, it ends.
- *Share.* As long as it progresses, up to `share` of the cluster may be saved: of each resource, of what all nodes that
  are there can hold together. More than that may be saved only for `seconds` on end. Then all is given back, for a
  part of what a gang needs is of no use to it; and for as long as the share was exceeded nobody exceeds it again.

So more than the share is never idle for longer than `seconds` on end, nor for more than half of any long time,
whosever turn it was. Only what is free is saved: what pods hold that are about to leave counts when they have left.

Must not know whose turn it is, nor why: see `queue`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from extender.core.audit import Violation
from extender.core.backoff import doubled
from extender.core.cluster import Pod
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.preemption.feasibility import Feasibility
from extender.core.gangs.state.gang import Gang
from extender.core.ledger import Holder, Ledger
from extender.core.names import GangKey
from extender.core.units import add
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

SAVED_SECONDS = 60.0
"""After so long without news, where room is saved is looked for anew."""
_STEPS = 100
"""Progress is a new maximum of what is saved, in so many steps from nothing to all."""
_LONGEST_PAUSE = 86_400.0
_LATE = 1.0
"""Seconds by which an alarm may ring late."""


@dataclass(frozen=True, slots=True)
class BackfillLimits:
    """Which share of the cluster may be saved for as long as that progresses, and for how many seconds more than that
    may be, or without progress."""

    share: float = 0.25
    seconds: float = 600.0

    def pause(self, rounds: int) -> float:
        """For how many seconds no room is saved for a gang that has lost its turn so often: each time twice as long,
        up to a day."""
        return doubled(self.seconds, rounds - 1, max(_LONGEST_PAUSE, self.seconds))


DEFAULT_THRIFT = BackfillLimits()


@dataclass(frozen=True, slots=True)
class IdleAccount:
    """What `Savings` have come to, as they call it."""

    resting: bool = False
    seconds_over: float = 0.0
    over: bool = False
    as_of: float = 0.0
    best: int = -1
    progressed_at: float = 0.0


@dataclass(slots=True)
class Savings:
    """On one ledger. Times are seconds that only pass."""

    ledger: Ledger
    thrift: BackfillLimits = DEFAULT_THRIFT
    resting: bool = False
    """Whether nobody may save more than the share."""
    seconds_over: float = 0.0
    """For how long more than the share has been saved; while it is not, this falls as fast as it grew."""
    _over: bool = False
    _as_of: float = 0.0
    _best: int = -1
    _progressed_at: float = 0.0

    # -- what happens --------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """From now on room is saved for another gang."""
        self._best, self._progressed_at = -1, now

    @property
    def account(self) -> IdleAccount:
        over, best = self._over, self._best
        return IdleAccount(self.resting, self.seconds_over, over, self._as_of, best, self._progressed_at)

    def resume(self, account: IdleAccount) -> None:
        """They have come to that, on a ledger that has the same."""
        self.resting, self.seconds_over, self._over = account.resting, account.seconds_over, account.over
        self._as_of, self._best, self._progressed_at = account.as_of, account.best, account.progressed_at

    def progress(self, part: float, now: float) -> None:
        """So large a part of what the gang needs is saved now."""
        steps = int(_STEPS * part + 1e-6)
        if steps > self._best:
            self._best, self._progressed_at = steps, now

    def heed_time(self, now: float) -> bool:
        """What is saved now is so from now on; until now it was as it was last time. Whether more may be saved than
        before."""
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
        """`seconds_over`, if nothing changes until then."""
        passed = max(0.0, now - self._as_of)
        return max(0.0, self.seconds_over + (passed if self._over else -passed))

    def _is_over(self) -> bool:
        return any(units > self._limit_of(resource) for resource, units in self.ledger.totals.saved.items())

    # -- when it must end ----------------------------------------------------------------------------------------

    def must_end(self) -> bool:
        """Whether what is saved is to be given back, as of the last `heed_time`."""
        return (self.resting and self._over) or self._as_of >= self._progressed_at + self.thrift.seconds

    def next_deadline(self, *, saving: bool) -> float | None:
        """When there is something to do, if nothing changes. `saving`: whether room is saved for a gang."""
        known = [self._progressed_at + self.thrift.seconds] if saving else []
        if self._over:
            known.append(self._as_of + max(0.0, self.thrift.seconds - self.seconds_over))
        elif self.resting:
            known.append(self._as_of + self.seconds_over)
        return min(known, default=None)

    # -- how much may be saved -----------------------------------------------------------------------------------

    @property
    def share(self) -> float:
        """The largest share of any resource that is saved."""
        total = self.ledger.totals.capacity
        shares = (units / max(units, total.get(resource, 0)) for resource, units in self.ledger.totals.saved.items())
        return max(shares, default=0.0)

    def limit(self) -> Mapping[ResourceKey, int] | None:
        """How much of each resource may be saved now; None: any amount."""
        return {each: self._limit_of(each) for each in self.ledger.totals.capacity} if self.resting else None

    def _limit_of(self, resource: ResourceKey) -> int:
        return int(self.ledger.totals.capacity.get(resource, 0) * self.thrift.share)

    def suffices(self, places: Iterable[Vector]) -> bool:
        """Whether these places could all be saved now."""
        limit = self.limit()
        return limit is None or all(units <= limit.get(resource, 0) for resource, units in add(places).items())

    def violations(self, *, saving: bool) -> Iterator[Violation]:
        """`saving`: whether room is saved for a gang."""
        if self._is_over() and not self._over:
            yield Violation("saved_share", f"{self.share:.0%} of a resource is saved, and nobody counts for how long")
        if self._over and self.seconds_over > self.thrift.seconds + _LATE:
            yield Violation("saved_share", f"{self.share:.0%} of a resource saved for {self.seconds_over:.0f} s")
        if saving and self._as_of > self._progressed_at + self.thrift.seconds + _LATE:
            yield Violation("saved_share", f"no progress for {self._as_of - self._progressed_at:.0f} s")


class SavedRoom:
    def __init__(self, ledger: Ledger, places: Places, feasibility: Feasibility, thrift: BackfillLimits) -> None:
        self.gang: Gang | None = None
        """The gang that room is saved for."""
        self.savings = Savings(ledger, thrift)
        self._places = places
        self._feasibility = feasibility
        self._gave_way: tuple[GangKey, int] | None = None
        self.awaited: Callable[[GangKey], Sequence[NodeName]] = lambda key: ()
        """The nodes that are being made free for that gang."""

    # -- what is saved -------------------------------------------------------------------------------------------

    def begin(self, gang: Gang, nodes: Sequence[NodeName] | None, now: float) -> None:
        """Room is saved for this gang and no other, on these nodes; None: on any."""
        if self.gang is not gang:
            self.give_back()
            self.gang = gang
            self.savings.begin(now)
        self._save(gang, nodes, now)

    def save(self, gains: Collection[NodeName], now: float) -> None:
        """What is free now on the nodes that the gang waits for, or on those that gained, is reserved for it."""
        if self.gang is not None and not self._save_awaited(self.gang, now):
            waits_for = [held.node for held in self._places.unbound(self.gang)]
            nodes = list(dict.fromkeys((*waits_for, *gains))) if waits_for else None
            self._save(self.gang, nodes, now)

    def save_more(self, now: float) -> None:
        """More may be saved than before, anywhere."""
        if self.gang is not None:
            if not self._save_awaited(self.gang, now):
                self._save(self.gang, None, now)
            self.savings.heed_time(now)

    def _save_awaited(self, gang: Gang, now: float) -> bool:
        """Reserves only where victims are leaving for the gang: as long as they are, more may be free elsewhere, and
        what they have left would be taken. Whether there is such a place."""
        nodes = self.awaited(gang.key)
        if nodes:
            self._save(gang, nodes, now)
        return bool(nodes) and bool(self._places.unbound(gang))

    def _save(self, gang: Gang, nodes: Sequence[NodeName] | None, now: float) -> None:
        part = self._feasibility.save(gang, nodes, now + SAVED_SECONDS, self.savings.limit())
        self.savings.progress(part, now)

    def give_back(self) -> None:
        """No room is saved."""
        if self.gang is not None:
            self._places.release(self.gang)
            self.gang = None

    def leave(self, gang: Gang) -> None:
        """It does not wait. What was saved for it is its plan's, or is released by the caller."""
        if self.gang is gang:
            self.gang = None

    # -- who may use it ------------------------------------------------------------------------------------------

    def suffices(self, gang: Gang) -> bool:
        """Whether all that the gang needs may be saved for it now."""
        return self.savings.suffices(self._feasibility.asked(gang))

    def usable_by(self, gang: Gang) -> Sequence[Holder]:
        """What is saved for the gang itself, or for one behind it."""
        if self.gang is None or self.gang.turn < gang.turn:
            return ()
        return [held.holder for held in self._places.unbound(self.gang)]

    def gives_way_to(self, pod: Pod) -> Mapping[NodeName, Sequence[Holder]]:
        """What is saved for a gang of a lower priority than the pod's, which is in no gang: by node."""
        found: dict[NodeName, list[Holder]] = {}
        if self.gang is not None and pod.priority > self.gang.terms.claims:
            for held in self._places.unbound(self.gang):
                found.setdefault(held.node, []).append(held.holder)
        return found

    def with_news_for_others(self, gains: Collection[NodeName]) -> Collection[NodeName]:
        """The nodes that gained room, and those on which what is saved gives way to more pods than when this was
        asked last."""
        before, gang = self._gave_way, self.gang
        self._gave_way = None if gang is None else (gang.key, gang.terms.claims)
        if gang is None or self._gave_way == before:
            return gains
        return dict.fromkeys((*gains, *(held.node for held in self._places.unbound(gang))))

    def violations(self) -> Iterator[Violation]:
        yield from self.savings.violations(saving=self.gang is not None)
