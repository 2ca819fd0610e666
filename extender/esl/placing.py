"""Placing: where pods that wait could go, by what is known, one after another; and patience, for when that is not all.

Counts what the pods ask for of the nodes' own resources. Of ephemeral ones it must not: a policy that waited for
another to furnish a node would have that one wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from extender.core.cluster import Pod
from extender.core.names import in_domain
from extender.core.units import add_to
from extender.esl.view import View
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.node_match import accepts
from extender.kube.quantities import Vector


class Patience:
    """How often each of those that wait has been given something in vain: it has waited for so many seconds with it.

    What is known may not be all: pods that nobody tells of, and rules that nobody here knows.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._spent: dict[PodUid, tuple[int, float]] = {}

    def times(self, pod: Pod, now: float) -> int:
        """How often it was in vain by now."""
        spent, until = self._spent.get(pod.uid, (0, math.inf))
        return spent + (until <= now)

    def wait(self, given: Iterable[Pod], others: Iterable[Pod], now: float) -> None:
        """Those given wait with something, the others with nothing; who is no longer there is forgotten."""
        spent = {pod.uid: (self.times(pod, now), math.inf) for pod in others}
        for pod in given:
            before, until = self._spent.get(pod.uid, (0, math.inf))
            times = self.times(pod, now)
            spent[pod.uid] = (times, until if until < math.inf and times == before else now + self._seconds)
        self._spent = spent

    def due(self) -> float | None:
        """When the next is in vain."""
        return min((until for _, until in self._spent.values() if until < math.inf), default=None)


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
