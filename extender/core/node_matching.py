"""Node matching: which of all nodes accept a pod, at once; node by node it is `kube.node_match.accepts`.

A gang may have thousands of members of which each says something else of nodes. To ask each node about each of them
takes seconds; here a label that a pod names is one comparison of an array. What is kept is brought up to date when
somebody asks: a node costs nothing while it stays the same object. Must not know room.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from extender.core.cluster import Node
from extender.kube.names import NodeName
from extender.kube.node_match import (
    NAME_FIELD,
    PodRules,
    Requirement,
    SelectorTerm,
    Taint,
    accepts,
    int64,
    may_match,
    tolerates,
)

Mask = npt.NDArray[np.bool_]
"""By number of the node, whether it is so there."""
_SPARE = 64
V = TypeVar("V", bound=Hashable)


class _Values(Generic[V]):
    """What each node has of something, as a code. 0: nothing."""

    def __init__(self, nodes: int) -> None:
        self._codes: npt.NDArray[np.int64] = np.zeros(nodes, np.int64)
        self._code_of: dict[V, int] = {}
        self._integers: tuple[Mask, npt.NDArray[np.int64]] | None = None
        """By code, whether the value is a number, and which."""

    def set(self, number: int, value: V | None) -> None:
        """`value`: None for nothing."""
        if value is not None and value not in self._code_of:
            self._code_of[value] = len(self._code_of) + 1
            self._integers = None
        self._codes[number] = 0 if value is None else self._code_of[value]
        if len(self._code_of) > 2 * len(self._codes):
            self._forget()

    def _forget(self) -> None:
        """The values that no node has any more."""
        there, self._codes = np.unique(np.append(self._codes, 0), return_inverse=True)
        self._codes = self._codes[:-1]
        new = {int(code): number for number, code in enumerate(there)}
        self._code_of = {value: new[code] for value, code in self._code_of.items() if code in new}
        self._integers = None

    def grow(self, nodes: int) -> None:
        self._codes = np.append(self._codes, np.zeros(nodes - len(self._codes), np.int64))

    @property
    def some(self) -> Mask:
        """Where there is a value."""
        return np.not_equal(self._codes, 0)

    def among(self, values: Iterable[V]) -> Mask:
        """Where it is one of these."""
        codes = [code for value in values if (code := self._code_of.get(value)) is not None]
        if len(codes) <= 1:
            return self._codes == codes[0] if codes else np.zeros(len(self._codes), np.bool_)
        return self._where_code(codes)

    def where(self, holds: Callable[[V], bool]) -> Mask:
        """Where the value is one for which that holds. O(values)."""
        return self._where_code([code for value, code in self._code_of.items() if holds(value)])

    def compared(self, bound: int, by: Callable[[npt.NDArray[np.int64], int], Mask]) -> Mask:
        """Where the value is a number of which that holds. O(values) once."""
        if self._integers is None:
            read = [None, *(int64(str(value)) for value in self._code_of)]
            self._integers = np.array([each is not None for each in read]), np.array([each or 0 for each in read])
        is_number, numbers = self._integers
        return (is_number & by(numbers, bound))[self._codes]

    def _where_code(self, codes: Sequence[int]) -> Mask:
        table = np.zeros(len(self._code_of) + 1, np.bool_)
        table[codes] = True
        return table[self._codes]


class NodeMatching:
    """`nodes`: the table of nodes, as it is whenever somebody asks."""

    def __init__(self, nodes: Mapping[NodeName, Node]) -> None:
        self._nodes = nodes
        self._known: dict[NodeName, Node] = {}
        self._numbers: dict[NodeName, int] = {}
        self._size = _SPARE
        self._unused = list(range(self._size))
        self._labels: dict[str, _Values[str]] = {}
        self._keeping_away: _Values[tuple[tuple[Taint, ...], bool]] = _Values(self._size)
        """Its taints and whether it is cordoned."""
        self._none: _Values[str] = _Values(self._size)

    def accepts(self, name: NodeName, pod: PodRules) -> bool:
        """Whether the node is there and accepts the pod."""
        node = self._nodes.get(name)
        return node is not None and accepts(node, pod)

    def over(self, names: Sequence[NodeName]) -> Callable[[PodRules], Mask]:
        """Tells which of these nodes accept a pod, in their order; for as long as no node changes."""
        self._refresh()
        at = np.array([self._numbers.get(name, -1) for name in names], np.int64)
        there = at >= 0
        return lambda pod: self._accepting(pod)[at] & there

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        for name in self._known.keys() - self._nodes.keys():
            self._take_out(name)
        for name, node in self._nodes.items():
            if self._known.get(name) is not node:
                self._take_in(node)

    def _take_out(self, name: NodeName) -> None:
        number = self._numbers.pop(name)
        for key in self._known.pop(name).labels:
            self._set_label(key, number, None)
        self._keeping_away.set(number, None)
        self._unused.append(number)

    def _take_in(self, node: Node) -> None:
        known = self._known.get(node.name)
        if known is None:
            if not self._unused:
                self._grow()
            self._numbers[node.name] = self._unused.pop()
        number, before = self._numbers[node.name], {} if known is None else known.labels
        self._known[node.name] = node
        for key in before:
            if key not in node.labels:
                self._set_label(key, number, None)
        for key, value in node.labels.items():
            if before.get(key) != value:
                self._set_label(key, number, value)
        self._keeping_away.set(number, (node.taints, node.unschedulable))

    def _set_label(self, key: str, number: int, value: str | None) -> None:
        values = self._labels.get(key)
        if values is None:
            values = self._labels[key] = _Values(self._size)
        values.set(number, value)
        if value is None and not values.some.any():
            del self._labels[key]

    def _grow(self) -> None:
        self._unused += range(self._size, 2 * self._size)
        self._size *= 2
        for values in (*self._labels.values(), self._keeping_away, self._none):
            values.grow(self._size)

    # -- pods ------------------------------------------------------------------------------------------------------

    def _accepting(self, pod: PodRules) -> Mask:
        found = self._tolerated_by(pod)
        for key, value in pod.node_selector.items():
            found &= self._labels.get(key, self._none).among((value,))
        if pod.affinity:
            found &= np.logical_or.reduce([self._matching(term) for term in pod.affinity])
        return found

    def _tolerated_by(self, pod: PodRules) -> Mask:
        said = pod.tolerations
        return self._keeping_away.where(lambda kept: tolerates(said, *kept))

    def _matching(self, term: SelectorTerm) -> Mask:
        if not may_match(term):
            return np.zeros(self._size, np.bool_)
        found = np.ones(self._size, np.bool_)
        for each in term.labels:
            found &= self._label_holds(each)
        for each in term.fields:
            found &= self._field_holds(each)
        return found

    def _label_holds(self, requirement: Requirement) -> Mask:
        values = self._labels.get(requirement.key, self._none)
        match requirement.operator:
            case "In":
                return values.among(requirement.values)
            case "NotIn":
                return ~values.among(requirement.values)
            case "Exists":
                return values.some
            case "DoesNotExist":
                return ~values.some
        bound = int64(requirement.values[0])
        return values.compared(bound or 0, np.greater if requirement.operator == "Gt" else np.less)

    def _field_holds(self, requirement: Requirement) -> Mask:
        found = np.zeros(self._size, np.bool_)
        if requirement.key != NAME_FIELD:
            found[:] = requirement.values[0] == ""
        elif (number := self._numbers.get(NodeName(requirement.values[0]))) is not None:
            found[number] = True
        return found if requirement.operator == "In" else ~found


@dataclass(frozen=True, eq=False, slots=True)
class AcceptsPod:
    """Nodes accept the pod by their own rules, and by what is `judged` beside these; None: nothing is."""

    pod: PodRules
    matching: NodeMatching
    judged: Callable[[NodeName], bool] | None = None

    def __call__(self, name: NodeName) -> bool:
        return self.matching.accepts(name, self.pod) and (self.judged is None or self.judged(name))
