"""Cache: the nodes, and the pods on each as the scheduler counts them: bound and assumed.

Totals are updated as pods come and go. A pod is assumed from the decision until its binding is seen, and counts
meanwhile. Pods of every scheduler count, terminating ones too; the caller adds no finished ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.kube.names import PodUid, ResourceKey
from kubesim.scheduler.state.seen import SeenNode, SeenPod

Shape = tuple[int, int, int, int]
"""What scoring uses of a pod."""


class NodeInfo:
    """A node and its pods. `node` is None while only its pods are known."""

    __slots__ = ("hating", "node", "pods", "porting", "requested", "scored_cpu", "scored_memory", "scores")

    def __init__(self, node: SeenNode | None = None) -> None:
        self.node = node
        self.pods: dict[PodUid, SeenPod] = {}
        self.requested: dict[ResourceKey, int] = {}
        self.scored_cpu = 0
        self.scored_memory = 0
        self.hating: dict[PodUid, SeenPod] = {}
        """Its pods with required anti-affinity."""
        self.porting: dict[PodUid, SeenPod] = {}
        """Its pods with host ports."""
        self.scores: dict[Shape, int] = {}
        """The score of pods of each shape; cleared on any change."""

    @property
    def name(self) -> str:
        assert self.node is not None
        return self.node.name

    def add(self, pod: SeenPod) -> None:
        if pod.uid in self.pods:
            self.remove(pod.uid)
        self.pods[pod.uid] = pod
        self._count(pod, 1)
        if pod.anti_affinity:
            self.hating[pod.uid] = pod
        if pod.ports:
            self.porting[pod.uid] = pod

    def remove(self, uid: PodUid) -> SeenPod | None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._count(pod, -1)
            self.hating.pop(uid, None)
            self.porting.pop(uid, None)
        return pod

    def copy(self) -> NodeInfo:
        """An independent copy, without the scores."""
        other = NodeInfo(self.node)
        other.pods, other.requested, other.hating = dict(self.pods), dict(self.requested), dict(self.hating)
        other.porting = dict(self.porting)
        other.scored_cpu, other.scored_memory = self.scored_cpu, self.scored_memory
        return other

    def _count(self, pod: SeenPod, by: int) -> None:
        requested = self.requested
        for resource, units in pod.requests.items():
            requested[resource] = requested.get(resource, 0) + by * units
        self.scored_cpu += by * pod.scored_cpu
        self.scored_memory += by * pod.scored_memory
        self.scores.clear()


class Cache:
    def __init__(self) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        """By name, including nodes that are only known from pods."""
        self.hating: dict[str, NodeInfo] = {}
        """The nodes with pods that have required anti-affinity."""
        self._zones: dict[tuple[str, str], dict[str, NodeInfo]] = {}
        self._order: list[NodeInfo] | None = []
        self._where: dict[PodUid, str] = {}
        self._assumed: dict[PodUid, None] = {}

    # -- nodes ---------------------------------------------------------------------------------------------------

    def set_node(self, node: SeenNode) -> None:
        """Adds the node or replaces its data."""
        info = self.nodes.get(node.name)
        if info is None:
            info = self.nodes[node.name] = NodeInfo()
        if info.node is None or info.node.zone != node.zone:
            if info.node is not None:
                self._leave_zone(info.node)
            self._zones.setdefault(node.zone, {})[node.name] = info
            self._order = None
        info.node = node
        info.scores.clear()

    def remove_node(self, name: str) -> None:
        """Removes the node; its pods stay known until they are removed too.

        A caller that still holds its NodeInfo can go on with the old data.
        """
        info = self.nodes.get(name)
        if info is None or info.node is None:
            return
        self._leave_zone(info.node)
        del self.nodes[name]
        self.hating.pop(name, None)
        for pod in info.pods.values():
            self._where.pop(pod.uid)
            self._put(pod)

    def all(self) -> Sequence[NodeInfo]:
        """Every node, taken in turn from the zones, in kube-scheduler's order."""
        if self._order is None:
            order: list[NodeInfo] = []
            rows = [list(zone.values()) for zone in self._zones.values()]
            for index in range(max(map(len, rows), default=0)):
                order.extend(row[index] for row in rows if index < len(row))
            self._order = order
        return self._order

    def get(self, name: str) -> NodeInfo | None:
        """The node, or None if only pods of it are known."""
        info = self.nodes.get(name)
        return info if info is not None and info.node is not None else None

    def _leave_zone(self, node: SeenNode) -> None:
        zone = self._zones[node.zone]
        del zone[node.name]
        if not zone:
            del self._zones[node.zone]
        self._order = None

    # -- pods ----------------------------------------------------------------------------------------------------

    def assume(self, pod: SeenPod) -> bool:
        """Counts the pod on `pod.node` from now on. False: the cache already has it."""
        if pod.uid in self._where:
            return False
        self._put(pod)
        self._assumed[pod.uid] = None
        return True

    def forget(self, pod: SeenPod) -> bool:
        """Removes an assumed pod that will not be bound. False: it is known as bound, and stays."""
        if pod.uid not in self._where:
            return True
        if pod.uid not in self._assumed or self._where[pod.uid] != pod.node:
            return False
        self.remove(pod.uid)
        return True

    def is_assumed(self, uid: PodUid) -> bool:
        return uid in self._assumed

    def assumed(self, uid: PodUid) -> SeenPod | None:
        return self.nodes[self._where[uid]].pods[uid] if uid in self._assumed else None

    def set(self, pod: SeenPod) -> None:
        """Adds or updates a pod that is bound to `pod.node`."""
        self.remove(pod.uid)
        self._put(pod)

    def remove(self, uid: PodUid) -> None:
        """Removes the pod, if the cache has it."""
        name = self._where.pop(uid, None)
        self._assumed.pop(uid, None)
        if name is None:
            return
        info = self.nodes[name]
        info.remove(uid)
        if not info.hating:
            self.hating.pop(name, None)
        if info.node is None and not info.pods:
            del self.nodes[name]

    def _put(self, pod: SeenPod) -> None:
        info = self.nodes.get(pod.node)
        if info is None:
            info = self.nodes[pod.node] = NodeInfo()
        info.add(pod)
        if info.hating:
            self.hating[pod.node] = info
        self._where[pod.uid] = pod.node
