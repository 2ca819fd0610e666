"""Index of node labels and taints: which nodes accept a pod, for all nodes at once.

`kube.node_match.accepts` answers the same for one node. A gang may have thousands of members with different selectors,
and one call for each member and node takes minutes. Here each requirement is one operation on a set of nodes. A set of
nodes is an integer with one bit a node. The index compares node objects by identity and reads only those that changed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from operator import or_

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
    Toleration,
    accepts,
    int64,
    tolerates,
)

_Nodes = int
"""A set of nodes: one bit for each node number."""


class _Values:
    """The nodes by their value of one label, or of one kind of taint."""

    def __init__(self) -> None:
        self.nodes: dict[str, _Nodes] = {}
        self.some: _Nodes = 0
        """The nodes with any value."""
        self._numbers: list[int] | None = None
        """The values that are integers, sorted; None: outdated, because a node changed."""
        self._up_to: list[_Nodes] = []
        """For each prefix of `_numbers`: the nodes with one of its values."""

    def add(self, value: str, node: _Nodes) -> None:
        self.nodes[value] = self.nodes.get(value, 0) | node
        self.some |= node
        self._numbers = None

    def remove(self, value: str, node: _Nodes) -> None:
        if left := self.nodes[value] & ~node:
            self.nodes[value] = left
        else:
            del self.nodes[value]
        self.some &= ~node
        self._numbers = None

    def any_of(self, values: Iterable[str]) -> _Nodes:
        return reduce(or_, (self.nodes.get(value, 0) for value in values), 0)

    def below(self, bound: int) -> _Nodes:
        within = self._in_order()
        return self._up_to[bisect_left(within, bound)]

    def above(self, bound: int) -> _Nodes:
        within = self._in_order()
        return self._up_to[-1] & ~self._up_to[bisect_right(within, bound)]

    def _in_order(self) -> list[int]:
        if self._numbers is None:
            read = ((int64(value), nodes) for value, nodes in self.nodes.items())
            known = sorted((number, nodes) for number, nodes in read if number is not None)
            self._numbers = [number for number, _ in known]
            self._up_to = list(accumulate((nodes for _, nodes in known), or_, initial=0))
        return self._numbers


class NodeMatching:
    """`nodes` is a live table: its owner replaces a node that changed, and never edits it."""

    def __init__(self, nodes: Mapping[NodeName, Node]) -> None:
        self._nodes = nodes
        self._version = 0
        """Changes whenever the index finds that nodes have changed."""
        self._begin()

    def _begin(self) -> None:
        """Empties the index."""
        self._known: dict[NodeName, Node] = {}
        self._numbers: dict[NodeName, int] = {}
        self._unused: list[int] = []
        """Numbers of nodes that are gone."""
        self._there: _Nodes = 0
        self._labels: dict[str, _Values] = {}
        self._taints: dict[tuple[str, str], _Values] = {}
        """By key and effect that repels; the API server allows a node one taint of each."""
        self._cordoned: _Nodes = 0

    def accepts(self, name: NodeName, pod: PodRules) -> bool:
        """Whether the node exists and accepts the pod."""
        node = self._nodes.get(name)
        return node is not None and accepts(node, pod)

    def over(
        self, names: Sequence[NodeName], *, respects_taints: bool = True
    ) -> Callable[[PodRules], npt.NDArray[np.bool_]]:
        """Returns a function from a pod to a mask over `names`; it is valid until a node changes.

        Without `heeds_taints` it ignores taints and cordons."""
        self._refresh()
        version = self._version
        size = len(self._known) + len(self._unused)
        # No node has the number `size`: it represents names that are not in the table.
        at = np.array([self._numbers.get(name, size) for name in names], np.int64)

        def accepting(pod: PodRules) -> npt.NDArray[np.bool_]:
            assert version == self._version, "nodes have changed since"
            found = self._chosen_by(pod)
            if respects_taints:
                found &= ~self._closed_to(pod)
            octets = np.frombuffer(found.to_bytes(size // 8 + 1, "little"), np.uint8)
            return np.unpackbits(octets, bitorder="little").view(np.bool_)[at]

        return accepting

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        gone = self._known.keys() - self._nodes.keys()
        changed = [node for name, node in self._nodes.items() if self._known.get(name) is not node]
        self._version += bool(gone or changed)
        if 2 * (len(gone) + len(changed)) > len(self._known):
            # To index all nodes again costs less than to remove this many.
            gone, changed = set(), list(self._nodes.values())
            self._begin()
        for name in gone:
            self._take_out(name)
        for node in changed:
            if node.name in self._known:
                self._take_out(node.name)
            self._take_in(node)

    def _take_out(self, name: NodeName) -> None:
        node, number = self._known.pop(name), self._numbers.pop(name)
        bit = 1 << number
        self._unused.append(number)
        self._there &= ~bit
        self._cordoned &= ~bit
        for key, value in node.labels.items():
            self._labels[key].remove(value, bit)
            if not self._labels[key].some:
                del self._labels[key]
        taints = _repelling(node)
        for taint in taints:
            self._taints[taint.key, taint.effect].remove(taint.value, bit)
        for kind in {(taint.key, taint.effect) for taint in taints}:
            if not self._taints[kind].some:
                del self._taints[kind]

    def _take_in(self, node: Node) -> None:
        number = self._unused.pop() if self._unused else len(self._known)
        bit = 1 << number
        self._known[node.name], self._numbers[node.name] = node, number
        self._there |= bit
        self._cordoned |= bit if node.unschedulable else 0
        for key, value in node.labels.items():
            self._labels.setdefault(key, _Values()).add(value, bit)
        for taint in _repelling(node):
            self._taints.setdefault((taint.key, taint.effect), _Values()).add(taint.value, bit)

    # -- pods ------------------------------------------------------------------------------------------------------

    def _closed_to(self, pod: PodRules) -> _Nodes:
        found = self._cordoned if self._cordoned and not tolerates(pod.tolerations, (), True) else 0
        for (key, effect), values in self._taints.items():
            tolerated = 0
            for each in pod.tolerations:
                if each.key in ("", key) and each.effect in ("", effect):
                    tolerated |= _tolerated(each, values, key, effect)
            found |= values.some & ~tolerated
        return found

    def _chosen_by(self, pod: PodRules) -> _Nodes:
        found = self._there
        for key, value in pod.node_selector.items():
            found &= self._valued(key).nodes.get(value, 0)
        if pod.affinity:
            found &= reduce(or_, map(self._matching, pod.affinity))
        return found

    def _matching(self, term: SelectorTerm) -> _Nodes:
        found = self._there
        for each in term.labels:
            found &= self._label_holds(each)
        for each in term.fields:
            found &= self._field_holds(each)
        return found if found and term.may_match else 0

    def _label_holds(self, requirement: Requirement) -> _Nodes:
        """The answer is arbitrary for a requirement that Kubernetes cannot parse."""
        values = self._valued(requirement.key)
        match requirement.operator:
            case "In":
                return values.any_of(requirement.values)
            case "NotIn":
                return self._there & ~values.any_of(requirement.values)
            case "Exists":
                return values.some
            case "DoesNotExist":
                return self._there & ~values.some
        if len(requirement.values) != 1 or (bound := int64(requirement.values[0])) is None:
            return 0
        return values.above(bound) if requirement.operator == "Gt" else values.below(bound)

    def _field_holds(self, requirement: Requirement) -> _Nodes:
        """The answer is arbitrary for a requirement that Kubernetes cannot parse."""
        if len(requirement.values) != 1:
            return 0
        [value] = requirement.values
        if requirement.key == NAME_FIELD:
            number = self._numbers.get(NodeName(value))
            found = 0 if number is None else 1 << number
        else:
            found = 0 if value else self._there
        return found if requirement.operator == "In" else self._there & ~found

    def _valued(self, key: str) -> _Values:
        return self._labels.get(key, _NO_VALUES)


_NO_VALUES = _Values()


class NodeTable(dict[NodeName, Node]):
    """Nodes by name, with their index."""

    def __init__(self) -> None:
        super().__init__()
        self.matching = NodeMatching(self)


def matching(nodes: Mapping[NodeName, Node]) -> NodeMatching:
    """The index of a NodeTable; for any other mapping a new index, in O(labels of its nodes)."""
    return nodes.matching if isinstance(nodes, NodeTable) else NodeMatching(nodes)


def _repelling(node: Node) -> list[Taint]:
    return [taint for taint in dict.fromkeys(node.taints) if not tolerates((), (taint,), False)]


def _tolerated(toleration: Toleration, values: _Values, key: str, effect: str) -> _Nodes:
    """Nodes with that taint key and effect, tolerated. O(values) for numeric operators."""
    if toleration.operator in ("", "Equal"):
        return values.nodes.get(toleration.value, 0)
    if toleration.operator == "Exists":
        return values.some
    return values.any_of(v for v in values.nodes if tolerates((toleration,), (Taint(key, v, effect),), False))


@dataclass(frozen=True, eq=False, slots=True)
class AcceptsPod:
    """Whether a node accepts the pod, by labels and taints, and by `judged` of the policies."""

    pod: PodRules
    matching: NodeMatching
    judged: Callable[[NodeName], bool] | None = None

    @property
    def words(self) -> int:
        """How many tolerations, labels and requirements the pod has: the cost of one question."""
        terms = sum(len(term.labels) + len(term.fields) for term in self.pod.affinity)
        return len(self.pod.tolerations) + len(self.pod.node_selector) + terms

    def __call__(self, name: NodeName) -> bool:
        return self.matching.accepts(name, self.pod) and (self.judged is None or self.judged(name))
