"""Filter: a pod may ask for another namespace's ephemeral resource only if its owner exports it."""

from __future__ import annotations

from extender.core.cluster import Pod
from extender.core.policy import Allow, Concerns, Facts, NodeFilter, Permit, Refuse
from extender.core.tenancy.tenancy import FOREIGN
from extender.kube.names import NodeName

TENANT_UNITS = "tenant-units"
"""The name of its rule."""

_REFUSED = Refuse(FOREIGN, preemption_helps=False)
_ALLOWED = Allow()


def _refuse(node: NodeName) -> Refuse | None:
    return _REFUSED


class TenantUnits:
    name = TENANT_UNITS
    concerns = Concerns.EPHEMERAL

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        return None if facts.tenancy.foreign(pod.namespace, pod.requests) is None else _refuse

    def permit(self, pod: Pod, node: NodeName, facts: Facts, now: float) -> Permit:
        """The export may have ended since the pod's filter call."""
        return _ALLOWED if facts.tenancy.foreign(pod.namespace, pod.requests) is None else _REFUSED
