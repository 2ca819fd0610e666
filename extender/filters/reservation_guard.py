"""Filter: a pod never takes units or a place reserved for a gang.

kube-scheduler does not know reservations. On nodes with a reservation, the guard matches the pod's whole request again.
On every node, `core.gangs.kept_places` checks host ports, anti-affinity, spread and the placements of policies.
"""

from __future__ import annotations

from collections.abc import Collection

from extender.core.cluster import Pod
from extender.core.ledger.holdings import Holder
from extender.core.ledger.units import Short
from extender.core.policy import Facts, NodeFilter, OnlyOn, Refuse
from extender.kube.names import NodeName, PodUid, ResourceKey

REASON = "room on this node is reserved for a gang"
PLACE_REASON = "the pod would conflict with a placement that is reserved for a gang"
# As below: no eviction frees a kept place.
_PLACE = Refuse(PLACE_REASON, preemption_helps=False)


class ReservationGuard:
    name = "reservation-guard"
    kept_by_plans = True

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        ledger = facts.ledger
        if not ledger.totals.unbound_on:
            return None
        giving_way, own = facts.giving_way(pod), (pod.uid,)

        refusals: dict[tuple[ResourceKey, int, int], Refuse] = {}

        def judge(node: NodeName) -> Refuse | None:
            without: tuple[Holder | PodUid, ...] = (*own, *giving_way[node]) if node in giving_way else own
            found = ledger.rows.lacking(node, pod.requests, without)
            if found is not None and found not in refusals:
                # Evicting other pods would not free the reservation, so the eviction would be wasted.
                refusals[found] = Refuse(REASON, Short(*found), preemption_helps=False)
            return None if found is None else refusals[found]

        holders = [holder for given in giving_way.values() for holder in given]
        if (takes := facts.takes(pod, holders)) is None:
            return OnlyOn(ledger.totals.unbound_on, judge)

        def judge_all(node: NodeName) -> Refuse | None:
            refused = judge(node) if node in ledger.totals.unbound_on else None
            return refused or (_PLACE if takes(node) else None)

        return judge_all

    def why_never(self, pod: Pod, facts: Facts) -> Refuse | None:
        """A place is kept only for a while."""
        return None

    def take_withdrawn(self, facts: Facts) -> Collection[Pod]:
        return facts.take_freed()
