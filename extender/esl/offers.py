"""Offers: what nodes have lately been offered of a policy's resources; what may still be taken of it, and what nobody
took.

News of a pod's binding may come later than the answer by which a node has lost a resource. Who gives to one what was
another's must therefore wait for a while (`grace`), or both are there. And an application that sees the pods of its
own namespace alone takes many a full node for one with room: what nobody has taken for a while (`patience`), though
somebody waits for it, is to be tried elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from extender.esl.view import Place
from extender.kube.names import NodeName, ResourceKey


class Offers:
    """After a restart nothing is remembered: what pods hold is known by then, and what was tried is tried again."""

    def __init__(self, grace: float, patience: float) -> None:
        """In seconds."""
        self._grace, self._patience = grace, patience
        self._units: dict[Place, int] = {}
        self._former: dict[Place, list[tuple[int, float]]] = {}
        """What there was more of, and until when."""
        self._idle_since: dict[Place, float] = {}
        self._in_vain: dict[Place, float] = {}

    def note(self, offered: Mapping[Place, int], idle: Collection[Place], now: float) -> None:
        """So many units are, or may be, at these places by now, and none elsewhere. `idle`: where some are left though
        somebody waits for them."""
        for place in {*offered, *self._units, *self._former}:
            units, before = offered.get(place, 0), self._units.get(place, 0)
            former = [*self._former.get(place, ()), (before, now)]
            self._former[place] = [each for each in former if each[0] > units and now < each[1] + self._grace]
            if not self._former[place]:
                del self._former[place]
        self._units = {place: units for place, units in offered.items() if units > 0}
        self._idle_since = {place: self._idle_since.get(place, now) for place in idle}
        for place, since in self._idle_since.items():
            if now >= since + self._patience:
                self._idle_since[place] = self._in_vain[place] = now

    def exposed(self, node: NodeName, resource: ResourceKey) -> int:
        """The most that the node has had, or may have had, until `grace` ago: so many units may be taken there by pods
        of which nothing is known yet."""
        place = (node, resource)
        return max([self._units.get(place, 0), *(units for units, _ in self._former.get(place, ()))])

    def exposing(self, resource: ResourceKey) -> set[NodeName]:
        """The nodes where that is more than 0."""
        return {node for node, key in {*self._units, *self._former} if key == resource}

    def in_vain(self, node: NodeName, resource: ResourceKey) -> float:
        """When it last was there for `patience` and nobody came; never: before all times."""
        return self._in_vain.get((node, resource), -math.inf)

    def due(self) -> float | None:
        """When that will have changed though nothing should happen."""
        calm = [until + self._grace for former in self._former.values() for _, until in former]
        tired = [since + self._patience for since in self._idle_since.values()] if self._patience < math.inf else []
        return min([*calm, *tired], default=None)
