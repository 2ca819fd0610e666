"""Preferences: scores of NodeAffinity (preferred terms) and TaintToleration (PreferNoSchedule)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from extender.kube import objects
from extender.kube.node_match import accepts
from extender.kube.reading import required_terms
from kubesim.scheduler.state.cache import NodeInfo
from kubesim.scheduler.state.seen import SeenNodeRules, SeenPod, SeenPodRules

_FULL = 100
_TAINTS_WEIGHT = 3
_AFFINITY_WEIGHT = 2
_ADVICE = "PreferNoSchedule"


def preferences(pod: SeenPod, nodes: Sequence[NodeInfo]) -> Mapping[str, int]:
    """The points of each node, relative to the best; empty if all nodes get the same."""
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
    """The sum of the weights of the preferred terms that each node meets."""
    affinity = ((pod.raw["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "preferredDuringSchedulingIgnoredDuringExecution"
    )
    terms = [(each["weight"], _who_wants(each["preference"])) for each in affinity or () if each.get("preference")]
    if not terms:
        return {}
    return {
        info.name: sum(weight for weight, wants in terms if info.node is not None and accepts(info.node.rules, wants))
        for info in nodes
    }


def _who_wants(term: object) -> SeenPodRules:
    """Rules that accept exactly the nodes that meet the term."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    affinity = msgspec.convert({"nodeAffinity": required}, objects.Affinity)
    return SeenPodRules({}, required_terms(affinity), ()).tolerating_all()


def _warned(pod: SeenPod, nodes: Sequence[NodeInfo]) -> dict[str, int]:
    """The number of PreferNoSchedule taints of each node that the pod does not tolerate."""
    if not any(info.node is not None and info.node.advises for info in nodes):
        return {}
    tolerations = tuple(replace(each, effect="") for each in pod.rules.tolerations if each.effect in ("", _ADVICE))
    asking = replace(pod.rules.anywhere(), tolerations=tolerations)
    return {info.name: sum(not accepts(taint, asking) for taint in _advice(info)) for info in nodes}


def _advice(info: NodeInfo) -> Sequence[SeenNodeRules]:
    """For each PreferNoSchedule taint, node rules with that taint as NoSchedule."""
    if info.node is None or not info.node.advises:
        return ()
    rules = info.node.rules
    return [
        SeenNodeRules(rules.name, {}, (replace(taint, effect="NoSchedule"),))
        for taint in rules.taints
        if taint.effect == _ADVICE
    ]
