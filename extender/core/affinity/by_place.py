"""Filters by topology domain: judges nodes by the value of a label, all at once, as arrays.

The answers equal those for each single node, which tests compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from extender.core.cluster import Node
from extender.core.common.bounded import Bounded
from extender.core.policy import Refuse
from extender.kube.names import NodeName

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_NOTHING = 2**31
"""Greater than the number of any rule."""
_MOST_LABELS = 64
"""Labels with a cached array: 40 KB each for 5,000 nodes."""


@dataclass(frozen=True, slots=True)
class Label:
    """Values of a label and the value of each node, by number; without one, the highest number."""

    values: Mapping[str, int]
    of_node: Numbers

    def flags(self, *, elsewhere: bool = False) -> Flags:
        """One flag for each value, unset, and a last one for nodes without the label."""
        found = np.zeros(len(self.values) + 1, np.bool_)
        found[-1] = elsewhere
        return found


class Places:
    """The nodes with their topology domains; valid until a node comes, goes or changes."""

    def __init__(self, nodes: Mapping[NodeName, Node]) -> None:
        self.nodes = nodes
        self.names = list(nodes)
        self.numbers = {name: number for number, name in enumerate(self.names)}
        self.none: Numbers = np.zeros(len(self.names), np.int64)
        """0 for each node."""
        self._known = {label for node in nodes.values() for label in node.labels}
        self._nowhere = Label({}, self.none)
        self._labels: Bounded[str, Label] = Bounded(_MOST_LABELS)

    def by(self, key: str) -> Label:
        """The topology domain of each node for that label."""
        if key not in self._known:
            # Tenants name labels, without a limit on their number.
            return self._nowhere
        found = self._labels.get(key)
        if found is None:
            values: dict[str, int] = {}
            for node in self.nodes.values():
                if key in node.labels and node.labels[key] not in values:
                    values[node.labels[key]] = len(values)
            nowhere = len(values)
            where = [values[node.labels[key]] if key in node.labels else nowhere for node in self.nodes.values()]
            found = Label(values, np.array(where, np.int64))
        self._labels[key] = found
        return found


class ByPlace:
    """A `NodeFilter` for one pod: the first rule that refuses the node's topology domain."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._rules: list[Refuse] = []
        self._first: dict[str, tuple[Label, Numbers]] = {}
        """By label and by number of its value: the number of the first rule that refuses it."""
        self._answers: _Answers | None = None

    def refuse(self, key: str, closed: Flags, why: Refuse) -> None:
        """`closed`: the values of the label that refuse the pod, in the form of `Label.flags`."""
        if key not in self._first:
            self._first[key] = self._places.by(key), np.full(len(closed), _NOTHING, np.int64)
        first = self._first[key][1]
        np.minimum(first, np.where(closed, len(self._rules), _NOTHING), out=first)
        self._rules.append(why)

    def __bool__(self) -> bool:
        """Whether there is a rule."""
        return bool(self._rules)

    def __call__(self, node: NodeName) -> Refuse | None:
        number = self._places.numbers.get(node)
        found = min(
            int(first[-1 if number is None else label.of_node[number]]) for label, first in self._first.values()
        )
        return None if found == _NOTHING else self._rules[found]

    def refused(self, nodes: Sequence[NodeName]) -> dict[NodeName, Refuse]:
        """The refused nodes, as if each was asked about, but for thousands."""
        if self._answers is None:
            by_node = np.minimum.reduce([first[label.of_node] for label, first in self._first.values()])
            rules = [*self._rules, None]
            found = map(rules.__getitem__, np.minimum(by_node, len(self._rules)).tolist())
            self._answers = _Answers(zip(self._places.names, found, strict=True))
            # An unknown node has no label.
            self._answers.of_others = self(NodeName(""))
        answers = self._answers
        return {node: why for node in nodes if (why := answers[node]) is not None}


class _Answers(dict[NodeName, Refuse | None]):
    of_others: Refuse | None = None

    def __missing__(self, node: NodeName) -> Refuse | None:
        return self.of_others
