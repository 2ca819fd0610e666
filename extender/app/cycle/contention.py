"""Rivals: whether pods or gangs of other namespaces wait for room that the gangs of one hold, or held until just now.

They wait for it if they could be there, were nothing held for that namespace's gangs but what is bound. Who waits for
anything else is no reason for it to hold none. Must not know what follows from that: see `core.gangs.cycle.plan_store`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from extender.app.cache.cache import Cache
from extender.app.cache.unschedulable_pods import UnschedulablePods
from extender.core.cluster import Pod
from extender.core.equivalence import EquivalenceClass, equivalence_of
from extender.core.ledger import Holder, HoldingKind
from extender.core.names import GangKey
from extender.kube.names import NodeName

MOST_LOOKED_AT = 2000
"""So many nodes are looked at, for one kind of pods or another: a few milliseconds."""


class Contention:
    def __init__(self, cache: Cache, turned_away: UnschedulablePods) -> None:
        self._cache = cache
        self._unschedulable = turned_away

    def wait_for_room_of(self, gang: GangKey) -> bool:
        """Whether somebody of another namespace may wait for what is held for the gang, or was until just now. True,
        too, where it would take long to know. O(kinds of those who wait x nodes)."""
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
        """One of each kind."""
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
        """The nodes, and who of the namespace's gangs hold room there without being bound."""
        ledger = self._cache.ledger
        unbound = [held.node for held in ledger.held_for(gang) if held.kind is not HoldingKind.BOUND]
        found: dict[NodeName, Sequence[Holder]] = {}
        # What has run out is free by now, and nobody was told yet.
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
        judging = self._cache.policies.judging
        # A gang finds places for its members together: one of them says nothing of what the rest make possible. And who
        # has alternatives is governed by another one soon.
        alone = pod.gang is None and next(self._cache.policy_matching.alternatives(pod), None) is None
        return any(map((judging.passes if alone else judging.has_room)(pod, freed), freed))
