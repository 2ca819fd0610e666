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
        self._kinds: dict[str, dict[Hashable, Alike]] = {}
        """By namespace."""
        self._kind_of: dict[PodUid, tuple[str, Hashable]] = {}
        """Namespace, and what is the same for all of its kind."""
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
        self._kinds.setdefault(pod.namespace, {}).setdefault(kind[1], {})[pod.uid] = pod

    def _likeness(self, pod: Pod) -> tuple[str, Hashable]:
        """Of whom it is true alike that they could go to a node: see `core.policy.Policy`."""
        gang = pod.gang.key if isinstance(pod.gang, GangAsk) else None
        # What is held for a pod only that one may use.
        alone = pod.uid if self._ledger.holding(pod.uid) is not None else None
        kind = (gang, pod.priority, equivalence_of(pod), frozenset(pod.annotations.items()), pod.governed, alone)
        return pod.namespace, kind

    def kinds_of_others(self, namespace: str) -> Iterator[Pod]:
        """One of each kind of pods of other namespaces."""
        for other in self._kinds.keys() - {namespace}:
            yield from (next(iter(alike.values())) for alike in self._kinds[other].values())

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
        if uid in self._kind_of:
            namespace, kind = self._kind_of.pop(uid)
            kinds = self._kinds[namespace]
            del kinds[kind][uid]
            if not kinds[kind]:
                del kinds[kind]
            if not kinds:
                del self._kinds[namespace]

    def woken_in(self, namespaces: Callable[[str], bool]) -> Iterator[Pod]:
        """Those of these namespaces: they are dropped."""
        for kinds in [kinds for namespace, kinds in self._kinds.items() if namespaces(namespace)]:
            for pod in [pod for alike in kinds.values() for pod in alike.values()]:
                self.drop(pod.uid)
                yield pod

    def namespaces(self) -> Collection[str]:
        """Those of which pods are asleep."""
        return self._kinds.keys()

    def namespace_of(self, uid: PodUid) -> str | None:
        """That of a pod; None if it is not asleep."""
        return self._kind_of[uid][0] if uid in self._kind_of else None

    def kinds(self, namespace: str) -> Collection[Alike]:
        """All of the namespace, by kind."""
        return self._kinds.get(namespace, {}).values()

    def kinds_of(self, uids: Iterable[PodUid]) -> Iterator[tuple[Alike, Collection[PodUid]]]:
        """The kinds of those of these that are asleep, each with those that are of it."""
        kinds: dict[tuple[str, Hashable], dict[PodUid, None]] = {}
        for uid in uids:
            if (kind := self._kind_of.get(uid)) is not None:
                kinds.setdefault(kind, {})[uid] = None
        return ((self._kinds[namespace][kind], of_kind) for (namespace, kind), of_kind in kinds.items())

    def take_moved(self) -> Collection[PodUid]:
        """Those that have become alike others than before, since this was asked last."""
        taken, self._moved = self._moved, {}
        return taken
