"""Placing: assigns waiting pods to nodes one after another; and patience for unknown obstacles.

Only the nodes' own resources count. If ephemeral ones counted, a policy that waited for another to furnish a node would
make that one wait, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from extender.core.cluster import Pod
from extender.core.ledger.units import add_to
from extender.core.names import in_domain
from extender.esl.runtime.view import View
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.node_match import accepts
from extender.kube.quantities import Vector


class Patience:
    """Counts how often each pod waited `seconds` with an offer and was not bound.

    Not all is known: pods that are not reported, and rules that no policy here has.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._spent: dict[PodUid, tuple[int, float]] = {}

    def times(self, pod: Pod, now: float) -> int:
        """How many offers had no effect until now."""
        spent, until = self._spent.get(pod.uid, (0, math.inf))
        return spent + (until <= now)

    def wait(self, given: Iterable[Pod], others: Iterable[Pod], now: float) -> None:
        """`given` wait with an offer, `others` without; all other pods are forgotten."""
        spent = {pod.uid: (self.times(pod, now), math.inf) for pod in others}
        for pod in given:
            before, until = self._spent.get(pod.uid, (0, math.inf))
            times = self.times(pod, now)
            spent[pod.uid] = (times, until if until < math.inf and times == before else now + self._seconds)
        self._spent = spent

    def due(self) -> float | None:
        """When the next offer counts as failed."""
        return min((until for _, until in self._spent.values() if until < math.inf), default=None)


class Placing:
    def __init__(self, view: View, domain: str) -> None:
        self._view, self._domain = view, domain
        self._taken: dict[NodeName, dict[ResourceKey, int]] = {}

    def needs(self, pod: Pod) -> Vector:
        """What the pod asks for except ephemeral resources."""
        return {resource: units for resource, units in pod.requests.items() if not in_domain(resource, self._domain)}

    def has_room(self, node: NodeName, pod: Pod) -> bool:
        """Whether the node accepts the pod, and has room for it beside the pods placed there."""
        return accepts(self._view.nodes[node], pod) and all(
            units <= self.left(node, resource) for resource, units in self.needs(pod).items()
        )

    def left(self, node: NodeName, resource: ResourceKey) -> int:
        """What is free there beside the pods placed there."""
        return self._view.left(node, resource) - self._taken.get(node, {}).get(resource, 0)

    def place(self, pod: Pod, node: NodeName) -> None:
        """Takes room for the pod on the node."""
        add_to(self._taken.setdefault(node, {}), self.needs(pod))
