"""A pod may be only where the ledger has free the ephemeral resources that it asks for."""

from __future__ import annotations

from extender.core.cluster import Pod
from extender.core.ledger import Ledger
from extender.core.names import NodeName, in_domain
from extender.filters.base import GivingWay, Judge, Rejection

REASON = "ephemeral resources asked for are not free on this node"
ABSENT = "ephemeral resources asked for do not exist on this node"


class EphemeralFit:
    name = "ephemeral-fit"

    def judge(self, pod: Pod, ledger: Ledger, giving_way: GivingWay) -> Judge | None:
        asked = {resource: units for resource, units in pod.requests.items() if in_domain(resource, ledger.domain)}
        if not asked:
            return None

        def judge(node: NodeName) -> Rejection | None:
            short = ledger.short(node, asked, (pod.uid, *giving_way.get(node, ())))
            if short is None:
                return None
            exists = node in ledger.providers.get(short.resource, ())
            # Preemption frees what other pods hold; it creates no resource.
            return Rejection(REASON, short) if exists else Rejection(ABSENT, short, preemption_helps=False)

        return judge
