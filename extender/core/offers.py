"""Offers: on which nodes kube-scheduler would have single members, where that is told in full.

Members that are alike to us may differ in what only kube-scheduler knows, such as volumes: the offer for one is then
not that for another. Knows which offers were short enough to be complete, and what was learnt of each pod; it is a
hint, and may be out of date. Must not know the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.core.cluster import Pod
from extender.core.gang import Gang
from extender.core.names import NodeName, PodUid

SAMPLE_FLOOR = 100
"""kube-scheduler never samples fewer nodes than this: a shorter list is every node that its own plugins allow."""
_REMEMBERED = 4096


class Offers:
    def __init__(self) -> None:
        self._of: dict[PodUid, frozenset[NodeName]] = {}

    def learn(self, pod: Pod, sent: Sequence[NodeName]) -> None:
        """These nodes were sent for the pod."""
        if len(sent) >= SAMPLE_FLOOR:
            return
        self._of.pop(pod.uid, None)
        self._of[pod.uid] = frozenset(sent)
        if len(self._of) > _REMEMBERED:
            del self._of[next(iter(self._of))]

    def of(self, pod: Pod) -> frozenset[NodeName] | None:
        """Where the pod may be, as was told last; None if that is not known."""
        return self._of.get(pod.uid)

    def differ(self, gang: Gang, first: Pod, sent: Sequence[NodeName]) -> bool:
        """Whether this offer for the first member is not to be taken for everyone's: it has volumes or devices of its
        own, or another member was offered other nodes. It is remembered."""
        if len(sent) >= SAMPLE_FLOOR:
            return False
        self.learn(first, sent)
        if first.unknown_asks:
            return True
        return any(
            not known.issuperset(sent)
            for uid in gang.members
            if uid != first.uid and (known := self._of.get(uid)) is not None
        )
