"""Strangers: pods of schedulers that do not ask us. They are facts on nodes, whatever labels they bear.

Knows which schedulers are ours, and keeps what strangers ask for, should their scheduler turn out to be one of them.
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
        """Those that say something which would concern us, as they are told of."""

    @property
    def ours(self) -> AbstractSet[str]:
        """The schedulers that ask us."""
        return self._ours

    def are_ours(self, scheduler: str) -> bool:
        return scheduler in self._ours

    def asks(self, pod: Pod) -> bool:
        """Whether the pod is a stranger's and says what would concern us."""
        return pod.gang is not None and pod.scheduler not in self._ours

    def remember(self, pod: Pod) -> None:
        """The pod is there, and looks like this."""
        if self.asks(pod):
            self._pods[pod.uid] = pod
        elif self._pods:
            self._pods.pop(pod.uid, None)

    def forget(self, uid: PodUid) -> None:
        """The pod is gone."""
        self._pods.pop(uid, None)

    def learn(self, scheduler: str) -> list[Pod]:
        """This scheduler asks us. Its pods, the living first."""
        self._ours.add(scheduler)
        theirs = [pod for pod in self._pods.values() if pod.scheduler == scheduler]
        for pod in theirs:
            del self._pods[pod.uid]
        return sorted(theirs, key=lambda pod: pod.finished)
