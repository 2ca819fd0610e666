"""Binding: assigns pods to nodes and evicts them, for the subresources `binding` and `eviction`."""

from __future__ import annotations

from typing import Any

import structlog

from kubesim.apiserver.machinery import selectors
from kubesim.apiserver.machinery.failures import (
    Failure,
    Problem,
    bad_request,
    conflict,
    missing,
    not_found,
    other_uid,
    other_version,
    too_many_requests,
    unsupported,
)
from kubesim.apiserver.machinery.served import Target
from kubesim.apiserver.machinery.store import Store, key_of
from kubesim.apiserver.storage import deletion
from kubesim.apiserver.storage.writes import Writes
from kubesim.apiserver.validation import pods
from kubesim.clock import Clock
from kubesim.kinds import DISRUPTION_BUDGET, NODE, POD, Json

_log = structlog.get_logger(__name__)

_RESOURCE = "pods/binding"


def bind(store: Store, clock: Clock, target: Target, binding: Json, *, dry_run: bool) -> None:
    """Assigns the pod to the node that the Binding names. Raises Failure."""
    meta, aim = binding.get("metadata") or {}, binding.get("target") or {}
    name = meta.get("name") or ""
    if target.name and name != target.name:
        raise bad_request("name in URL does not match name in Binding object")
    problems = _problems(aim)
    if problems:
        # kube-apiserver returns a plain error here, which becomes an internal error.
        said = str(problems[0]) if len(problems) == 1 else "[" + ", ".join(map(str, problems)) + "]"
        raise Failure(500, "", said)
    pod = store.get(POD, target.where, name)
    if pod is None:
        raise not_found(POD, name)
    own, key = pod["metadata"], key_of(pod)
    if meta.get("uid") and meta["uid"] != own["uid"]:
        raise other_uid(POD, key, name, meta["uid"], own["uid"])
    if meta.get("resourceVersion") and meta["resourceVersion"] != own["resourceVersion"]:
        raise other_version(POD, key, name, meta["resourceVersion"], own["resourceVersion"])
    if own.get("deletionTimestamp"):
        raise conflict(POD, name, f"pod {name} is being deleted, cannot be assigned to a host", _RESOURCE)
    if pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        raise conflict(POD, name, why, _RESOURCE)
    if pod["spec"].get("schedulingGates"):
        raise conflict(POD, name, f"pod {name} has non-empty .spec.schedulingGates", _RESOURCE)
    if dry_run:
        return
    bound = _bound(pod, aim["name"], meta, clock.stamp())
    if aim.get("kind") == "Node":
        bound = pods.with_labels_of(bound, store.get(NODE, "", aim["name"]))
    store.replace(POD, bound)


def _problems(aim: Json) -> list[Problem]:
    problems: list[Problem] = []
    if aim.get("kind") and aim["kind"] != "Node":
        problems.append(unsupported("target.kind", aim["kind"], ("Node", "<empty>")))
    if not aim.get("name"):
        problems.append(missing("target.name"))
    return problems


def _bound(pod: Json, node: str, meta: Json, now: str) -> Json:
    status = {key: value for key, value in (pod.get("status") or {}).items() if key != "nominatedNodeName"}
    wanted = {"type": "PodScheduled", "status": "True"}
    status["conditions"] = pods.with_condition(status.get("conditions") or [], wanted, now)
    own = pod["metadata"]
    for key in ("annotations", "labels"):
        if meta.get(key):
            own = {**own, key: {**(own.get(key) or {}), **meta[key]}}
    return {**pod, "metadata": own, "spec": {**pod["spec"], "nodeName": node}, "status": status}


# -- eviction ----------------------------------------------------------------------------------------------------------


def evict(store: Store, writes: Writes, clock: Clock, target: Target, eviction: Json, *, dry_run: bool) -> None:
    """Deletes the pod if its disruption budgets allow it. Raises Failure (404, 409, 429, 500)."""
    name = (eviction.get("metadata") or {}).get("name") or ""
    if name != target.name:
        raise bad_request("name in URL does not match name in Eviction object")
    pod = store.get(POD, target.where, target.name)
    if pod is None:
        raise not_found(POD, target.name)
    wanted = _delete_options(eviction.get("deleteOptions") or {}, dry_run)
    # The budget is spent before the preconditions are checked, as in kube-apiserver.
    if not _may_go_anyway(pod):
        budgets = _budgets(store, pod)
        if len(budgets) > 1:
            raise Failure(500, "InternalError", "This pod has more than one PodDisruptionBudget, which the eviction "
                                                "subresource does not support.")  # fmt: skip
        for budget in budgets:
            if _healthy(pod) or not _always_allows_unhealthy(budget):
                _spend(store, budget, name, clock.stamp(), wanted.dry_run)
    deletion.check(POD, pod, wanted)
    if not wanted.dry_run:
        store.replace(POD, _disrupted(pod, clock.stamp()))
    writes.delete(Target(POD, target.namespace, target.name), wanted)


def _disrupted(pod: Json, now: str) -> Json:
    """The pod with the condition for its eviction, even if the pod is removed at once."""
    status = pod.get("status") or {}
    why = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    said = {**why, "message": "Eviction API: evicting"}
    return {**pod, "status": {**status, "conditions": pods.with_condition(status.get("conditions") or [], said, now)}}


def _delete_options(given: Json, dry_run: bool) -> deletion.Options:
    preconditions: dict[str, Any] = given.get("preconditions") or {}
    dry = dry_run or "All" in (given.get("dryRun") or ())
    return deletion.Options(
        given.get("gracePeriodSeconds"),
        preconditions.get("uid"),
        preconditions.get("resourceVersion"),
        given.get("propagationPolicy"),
        dry,
    )


def _may_go_anyway(pod: Json) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in (*pods.FINISHED, "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def _budgets(store: Store, pod: Json) -> list[Json]:
    labels = pod["metadata"].get("labels") or {}
    budgets = store.list(DISRUPTION_BUDGET, pod["metadata"]["namespace"])
    return [budget for budget in budgets if _is_about(budget, labels)]


def _is_about(budget: Json, labels: Json) -> bool:
    try:
        return selectors.of_label_selector(budget["spec"].get("selector"))(labels)
    except (KeyError, TypeError, AttributeError):
        # Requests with such a selector are refused, but a restored store may hold one.
        _log.exception("a disruption budget cannot be understood", budget=budget["metadata"]["name"])
        return False


def _healthy(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _always_allows_unhealthy(budget: Json) -> bool:
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _spend(store: Store, budget: Json, pod: str, now: str, dry_run: bool) -> None:
    """Decrements the allowed disruptions. Raises Failure (429) if none is left."""
    status, name = budget.get("status") or {}, budget["metadata"]["name"]
    said = "Cannot evict pod as it would violate the pod's disruption budget."
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        cause = {
            "reason": "DisruptionBudget",
            "message": f"The disruption budget {name} is still being processed by the server.",
        }
        raise too_many_requests(said, [cause], retry_after=10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        why = f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        raise too_many_requests(said, [{"reason": "DisruptionBudget", "message": why}])
    if dry_run:
        return
    left = {**status, "disruptionsAllowed": allowed - 1}
    left["disruptedPods"] = {**(status.get("disruptedPods") or {}), pod: now}
    left["conditions"] = [_allowed_condition(allowed - 1, budget, now)]
    store.replace(DISRUPTION_BUDGET, {**budget, "status": left})


def _allowed_condition(left: int, budget: Json, now: str) -> Json:
    return {
        "type": "DisruptionAllowed",
        "status": "True" if left else "False",
        "reason": "SufficientPods" if left else "InsufficientPods",
        "message": "",
        "observedGeneration": budget["metadata"].get("generation", 0),
        "lastTransitionTime": now,
    }
