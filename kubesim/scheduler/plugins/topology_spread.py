"""Topology spread: the plugin PodTopologySpread, which spreads similar pods over domains.

A DoNotSchedule constraint refuses nodes (`Spreading`), a ScheduleAnyway constraint only scores them (`spread_scores`).
Pods get no default constraints from Services or ReplicaSets, because such controllers are missing here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from extender.kube.node_match import Toleration, accepts
from kubesim.scheduler.state.cache import NodeInfo
from kubesim.scheduler.state.pod_affinity import Requirements, requirements, selects
from kubesim.scheduler.state.seen import SeenNode, SeenPod
from kubesim.scheduler.state.verdicts import No

TOPOLOGY_SPREAD = "PodTopologySpread"
_SKEWED = No(TOPOLOGY_SPREAD, ("node(s) didn't match pod topology spread constraints",))
_NO_TOPOLOGY = No(
    TOPOLOGY_SPREAD, ("node(s) didn't match pod topology spread constraints (missing required label)",), True
)
MUST, SHOULD = "DoNotSchedule", "ScheduleAnyway"
_HOSTNAME = "kubernetes.io/hostname"
_FULL, _WEIGHT = 100, 2
_EVERYTHING = (Toleration(operator="Exists"),)


@dataclass(frozen=True, slots=True)
class Spread:
    topology_key: str
    labels: Requirements | None
    """Requirements for counted pods. None: without a selector, no pod counts."""
    max_skew: int
    min_domains: int
    respects_affinity: bool
    """Whether only nodes count that match the pod's node selector and affinity."""
    respects_taints: bool
    """Whether only nodes count whose taints the pod tolerates."""

    def includes(self, labels: Mapping[str, str]) -> bool:
        return self.labels is not None and selects(self.labels, labels)


def spreads(pod: SeenPod, action: str) -> tuple[Spread, ...]:
    """The pod's constraints with that `whenUnsatisfiable`."""
    written = pod.raw["spec"].get("topologySpreadConstraints") or ()
    return tuple(_spread(each, pod.labels) for each in written if each.get("whenUnsatisfiable") == action)


def _spread(written: Mapping[str, Any], own: Mapping[str, str]) -> Spread:
    labels: Requirements | None = None
    if written.get("labelSelector") is not None:
        same = [(key, "In", (own[key],)) for key in written.get("matchLabelKeys") or () if key in own]
        labels = (*requirements(written["labelSelector"]), *same)
    return Spread(
        written.get("topologyKey", ""),
        labels,
        written.get("maxSkew", 1),
        written.get("minDomains") or 1,
        written.get("nodeAffinityPolicy") != "Ignore",
        written.get("nodeTaintsPolicy") == "Honor",
    )


def has_all_keys(labels: Mapping[str, str], wanted: Iterable[Spread]) -> bool:
    return all(each.topology_key in labels for each in wanted)


class Spreading:
    """Pod counts by topology value, for each DoNotSchedule constraint of a pod."""

    def __init__(self, pod: SeenPod, wanted: Sequence[Spread]) -> None:
        self._pod = pod
        self._wanted = wanted
        self._counts: list[dict[str, int]] = [{} for _ in wanted]
        self._least: list[int | None] = [None for _ in wanted]

    @classmethod
    def of(cls, pod: SeenPod, nodes: Iterable[NodeInfo]) -> Spreading | None:
        """The counts on these nodes; None if the pod has no such constraint."""
        wanted = spreads(pod, MUST)
        if not wanted:
            return None
        found = cls(pod, wanted)
        eligible = _Eligible(pod)
        for info in nodes:
            node = info.node
            if node is None or not has_all_keys(node.labels, wanted):
                continue
            for spread, counts in zip(wanted, found._counts, strict=True):
                if eligible(spread, node):
                    value = node.labels[spread.topology_key]
                    counts[value] = counts.get(value, 0) + _counted(spread, pod, info)
        return found

    def copy(self) -> Spreading:
        other = Spreading(self._pod, self._wanted)
        other._counts, other._least = [dict(each) for each in self._counts], list(self._least)
        return other

    def count(self, other: SeenPod, node: SeenNode, by: int) -> None:
        """Adds the pod (by 1) or removes it (by -1).

        As in kube-scheduler, this includes terminating pods, which were not counted before."""
        if other.namespace != self._pod.namespace or not has_all_keys(node.labels, self._wanted):
            return
        eligible = _Eligible(self._pod)
        for number, spread in enumerate(self._wanted):
            if spread.includes(other.labels) and eligible(spread, node):
                value = node.labels[spread.topology_key]
                self._counts[number][value] = self._counts[number].get(value, 0) + by
                self._least[number] = None

    def refusal(self, node: SeenNode) -> No | None:
        """None if one more pod there breaks no constraint."""
        for number, spread in enumerate(self._wanted):
            if spread.topology_key not in node.labels:
                return _NO_TOPOLOGY
            if self._is_skewed(number, spread, node):
                return _SKEWED
        return None

    def _is_skewed(self, number: int, spread: Spread, node: SeenNode) -> bool:
        there = self._counts[number].get(node.labels[spread.topology_key], 0)
        return there + spread.includes(self._pod.labels) - self._minimum(number) > spread.max_skew

    def _minimum(self, number: int) -> int:
        counts = self._counts[number]
        if len(counts) < self._wanted[number].min_domains:
            return 0
        least = self._least[number]
        if least is None:
            least = self._least[number] = min(counts.values())
        return least


class _Eligible:
    """Whether a node counts for a constraint of the pod."""

    def __init__(self, pod: SeenPod) -> None:
        rules = pod.rules
        self._picky = bool(rules.node_selector or rules.affinity)
        self._anywhere = rules.anywhere()
        self._tolerating = rules.tolerating_all()

    def __call__(self, spread: Spread, node: SeenNode) -> bool:
        if spread.respects_affinity and self._picky and not accepts(node.rules, self._tolerating):
            return False
        if not spread.respects_taints or not node.rules.taints:
            return True
        return accepts(replace(node.rules, unschedulable=False), self._anywhere)


def _counted(spread: Spread, pod: SeenPod, info: NodeInfo) -> int:
    """The counted pods on the node; 0 for an empty selector, as in kube-scheduler."""
    if not spread.labels:
        return 0
    return sum(
        not other.deleting and other.namespace == pod.namespace and spread.includes(other.labels)
        for other in info.pods.values()
    )


def spread_scores(pod: SeenPod, feasible: Sequence[NodeInfo], everywhere: Iterable[NodeInfo]) -> Mapping[str, int]:
    """The score of each feasible node for ScheduleAnyway constraints; empty without any."""
    wanted = spreads(pod, SHOULD)
    if not wanted:
        return {}
    scored = [info for info in feasible if info.node is not None and has_all_keys(info.node.labels, wanted)]
    counts = _counts_of(pod, wanted, scored, everywhere)
    raw: dict[str, int] = {}
    for info in scored:
        assert info.node is not None
        score = 0.0
        for spread, by_value in zip(wanted, counts, strict=True):
            if spread.topology_key == _HOSTNAME:
                there, places = _counted(spread, pod, info), len(scored)
            else:
                there, places = by_value[info.node.labels[spread.topology_key]], len(by_value)
            score += there * math.log(places + 2) + spread.max_skew - 1
        # Halves round up, as in Go for positive numbers.
        raw[info.name] = math.floor(score + 0.5)
    most, least = max(raw.values(), default=0), min(raw.values(), default=0)
    return {
        info.name: 0
        if info.name not in raw
        else _WEIGHT * (_FULL * (most + least - raw[info.name]) // most if most else _FULL)
        for info in feasible
    }


def _counts_of(
    pod: SeenPod, wanted: Sequence[Spread], scored: Sequence[NodeInfo], everywhere: Iterable[NodeInfo]
) -> list[dict[str, int]]:
    """Per constraint, counts by topology value of feasible nodes; none for host names."""
    counts: list[dict[str, int]] = [
        {info.node.labels[spread.topology_key]: 0 for info in scored if info.node is not None}
        if spread.topology_key != _HOSTNAME
        else {}
        for spread in wanted
    ]
    eligible = _Eligible(pod)
    for info in everywhere:
        node = info.node
        if node is None or not has_all_keys(node.labels, wanted):
            continue
        for spread, by_value in zip(wanted, counts, strict=True):
            value = node.labels[spread.topology_key]
            if value in by_value and eligible(spread, node):
                by_value[value] += _counted(spread, pod, info)
    return counts
