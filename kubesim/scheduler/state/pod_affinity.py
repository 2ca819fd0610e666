"""Pod affinity: the required terms of the plugin InterPodAffinity, by labels and topology.

A term applies to its namespaces. An empty namespace selector means all namespaces. Any other adds none, because labels
of namespaces are not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Pair = tuple[str, str]
"""A topology key and its value."""

Requirements = tuple[tuple[str, str, tuple[str, ...]], ...]
"""Key, operator and values of each requirement; all must hold."""


@dataclass(frozen=True, slots=True)
class Term:
    topology_key: str
    namespaces: frozenset[str] | None
    """None: every namespace."""
    labels: Requirements | None
    """None: without a selector, the term matches no pod."""

    def matches(self, pod: Labelled) -> bool:
        if self.namespaces is not None and pod.key[0] not in self.namespaces:
            return False
        return self.labels is not None and selects(self.labels, pod.labels)


class Labelled(Protocol):
    @property
    def key(self) -> tuple[str, str]: ...

    @property
    def labels(self) -> Mapping[str, str]: ...


class Affine(Labelled, Protocol):
    @property
    def affinity(self) -> tuple[Term, ...]: ...

    @property
    def anti_affinity(self) -> tuple[Term, ...]: ...


def required_terms(affinity: Any, namespace: str, labels: Mapping[str, str]) -> tuple[Term, ...]:
    """The required terms of a podAffinity or podAntiAffinity of a pod in that namespace."""
    if not affinity:
        return ()
    return tuple(
        _term(each, namespace, labels) for each in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    )


def requirements(selector: Mapping[str, Any]) -> Requirements:
    """A LabelSelector as a list of requirements; an empty one matches everything."""
    exact = tuple((key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items())
    return exact + tuple(
        (each["key"], each["operator"], tuple(each.get("values") or ()))
        for each in selector.get("matchExpressions") or ()
    )


def selects(wanted: Iterable[tuple[str, str, tuple[str, ...]]], labels: Mapping[str, str]) -> bool:
    for key, operator, values in wanted:
        value = labels.get(key)
        match operator:
            case "In":
                holds = value in values
            case "NotIn":
                holds = value not in values
            case "Exists":
                holds = value is not None
            case _:
                holds = value is None
        if not holds:
            return False
    return True


def matches_all(terms: tuple[Term, ...], pod: Labelled) -> bool:
    """Whether there are terms and the pod matches each of them."""
    return bool(terms) and all(term.matches(pod) for term in terms)


class Neighbours:
    """For one pod: numbers of pods by topology that match its terms or repel it."""

    def __init__(self, pod: Affine) -> None:
        self._pod = pod
        self._wanted: Counter[Pair] = Counter()
        self._hated: Counter[Pair] = Counter()
        self._hating: Counter[Pair] = Counter()

    def copy(self) -> Neighbours:
        other = Neighbours(self._pod)
        other._wanted, other._hated, other._hating = self._wanted.copy(), self._hated.copy(), self._hating.copy()
        return other

    @property
    def indifferent(self) -> bool:
        """Whether pod affinity refuses no node for this pod."""
        return not self._hating and not self._pod.affinity and not self._pod.anti_affinity

    def count(self, other: Affine, labels: Mapping[str, str], by: int = 1) -> None:
        """Adds a pod on a node with these labels (by 1), or removes it (by -1)."""
        pod = self._pod
        for term in other.anti_affinity:
            if term.matches(pod):
                _add(self._hating, term, labels, by)
        if matches_all(pod.affinity, other):
            for term in pod.affinity:
                _add(self._wanted, term, labels, by)
        for term in pod.anti_affinity:
            if term.matches(other):
                _add(self._hated, term, labels, by)

    def wanted_in(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels meets the pod's affinity."""
        there = True
        for term in self._pod.affinity:
            value = labels.get(term.topology_key)
            if value is None:
                return False
            there = there and self._wanted[term.topology_key, value] > 0
        # If no pod matches yet, the first of a series with affinity to itself may go anywhere.
        return there or (not self._wanted.total() and matches_all(self._pod.affinity, self._pod))

    def hated_in(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels violates the pod's anti-affinity."""
        return any(
            self._hated[term.topology_key, labels[term.topology_key]] > 0
            for term in self._pod.anti_affinity
            if term.topology_key in labels
        )

    def hating_in(self, labels: Mapping[str, str]) -> bool:
        """Whether the anti-affinity of a pod that is there already refuses this pod."""
        return bool(self._hating) and any(self._hating[pair] > 0 for pair in labels.items())


def _add(counts: Counter[Pair], term: Term, labels: Mapping[str, str], by: int) -> None:
    value = labels.get(term.topology_key)
    if value is not None:
        counts[term.topology_key, value] += by


def _term(written: Mapping[str, Any], namespace: str, own: Mapping[str, str]) -> Term:
    names = written.get("namespaces") or ()
    selector = written.get("namespaceSelector")
    namespaces: frozenset[str] | None = frozenset(names)
    if selector is not None and not requirements(selector):
        namespaces = None
    elif selector is None and not names:
        namespaces = frozenset((namespace,))
    wanted = None if written.get("labelSelector") is None else requirements(written["labelSelector"])
    if wanted is not None:
        wanted += tuple((key, "In", (own[key],)) for key in written.get("matchLabelKeys") or () if key in own)
        wanted += tuple((key, "NotIn", (own[key],)) for key in written.get("mismatchLabelKeys") or () if key in own)
    return Term(written.get("topologyKey", ""), namespaces, wanted)
