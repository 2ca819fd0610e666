"""Node facts: units of one namespace's ephemeral resources on nodes. A `ports.Sink` of nodes.

The answer to each own write is recorded. So an older state of the node, which the watch may show later, does not count
as a change by another client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from extender.app.objects.versions import older
from extender.core.cluster import Node
from extender.esl.runtime.facts import Nodes
from extender.kube.names import NodeName, ResourceKey


class NodeFacts:
    def __init__(
        self, namespace: str, tell: Callable[[NodeName, ResourceKey, int], None], nodes: Nodes | None = None
    ) -> None:
        """`tell`: units on a node that another client changed. `nodes` gets each node first."""
        self.keys: dict[NodeName, dict[ResourceKey, int]] = {}
        """Units per node and key: the lower of capacity and allocatable. 0: one lacks the key."""
        self._prefix = f"{namespace}."
        self._tell = tell
        self._nodes = nodes
        self._versions: dict[NodeName, str] = {}
        self._written: set[NodeName] = set()
        """Nodes with an answered write since the last list request."""

    def replace(self, objects: Iterable[Node]) -> Iterable[None]:
        present = {node.name: node for node in objects}
        for name in [name for name in self._versions if name not in present]:
            self._forget(name)
        for node in present.values():
            self.upsert(node)
        return ()

    def upsert(self, item: Node) -> None:
        if older(item.version, self._versions.get(item.name, "")):
            return
        self._versions[item.name] = item.version
        if self._nodes is not None:
            self._nodes.upsert(item)
        before = self.keys.pop(item.name, {})
        after = {
            key: min(item.capacity.get(key, 0), item.allocatable.get(key, 0))
            for key in {*item.capacity, *item.allocatable}
            if key.partition("/")[2].startswith(self._prefix)
        }
        if after:
            self.keys[item.name] = after
        for key in sorted({*before, *after}):
            if before.get(key, 0) != after.get(key, 0):
                self._tell(item.name, key, after.get(key, 0))

    def remove(self, item: Node) -> None:
        self._forget(item.name)

    def before_list(self) -> Callable[[], None]:
        """See `Reflector`. The list is newer than every node, except those written meanwhile."""
        self._written.clear()
        return self._is_listed

    def _is_listed(self) -> None:
        self._versions = {node: said if node in self._written else "" for node, said in self._versions.items()}

    def wrote(self, node: NodeName, version: str, units: Mapping[ResourceKey, int]) -> None:
        """Records an own write, and the version of the node after it. 0: the key is gone."""
        self._written.add(node)
        if older(version, self._versions.get(node, "")):
            now = self.keys.get(node, {})
            for key, written in units.items():
                if now.get(key, 0) != written:
                    self._tell(node, key, now.get(key, 0))
            return
        if version:
            self._versions[node] = version
        left = {key: n for key, n in {**self.keys.pop(node, {}), **units}.items() if n or key not in units}
        if left:
            self.keys[node] = left

    def _forget(self, node: NodeName) -> None:
        self._versions.pop(node, None)
        if self._nodes is not None:
            self._nodes.remove(node)
        for key, units in self.keys.pop(node, {}).items():
            if units:
                self._tell(node, key, 0)
