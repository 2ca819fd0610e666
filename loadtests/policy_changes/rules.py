"""Rules: the meaning of policies by docs/policies: where a pod or a gang may be among others.

It walks over all pods and nodes with its own arithmetic. It imports nothing of the service, and so cannot share a
mistake with it. It implements anti-affinity, balance, co-location and data locality; the other types refuse no node.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

POLICY = "escher.dev/policy"
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
Json = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Policy:
    """A policy in force, as its author wrote it."""

    type: str
    parameters: Json = field(default_factory=dict)
    selector: Json | None = None

    @property
    def place(self) -> str:
        key: str = self.parameters.get("topology_key", HOSTNAME)
        return key

    def selects(self, labels: Mapping[str, str]) -> bool:
        if self.selector is None:
            return False
        alike = all(labels.get(key) == value for key, value in self.selector.get("match_labels", {}).items())
        return alike and all(_holds(each, labels) for each in self.selector.get("match_expressions", ()))


Policies = Mapping[str, Policy]
"""The policies of one namespace, by name."""


def _holds(requirement: Json, labels: Mapping[str, str]) -> bool:
    key, values = requirement["key"], requirement.get("values", ())
    match requirement["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    raise ValueError(f"no such operator: {requirement}")


@dataclass(frozen=True)
class PodSeen:
    """The part of a pod that never changes."""

    name: str
    labels: Mapping[str, str]
    named: tuple[str, ...] = ()
    """The policies that the pod names."""
    gang: str = ""


@dataclass(frozen=True)
class Ground:
    """Nodes that never change, by name, with labels; and the nodes of each data."""

    nodes: Mapping[str, Mapping[str, str]]
    data: Mapping[str, frozenset[str]]


Standing = Sequence[tuple[PodSeen, str]]
"""Pods, each with its node."""


def policy_matching(pod: PodSeen, policies: Policies) -> list[str]:
    """Returns the names of the policies that match the pod, and of missing ones that it names."""
    chosen = {name for name, policy in policies.items() if policy.selects(pod.labels)}
    return sorted(chosen.union(pod.named))


def why_not(
    pod: PodSeen,
    node: str,
    others: Standing,
    policies: Policies,
    ground: Ground,
    possible: Standing | None = None,
) -> str:
    """Returns why the pod must not be on the node beside the others; "": it may.

    `possible`: pods that may have counted, where more pods allow more; None: the others.
    """
    own = policy_matching(pod, policies)
    for name in own:
        policy = policies.get(name)
        if policy is None:
            return f"{name} does not exist"
        if wrong := _against(
            pod, node, name, policy, others, policies, ground, others if possible is None else possible
        ):
            return f"{name} ({policy.type}): {wrong}"
    for other, where in others:
        for name in policy_matching(other, policies):
            policy = policies.get(name)
            if policy is not None and policy.type == "anti-affinity":
                away = set(policy.parameters.get("away_from", ())) & set(own)
                if away and _same(ground, policy.place, node, where):
                    return f"{other.name} on {where} is governed by {name}, which keeps away from {sorted(away)}"
    return ""


def _against(
    pod: PodSeen,
    node: str,
    name: str,
    policy: Policy,
    others: Standing,
    policies: Policies,
    ground: Ground,
    possible: Standing,
) -> str:
    match policy.type:
        case "anti-affinity":
            for away in policy.parameters.get("away_from") or (name,):
                for other, where in _of(away, others, policies):
                    if _same(ground, policy.place, node, where):
                        return f"{other.name} of {away} is on {where}"
        case "balance":
            places = {labels[policy.place] for labels in ground.nodes.values()}
            place = ground.nodes[node][policy.place]
            there = 1 + _by_place(name, others, policies, policy.place, ground)[place]
            if tasks := policy.parameters.get("tasks", 0):
                most = -(-tasks // len(places))
            else:
                counts = _by_place(name, possible, policies, policy.place, ground)
                # It may itself be the emptiest domain; then its own pod does not count.
                fewest = min(counts[each] if each != place else there - 1 for each in places)
                most = fewest + policy.parameters.get("max_skew", 1)
            if there > most:
                return f"{place} has {there} with it, and may have {most}"
        case "co-location":
            elsewhere = [where for _, where in _of(name, others, policies)]
            near = (where for _, where in _of(name, possible, policies))
            if elsewhere and not any(_same(ground, policy.place, node, where) for where in near):
                return f"its others are on {sorted(set(elsewhere))}"
        case "data-locality" if policy.parameters.get("required", True):
            for each in policy.parameters["data"]:
                if node not in ground.data.get(each, ()):
                    return f"{each} is not there"
    return ""


def _of(name: str, pods: Standing, policies: Policies) -> Iterator[tuple[PodSeen, str]]:
    """Returns the pods that the policy matches; a missing policy matches none."""
    if name not in policies:
        return iter(())
    return ((pod, node) for pod, node in pods if name in policy_matching(pod, policies))


def _by_place(name: str, pods: Standing, policies: Policies, key: str, ground: Ground) -> Counter[str]:
    return Counter(ground.nodes[node][key] for _, node in _of(name, pods, policies))


def _same(ground: Ground, key: str, one: str, other: str) -> bool:
    return ground.nodes[one][key] == ground.nodes[other][key]


def where(unit: Sequence[PodSeen], others: Standing, policies: Policies, ground: Ground) -> tuple[str, ...] | None:
    """Returns allowed nodes for all pods of the unit, which are equal, or None."""
    for nodes in itertools.combinations_with_replacement(ground.nodes, len(unit)):
        placed = list(zip(unit, nodes, strict=True))
        if _are_together(placed, others, policies, ground) and all(
            not why_not(pod, node, [*others, *placed[:number], *placed[number + 1 :]], policies, ground)
            for number, (pod, node) in enumerate(placed)
        ):
            return nodes
    return None


def _are_together(placed: Standing, others: Standing, policies: Policies, ground: Ground) -> bool:
    """All are in the domains of earlier pods, or in one: each having a neighbour is not enough."""
    for name in policy_matching(placed[0][0], policies):
        policy = policies.get(name)
        if policy is not None and policy.type == "co-location":
            first = {ground.nodes[node][policy.place] for _, node in _of(name, others, policies)}
            own = {ground.nodes[node][policy.place] for _, node in placed}
            if not own <= first if first else len(own) > 1:
                return False
    return True
