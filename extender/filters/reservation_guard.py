"""A pod never takes what is reserved for a gang.

kube-scheduler knows nothing of reservations: on the nodes that carry one, the whole request is matched again.
"""

from __future__ import annotations

from extender.core.cluster import Pod
from extender.core.holdings import Holder
from extender.core.policy import Facts, Judge, OnlyOn, Refuse
from extender.kube.names import NodeName, PodUid

REASON = "room on this node is reserved for a gang"


class ReservationGuard:
    name = "reservation-guard"
    kept_by_plans = True

    def filter(self, pod: Pod, facts: Facts) -> Judge | None:
        ledger = facts.ledger
        if not ledger.totals.unbound_on:
            return None
        giving_way, own = facts.giving_way(pod), (pod.uid,)

        def judge(node: NodeName) -> Refuse | None:
            without: tuple[Holder | PodUid, ...] = (*own, *giving_way[node]) if node in giving_way else own
            short = ledger.rows.short(node, pod.requests, without)
            # Evicting others would not touch the reservation, and would be paid for nothing.
            return None if short is None else Refuse(REASON, short, preemption_helps=False)

        return OnlyOn(ledger.totals.unbound_on, judge)
