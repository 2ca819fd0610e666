"""Filters: decide which nodes a pod may use, with the plugins in kube-scheduler's order.

The plugins: NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit, PodTopologySpread,
InterPodAffinity. Volumes and resource claims are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from extender.kube.names import PODS, ResourceKey
from extender.kube.node_match import accepts
from kubesim.kinds import Json
from kubesim.scheduler.config import Profile
from kubesim.scheduler.plugins.topology_spread import Spreading
from kubesim.scheduler.state.cache import Cache, NodeInfo
from kubesim.scheduler.state.host_ports import clash
from kubesim.scheduler.state.pod_affinity import Neighbours
from kubesim.scheduler.state.seen import SeenNode, SeenPod, SeenPodRules
from kubesim.scheduler.state.verdicts import No

NODE_UNSCHEDULABLE = "NodeUnschedulable"
TAINT_TOLERATION = "TaintToleration"
NODE_AFFINITY = "NodeAffinity"
NODE_PORTS = "NodePorts"
FIT = "NodeResourcesFit"
INTER_POD_AFFINITY = "InterPodAffinity"

_CORDONED = No(NODE_UNSCHEDULABLE, ("node(s) were unschedulable",), True)
_TAINTED = No(TAINT_TOLERATION, ("node(s) had untolerated taint(s)",), True)
_NOT_SELECTED = No(NODE_AFFINITY, ("node(s) didn't match Pod's node affinity/selector",), True)
_PORT_TAKEN = No(NODE_PORTS, ("node(s) didn't have free ports for the requested pod ports",))
_NOT_WANTED = No(INTER_POD_AFFINITY, ("node(s) didn't match pod affinity rules",), True)
_HATED = No(INTER_POD_AFFINITY, ("node(s) didn't match pod anti-affinity rules",))
_HATING = No(INTER_POD_AFFINITY, ("node(s) didn't satisfy existing pods anti-affinity rules",))
_NATIVE = "kubernetes.io"


class Surroundings:
    """What one pod's filters need of the pods on all nodes. None: that aspect refuses no node."""

    __slots__ = ("neighbours", "spreading")

    def __init__(self, neighbours: Neighbours | None, spreading: Spreading | None) -> None:
        self.neighbours = neighbours
        self.spreading = spreading

    def copy(self) -> Surroundings:
        neighbours, spreading = self.neighbours, self.spreading
        return Surroundings(neighbours and neighbours.copy(), spreading and spreading.copy())

    def count(self, other: SeenPod, node: SeenNode, by: int = 1) -> None:
        """Adds the pod on the node (by 1), or removes it (by -1)."""
        if self.neighbours is not None:
            self.neighbours.count(other, node.labels, by)
        if self.spreading is not None:
            self.spreading.count(other, node, by)

    def refusal(self, node: SeenNode) -> No | None:
        if self.spreading is not None and (verdict := self.spreading.refusal(node)) is not None:
            return verdict
        return _repelled(self.neighbours, node) if self.neighbours is not None else None


class Filters:
    """The filters for one pod of one profile, at one moment."""

    def __init__(self, pod: SeenPod, profile: Profile, cache: Cache) -> None:
        self.pod = pod
        self._asked = checked(pod, profile)
        self.environment = _environment(pod, cache)

    def refusal(self, info: NodeInfo, environment: Surroundings | None = None) -> No | None:
        """None if the node can have the pod. `environment`: replaces the real surroundings."""
        node = info.node
        assert node is not None
        if not accepts(node.rules, self.pod.rules):
            return self._mismatch(node)
        if self.pod.ports and info.porting:
            used = (port for other in info.porting.values() for port in other.ports)
            if clash(self.pod.ports, used):
                return _PORT_TAKEN
        allocatable, requested = node.allocatable, info.requested
        for resource, asked in self._asked:
            if asked > allocatable.get(resource, 0) - requested.get(resource, 0):
                return self._shortage(info)
        around = environment or self.environment
        return around.refusal(node) if around is not None else None

    @cached_property
    def _anywhere(self) -> SeenPodRules:
        return self.pod.rules.anywhere()

    def _mismatch(self, node: SeenNode) -> No:
        if node.rules.unschedulable and not accepts(node.untainted, self._anywhere):
            return _CORDONED
        return _NOT_SELECTED if accepts(node.rules, self._anywhere) else _TAINTED

    def _shortage(self, info: NodeInfo) -> No:
        assert info.node is not None
        allocatable, requested = info.node.allocatable, info.requested
        reasons: list[str] = []
        hopeless = False
        for resource, asked in self._asked:
            there = allocatable.get(resource, 0)
            if asked > there - requested.get(resource, 0):
                reasons.append("Too many pods" if resource == PODS else f"Insufficient {resource}")
                hopeless = hopeless or (resource != PODS and asked > there)
        return No(FIT, tuple(reasons), hopeless)


def checked(pod: SeenPod, profile: Profile) -> Sequence[tuple[ResourceKey, int]]:
    """The requests that the fit checks: all except the profile's ignored resources."""
    resources, groups = profile.ignored_resources, profile.ignored_groups
    if not resources and not groups:
        return tuple(pod.requests.items())
    return tuple(
        (resource, units)
        for resource, units in pod.requests.items()
        if not (is_extended(resource) and (resource in resources or resource.partition("/")[0] in groups))
    )


def is_extended(resource: str) -> bool:
    return "/" in resource and _NATIVE not in resource.partition("/")[0]


def tolerates(node: SeenNode, pod: SeenPod) -> bool:
    """Whether the pod tolerates all taints of the node; other rules do not count."""
    return accepts(replace(node.rules, unschedulable=False), pod.rules.anywhere())


def tolerates_cordon(pod: SeenPod) -> bool:
    cordon = "node.kubernetes.io/unschedulable"
    return any(
        each.effect in ("", "NoSchedule")
        and each.key in ("", cordon)
        and (each.operator == "Exists" or (each.operator in ("", "Equal") and not each.value))
        for each in pod.rules.tolerations
    )


def selects(node: SeenNode, pod: SeenPod) -> bool:
    """Whether the pod's selector and required affinity match the node; taints do not count."""
    return accepts(node.rules, pod.rules.tolerating_all())


def named_nodes(pod: Json) -> tuple[frozenset[str] | None, str]:
    """The only nodes that required affinity names (None: any), and why there are none."""
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    names: frozenset[str] = frozenset()
    terms = affinity.get("nodeSelectorTerms") or ()
    for term in terms:
        of_term: frozenset[str] | None = None
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and field.get("operator") == "In":
                values = frozenset(field.get("values") or ())
                of_term = values if of_term is None else of_term & values
        if of_term is None:
            return None, ""
        names |= of_term
    if not terms:
        return None, ""
    return names, "" if names else "pod affinity terms conflict"


def _repelled(around: Neighbours, node: SeenNode) -> No | None:
    if not around.wanted_in(node.labels):
        return _NOT_WANTED
    if around.hated_in(node.labels):
        return _HATED
    return _HATING if around.hating_in(node.labels) else None


def _environment(pod: SeenPod, cache: Cache) -> Surroundings | None:
    """The surroundings, or None if pods elsewhere refuse no node."""
    neighbours, spreading = _neighbours(pod, cache), Spreading.of(pod, cache.all())
    return None if neighbours is None and spreading is None else Surroundings(neighbours, spreading)


def _neighbours(pod: SeenPod, cache: Cache) -> Neighbours | None:
    """The pod affinity state, or None if it refuses no node."""
    picky = bool(pod.affinity or pod.anti_affinity)
    if not picky and not cache.hating:
        return None
    around = Neighbours(pod)
    for info in cache.all() if picky else cache.hating.values():
        if info.node is not None:
            for other in (info.pods if picky else info.hating).values():
                around.count(other, info.node.labels)
    return None if around.indifferent else around
