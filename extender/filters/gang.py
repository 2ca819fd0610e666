"""A gang's member may be on no node but the one that the gang's plan holds for it."""

from __future__ import annotations

from extender.core.cluster import Pod
from extender.core.gang import NOT_ITS_NODE
from extender.core.ledger import Ledger
from extender.core.names import NodeName
from extender.filters.base import GivingWay, Judge, Rejection

# Evicting pods elsewhere does not bring the plan there.
_ELSEWHERE = Rejection(NOT_ITS_NODE, preemption_helps=False)


class GangFilter:
    name = "gang"

    def judge(self, pod: Pod, ledger: Ledger, giving_way: GivingWay) -> Judge | None:
        if pod.gang is None:
            return None
        held = ledger.holding(pod.uid)
        planned = None if held is None else held.node

        def judge(node: NodeName) -> Rejection | None:
            return None if node == planned else _ELSEWHERE

        return judge
