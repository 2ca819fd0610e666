"""View: the cluster as an ESL's events describe it: nodes, pods and ephemeral resources.

An application that sees only pods of its own namespace sees too much room on nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from extender.core.cluster import Node, Pod
from extender.core.ledger.units import add_to
from extender.core.names import in_domain
from extender.esl.base import CapacityConfirmed, CapacitySeen, Event, NodeGone, NodeSeen, PodGone, PodSeen
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

Place = tuple[NodeName, ResourceKey]


class View:
    def __init__(self, domain: str, namespace: str) -> None:
        """`domain`: of ephemeral resources. `namespace`: of own pods; others' only use room."""
        self.nodes: dict[NodeName, Node] = {}
        self.pods: dict[tuple[str, str], Pod] = {}
        """By namespace and name; finished pods too, while they exist."""
        self.units: dict[Place, int] = {}
        """The units that nodes have of ephemeral resources, above 0."""
        self._domain, self._namespace = domain, namespace
        self._used: dict[NodeName, dict[ResourceKey, int]] = {}

    def take(self, event: Event) -> None:
        """Takes in the event."""
        match event:
            case PodSeen(pod):
                self._drop_pod(pod.namespace, pod.name)
                self.pods[pod.namespace, pod.name] = pod
                self._count(pod, 1)
            case PodGone(namespace, name):
                self._drop_pod(namespace, name)
            case NodeSeen(node):
                self.nodes[node.name] = node
            case NodeGone(name):
                self.nodes.pop(name, None)
                for place in [place for place in self.units if place[0] == name]:
                    del self.units[place]
            case CapacityConfirmed(node, resource, units) | CapacitySeen(node, resource, units):
                if units:
                    self.units[node, resource] = units
                else:
                    self.units.pop((node, resource), None)

    def running(self, label: str) -> Iterator[Pod]:
        """The pods with that label that are bound to an existing node and have not finished."""
        return (pod for pod in self.alive(label) if pod.node in self.nodes)

    def alive(self, label: str) -> Iterator[Pod]:
        """The pods with that label that have not finished, bound or not."""
        mine = (pod for (namespace, _), pod in self.pods.items() if namespace == self._namespace)
        return (pod for pod in mine if label in pod.labels and not pod.finished)

    def used(self, node: NodeName) -> Vector:
        """The requests of the unfinished pods on the node."""
        return self._used.get(node, {})

    def left(self, node: NodeName, resource: ResourceKey) -> int:
        """The free units of it on the node; below 0 if pods hold more than the node has."""
        if in_domain(resource, self._domain):
            has = self.units.get((node, resource), 0)
        else:
            has = self.nodes[node].allocatable.get(resource, 0) if node in self.nodes else 0
        return has - self.used(node).get(resource, 0)

    def is_open(self, node: NodeName) -> bool:
        """Whether it exists, is not cordoned, and has no taint of Kubernetes itself.

        So it takes new pods, if they tolerate its owner's taints; Kubernetes taints, for example, a silent node."""
        known = self.nodes.get(node)
        return (
            known is not None
            and not known.unschedulable
            and not any(
                taint.key.startswith("node.kubernetes.io/") and taint.effect != "PreferNoSchedule"
                for taint in known.taints
            )
        )

    def fits(self, node: NodeName, needs: Vector, times: int = 1) -> bool:
        """Whether the node has room for `times` times the needs, and is not cordoned."""
        known = self.nodes.get(node)
        if known is None or known.unschedulable:
            return False
        return all(units * times <= self.left(node, resource) for resource, units in needs.items())

    def eligible(self, needs: Vector, labels: Mapping[str, str]) -> list[NodeName]:
        """The nodes whose labels and total amounts would do, whatever is in use; by name."""
        return sorted(
            name
            for name, node in self.nodes.items()
            if all(node.labels.get(key) == value for key, value in labels.items())
            and all(
                units <= node.allocatable.get(resource, 0)
                for resource, units in needs.items()
                if not in_domain(resource, self._domain)
            )
        )

    def _drop_pod(self, namespace: str, name: str) -> None:
        if (pod := self.pods.pop((namespace, name), None)) is not None:
            self._count(pod, -1)

    def _count(self, pod: Pod, sign: int) -> None:
        if pod.node is not None and not pod.finished:
            add_to(self._used.setdefault(pod.node, {}), pod.requests, sign)
