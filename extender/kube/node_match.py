"""Node match: whether a node accepts a pod, apart from the room on it.

It copies kube-scheduler 1.36, so that Escher plans a gang only on nodes that its scheduler would choose too: plugins
NodeUnschedulable, TaintToleration and NodeAffinity; ToleratesTaint of k8s.io/api; labels.NewRequirement and
component-helpers' nodeaffinity.

A requirement may be one that Kubernetes cannot parse (an unknown operator, In without values, Gt of a word). Its term
then matches no node, as in Kubernetes. The API server validates keys, and admits no pod with a malformed one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Requirement:
    """One line of a node selector term: `key operator values`, as In, NotIn or Exists."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """Requirements on labels and on the node's own name; all must hold."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    _parses: bool | None = field(default=None, init=False, compare=False, repr=False)
    """Whether Kubernetes can parse the term; None: not yet known. Kept, as each node needs it."""

    @property
    def may_match(self) -> bool:
        """False if the term is empty, or if Kubernetes cannot parse it. It then matches no node."""
        if self._parses is None:
            said = (*map(_parses, self.labels), *map(_field_parses, self.fields))
            object.__setattr__(self, "_parses", bool(said) and all(said))
        return self._parses is True


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's consent to a taint. Empty key with Exists: all taints. Empty effect: all effects."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


class NodeRules(Protocol):
    """What a node requires of its pods."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, str]: ...

    @property
    def taints(self) -> tuple[Taint, ...]: ...

    @property
    def unschedulable(self) -> bool: ...


class PodRules(Protocol):
    """What a pod requires of its nodes."""

    @property
    def node_selector(self) -> Mapping[str, str]: ...

    @property
    def affinity(self) -> tuple[SelectorTerm, ...]:
        """Required node affinity: at least one term must hold; empty means no requirement."""
        ...

    @property
    def tolerations(self) -> tuple[Toleration, ...]: ...


NAME_FIELD = "metadata.name"
"""The only field of nodes that terms may name."""
_CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_REPELLING = frozenset({"NoSchedule", "NoExecute"})
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_PLAIN_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,40}")
_LARGEST = 2**63 - 1


def accepts(node: NodeRules, pod: PodRules) -> bool:
    """Whether cordons, taints, node selector and required node affinity allow the pod there."""
    if (node.unschedulable or node.taints) and not tolerates(pod.tolerations, node.taints, node.unschedulable):
        return False
    labels = node.labels
    for key, value in pod.node_selector.items():
        if labels.get(key) != value:
            return False
    return not pod.affinity or any(_term_matches(term, node) for term in pod.affinity)


def tolerates(tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...], unschedulable: bool) -> bool:
    """Whether the tolerations are enough for a node with these taints and this cordon."""
    if unschedulable and not any(_tolerates(t, _CORDONED) for t in tolerations):
        return False
    return all(
        any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
        if taint.effect in _REPELLING
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            # Alpha since 1.35 (TaintTolerationComparisonOperators); without that gate the API server refuses such pods.
            asked, there = _plain_int64(toleration.value), _plain_int64(taint.value)
            if asked is None or there is None:
                return False
            return there < asked if toleration.operator == "Lt" else there > asked
        case _:
            return False


def _term_matches(term: SelectorTerm, node: NodeRules) -> bool:
    for each in term.labels:
        if not _label_holds(each, node):
            return False
    for each in term.fields:
        if not _field_holds(each, node):
            return False
    # Most terms do not match, so the costly check comes last.
    return term.may_match


def _parses(requirement: Requirement) -> bool:
    values = requirement.values
    match requirement.operator:
        case "In" | "NotIn":
            well_formed = len(values) > 0
        case "Exists" | "DoesNotExist":
            well_formed = not values
        case "Gt" | "Lt":
            well_formed = len(values) == 1 and int64(values[0]) is not None
        case _:
            well_formed = False
    # Also for Gt and Lt, so that a negative number parses nowhere: '-' cannot begin a label value.
    return well_formed and all(_LABEL_VALUE.fullmatch(value) for value in values)


def _label_holds(requirement: Requirement, node: NodeRules) -> bool:
    """Arbitrary for a requirement that Kubernetes cannot parse."""
    value = node.labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    there, bound = int64(value or ""), int64(requirement.values[0] if requirement.values else "")
    if there is None or bound is None:
        return False
    return there > bound if requirement.operator == "Gt" else there < bound


def _field_parses(requirement: Requirement) -> bool:
    return requirement.operator in ("In", "NotIn") and len(requirement.values) == 1


def _field_holds(requirement: Requirement, node: NodeRules) -> bool:
    """Arbitrary for a requirement that Kubernetes cannot parse."""
    value = node.name if requirement.key == NAME_FIELD else ""
    return (value in requirement.values) is (requirement.operator == "In")


def int64(text: str) -> int | None:
    """The number as Go's strconv.ParseInt reads it, or None."""
    return _within(int(text)) if _INTEGER.fullmatch(text) else None


def _plain_int64(text: str) -> int | None:
    """The number if it is written without plus sign and leading zeros, or None."""
    return _within(int(text)) if _PLAIN_INTEGER.fullmatch(text) else None


def _within(number: int) -> int | None:
    return number if -_LARGEST - 1 <= number <= _LARGEST else None
