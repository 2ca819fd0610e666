"""Gangs wait in the order of what their shares use already: the share that uses least for its weight goes first.

    metadata: {annotations: {escher.dev/share: research, escher.dev/share-weight: "2"}}

A share goes by its name, in whatever namespaces its pods are. It uses what those ask for that are bound, as the largest
part of any resource of the cluster (its dominant share: Ghodsi et al., NSDI 2011), divided by its weight, the largest
that one of its pods names. Gangs without a share count as using nothing. Priorities go before shares.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.core.cluster import Node, Pod
from extender.core.gang_ask import MalformedAsk
from extender.core.names import DOMAIN
from extender.core.policy import Facts
from extender.core.units import add
from extender.filters.asks import malformed, malformed_name
from extender.filters.grouped import Grouped

SHARE, WEIGHT = f"{DOMAIN}/share", f"{DOMAIN}/share-weight"
_LARGEST_WEIGHT = 1000


class ShareOrder:
    name = "share-order"

    def __init__(self) -> None:
        self._shares = Grouped(lambda pod: pod.annotations.get(SHARE))
        self._used: dict[str, float] = {}
        """Kept until something changes."""
        self.order_version = 0

    def malformed(self, pod: Pod) -> MalformedAsk | None:
        if (weight := pod.annotations.get(WEIGHT)) is not None and not _weight(weight):
            return malformed(WEIGHT, weight, f"a whole number from 1 to {_LARGEST_WEIGHT}", "2")
        return malformed_name(pod, SHARE, "research")

    def observe(self, fact: Pod | Node, now: float) -> None:
        if isinstance(fact, Node) or self._shares.put(fact):
            self._look_anew()

    def forget(self, fact: Pod | Node) -> None:
        if isinstance(fact, Node) or self._shares.drop(fact):
            self._look_anew()

    def _look_anew(self) -> None:
        # Heartbeats of nodes come by the second; where nobody has asked since, nothing can have been ordered by it.
        if self._used:
            self._used.clear()
            self.order_version += 1

    def order(self, members: Sequence[Pod], facts: Facts) -> float:
        share = next((pod.annotations[SHARE] for pod in members if SHARE in pod.annotations), None)
        if share is None:
            return 0.0
        if share not in self._used:
            pods = self._shares.members(share).values()
            used = add(pod.requests for pod in pods if pod.node is not None)
            total = facts.ledger.totals.capacity
            dominant = max((units / total[r] for r, units in used.items() if total.get(r)), default=0.0)
            self._used[share] = dominant / max((_weight(pod.annotations.get(WEIGHT, "1")) for pod in pods), default=1)
        return self._used[share]


def _weight(text: str) -> int:
    """The weight; 0 where the text is none."""
    weight = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
    return weight if weight <= _LARGEST_WEIGHT else 0
