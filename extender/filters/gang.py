"""A gang's member may be on no node but the one that the gang's plan holds for it."""

from __future__ import annotations

from extender.core.cluster import Pod
from extender.core.gangs.gang import NOT_ITS_NODE
from extender.core.policy import Facts, Judge, Refuse
from extender.kube.names import NodeName

# Evicting pods elsewhere does not bring the plan there.
_ELSEWHERE = Refuse(NOT_ITS_NODE, preemption_helps=False)


class GangFilter:
    name = "gang"
    kept_by_plans = True

    def filter(self, pod: Pod, facts: Facts) -> Judge | None:
        if pod.gang is None:
            return None
        held = facts.ledger.holding(pod.uid)
        planned = None if held is None else held.node

        def judge(node: NodeName) -> Refuse | None:
            return None if node == planned else _ELSEWHERE

        return judge

    def could_pass(self, pod: Pod, facts: Facts) -> Judge | None:
        """Plans follow room, and whether there is room is what others say."""
        return None
