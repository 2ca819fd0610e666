"""The units that nodes should have of one gang's resources, and what the nodes have confirmed.

A resource that vanishes from its node is written again: the first time at once, then after a pause that grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from extender.core.common.backoff import doubled
from extender.esl.base import Effect, RemoveCapacity, SetCapacity
from extender.esl.gangs.gang_members import Place
from extender.esl.gangs.gang_times import Times


class NodeKeys:
    def __init__(self, times: Times, there: Iterable[Place] = ()) -> None:
        """`there`: where resources exist, in any number."""
        self._times = times
        self._wanted: Counter[Place] = Counter(dict.fromkeys(there, 1))
        self._unconfirmed: dict[Place, int] = {}
        self._changed: Counter[Place] = Counter()
        """How often other writers have changed each place."""
        self._amends: dict[Place, float] = {}
        """When each of these places is to be written again."""

    @property
    def confirmed(self) -> bool:
        """Whether every node has confirmed what was wanted."""
        return not self._unconfirmed

    @property
    def due(self) -> Iterable[float]:
        return self._amends.values()

    def want(self, units: Mapping[Place, int]) -> list[Effect]:
        """These places are to have these units, and no other place any."""
        wanted = Counter(units)
        changed = [place for place in dict.fromkeys([*self._wanted, *wanted]) if wanted[place] != self._wanted[place]]
        self._wanted = wanted
        return [self._write(place) for place in changed]

    def confirm(self, place: Place, units: int, now: float) -> list[Effect]:
        """The node confirms `units`; an unexpected 0: the node is gone and may return empty."""
        if place not in self._unconfirmed or units not in (0, self._unconfirmed[place]):
            return []
        del self._unconfirmed[place]
        return self.see(place, units, now)

    def refuse(self, effect: SetCapacity | RemoveCapacity) -> bool:
        """The request was refused, and nothing is outstanding; False: another one was awaited."""
        place = (effect.node, effect.resource)
        units = effect.units if isinstance(effect, SetCapacity) else 0
        if self._unconfirmed.get(place) != units:
            return False
        del self._unconfirmed[place]
        return True

    def see(self, place: Place, units: int, now: float) -> list[Effect]:
        """The node reports `units` that this gang did not request."""
        if units == self._wanted[place] or place in self._unconfirmed or place in self._amends:
            return []
        self._changed[place] += 1
        if self._changed[place] == 1:
            return [self._write(place)]
        pause = doubled(self._times.first_pause, self._changed[place] - 2, self._times.longest_pause)
        self._amends[place] = now + pause
        return []

    def amend(self, now: float) -> list[Effect]:
        """The writes that are due again."""
        return [self._write(place) for place in [place for place, due in self._amends.items() if due <= now]]

    def _write(self, place: Place) -> Effect:
        units = self._unconfirmed[place] = self._wanted[place]
        self._amends.pop(place, None)
        return SetCapacity(*place, units) if units else RemoveCapacity(*place)
