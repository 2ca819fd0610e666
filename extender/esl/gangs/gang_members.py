"""The members of one gang without an extender: which live, which are done, and where they run.

A place is done when its member succeeded, or was deleted while it ran and has no controller. A failed member, or one
deleted under its controller, is not done: its owner creates it again. Members are recognised by what they ask for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from extender.core.cluster import Pod
from extender.kube.names import NodeName, PodUid, ResourceKey

Place = tuple[NodeName, ResourceKey]


class Members:
    def __init__(self, namespace: str, places: Mapping[ResourceKey, int]) -> None:
        """`places`: how many members of each key there are to be."""
        self._namespace = namespace
        self._places = places
        self._living: dict[PodUid, Pod] = {}
        self._done: dict[ResourceKey, set[PodUid]] = {key: set() for key in places}
        self._turned_out: set[PodUid] = set()
        self.failed = 0
        """How many members have failed so far."""

    def __bool__(self) -> bool:
        """Whether any member lives."""
        return bool(self._living)

    def keys_of(self, pod: Pod) -> list[ResourceKey]:
        return [key for key in self._places if key in pod.requests]

    def see(self, pod: Pod) -> bool:
        """Takes the pod in; False: it is no member."""
        if pod.namespace != self._namespace or not self.keys_of(pod):
            return False
        if not pod.finished:
            self._living[pod.uid] = pod
            return True
        known = self._living.pop(pod.uid, None)
        if pod.succeeded or (pod.deleting and pod.node is not None and pod.owner is None):
            self._has_done(pod)
        elif known is not None:
            self.failed += 1
        return True

    def gone(self, name: str) -> None:
        for uid in [uid for uid, pod in self._living.items() if pod.name == name]:
            pod = self._living.pop(uid)
            if pod.node is not None and pod.owner is None:
                self._has_done(pod)

    def turn_out(self, uid: PodUid) -> None:
        """The ESL itself ends the pod, which therefore does not count as done."""
        self._turned_out.add(uid)

    def _has_done(self, pod: Pod) -> None:
        if pod.uid not in self._turned_out:
            for key in self.keys_of(pod):
                self._done[key].add(pod.uid)

    @property
    def all_done(self) -> bool:
        """Whether every place is done, and no member lives."""
        return not self._living and all(len(self._done[key]) >= places for key, places in self._places.items())

    def in_use(self) -> Counter[Place]:
        """How many members run at each place."""
        return Counter(place for place, _ in self._standing())

    def beyond(self, held: Mapping[Place, int]) -> Iterator[Pod]:
        """Youngest members beyond the held units of a place, except those already being ended."""
        room = Counter(held)
        for place, pod in self._standing():
            room[place] -= 1
            if room[place] < 0 and pod.uid not in self._turned_out:
                yield pod

    def _standing(self) -> list[tuple[Place, Pod]]:
        bound = sorted(
            (pod for pod in self._living.values() if pod.node is not None), key=lambda pod: (pod.created, pod.name)
        )
        return [((pod.node, key), pod) for pod in bound if pod.node is not None for key in self.keys_of(pod)]
