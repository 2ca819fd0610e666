"""Savings: how much of the cluster is kept idle for the gang whose turn it is, for how long, and when that must end.

Two bounds, `Thrift`:

- *Progress.* Saving goes on while it gets somewhere: the places saved, counting a part of a place by its scarcest
  resource, have to reach a new maximum, by a hundredth of all at least. After `seconds` without, it ends.
- *Share.* As long as it progresses, up to `share` of the cluster may be saved: of each resource, of what all nodes that
  are there can hold together. More than that may be saved only for `seconds` on end. Then all is given back, for a
  part of what a gang needs is of no use to it; and for as long as the share was exceeded nobody exceeds it again.

So more than the share is never idle for longer than `seconds` on end, nor for more than half of any long time,
whosever turn it was. Only what is free is saved: what pods hold that are about to leave counts when they have left.

Knows shares and times; must not know whose turn it is, nor why room is saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from extender.core.audit import Violation
from extender.core.back_off import doubled
from extender.core.ledger import Ledger
from extender.core.names import ResourceKey
from extender.core.units import Vector, add

_STEPS = 100
"""Progress is a new maximum of what is saved, in so many steps from nothing to all."""
_LONGEST_PAUSE = 86_400.0
_LATE = 1.0
"""Seconds by which an alarm may ring late."""


@dataclass(frozen=True, slots=True)
class Thrift:
    """Which share of the cluster may be saved for as long as that progresses, and for how many seconds more than that
    may be, or without progress."""

    share: float = 0.25
    seconds: float = 600.0

    def pause(self, rounds: int) -> float:
        """For how many seconds no room is saved for a gang that has lost its turn so often: each time twice as long,
        up to a day."""
        return doubled(self.seconds, rounds - 1, max(_LONGEST_PAUSE, self.seconds))


DEFAULT_THRIFT = Thrift()


@dataclass(slots=True)
class Savings:
    """On one ledger. Times are seconds that only pass."""

    ledger: Ledger
    thrift: Thrift = DEFAULT_THRIFT
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
        limit = self._limit()
        return any(units > limit.get(resource, 0) for resource, units in self.ledger.saved_total.items())

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
        total = self.ledger.capacity_total
        shares = (units / max(units, total.get(resource, 0)) for resource, units in self.ledger.saved_total.items())
        return max(shares, default=0.0)

    def limit(self) -> Mapping[ResourceKey, int] | None:
        """How much of each resource may be saved now; None: any amount."""
        return self._limit() if self.resting else None

    def _limit(self) -> Mapping[ResourceKey, int]:
        share = self.thrift.share
        return {resource: int(units * share) for resource, units in self.ledger.capacity_total.items()}

    def suffices(self, places: Sequence[Vector]) -> bool:
        """Whether these places could all be saved now."""
        limit = self.limit()
        return limit is None or all(units <= limit.get(resource, 0) for resource, units in add(places).items())

    # -- audit ---------------------------------------------------------------------------------------------------

    def violations(self, *, saving: bool) -> Iterator[Violation]:
        """`saving`: whether room is saved for a gang."""
        if self._is_over() and not self._over:
            yield Violation("saved_share", f"{self.share:.0%} of a resource is saved, and nobody counts for how long")
        if self._over and self.seconds_over > self.thrift.seconds + _LATE:
            yield Violation("saved_share", f"{self.share:.0%} of a resource saved for {self.seconds_over:.0f} s")
        if saving and self._as_of > self._progressed_at + self.thrift.seconds + _LATE:
            yield Violation("saved_share", f"no progress for {self._as_of - self._progressed_at:.0f} s")
