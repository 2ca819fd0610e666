"""Foreign pods, whose scheduler does not call Escher: facts on nodes, whatever their labels.

What they ask for is kept, in case their scheduler turns out to call Escher.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from extender.core.cluster import Pod
from extender.kube.names import PodUid


class ForeignPods:
    def __init__(self, ours: Iterable[str]) -> None:
        self._ours = set(ours)
        self._pods: dict[PodUid, Pod] = {}
        """Foreign pods that ask for something that would concern Escher, as reported."""

    @property
    def ours(self) -> AbstractSet[str]:
        """The schedulers that call Escher."""
        return self._ours

    def are_ours(self, scheduler: str) -> bool:
        return scheduler in self._ours

    def asks(self, pod: Pod) -> bool:
        """Whether the pod is foreign and asks for something that would concern Escher."""
        return pod.gang is not None and pod.scheduler not in self._ours

    def remember(self, pod: Pod) -> None:
        if self.asks(pod):
            self._pods[pod.uid] = pod
        elif self._pods:
            self._pods.pop(pod.uid, None)

    def forget(self, uid: PodUid) -> None:
        """The pod is gone."""
        self._pods.pop(uid, None)

    def note_scheduler(self, scheduler: str) -> list[Pod]:
        """The scheduler calls Escher. Returns its pods, the unfinished ones first."""
        self._ours.add(scheduler)
        theirs = [pod for pod in self._pods.values() if pod.scheduler == scheduler]
        for pod in theirs:
            del self._pods[pod.uid]
        return sorted(theirs, key=lambda pod: pod.finished)
