"""Sums, by common property, what bound pods and pods with a held node use."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from extender.core.cluster import Pod
from extender.core.ledger.units import add_in
from extender.kube.names import PodUid, ResourceKey
from extender.kube.quantities import Vector

K = TypeVar("K", bound=Hashable)


class InUse(Generic[K]):
    """`of`: the units in use, by common property."""

    def __init__(self) -> None:
        self.of: dict[K, dict[ResourceKey, int]] = {}
        self._known: dict[PodUid, tuple[Sequence[K], Vector, bool]] = {}
        """Each pod's properties, what it asks for, and whether it is bound."""
        self._counted: dict[PodUid, tuple[Sequence[K], Vector]] = {}
        self._held: set[PodUid] = set()
        """Pods that have a node held for them, known or not."""

    def put(self, pod: Pod, keys: Sequence[K]) -> bool:
        """Sets the pod's state; without keys, it does not count. Returns whether use changed."""
        if pod.node is not None:
            self._held.discard(pod.uid)
        if keys:
            self._known[pod.uid] = (keys, pod.requests, pod.node is not None)
        elif self._known.pop(pod.uid, None) is None:
            return False
        return self._count(pod.uid)

    def drop(self, uid: PodUid) -> bool:
        """Removes the pod. Returns whether the units in use changed."""
        self._known.pop(uid, None)
        self._held.discard(uid)
        return self._count(uid)

    def hold(self, held: Mapping[PodUid, bool]) -> bool:
        """Sets whether each of these pods has a node held. Returns whether the units changed."""
        # A plan holds thousands of nodes at once, mostly for pods without such a property.
        on = {uid for uid, is_held in held.items() if is_held}
        self._held |= on
        self._held -= held.keys() - on
        changed = [self._count(uid) for uid in held if uid in self._known] if self._known else ()
        return any(changed)

    def _count(self, uid: PodUid) -> bool:
        keys, requests, bound = self._known.get(uid, ((), {}, False))
        counts = (keys, requests) if keys and (bound or uid in self._held) else None
        before = self._counted.get(uid)
        if counts == before:
            return False
        for (of, units), by in [(each, by) for each, by in ((before, -1), (counts, +1)) if each is not None]:
            for key in of:
                for resource, number in units.items():
                    add_in(self.of, key, resource, by * number)
        if counts is None:
            del self._counted[uid]
        else:
            self._counted[uid] = counts
        return True
