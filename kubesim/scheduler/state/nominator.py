"""Nominator: pods nominated to a node, whose room pods of no higher priority leave free."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from extender.kube.names import PodUid
from kubesim.scheduler.state.seen import PodKey, SeenPod


class Nominator:
    """The nominated pods. `known`: returns a pod's current state, None if it is gone."""

    def __init__(self, known: Callable[[PodKey], SeenPod | None]) -> None:
        self._known = known
        self._nodes: dict[PodUid, str] = {}
        self._pods: dict[str, dict[PodUid, SeenPod]] = {}

    def __bool__(self) -> bool:
        return bool(self._pods)

    def add(self, pod: SeenPod, node: str | None = None) -> None:
        """Nominates the pod to `node`; None: to the node in its own status, if any."""
        self.remove(pod.uid)
        if node is None:
            node = pod.nominated
            if not node:
                return
        known = self._known(pod.key)
        if known is None or known.node:
            return
        self._nodes[pod.uid] = node
        self._pods.setdefault(node, {})[pod.uid] = pod

    def update(self, old: SeenPod, new: SeenPod) -> None:
        """Replaces the pod; it keeps its nomination if neither status names a node."""
        node = self._nodes.get(old.uid) if not old.nominated and not new.nominated else None
        self.remove(old.uid)
        self.add(new, node)

    def remove(self, uid: PodUid) -> None:
        node = self._nodes.pop(uid, None)
        if node is not None:
            pods = self._pods[node]
            del pods[uid]
            if not pods:
                del self._pods[node]

    def of(self, node: str) -> Sequence[SeenPod]:
        pods = self._pods.get(node)
        return list(pods.values()) if pods else ()
