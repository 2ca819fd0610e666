"""Fair share order: waiting pods go in the order of what their share uses for its weight.

Within another share, the order of the outer share counts first. A share uses what its bound pods, its pods with a held
node, and its inner shares use. The largest part of any resource of the cluster counts (its dominant share: Ghodsi et
al., NSDI 2011). Outermost shares of all namespaces compete with each other. A pod without a share counts as using
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from extender.core.cluster import Node, Pod
from extender.core.ledger.units import count_in
from extender.core.policies.matched_policy import of_type
from extender.core.policies.policy_types import FairShare
from extender.core.policy import Facts
from extender.filters.in_use import InUse
from extender.kube.names import PodUid

_Share = tuple[str, str]
"""(namespace, policy)."""
_Chain = tuple[tuple[_Share, int], ...]
"""A share and the shares around it, outermost first, each with its weight."""


class PolicyFairShare:
    name = "policy-fair-share"

    def __init__(self) -> None:
        self._pods: dict[PodUid, _Chain] = {}
        self._in_use: InUse[_Share] = InUse()
        self._chains: dict[_Chain, int] = {}
        self._places: dict[_Chain, float] = {}
        """A cache, valid until something changes."""
        self.order_version = 0

    def observe(self, fact: Pod | Node, now: float) -> None:
        if isinstance(fact, Node):
            self._look_anew()
            return
        chain = chain_of(fact) if fact.governed else ()
        changed = self._put(fact.uid, chain)
        used = self._in_use.put(fact, [share for share, _ in chain])
        if changed or used:
            self._look_anew()

    def forget(self, fact: Pod | Node) -> None:
        if isinstance(fact, Node):
            self._look_anew()
            return
        changed, used = self._put(fact.uid, ()), self._in_use.drop(fact.uid)
        if changed or used:
            self._look_anew()

    def hold(self, held: Mapping[PodUid, bool]) -> None:
        if self._in_use.hold(held):
            self._look_anew()

    def _put(self, uid: PodUid, chain: _Chain) -> bool:
        """Sets the pod's shares. Returns whether they differ from the known ones."""
        known = self._pods.get(uid, ())
        if known == chain:
            return False
        if known:
            count_in(self._chains, known, -1)
            del self._pods[uid]
        if chain:
            count_in(self._chains, chain, +1)
            self._pods[uid] = chain
        return True

    def _look_anew(self) -> None:
        # If the cache is empty, no order depends on it.
        if self._places:
            self._places.clear()
            self.order_version += 1

    def order_alike(self, members: Sequence[Pod]) -> _Chain:
        """The chain that decides; empty if no member has one."""
        return next((found for pod in members if pod.governed and (found := chain_of(pod))), ())

    def order(self, members: Sequence[Pod], facts: Facts) -> float:
        chain = self.order_alike(members)
        if not chain:
            return 0.0
        if chain not in self._places:
            # Ranks count among all chains: one more chain may change the rank of others.
            self.order_version += bool(self._places)
            used = {each: self._uses(each, facts) for each in (*self._chains, *self._places, chain)}
            ranks = {uses: rank for rank, uses in enumerate(sorted(set(used.values()) | {()}))}
            self._places = {each: float(ranks[uses]) for each, uses in used.items()}
        return self._places[chain]

    def _uses(self, chain: _Chain, facts: Facts) -> tuple[float, ...]:
        """What each share uses for its weight, up to the last share that uses anything."""
        total = facts.ledger.totals.capacity

        def part(share: _Share) -> float:
            used = self._in_use.of.get(share, {})
            return max((units / total[each] for each, units in used.items() if total.get(each)), default=0.0)

        parts = [part(share) / weight for share, weight in chain]
        while parts and not parts[-1]:
            parts.pop()
        return tuple(parts)


def chain_of(pod: Pod) -> _Chain:
    """The chain of the pod's first share by name; empty if it has none."""
    found = next(of_type(pod.governed, FairShare), None)
    if found is None:
        return ()
    each, share = found
    chain = (*each.above, (each.name, share.weight))
    return tuple(((pod.namespace, name), weight) for name, weight in chain)
