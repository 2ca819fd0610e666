"""A pod never takes what is reserved for a gang.

kube-scheduler knows nothing of reservations: on the nodes that carry one, the whole request is matched again.
"""

from __future__ import annotations

from extender.core.cluster import Pod
from extender.core.ledger import Ledger
from extender.core.names import NodeName
from extender.filters.base import GivingWay, Judge, Rejection

REASON = "room on this node is reserved for a gang"


class ReservationGuard:
    name = "reservation-guard"

    def judge(self, pod: Pod, ledger: Ledger, giving_way: GivingWay) -> Judge | None:
        if not ledger.unbound_on:
            return None

        def judge(node: NodeName) -> Rejection | None:
            if node not in ledger.unbound_on:
                return None
            short = ledger.short(node, pod.requests, (pod.uid, *giving_way.get(node, ())))
            # Evicting others would not touch the reservation, and would be paid for nothing.
            return None if short is None else Rejection(REASON, short, preemption_helps=False)

        return judge
