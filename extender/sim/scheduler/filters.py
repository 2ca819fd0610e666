"""Filters: the plugins that say which nodes can have a pod, in the order in which kube-scheduler asks them.

NodeUnschedulable, TaintToleration, NodeAffinity, NodeResourcesFit, InterPodAffinity. Ports, volumes, topology spread
and resource claims are not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from extender.core.cluster import Pod, Toleration
from extender.core.names import PODS, ResourceKey
from extender.core.node_match import accepts
from extender.sim.kinds import Json
from extender.sim.scheduler.cache import Cache, NodeInfo
from extender.sim.scheduler.config import Profile
from extender.sim.scheduler.pod_affinity import Neighbours
from extender.sim.scheduler.seen import SeenNode, SeenPod
from extender.sim.scheduler.verdicts import No

NODE_UNSCHEDULABLE = "NodeUnschedulable"
TAINT_TOLERATION = "TaintToleration"
NODE_AFFINITY = "NodeAffinity"
FIT = "NodeResourcesFit"
INTER_POD_AFFINITY = "InterPodAffinity"

_CORDONED = No(NODE_UNSCHEDULABLE, ("node(s) were unschedulable",), True)
_TAINTED = No(TAINT_TOLERATION, ("node(s) had untolerated taint(s)",), True)
_NOT_SELECTED = No(NODE_AFFINITY, ("node(s) didn't match Pod's node affinity/selector",), True)
_NOT_WANTED = No(INTER_POD_AFFINITY, ("node(s) didn't match pod affinity rules",), True)
_HATED = No(INTER_POD_AFFINITY, ("node(s) didn't match pod anti-affinity rules",))
_HATING = No(INTER_POD_AFFINITY, ("node(s) didn't satisfy existing pods anti-affinity rules",))
_EVERYTHING = (Toleration(operator="Exists"),)
_NATIVE = "kubernetes.io"


class Filters:
    """The filters for one pod of one profile, at one moment."""

    def __init__(self, pod: SeenPod, profile: Profile, cache: Cache) -> None:
        self.pod = pod
        self._core = pod.core
        self._asked = checked(pod, profile)
        self.neighbours = _neighbours(pod, cache)

    def refusal(self, info: NodeInfo, neighbours: Neighbours | None = None) -> No | None:
        """None: the node can have the pod. `neighbours`: where they are not those that are really there."""
        node = info.node
        assert node is not None
        if not accepts(node.core, self._core):
            return self._mismatch(node)
        allocatable, requested = node.core.allocatable, info.requested
        for resource, asked in self._asked:
            if asked > allocatable.get(resource, 0) - requested.get(resource, 0):
                return self._shortage(info)
        around = neighbours or self.neighbours
        return _repelled(around, node) if around is not None else None

    @cached_property
    def _unselective(self) -> Pod:
        """The pod without selector and affinity."""
        return replace(self._core, node_selector={}, affinity=())

    def _mismatch(self, node: SeenNode) -> No:
        if node.core.unschedulable and not accepts(node.bare, self._unselective):
            return _CORDONED
        return _NOT_SELECTED if accepts(node.core, self._unselective) else _TAINTED

    def _shortage(self, info: NodeInfo) -> No:
        assert info.node is not None
        allocatable, requested = info.node.core.allocatable, info.requested
        reasons: list[str] = []
        hopeless = False
        for resource, asked in self._asked:
            there = allocatable.get(resource, 0)
            if asked > there - requested.get(resource, 0):
                reasons.append("Too many pods" if resource == PODS else f"Insufficient {resource}")
                hopeless = hopeless or (resource != PODS and asked > there)
        return No(FIT, tuple(reasons), hopeless)


def checked(pod: SeenPod, profile: Profile) -> Sequence[tuple[ResourceKey, int]]:
    """What the fit looks at: everything but the resources that the profile has it ignore."""
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
    """Whether no taint of the node keeps the pod away, whatever else does."""
    schedulable = replace(node.core, unschedulable=False)
    return accepts(schedulable, replace(pod.core, node_selector={}, affinity=()))


def tolerates_cordon(pod: SeenPod) -> bool:
    cordon = "node.kubernetes.io/unschedulable"
    return any(
        each.effect in ("", "NoSchedule")
        and each.key in ("", cordon)
        and (each.operator == "Exists" or (each.operator in ("", "Equal") and not each.value))
        for each in pod.core.tolerations
    )


def selects(node: SeenNode, pod: SeenPod) -> bool:
    """Whether the pod's selector and required affinity let it there, whatever taints do."""
    return accepts(node.core, replace(pod.core, tolerations=_EVERYTHING))


def named_nodes(pod: Json) -> tuple[frozenset[str] | None, str]:
    """The only nodes that required affinity names by metadata.name, None for any; and why it can be none of them."""
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


def _neighbours(pod: SeenPod, cache: Cache) -> Neighbours | None:
    """None: pod affinity keeps the pod from no node."""
    picky = bool(pod.affinity or pod.anti_affinity)
    if not picky and not cache.hating:
        return None
    around = Neighbours(pod)
    for info in cache.all() if picky else cache.hating.values():
        if info.node is not None:
            for other in (info.pods if picky else info.hating).values():
                around.count(other, info.node.labels)
    return None if around.indifferent else around
