"""View: the cluster as an ESL has been told of it. Nodes, pods, and how many units of ephemeral resources nodes have.

Knows nothing but events. What nobody tells of is not in it: an application that is shown the pods of its own namespace
alone sees more room on nodes than there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from extender.core.cluster import Node, Pod
from extender.core.names import in_domain
from extender.core.units import add_to
from extender.esl.base import CapacityConfirmed, CapacitySeen, Event, NodeGone, NodeSeen, PodGone, PodSeen
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

Place = tuple[NodeName, ResourceKey]


class View:
    def __init__(self, domain: str, namespace: str) -> None:
        """`domain`: whose resources are ephemeral, and told of by capacity events rather than with their nodes.
        `namespace`: whose pods are looked for; others' use room, and say nothing."""
        self.nodes: dict[NodeName, Node] = {}
        self.pods: dict[tuple[str, str], Pod] = {}
        """By namespace and name; those that have finished too, while they are there."""
        self.units: dict[Place, int] = {}
        """What nodes have of ephemeral resources, above 0."""
        self._domain, self._namespace = domain, namespace
        self._used: dict[NodeName, dict[ResourceKey, int]] = {}

    def take(self, event: Event) -> None:
        """What the event tells is known."""
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
        """The pods with that label that are bound to a node that is there, and have not finished."""
        return (pod for pod in self.alive(label) if pod.node in self.nodes)

    def alive(self, label: str) -> Iterator[Pod]:
        """The pods with that label that have not finished, bound or not."""
        mine = (pod for (namespace, _), pod in self.pods.items() if namespace == self._namespace)
        return (pod for pod in mine if label in pod.labels and not pod.finished)

    def used(self, node: NodeName) -> Vector:
        """What the pods there ask for that have not finished."""
        return self._used.get(node, {})

    def left(self, node: NodeName, resource: ResourceKey) -> int:
        """How much of it nobody on the node has; below 0 where its holders have more than there is."""
        if in_domain(resource, self._domain):
            has = self.units.get((node, resource), 0)
        else:
            has = self.nodes[node].allocatable.get(resource, 0) if node in self.nodes else 0
        return has - self.used(node).get(resource, 0)

    def is_open(self, node: NodeName) -> bool:
        """Whether it is there and takes new pods, whatever they tolerate of what its owner says: it is not cordoned,
        and Kubernetes itself has not tainted it, as one that does not answer."""
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
        """Whether the node has room for the needs, so many times, and takes new pods at all."""
        known = self.nodes.get(node)
        if known is None or known.unschedulable:
            return False
        return all(units * times <= self.left(node, resource) for resource, units in needs.items())

    def eligible(self, needs: Vector, labels: Mapping[str, str]) -> list[NodeName]:
        """The nodes that could ever have it: by their labels, and by what they have, whoever uses it; by name."""
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
