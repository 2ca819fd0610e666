"""Gang order: the gang whose share uses least for its weight goes first.

    metadata: {annotations: {escher.dev/share: research, escher.dev/share-weight: "2"}}

A share is identified by its name, across namespaces. It uses what its bound pods, and its pods with a held node, ask
for. Its dominant share is the largest part of any resource of the cluster (Ghodsi et al., NSDI 2011). That is divided
by its weight, the largest weight that one of its pods names. A gang without a share counts as using nothing. Priority
counts before shares.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from extender.core.cluster import Node, Pod
from extender.core.gang_ask import MalformedAsk
from extender.core.ledger.units import add_in
from extender.core.names import DOMAIN
from extender.core.policy import Facts
from extender.filters.asks import malformed, malformed_name
from extender.filters.in_use import InUse
from extender.kube.names import PodUid

SHARE, WEIGHT = f"{DOMAIN}/share", f"{DOMAIN}/share-weight"
_LARGEST_WEIGHT = 1000


class ShareOrder:
    name = "share-order"

    def __init__(self) -> None:
        self._pods: dict[PodUid, tuple[str, int]] = {}
        """By pod, its share and the weight that it names."""
        self._weights: dict[str, dict[int, int]] = {}
        """By share, how many of its pods name each weight."""
        self._in_use: InUse[str] = InUse()
        self._used: dict[str, float] = {}
        """A cache, valid until something changes."""
        self.order_version = 0

    def malformed(self, pod: Pod) -> MalformedAsk | None:
        if (weight := pod.annotations.get(WEIGHT)) is not None and not _weight(weight):
            return malformed(WEIGHT, weight, f"a whole number from 1 to {_LARGEST_WEIGHT}", "2")
        return malformed_name(pod, SHARE, "research")

    def observe(self, fact: Pod | Node, now: float) -> None:
        if isinstance(fact, Node):
            self._look_anew()
            return
        share = fact.annotations.get(SHARE)
        new = None if share is None else (share, _weight(fact.annotations.get(WEIGHT, "1")))
        changed = self._name(fact.uid, new)
        used = self._in_use.put(fact, () if share is None else (share,))
        if changed or used:
            self._look_anew()

    def forget(self, fact: Pod | Node) -> None:
        if isinstance(fact, Node):
            self._look_anew()
            return
        changed, used = self._name(fact.uid, None), self._in_use.drop(fact.uid)
        if changed or used:
            self._look_anew()

    def hold(self, held: Mapping[PodUid, bool]) -> None:
        if self._in_use.hold(held):
            self._look_anew()

    def _name(self, uid: PodUid, new: tuple[str, int] | None) -> bool:
        """Sets the pod's share and weight. Returns whether they differ from the known ones."""
        known = self._pods.get(uid)
        if known == new:
            return False
        if known is not None:
            add_in(self._weights, *known, -1)
            del self._pods[uid]
        if new is not None:
            add_in(self._weights, *new, +1)
            self._pods[uid] = new
        return True

    def _look_anew(self) -> None:
        # Node heartbeats come every second. If the cache is empty, no order depends on it.
        if self._used:
            self._used.clear()
            self.order_version += 1

    def order_alike(self, members: Sequence[Pod]) -> Hashable:
        return next((pod.annotations[SHARE] for pod in members if SHARE in pod.annotations), "")

    def order(self, members: Sequence[Pod], facts: Facts) -> float:
        share = next((pod.annotations[SHARE] for pod in members if SHARE in pod.annotations), None)
        if share is None:
            return 0.0
        if share not in self._used:
            used, total = self._in_use.of.get(share, {}), facts.ledger.totals.capacity
            dominant = max((units / total[r] for r, units in used.items() if total.get(r)), default=0.0)
            self._used[share] = dominant / max(self._weights.get(share, (1,)))
        return self._used[share]


def _weight(text: str) -> int:
    """The weight; 0 if the text is no valid weight."""
    weight = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0
    return weight if weight <= _LARGEST_WEIGHT else 0
