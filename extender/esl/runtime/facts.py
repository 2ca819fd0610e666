"""Facts: turns lists and watches of pods (of one namespace) and nodes into events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from extender.core.cluster import Node, Pod
from extender.core.names import in_domain
from extender.esl.base import Event, PodGone, PodSeen
from extender.kube.names import NodeName, PodUid
from extender.kube.quantities import Vector


class PodFacts:
    """Reports each change of a pod, including missed changes that only a new list shows."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self.known: dict[PodUid, Pod] = {}
        self._tell = tell
        self._by_name: dict[str, PodUid] = {}

    def replace(self, objects: Iterable[Pod]) -> Iterable[None]:
        present = {pod.uid: pod for pod in objects}
        for missing in [pod for uid, pod in self.known.items() if uid not in present]:
            self.remove(missing)
        for pod in present.values():
            self.upsert(pod)
        return ()

    def upsert(self, item: Pod) -> None:
        self.known[item.uid] = item
        self._by_name[item.name] = item.uid
        self._tell(PodSeen(item))

    def remove(self, item: Pod) -> None:
        if self.known.pop(item.uid, None) is None:
            return
        del self._by_name[item.name]
        self._tell(PodGone(item.namespace, item.name))


class Nodes:
    """Reports each node that comes, goes, or changes in a field that a policy reads."""

    def __init__(
        self, ephemeral: Collection[str], seen: Callable[[Node], None], gone: Callable[[NodeName], None]
    ) -> None:
        """`ephemeral`: the domains whose resources are left out of the reported nodes."""
        self._ephemeral = ephemeral
        self._seen = seen
        self._gone = gone
        self._told: dict[NodeName, Node] = {}

    def upsert(self, item: Node) -> None:
        node = replace(item, allocatable=self._lasting(item.allocatable), capacity={}, version="")
        if self._told.get(item.name) != node:
            self._told[item.name] = node
            self._seen(node)

    def __iter__(self) -> Iterator[Node]:
        """The existing nodes, as they were last reported."""
        return iter(self._told.values())

    def replace(self, items: Iterable[Node]) -> None:
        """These nodes exist, and no others."""
        present = {item.name: item for item in items}
        for missing in [name for name in self._told if name not in present]:
            self.remove(missing)
        for item in present.values():
            self.upsert(item)

    def remove(self, name: NodeName) -> None:
        if self._told.pop(name, None) is not None:
            self._gone(name)

    def _lasting(self, units: Vector) -> Vector:
        if not any(in_domain(key, domain) for key in units for domain in self._ephemeral):
            return units
        return {key: n for key, n in units.items() if not any(in_domain(key, domain) for domain in self._ephemeral)}
