"""Fair share: who waits goes in the order of what their share uses for its weight; within another share, first in the
order of what that uses for its own.

A share uses what those of its pods ask for that are bound, and what the shares in it use: as the largest part of any
resource of the cluster (its dominant share: Ghodsi et al., NSDI 2011). Shares of all namespaces that are in none stand
beside each other. Who has no share counts as using nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.core.cluster import Node, Pod
from extender.core.governed import of_type
from extender.core.policy import Facts
from extender.core.policy_types import FairShare
from extender.core.units import add_to
from extender.kube.names import PodUid, ResourceKey
from extender.kube.quantities import Vector

_Share = tuple[str, str]
"""(namespace, policy)."""
_Chain = tuple[tuple[_Share, int], ...]
"""A share and those that it is in, the first one first, each with its weight."""


class PolicyFairShare:
    name = "policy-fair-share"

    def __init__(self) -> None:
        self._pods: dict[PodUid, tuple[_Chain, Vector | None]] = {}
        """Of each its chain, and what it uses; None where it is not bound."""
        self._used: dict[_Share, dict[ResourceKey, int]] = {}
        self._chains: dict[_Chain, int] = {}
        self._places: dict[_Chain, float] = {}
        """Kept until something changes."""
        self.order_version = 0

    def observe(self, fact: Pod | Node, now: float) -> None:
        if isinstance(fact, Node):
            self._look_anew()
            return
        if not fact.governed and fact.uid not in self._pods:
            return
        chain = chain_of(fact)
        known = self._pods.get(fact.uid)
        new = (chain, fact.requests if fact.node is not None else None) if chain else None
        if known == new:
            return
        self._take_out(fact.uid)
        if new is not None:
            self._pods[fact.uid] = new
            self._count(new, +1)
        self._look_anew()

    def forget(self, fact: Pod | Node) -> None:
        if isinstance(fact, Node) or self._take_out(fact.uid):
            self._look_anew()

    def _take_out(self, uid: PodUid) -> bool:
        if (known := self._pods.pop(uid, None)) is None:
            return False
        self._count(known, -1)
        return True

    def _count(self, known: tuple[_Chain, Vector | None], by: int) -> None:
        chain, uses = known
        self._chains[chain] = self._chains.get(chain, 0) + by
        if not self._chains[chain]:
            del self._chains[chain]
        if uses is not None:
            for share, _ in chain:
                add_to(self._used.setdefault(share, {}), uses, by)

    def _look_anew(self) -> None:
        # Where nobody has asked since, nothing can have been ordered by it.
        if self._places:
            self._places.clear()
            self.order_version += 1

    def order(self, members: Sequence[Pod], facts: Facts) -> float:
        chain = next((found for pod in members if pod.governed and (found := chain_of(pod))), None)
        if chain is None:
            return 0.0
        if chain not in self._places:
            # Places are among all: with one more others may have another number.
            self.order_version += bool(self._places)
            used = {each: self._uses(each, facts) for each in (*self._chains, *self._places, chain)}
            ranks = {uses: rank for rank, uses in enumerate(sorted(set(used.values()) | {()}))}
            self._places = {each: float(ranks[uses]) for each, uses in used.items()}
        return self._places[chain]

    def _uses(self, chain: _Chain, facts: Facts) -> tuple[float, ...]:
        """What each of them uses for its weight, up to the last that uses anything."""
        total = facts.ledger.totals.capacity

        def part(share: _Share) -> float:
            used = self._used.get(share, {})
            return max((units / total[each] for each, units in used.items() if total.get(each)), default=0.0)

        parts = [part(share) / weight for share, weight in chain]
        while parts and not parts[-1]:
            parts.pop()
        return tuple(parts)


def chain_of(pod: Pod) -> _Chain:
    """That of the first of its shares by name; empty where it has none."""
    found = next(of_type(pod.governed, FairShare), None)
    if found is None:
        return ()
    each, share = found
    chain = (*each.above, (each.name, share.weight))
    return tuple(((pod.namespace, name), weight) for name, weight in chain)
