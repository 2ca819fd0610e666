"""Invariants: checks what must hold when no client calls any more.

Gangs are checked with all pods, then everything with the bound pods, then everything without pods. The chaos runs use
the same checks: the ledger is compared with the cluster, a separate process watches nodes and gangs, and the service
checks itself. Each check returns findings in words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import httpx

from extender.app.observability.invariant_checker import EVERY as AUDIT_EVERY
from lab.controlplane.api import ApiError
from lab.controlplane.clusters import LocalCluster
from loadtests.chaos.load import NAMESPACE, PODS
from loadtests.chaos.rest import (
    DIFFERS,
    IN_PART,
    INVARIANTS,
    LOG,
    OTHERS,
    OVER,
    OWNERLESS,
    RESERVED,
    RESOURCES,
    RESOURCES_LOST,
    Findings,
    errors_in,
    resources_amiss,
    settled,
)
from loadtests.shared.ledger import Service, differences, unfinished
from loadtests.shared.reading import node_of
from loadtests.shared.room import partly_bound
from loadtests.shared.sightings import Report

LEFT = "left over when all pods are gone"
CHECKS = (IN_PART, OVER, INVARIANTS, DIFFERS, RESERVED, RESOURCES_LOST, OWNERLESS, LEFT, LOG, OTHERS)
STUCK_AFTER = 150.0
"""Seconds without change until leftovers are final. A plan takes 30, an unseen member's pod 120."""

UNDER_WAY = 5.0
"""Seconds after the load for pending Bindings: as long as a burst may take (`sightings`).

It is shorter than a plan, after which the service itself evicts a partly bound gang.
"""

_VIOLATIONS = "escher_invariant_violations_total"
Say = Callable[[str], None]
Resources = Mapping[str, Mapping[str, int]]
"""Units by node, of each resource."""


def violations(service: Service) -> float:
    return service.metric(_VIOLATIONS)


def audited(service: Service, since: float, before: float) -> list[str]:
    """Returns violations beyond `before` at the service's next check. `since`: the load's end."""
    time.sleep(max(0.0, since + AUDIT_EVERY + 1 - time.monotonic()))
    found = violations(service) - before
    return [f"{_VIOLATIONS} rose by {found:g}"] if found else []


class AtRest:
    """Checks a cluster whose load has ended. `expected`: the resources for its pods."""

    def __init__(self, cluster: LocalCluster, service: Service, expected: Resources, say: Say) -> None:
        self._cluster, self._service, self._expected, self._say = cluster, service, expected, say
        self._api = cluster.admin

    def findings(self, ended: float) -> Findings:
        """Returns what is wrong after all changes have ended; the cluster is empty then."""
        found: Findings = {check: [] for check in CHECKS}
        try:
            self._look(found, ended)
        except (ApiError, AssertionError, httpx.TransportError) as error:
            found[OTHERS].append(f"the checks did not come to their end: {error}")
        if "service" not in self._cluster.pids():
            found[OTHERS].append("the service has ended by itself")
        self._add(found, {LOG: errors_in(self._cluster.log("service"))})
        return found

    def _look(self, found: Findings, ended: float) -> None:
        # Check now: later, unbound pods are deleted, and a deleted pod may have been bound.
        time.sleep(max(0.0, ended + UNDER_WAY - time.monotonic()))
        self._add(found, {IN_PART: partly_bound(self._api.list_all(PODS))}, "with all pods there: ")
        self._withdraw(keep=self._expected)
        self._delete_pods(lambda bound: not bound)
        self._add(found, settled(self._full, stuck_after=STUCK_AFTER, say=self._say))
        self._say("waiting for the service to check itself")
        self._add(found, {INVARIANTS: audited(self._service, ended, 0)})
        self._withdraw(keep={})
        self._delete_pods(lambda bound: True)
        self._add(found, settled(self._empty, stuck_after=STUCK_AFTER, say=self._say), "when empty: ")

    def _full(self) -> Findings:
        pods, nodes = self._api.list_all(PODS), self._api.list_all("/api/v1/nodes")
        ownerless, lost = resources_amiss(nodes, self._api.list_all(RESOURCES), self._expected)
        return {
            IN_PART: partly_bound(pods),
            RESERVED: unfinished(self._service),
            DIFFERS: differences(self._api, self._service),
            OWNERLESS: ownerless,
            RESOURCES_LOST: lost,
        }

    def _empty(self) -> Findings:
        ownerless, _ = resources_amiss(self._api.list_all("/api/v1/nodes"), self._api.list_all(RESOURCES), {})
        left = [f"pod {each['metadata']['name']}" for each in self._api.list_all(PODS)]
        for name, told in self._service.cluster_state().items():
            left += [f"{each['kind']} {each['pod'] or each['holder']} on {name}" for each in told["holders"]]
        for kind in ("gangs", "policies", "resources"):
            left += [f"{kind}: {each}" for each in self._names(kind)]
        return {
            LEFT: left,
            RESERVED: unfinished(self._service),
            DIFFERS: differences(self._api, self._service),
            OWNERLESS: ownerless,
        }

    def _withdraw(self, keep: Resources) -> None:
        """Deletes all policies, and all resources but `keep`: stopped users leave some behind."""
        for kind in ("policies", "resources"):
            for name in self._names(kind):
                if name not in keep:
                    self._service.call("DELETE", f"/v1/namespaces/{NAMESPACE}/{kind}/{name}", expect=204)

    def _names(self, kind: str) -> list[str]:
        told = self._service.call("GET", f"/v1/namespaces/{NAMESPACE}/{kind}?limit=5000")["items"]
        return [each["name"] for each in told]

    def _delete_pods(self, which: Callable[[bool], bool]) -> None:
        """Deletes pods; `which` gets whether a pod is bound."""
        for each in self._api.list_all(PODS):
            if which(bool(node_of(each))):
                self._api.delete(f"{PODS}/{each['metadata']['name']}", gracePeriodSeconds=0)

    @staticmethod
    def _add(found: Findings, more: Findings, when: str = "") -> None:
        for check, each in more.items():
            found.setdefault(check, []).extend(f"{when}{one}" for one in each)


def of_what_was_seen(report: Report) -> Findings:
    """Returns the findings of a process that watched all the time."""
    in_part = [
        f"{name}: bound in part for {gang.unfinished or max(gang.bursts):.1f} s"
        for name, gang in report.partly_bound().items()
    ]
    gaps = [f"the watch had {report.gaps} gaps: what was seen is not all that happened"] if report.gaps else []
    return {IN_PART: in_part, OVER: [str(each) for each in report.over_allocated()], OTHERS: gaps}
