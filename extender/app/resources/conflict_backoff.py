"""Conflict backoff: slows down repairs of a node's status that another writer changes back.

The first repairs are immediate: a kubelet that restarts, or an editor, makes one difference and stops. Repeated changes
are repaired more and more slowly, down to once in 60 s, node by node. After 300 s without a repair all is forgotten. A
newly desired state is never held back. The module is pure: time is an argument, in seconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from extender.core.common.backoff import doubled
from extender.kube.names import NodeName, ResourceKey

_AT_ONCE = 3
"""Number of repairs in a row that are made without a pause."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_FORGOTTEN_AFTER = 300.0
"""Seconds without a repair."""


@dataclass(slots=True)
class _Fight:
    repairs: int = 0
    last: float = 0.0
    told: bool = False

    @property
    def pause(self) -> float:
        """Seconds between the last repair and the next."""
        if self.repairs < _AT_ONCE:
            return 0.0
        return doubled(_FIRST_PAUSE, self.repairs - _AT_ONCE, _LONGEST_PAUSE)


class ConflictBackoff:
    def __init__(self) -> None:
        self._left: dict[NodeName, Mapping[ResourceKey, int]] = {}
        """What Escher's last write of each node left there."""
        self._fights: dict[NodeName, _Fight] = {}

    def left(self, node: NodeName, desired: Mapping[ResourceKey, int]) -> None:
        """Escher has written `desired` to the node."""
        self._left[node] = desired

    def nodes(self) -> set[NodeName]:
        """Returns the nodes that this object has records of."""
        return {*self._left, *self._fights}

    def forget(self, node: NodeName) -> None:
        """The node is gone."""
        self._left.pop(node, None)
        self._fights.pop(node, None)

    def is_repair(self, node: NodeName, desired: Mapping[ResourceKey, int], differing: Iterable[ResourceKey]) -> bool:
        """Returns whether Escher had written all that differs, with the values still desired."""
        left = self._left.get(node)
        return left is not None and all(desired.get(each) == left.get(each) for each in differing)

    def wait(self, node: NodeName, now: float) -> float:
        """Returns the seconds until this node may be repaired."""
        fight = self._known(node, now)
        return 0.0 if fight is None else max(0.0, fight.last + fight.pause - now)

    def repaired(self, node: NodeName, now: float) -> None:
        """Records a repair."""
        fight = self._known(node, now) or self._fights.setdefault(node, _Fight())
        fight.repairs += 1
        fight.last = now

    def is_to_be_told(self, node: NodeName, now: float) -> bool:
        """Returns whether the next repair makes it a conflict; True once: the caller reports it."""
        fight = self._known(node, now)
        if fight is None or fight.told or fight.repairs + 1 < _AT_ONCE:
            return False
        fight.told = True
        return True

    def count(self, now: float) -> int:
        """Returns the number of nodes on which repairs are held back."""
        return sum(1 for node in list(self._fights) if (fight := self._known(node, now)) is not None and fight.pause)

    def _known(self, node: NodeName, now: float) -> _Fight | None:
        fight = self._fights.get(node)
        if fight is not None and now - fight.last > _FORGOTTEN_AFTER:
            del self._fights[node]
            return None
        return fight
