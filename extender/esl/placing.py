"""Placing: where pods that wait could go, by what is known, one after another.

Counts what the pods ask for of the nodes' own resources. Of ephemeral ones it must not: a policy that waited for
another to furnish a node would have that one wait for it.
"""

from __future__ import annotations

from extender.core.cluster import Pod
from extender.core.names import in_domain
from extender.core.units import add_to
from extender.esl.view import View
from extender.kube.names import NodeName, ResourceKey
from extender.kube.node_match import accepts
from extender.kube.quantities import Vector


class Placing:
    def __init__(self, view: View, domain: str) -> None:
        self._view, self._domain = view, domain
        self._taken: dict[NodeName, dict[ResourceKey, int]] = {}

    def needs(self, pod: Pod) -> Vector:
        """What it asks for beside ephemeral resources."""
        return {resource: units for resource, units in pod.requests.items() if not in_domain(resource, self._domain)}

    def has_room(self, node: NodeName, pod: Pod) -> bool:
        """Whether the node would have the pod, and has room for it beside those that were placed there."""
        return accepts(self._view.nodes[node], pod) and all(
            units <= self.left(node, resource) for resource, units in self.needs(pod).items()
        )

    def left(self, node: NodeName, resource: ResourceKey) -> int:
        """What is free there beside those that were placed there."""
        return self._view.left(node, resource) - self._taken.get(node, {}).get(resource, 0)

    def place(self, pod: Pod, node: NodeName) -> None:
        """Room for the pod is taken there."""
        add_to(self._taken.setdefault(node, {}), self.needs(pod))
