"""Pods that our filters turned away everywhere, and that nothing has woken since.

Those that are alike are judged as one: a change on a node is looked at once for each kind of pods, not for each pod.
Who is woken is woken once, by a change that would let it pass. Must not know why pods are turned away: see `policies`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence

from extender.core.cluster import Pod
from extender.core.equivalence import equivalence_of
from extender.core.gang_ask import GangAsk
from extender.core.ledger import Ledger
from extender.kube.names import NodeName, PodUid


class TurnedAway:
    """`passes`: whether the pod could go to a node now. `order`: where it stands among those that wait, the lower the
    earlier."""

    def __init__(
        self,
        ledger: Ledger,
        passes: Callable[[Pod], Callable[[NodeName], bool]],
        order: Callable[[Sequence[Pod]], tuple[float, ...]] = lambda pods: (),
    ) -> None:
        self._ledger = ledger
        self._passes = passes
        self._order = order
        self._kinds: dict[Hashable, dict[PodUid, Pod]] = {}
        self._kind_of: dict[PodUid, Hashable] = {}
        self._sampled: dict[PodUid, int] = {}
        """How often each was woken for nothing but to be offered other nodes, since anything has changed for it."""

    def __contains__(self, uid: PodUid) -> bool:
        return uid in self._kind_of

    def __iter__(self) -> Iterator[PodUid]:
        return iter(self._kind_of)

    def add(self, pod: Pod) -> None:
        """It sleeps, and is as told."""
        kind = self._likeness(pod)
        if self._kind_of.get(pod.uid) != kind:
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

    def woken_by(self, nodes: Collection[NodeName]) -> Iterator[Pod]:
        """Those that could go to one of the nodes, which have changed: they are dropped. O(kinds x nodes)."""
        return self._woken(self._kinds.values(), nodes) if nodes else iter(())

    def woken_anywhere(self, namespace: str, nodes: Collection[NodeName], *, all_kinds: bool) -> Iterator[Pod]:
        """Those of the namespace that could go to one of the nodes, of which none need have changed: they are dropped.
        If not `all_kinds`, those of them that policies govern. O(kinds x nodes)."""
        firsts = ((next(iter(alike.values())), alike) for alike in self._kinds.values())
        concerned = (alike for like, alike in firsts if like.namespace == namespace and (all_kinds or like.governed))
        return self._woken(concerned, nodes)

    def woken_of(self, uids: Iterable[PodUid], nodes: Collection[NodeName]) -> Iterator[Pod]:
        """Those of these that could go to one of the nodes: they are dropped. O(kinds x nodes)."""
        kinds: dict[Hashable, dict[PodUid, Pod]] = {}
        for uid in uids:
            if (kind := self._kind_of.get(uid)) is not None:
                kinds.setdefault(kind, {})[uid] = self._kinds[kind][uid]
        return self._woken(kinds.values(), nodes)

    def _woken(self, kinds: Iterable[dict[PodUid, Pod]], nodes: Collection[NodeName]) -> Iterator[Pod]:
        """In the order in which they wait."""
        found = [alike for alike in kinds if any(map(self._passes(next(iter(alike.values()))), nodes))]
        for alike in sorted(found, key=lambda alike: self._order([next(iter(alike.values()))])):
            for uid, pod in list(alike.items()):
                self.drop(uid)
                yield pod
