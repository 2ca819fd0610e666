"""Resource sync: writes to nodes the resources that one policy wants there, and removes the others.

Knows what nodes have (the view), what is under way, what was refused, and which values other writers change. Each place
(a node and a resource) has one change under way at a time. Writes in quick succession may get one answer, and counting
answers would not show what the node may still have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from extender.core.common.backoff import doubled
from extender.esl.base import (
    CapacityConfirmed,
    CapacitySeen,
    EffectRefused,
    Event,
    NodeGone,
    NodeSeen,
    RemoveCapacity,
    SetCapacity,
)
from extender.esl.runtime.view import Place, View
from extender.kube.names import NodeName, ResourceKey

Wanted = Mapping[NodeName, Mapping[ResourceKey, int]]
"""By node, the policy's own resources that it should have; it should have no others."""

_AGAIN_SECONDS, _LONGEST_SECONDS = 1.0, 60.0


class ResourceSync:
    """`owns`: whether a resource is the policy's."""

    def __init__(self, view: View, owns: Callable[[ResourceKey], bool]) -> None:
        self._view = view
        self._owns = owns
        self._under_way: dict[Place, int] = {}
        self._refused: dict[Place, int] = {}
        self._fights: dict[Place, tuple[int, float]] = {}
        """Where another writer changed a value: how often, and until when to leave it alone."""
        self._now = 0.0

    # -- what nodes have ---------------------------------------------------------------------------------------------

    def places(self) -> Iterator[Place]:
        """The places where a node has any of it, or may have it by now."""
        return (place for place in {*self._view.units, *self._under_way} if self._owns(place[1]))

    def at_most(self, place: Place) -> int:
        """The most that the node may have of it: what it has confirmed, or what is under way."""
        return max(self._view.units.get(place, 0), self._under_way.get(place, 0))

    def will_have(self, place: Place) -> int:
        """Units, when what is under way has arrived."""
        return self._under_way.get(place, self._view.units.get(place, 0))

    def refuses(self, node: NodeName) -> bool:
        """Whether a write of some resource to the node was refused."""
        return any(place[0] == node for place in self._refused)

    @property
    def all_gone(self) -> bool:
        """Whether no node has any of it, except where removal was refused."""
        return not self._under_way and all(place in self._refused for place in self.places())

    # -- events ------------------------------------------------------------------------------------------------------

    def on_event(self, event: Event, now: float) -> None:
        """Takes in what the event says of the writes. Call it before the view takes the event."""
        match event:
            case CapacityConfirmed(node, resource):
                self._under_way.pop((node, resource), None)
            case CapacitySeen(node, resource) if self._is_contested(event):
                times, _ = self._fights.get((node, resource), (0, 0.0))
                self._fights[node, resource] = times + 1, now + doubled(_AGAIN_SECONDS, times, _LONGEST_SECONDS)
            case NodeSeen(node):
                self._forget_refusals(node.name)
            case NodeGone(name):
                # What is under way stays so until it is answered: the node may exist again when it arrives.
                self._forget_refusals(name)
            case EffectRefused(SetCapacity() | RemoveCapacity() as change) if self._owns(change.resource):
                place = (change.node, change.resource)
                self._under_way.pop(place, None)
                self._refused[place] = units_of(change)

    def _is_contested(self, event: CapacitySeen) -> bool:
        """Whether the event reports neither the known value nor the effect of a write under way."""
        place = (event.node, event.resource)
        return (
            self._owns(event.resource)
            and event.node in self._view.nodes
            and place not in self._under_way
            and event.units != self._view.units.get(place, 0)
        )

    def _forget_refusals(self, node: NodeName) -> None:
        for place in [place for place in self._refused if place[0] == node]:
            del self._refused[place]

    def forget_fights(self) -> None:
        """Forgets all changes by other writers."""
        self._fights.clear()

    def forget_all_trouble(self) -> None:
        """Everything refused or contested will be tried once more."""
        self._refused.clear()
        self._fights.clear()

    # -- effects -----------------------------------------------------------------------------------------------------

    def difference(self, wanted: Wanted, now: float) -> list[SetCapacity | RemoveCapacity]:
        """The changes from what nodes have to what they should have, which are then under way."""
        self._now = now
        self._fights = {place: fight for place, fight in self._fights.items() if now < fight[1] + _LONGEST_SECONDS}
        should = {
            (node, resource): units
            for node, of_node in wanted.items()
            if node in self._view.nodes
            for resource, units in of_node.items()
            if units > 0
        }
        effects: list[SetCapacity | RemoveCapacity] = []
        for place in sorted({*should, *self.places()}):
            units = should.get(place, 0)
            if place in self._under_way or units == self._view.units.get(place, 0):
                continue
            if now < self._fights.get(place, (0, now))[1] or self._refused.get(place) == units:
                continue
            self._under_way[place] = units
            effects.append(SetCapacity(*place, units) if units else RemoveCapacity(*place))
        return effects

    def due(self) -> float | None:
        """When a place that is left alone is to be tried again."""
        return min((until for _, until in self._fights.values() if until > self._now), default=None)


def units_of(change: SetCapacity | RemoveCapacity) -> int:
    return change.units if isinstance(change, SetCapacity) else 0
