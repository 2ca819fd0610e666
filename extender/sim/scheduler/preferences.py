"""Preferences: preferred node affinity and taints that only advise, as the plugins NodeAffinity and TaintToleration
score them. Both count relatively: the best of the nodes in question gets all of the plugin's points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from extender.adapters import objects
from extender.core import cluster
from extender.core.node_match import accepts
from extender.sim.scheduler.cache import NodeInfo
from extender.sim.scheduler.seen import SeenPod

_FULL = 100
_TAINTS_WEIGHT = 3
_AFFINITY_WEIGHT = 2
_ADVICE = "PreferNoSchedule"
_EVERYTHING = (cluster.Toleration(operator="Exists"),)


def preferences(pod: SeenPod, nodes: Sequence[NodeInfo]) -> Mapping[str, int]:
    """What each node gets for them, on top of its other scores; empty where all get the same."""
    liked, warned = _liked(pod, nodes), _warned(pod, nodes)
    most_liked, most_warned = max(liked.values(), default=0), max(warned.values(), default=0)
    points: dict[str, int] = {}
    for info in nodes:
        name = info.name
        if most_liked:
            points[name] = liked[name] * _FULL // most_liked * _AFFINITY_WEIGHT
        if most_warned:
            advice = _FULL - warned[name] * _FULL // most_warned
            points[name] = points.get(name, 0) + advice * _TAINTS_WEIGHT
    return points


def _liked(pod: SeenPod, nodes: Sequence[NodeInfo]) -> dict[str, int]:
    """The weights of the preferred terms that each node meets."""
    affinity = ((pod.raw["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "preferredDuringSchedulingIgnoredDuringExecution"
    )
    terms = [(each["weight"], _who_wants(pod, each["preference"])) for each in affinity or () if each.get("preference")]
    if not terms:
        return {}
    return {
        info.name: sum(weight for weight, wants in terms if info.node is not None and accepts(info.node.core, wants))
        for info in nodes
    }


def _who_wants(pod: SeenPod, term: object) -> cluster.Pod:
    """A pod that goes to the nodes which meet the term, and to no others."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {"containers": [], "affinity": {"nodeAffinity": required}}
    metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    wants = objects.to_pod(msgspec.convert({"metadata": metadata, "spec": spec}, objects.Pod), longest_wait=60.0)
    return replace(wants, tolerations=_EVERYTHING)


def _warned(pod: SeenPod, nodes: Sequence[NodeInfo]) -> dict[str, int]:
    """How many taints of each node advise against this pod."""
    if not any(info.node is not None and info.node.advises for info in nodes):
        return {}
    tolerations = tuple(replace(each, effect="") for each in pod.core.tolerations if each.effect in ("", _ADVICE))
    asking = replace(pod.core, node_selector={}, affinity=(), tolerations=tolerations)
    return {info.name: sum(not accepts(taint, asking) for taint in _advice(info)) for info in nodes}


def _advice(info: NodeInfo) -> Sequence[cluster.Node]:
    """For each taint that advises, a node that insists on it."""
    if info.node is None or not info.node.advises:
        return ()
    core = info.node.core
    return [
        cluster.Node(core.name, {}, taints=(replace(taint, effect="NoSchedule"),))
        for taint in core.taints
        if taint.effect == _ADVICE
    ]
