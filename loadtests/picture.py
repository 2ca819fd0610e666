"""Picture: the service's state of the cluster, kind by kind, beside the state in the API server.

Both are plain values that can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extender.app.cache.cache import Cache
from extender.bootstrap import Application
from extender.core.ledger.ledger import HoldingKind
from kubesim.apiserver.machinery.store import Store
from kubesim.kinds import DAEMON_SET, DISRUPTION_BUDGET, JOB, NAMESPACE, NODE, POD, Json, Kind
from loadtests.life.policies import POLICY
from loadtests.life.seeing import name, uid
from loadtests.life.works import POD_GROUP
from loadtests.month.agreement import key_of, units_of
from loadtests.shared.reading import OURS, is_leaving, is_over, node_of

PREEMPT_LABEL = "escher.dev/preempt"
Picture = dict[str, Any]


def known(application: Application) -> Picture:
    """Returns the service's state."""
    cache, pod_events = application.scheduler.cache, application.scheduler.pod_events
    return {
        "nodes": {str(each.name): dict(each.labels) for each in cache.nodes.values()},
        "node status": {str(node): _of_row(cache, node) for node in cache.nodes},
        "pods": {each.uid: (each.node, each.deleting) for each in cache.pods.values()},
        "what is held": sorted(
            (str(held.holder), str(held.node))
            for held in cache.ledger.rows.holdings()
            if held.kind is HoldingKind.BOUND
        ),
        "PodGroups": {str(each): each.min_member for each in pod_events.groups.known()},
        "Jobs": {each.controller: each.pods for each in cache.around.promises.known()},
        "DaemonSets": {each.uid: each.name for each in cache.around.daemons.all()},
        "budgets": {str(each): dict(each.labels) for each in cache.around.budgets.all()},
        "namespaces": sorted(cache.safety_switches.labelled),
        "EphemeralResources": {
            each.name.key("escher.dev"): {str(node): units for node, units in each.desired().items()}
            for each in application.resources.all()
        },
        "EscherPolicies": {
            str(each): [(one.key, *one.values) for one in policy.selector or ()]
            for each, policy in cache.policy_matching.in_force("default").items()
        },
    }


def said(store: Store, resources: Kind) -> Picture:
    """Returns the API server's state. `resources`: the kind of EphemeralResource."""
    pods = [each for each in store.list(POD) if not is_over(each)]
    return {
        "nodes": {name(each): dict(each["metadata"].get("labels") or {}) for each in store.list(NODE)},
        "node status": {name(each): _of_status(each) for each in store.list(NODE)},
        "pods": {uid(each): (node_of(each) or None, is_leaving(each)) for each in pods},
        "what is held": sorted((uid(each), node_of(each)) for each in pods if node_of(each)),
        "PodGroups": {_full(each): each["spec"]["minMember"] for each in store.list(POD_GROUP)},
        "Jobs": {uid(each): each["spec"]["parallelism"] for each in store.list(JOB)},
        "DaemonSets": {uid(each): name(each) for each in store.list(DAEMON_SET)},
        "budgets": {_full(each): each["spec"]["selector"]["matchLabels"] for each in store.list(DISRUPTION_BUDGET)},
        "namespaces": sorted(name(each) for each in store.list(NAMESPACE) if _labels(each).get(PREEMPT_LABEL)),
        "EphemeralResources": {key_of(each): units_of(each) for each in store.list(resources)},
        "EscherPolicies": {
            name(each): list(each["spec"]["selector"]["matchLabels"].items()) for each in store.list(POLICY)
        },
    }


def differing(has: Picture, is_so: Picture) -> list[str]:
    """Returns the kinds whose states differ, with both states."""
    return [f"{kind}: known is {has[kind]}, and {is_so[kind]} is so" for kind in is_so if has[kind] != is_so[kind]]


def _of_row(cache: Cache, node: Any) -> Mapping[str, int]:
    row = cache.ledger.rows.get(node)
    return {} if row is None else {str(key): units for key, units in row.ephemeral.items()}


def _of_status(node: Json) -> Mapping[str, int]:
    return {key: int(units) for key, units in node["status"]["allocatable"].items() if key.startswith(OURS)}


def _labels(obj: Json) -> dict[str, str]:
    return dict(obj["metadata"].get("labels") or {})


def _full(obj: Json) -> str:
    return f"{obj['metadata']['namespace']}/{name(obj)}"
