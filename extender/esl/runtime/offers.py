"""Offers: which units nodes were recently offered, what may still be taken, and what nothing took.

News of a pod's binding may come after the answer by which a node lost a resource. So a policy that gives one group what
another had must wait (`grace`), or both are there. An application that sees only pods of its own namespace may take a
full node for one with room. So a unit that no pod has taken for `patience`, though a pod waits, is tried elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from extender.esl.runtime.view import Place
from extender.kube.names import NodeName, ResourceKey


class Offers:
    """Remembers nothing after a restart: pods' holdings are known then, and places are retried."""

    def __init__(self, grace: float, patience: float) -> None:
        """`grace` and `patience` are in seconds."""
        self._grace, self._patience = grace, patience
        self._units: dict[Place, int] = {}
        self._former: dict[Place, list[tuple[int, float]]] = {}
        """The larger numbers that each place had before, and when each ended."""
        self._idle_since: dict[Place, float] = {}
        self._in_vain: dict[Place, float] = {}

    def note(self, offered: Mapping[Place, int], idle: Collection[Place], now: float) -> None:
        """Sets the units that exist, or may exist, by place, and that none exist elsewhere.

        `idle`: the places with units left although a pod waits for them."""
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
        """The most units that the node had, or may have had, since `grace` ago.

        Pods that are not yet known may take as many units there."""
        place = (node, resource)
        return max([self._units.get(place, 0), *(units for units, _ in self._former.get(place, ()))])

    def exposing(self, resource: ResourceKey) -> set[NodeName]:
        """The nodes where `exposed` is more than 0."""
        return {node for node, key in {*self._units, *self._former} if key == resource}

    def in_vain(self, node: NodeName, resource: ResourceKey) -> float:
        """When units there were last offered for `patience` without effect; -inf: never."""
        return self._in_vain.get((node, resource), -math.inf)

    def due(self) -> float | None:
        """When these answers will change though nothing happens."""
        calm = [until + self._grace for former in self._former.values() for _, until in former]
        tired = [since + self._patience for since in self._idle_since.values()] if self._patience < math.inf else []
        return min([*calm, *tired], default=None)
