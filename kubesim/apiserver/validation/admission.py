"""Admission: defaults, validation and update rules for an object before it is stored, by its kind.

A kind with rules for more than metadata has an entry in `_NEW` or `_CHANGED`. Admission reads stored namespaces,
priority classes, policies and nodes.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kubesim import kinds
from kubesim.apiserver.machinery import metadata
from kubesim.apiserver.machinery.failures import Failure, Problem, forbidden, forbidden_field, invalid
from kubesim.apiserver.machinery.store import Store
from kubesim.apiserver.schemas import definitions, policy_rules, schema
from kubesim.apiserver.validation import (
    budget_rules,
    condition_rules,
    daemon_sets_api,
    jobs_api,
    mutations,
    neighbour_rules,
    pod_rules,
    pods,
    simple,
)
from kubesim.clock import Clock
from kubesim.kinds import Json, Kind

STATUS = "status"

_COUNTED = (
    kinds.POD,
    kinds.JOB,
    kinds.DAEMON_SET,
    kinds.PRIORITY_CLASS,
    kinds.DISRUPTION_BUDGET,
    kinds.CUSTOM_RESOURCE_DEFINITION,
    kinds.MUTATING_POLICY,
    kinds.MUTATING_POLICY_BINDING,
)
"""Built-in kinds whose metadata has a generation."""


class Admission:
    def __init__(self, store: Store, clock: Clock, rng: random.Random) -> None:
        self.store, self.clock, self.rng = store, clock, rng

    def of_new(self, kind: Kind, obj: Json, namespace: str) -> Json:
        """The object as it is stored. Raises Failure."""
        meta = metadata.of_new(kind, obj, namespace, self.clock, self.rng)
        if kind.namespaced:
            self._require_namespace(kind, meta)
        if kind.is_custom or kind in _COUNTED:
            meta["generation"] = 1
        body = {**_header(kind), "metadata": meta, **_without_header(obj)}
        problems = metadata.problems_of_new(kind, meta)
        if kind.is_custom:
            body, found = schema.of_new(kind, body)
            return _passed(kind, body, [*problems, *found])
        body = complete(kind, without_nulls(body))
        admit = _NEW.get(kind)
        if admit is not None:
            body, found = admit(self, kind, body)
            problems += found
        return _passed(kind, body, problems)

    def of_changed(self, kind: Kind, new: Json, old: Json, subresource: str = "") -> Json:
        """The object as it replaces `old`; the metadata of `new` is in shape. Raises Failure."""
        meta = metadata.carried_over(new["metadata"], old["metadata"])
        body = {**_header(kind), "metadata": meta, **_without_header(new)}
        if kind.is_custom:
            body, problems = schema.of_changed(kind, body, old, subresource)
            found = metadata.problems_of_update(body["metadata"], old["metadata"])
            return _passed(kind, body, [*found, *problems])
        body = complete(kind, without_nulls(body))
        if STATUS in kind.subresources:
            body = _parted(kind, body, old, subresource)
        problems = metadata.problems_of_update(body["metadata"], old["metadata"])
        change = _CHANGED.get(kind)
        if change is not None:
            body, found = change(self, kind, body, old)
            problems += found
        if kind in _COUNTED and body.get("spec") != old.get("spec"):
            body = {**body, "metadata": {**body["metadata"], "generation": old["metadata"].get("generation", 0) + 1}}
        return _passed(kind, body, problems)

    def _require_namespace(self, kind: Kind, meta: Json) -> None:
        name = meta["namespace"]
        namespace = self.store.get(kinds.NAMESPACE, "", name)
        if namespace is None:
            details = {"name": name, "kind": "namespaces"}
            raise Failure(404, "NotFound", f'namespaces "{name}" not found', details)
        if namespace["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {name} because it is being terminated"
            failure = forbidden(kind, meta.get("name", ""), why)
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated",
                     "field": "metadata.namespace"}  # fmt: skip
            assert failure.details is not None
            failure.details["causes"] = [cause]
            raise failure


def complete(kind: Kind, obj: Json) -> Json:
    """The object with the defaults that every decoding applies."""
    defaults = _DEFAULTS.get(kind)
    return obj if defaults is None else defaults(obj)


def without_nulls(value: Json) -> Json:
    """The object without nulls, as a typed decoder reads it. Parts without nulls are shared."""
    return _cleaned(value)  # type: ignore[return-value]


_NULLABLE = frozenset({"lastProbeTime", "lastHeartbeatTime", "lastTransitionTime"})


def _cleaned(value: object) -> object:
    if isinstance(value, dict):
        done = {}
        changed = False
        for key, each in value.items():
            if each is None and key not in _NULLABLE:
                changed = True
                continue
            kept = each if isinstance(each, str) else _cleaned(each)
            changed = changed or kept is not each
            done[key] = kept
        return done if changed else value
    if isinstance(value, list):
        items = [_cleaned(each) for each in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _header(kind: Kind) -> Json:
    return {"kind": kind.name, "apiVersion": kind.api_version}


def _without_header(obj: Json) -> Json:
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion", "metadata")}


def _passed(kind: Kind, body: Json, problems: list[Problem]) -> Json:
    if problems:
        raise invalid(kind, body["metadata"].get("name", ""), problems)
    return body


def _parted(kind: Kind, new: Json, old: Json, subresource: str) -> Json:
    """The subresource `status` changes only status and metadata; others keep the status."""
    if subresource == STATUS:
        done = {key: value for key, value in old.items() if key not in ("metadata", STATUS)}
        done["metadata"] = new["metadata"]
        if STATUS in new:
            done[STATUS] = new[STATUS]
        return done
    done = {key: value for key, value in new.items() if key != STATUS}
    if STATUS in old:
        done[STATUS] = old[STATUS]
    return done


# -- pods --------------------------------------------------------------------------------------------------------------


def _pod_defaults(pod: Json) -> Json:
    done = {**pod, "spec": pods.completed_spec(pod.get("spec") or {})}
    if done.get("status"):
        done["status"] = pods.with_states(pods.with_times(done["status"], "lastProbeTime", "lastTransitionTime"))
    return done


def _new_pod(admission: Admission, kind: Kind, pod: Json) -> tuple[Json, list[Problem]]:
    pod = _by_plugins(admission, kind, pod)
    changed = mutations.of_pod(pod, admission.store, lambda new: _pod_defaults(without_nulls(new)))
    problems: list[Problem] = []
    if changed is not pod:
        # The admission plugins run again on a pod that policies have changed.
        pod = _by_plugins(admission, kind, changed)
        problems = metadata.problems_of_new(kind, pod["metadata"])
    spec = neighbour_rules.with_label_keys(pod["spec"], pod["metadata"].get("labels") or {})
    pod = {**pod, "spec": spec, "status": pods.new_status(spec, admission.clock)}
    problems += [*pod_rules.problems_of_new_annotations(pod), *pod_rules.problems_of_spec(spec)]
    if spec.get("ephemeralContainers"):
        problems.append(forbidden_field("spec.ephemeralContainers", "cannot be set on create"))
    return pod, problems


def _by_plugins(admission: Admission, kind: Kind, pod: Json) -> Json:
    """The new pod with what kube-apiserver's own admission plugins add. Raises Failure (403)."""
    classes = {each["metadata"]["name"]: each for each in admission.store.list(kinds.PRIORITY_CLASS)}
    default = next((each for each in classes.values() if each.get("globalDefault")), None)
    name = pod["metadata"].get("name", "")
    given = pod["spec"]
    try:
        spec = pods.of_new(given, classes, default)
    except KeyError as error:
        raise forbidden(kind, name, f"no PriorityClass with name {error.args[0]} was found") from None
    if given.get("priority") is not None and given["priority"] != spec["priority"]:
        why = (
            f"the integer value of priority ({given['priority']}) must not be provided in pod spec; priority admission "
            f"controller computed {spec['priority']} from the given PriorityClass name"
        )
        raise forbidden(kind, name, why)
    policy = (classes.get(spec.get("priorityClassName") or "") or {}).get("preemptionPolicy")
    if policy and spec["preemptionPolicy"] != policy:
        why = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise forbidden(kind, name, why)
    if spec.get("runtimeClassName"):
        raise forbidden(kind, name, f'pod rejected: RuntimeClass "{spec["runtimeClassName"]}" not found')
    if spec.get("overhead"):
        why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise forbidden(kind, name, why)
    pod = {**pod, "spec": spec}
    node = admission.store.get(kinds.NODE, "", spec["nodeName"]) if spec.get("nodeName") else None
    return pods.with_labels_of(pod, node)


def _changed_pod(admission: Admission, kind: Kind, pod: Json, old: Json) -> tuple[Json, list[Problem]]:
    spec = pod["spec"]
    if spec is old["spec"]:
        status = pod.get("status") or {}
        if not status.get("qosClass"):
            pod = {**pod, "status": {**status, "qosClass": old["status"]["qosClass"]}}
        references = old["metadata"].get("ownerReferences")
        if pod["metadata"].get("ownerReferences") != references:
            meta = {key: value for key, value in pod["metadata"].items() if key != "ownerReferences"}
            pod = {**pod, "metadata": {**meta, **({"ownerReferences": references} if references else {})}}
        problems = condition_rules.type_problems(status.get("conditions") or (), "status.conditions")
        return pod, problems
    for key in ("priority", "preemptionPolicy"):
        if key not in spec and key in old["spec"]:
            spec = {**spec, key: old["spec"][key]}
    spec = pods.tolerant(spec)
    problems = pod_rules.problems_of_annotations_change(pod, old)
    return {**pod, "spec": spec}, [*problems, *pod_rules.problems_of_change(spec, old["spec"])]


def _new_definition(admission: Admission, kind: Kind, obj: Json) -> tuple[Json, list[Problem]]:
    return definitions.of_new(kind, obj, admission.clock.stamp())


# -- nodes -------------------------------------------------------------------------------------------------------------


def _node_defaults(node: Json) -> Json:
    status = pods.with_times(pods.node_amounts(node.get("status") or {}), "lastHeartbeatTime", "lastTransitionTime")
    return {**node, "spec": node.get("spec") or {}, "status": status}


def _new_node(admission: Admission, kind: Kind, node: Json) -> tuple[Json, list[Problem]]:
    return {**node, "status": node.get("status") or {}}, simple.node_problems(node)


def _changed_node(admission: Admission, kind: Kind, node: Json, old: Json) -> tuple[Json, list[Problem]]:
    return node, simple.node_problems(node)


_Defaults = Callable[[Json], Json]
_New = Callable[[Admission, Kind, Json], tuple[Json, list[Problem]]]
_Changed = Callable[[Admission, Kind, Json, Json], tuple[Json, list[Problem]]]


def _plain_new(admit: Callable[[Kind, Json], tuple[Json, list[Problem]]]) -> _New:
    return lambda admission, kind, obj: admit(kind, obj)


def _plain_changed(change: Callable[[Json, Json], tuple[Json, list[Problem]]]) -> _Changed:
    return lambda admission, kind, new, old: change(new, old)


_DEFAULTS: dict[Kind, _Defaults] = {
    kinds.POD: _pod_defaults,
    kinds.NODE: _node_defaults,
    kinds.JOB: jobs_api.completed,
    kinds.DAEMON_SET: daemon_sets_api.completed,
    kinds.PRIORITY_CLASS: simple.priority_class,
    kinds.SECRET: simple.secret,
    kinds.SERVICE: simple.service,
    kinds.CUSTOM_RESOURCE_DEFINITION: definitions.completed,
    kinds.MUTATING_POLICY: policy_rules.completed,
    kinds.MUTATING_POLICY_BINDING: policy_rules.completed_binding,
}
_NEW: dict[Kind, _New] = {
    kinds.POD: _new_pod,
    kinds.NODE: _new_node,
    kinds.JOB: _plain_new(jobs_api.of_new),
    kinds.DAEMON_SET: _plain_new(daemon_sets_api.of_new),
    kinds.NAMESPACE: _plain_new(simple.new_namespace),
    kinds.PRIORITY_CLASS: _plain_new(simple.new_priority_class),
    kinds.DISRUPTION_BUDGET: _plain_new(budget_rules.new_budget),
    kinds.SERVICE: _plain_new(simple.new_service),
    kinds.LEASE: _plain_new(simple.new_lease),
    kinds.ENDPOINT_SLICE: _plain_new(simple.new_endpoint_slice),
    kinds.CUSTOM_RESOURCE_DEFINITION: _new_definition,
    kinds.MUTATING_POLICY: _plain_new(policy_rules.of_new),
    kinds.MUTATING_POLICY_BINDING: _plain_new(policy_rules.of_new_binding),
}
_CHANGED: dict[Kind, _Changed] = {
    kinds.POD: _changed_pod,
    kinds.NODE: _changed_node,
    kinds.JOB: _plain_changed(jobs_api.of_changed),
    kinds.DAEMON_SET: _plain_changed(daemon_sets_api.of_changed),
    kinds.PRIORITY_CLASS: _plain_changed(simple.changed_priority_class),
    kinds.DISRUPTION_BUDGET: _plain_changed(budget_rules.changed_budget),
    kinds.SERVICE: _plain_changed(simple.changed_service),
    kinds.LEASE: _plain_changed(simple.changed_lease),
    kinds.ENDPOINT_SLICE: _plain_changed(simple.changed_endpoint_slice),
    kinds.CUSTOM_RESOURCE_DEFINITION: _plain_changed(definitions.of_changed),
    kinds.MUTATING_POLICY: _plain_changed(policy_rules.of_changed),
    kinds.MUTATING_POLICY_BINDING: _plain_changed(policy_rules.of_changed_binding),
}
