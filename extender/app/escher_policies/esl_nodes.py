"""What tells policies that the service hosts of nodes: all at first, then what changes of what a policy reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from extender.app.contracts.ports import Sink
from extender.core.cluster import Node
from extender.esl.facts import Nodes


class NodesTold:
    """`ports.Sink`: `first` hears it before `told` does."""

    def __init__(self, first: Sink[Node], told: Nodes) -> None:
        self._first, self._told = first, told

    def replace(self, objects: Iterable[Node]) -> Iterator[None]:
        present = list(objects)
        yield from self._first.replace(present)
        self._told.replace(present)

    def upsert(self, item: Node) -> None:
        self._first.upsert(item)
        self._told.upsert(item)

    def remove(self, item: Node) -> None:
        self._first.remove(item)
        self._told.remove(item.name)
