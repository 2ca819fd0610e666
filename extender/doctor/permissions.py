"""Permissions: what the service requests from the API server, as one table.

As docs/operations.md has it; tests compare both with what the code calls.
"""

from __future__ import annotations

from typing import NamedTuple

from extender.core.names import DOMAIN


class Permission(NamedTuple):
    group: str
    """Empty: the core group."""
    resource: str
    """With its subresource, if it is about one: `pods/binding`."""
    verb: str
    without: str = ""
    """What is true without it; empty: the service does not work."""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


def _all(group: str, resource: str, verbs: str, without: str = "") -> tuple[Permission, ...]:
    return tuple(Permission(group, resource, verb, without) for verb in verbs.split())


_NOBODY = "with `authorization: kubernetes` the management API serves no caller"

PAST_BUDGETS = Permission("", "pods", "delete", "a disruption budget protects its pods from every priority")
"""Not needed with `preempts_despite_budgets: never`, which has the same effect."""

_NOT_READY = "the service is not ready, unless its setting `without` names the kind"

NEEDED = (
    *_all("", "nodes", "list watch"),
    *_all("", "nodes/status", "patch", "ephemeral resources are not written to nodes"),
    *_all("", "pods", "get list watch"),
    *_all("", "pods", "patch", "scheduling gates are not removed, and unschedulable pods are not requeued"),
    PAST_BUDGETS,
    *_all("", "namespaces", "list watch", _NOT_READY),
    *_all("", "pods/status", "patch", "kube-scheduler is not told which node a gang's member keeps"),
    *_all("", "pods/binding", "create", "no pod that Escher is to bind gets a node"),
    *_all("", "pods/eviction", "create", "no pod is evicted, not even of gangs known to be partial"),
    *_all("events.k8s.io", "events", "create", "no event says why a gang waits"),
    *_all("policy", "poddisruptionbudgets", "list watch", "no gang preempts"),
    *_all("apps", "daemonsets", "list watch", "pods of DaemonSets are preempted like any others"),
    *_all("batch", "jobs", "list watch", "it is ready a minute later, and plans a gang only once all members exist"),
    *_all(DOMAIN, "ephemeralresources", "get list watch create patch delete"),
    *_all(DOMAIN, "ephemeralresources/status", "patch", "objects do not say whether they are in force"),
    *_all(DOMAIN, "escherpolicies", "get list watch create patch delete", _NOT_READY),
    *_all(DOMAIN, "escherpolicies/status", "patch", "policies do not say whether they are in force"),
    *_all("authentication.k8s.io", "tokenreviews", "create", _NOBODY),
    *_all("authorization.k8s.io", "subjectaccessreviews", "create", _NOBODY),
    *_all("scheduling.x-k8s.io", "podgroups", "list watch", _NOT_READY),
)
"""Everything the service needs, and nothing more (least privilege)."""

IN_OWN_NAMESPACE = _all(
    DOMAIN, "transactionintents", "get list watch create patch delete", "no transaction writes several objects at once"
)
"""Also needed, only in the service's own namespace."""

TO_LEAD = (
    *_all("coordination.k8s.io", "leases", "get create patch", "no replica leads, and Escher decides nothing"),
    *_all("discovery.k8s.io", "endpointslices", "get create update delete", "the Service does not route to the leader"),
)
"""With leader election, in the Lease's namespace; all but `create` for these objects alone."""


class Election(NamedTuple):
    """The election of a leader; `by_service`: whether a Service leads to the leader."""

    namespace: str
    lease: str
    by_service: bool

    @property
    def needed(self) -> tuple[Permission, ...]:
        """The permissions of `TO_LEAD` that this election needs."""
        return tuple(each for each in TO_LEAD if self.by_service or each.resource != "endpointslices")

    def name_of(self, permission: Permission) -> str:
        """The name of the permission's object; empty for `create`: it has no name yet."""
        if permission.verb == "create":
            return ""
        return f"{self.lease}-leader" if permission.resource == "endpointslices" else self.lease


OPTIONAL_KINDS = frozenset({"scheduling.x-k8s.io"})
"""Groups that a cluster need not have."""
