"""Contention: whether others wait for room that the gangs of one namespace hold or just held.

A pod of another namespace waits for that room if it fits once nothing but bound units is held for those gangs. A pod
that waits for anything else is no reason to give the room up. `core.gangs.cycle.plan_store` acts on the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from extender.app.cache.cache import Cache
from extender.app.cache.unschedulable_pods import UnschedulablePods
from extender.core.cluster import Pod
from extender.core.fit.equivalence import EquivalenceClass, equivalence_of
from extender.core.ledger.ledger import Holder, HoldingKind
from extender.core.names import GangKey
from extender.kube.names import NodeName

MOST_LOOKED_AT = 2000
"""Checks of one kind of pods on one node, at most: a few milliseconds."""


class Contention:
    def __init__(self, cache: Cache, unschedulable: UnschedulablePods) -> None:
        self._cache = cache
        self._unschedulable = unschedulable

    def wait_for_room_of(self, gang: GangKey) -> bool:
        """Whether a pod of another namespace may wait for room that is, or just was, the gang's.

        Also true if the answer would take long. O(kinds of waiting pods x nodes)."""
        waiting = self._of_others(gang.namespace)
        pod = next(waiting, None)
        if pod is None:
            return False
        freed = self._freed(gang)
        if not freed:
            return False
        looked_at = 0
        while pod is not None:
            looked_at += len(freed)
            if looked_at > MOST_LOOKED_AT or self._could_go(pod, freed):
                return True
            pod = next(waiting, None)
        return False

    def _of_others(self, namespace: str) -> Iterator[Pod]:
        """One waiting pod of each kind, from the other namespaces."""
        yield from self._unschedulable.kinds_of_others(namespace)
        cache = self._cache
        for key in cache.gangs.waiting.queue:
            if key.namespace != namespace:
                seen: set[EquivalenceClass] = set()
                for member in cache.gangs.by_key[key].roster.unplaced():
                    if (kind := equivalence_of(member)) not in seen:
                        seen.add(kind)
                        yield member

    def _freed(self, gang: GangKey) -> Mapping[NodeName, Sequence[Holder]]:
        """The nodes, each with the unbound holders that the namespace's gangs have there."""
        ledger = self._cache.ledger
        unbound = [held.node for held in ledger.held_for(gang) if held.kind is not HoldingKind.BOUND]
        found: dict[NodeName, Sequence[Holder]] = {}
        # Room of an expired holding is free already, and no pod has been woken for it yet.
        for node in (*unbound, *ledger.changes.gains):
            if node not in found and (row := ledger.rows.get(node)) is not None:
                found[node] = [
                    holder
                    for holder, held in row.holdings.items()
                    if held.kind is not HoldingKind.BOUND
                    and held.owner is not None
                    and held.owner.namespace == gang.namespace
                ]
        return found

    def _could_go(self, pod: Pod, freed: Mapping[NodeName, Sequence[Holder]]) -> bool:
        judging = self._cache.policies.filter_score
        # One member does not show where its gang could go, and a pod with alternatives is soon matched by another.
        alone = pod.gang is None and next(self._cache.policy_matching.alternatives(pod), None) is None
        return any(map((judging.passes if alone else judging.has_room)(pod, freed), freed))
