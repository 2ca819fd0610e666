"""Pods that our filters turned away everywhere, and that nothing has woken since.

Those that are alike are judged as one: see `waking`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator

from extender.core.cluster import Pod
from extender.core.equivalence import equivalence_of
from extender.core.gang_ask import GangAsk
from extender.core.ledger import Ledger
from extender.kube.names import PodUid

Alike = dict[PodUid, Pod]
"""Pods that one and the same is true of."""


class TurnedAway:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kinds: dict[Hashable, Alike] = {}
        self._kind_of: dict[PodUid, Hashable] = {}
        self._moved: dict[PodUid, None] = {}
        self._sampled: dict[PodUid, int] = {}
        """How often each was woken for nothing but to be offered other nodes, since anything has changed for it."""

    def __contains__(self, uid: PodUid) -> bool:
        return uid in self._kind_of

    def __iter__(self) -> Iterator[PodUid]:
        return iter(self._kind_of)

    def add(self, pod: Pod) -> None:
        """It sleeps, and is as told."""
        kind = self._likeness(pod)
        before = self._kind_of.get(pod.uid)
        if before != kind:
            if before is not None:
                self._moved[pod.uid] = None
            self._take_out(pod.uid)
            self._kind_of[pod.uid] = kind
        self._kinds.setdefault(kind, {})[pod.uid] = pod

    def _likeness(self, pod: Pod) -> Hashable:
        """Of whom it is true alike that they could go to a node: see `core.policy.Policy`."""
        gang = pod.gang.key if isinstance(pod.gang, GangAsk) else None
        # What is held for a pod only that one may use.
        alone = pod.uid if self._ledger.holding(pod.uid) is not None else None
        kind = (pod.namespace, gang, pod.priority, equivalence_of(pod), frozenset(pod.annotations.items()))
        return (*kind, pod.governed, alone)

    def kinds_of_others(self, namespace: str) -> Iterator[Pod]:
        """One of each kind of pods of other namespaces."""
        firsts = (next(iter(alike.values())) for alike in self._kinds.values())
        return (pod for pod in firsts if pod.namespace != namespace)

    def drop(self, uid: PodUid) -> None:
        """It is not asleep, or it is gone."""
        self._sampled.pop(uid, None)
        self._take_out(uid)

    def woken_for_a_sample(self, uid: PodUid, most: int) -> bool:
        """It is not asleep, for other nodes may be offered to it; but for the last `most` times none was that helps."""
        if self._sampled.get(uid, 0) >= most:
            return False
        self._sampled[uid] = self._sampled.get(uid, 0) + 1
        self._take_out(uid)
        return True

    def _take_out(self, uid: PodUid) -> None:
        kind = self._kind_of.pop(uid, None)
        if kind is not None:
            alike = self._kinds[kind]
            del alike[uid]
            if not alike:
                del self._kinds[kind]

    def woken_in(self, namespaces: Callable[[str], bool]) -> Iterator[Pod]:
        """Those of these namespaces: they are dropped."""
        for pod in [pod for alike in self._kinds.values() for pod in alike.values() if namespaces(pod.namespace)]:
            self.drop(pod.uid)
            yield pod

    def kinds(self) -> Iterator[Alike]:
        """All of them, by kind."""
        return iter(self._kinds.values())

    def kinds_of(self, uids: Iterable[PodUid]) -> Iterator[tuple[Alike, Collection[PodUid]]]:
        """The kinds of those of these that are asleep, each with those that are of it."""
        kinds: dict[Hashable, dict[PodUid, None]] = {}
        for uid in uids:
            if (kind := self._kind_of.get(uid)) is not None:
                kinds.setdefault(kind, {})[uid] = None
        return ((self._kinds[kind], of_kind) for kind, of_kind in kinds.items())

    def take_moved(self) -> Collection[PodUid]:
        """Those that have become alike others than before, since this was asked last."""
        taken, self._moved = self._moved, {}
        return taken
