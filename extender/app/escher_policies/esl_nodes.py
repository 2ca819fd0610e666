"""ESL nodes: passes nodes to hosted policies: all at first, then changes that policies read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from extender.app.contracts.ports import Sink
from extender.core.cluster import Node
from extender.esl.runtime.facts import Nodes


class NodesTold:
    """A `ports.Sink`: passes each change to `first`, then to `told`."""

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
