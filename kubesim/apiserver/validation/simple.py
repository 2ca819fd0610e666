"""Simple kinds: the defaults and rules of nodes, namespaces, services, leases and a few others."""

from __future__ import annotations

import base64
from ipaddress import ip_address

from kubesim.apiserver.machinery import metadata
from kubesim.apiserver.machinery.failures import FIELD_IMMUTABLE, Problem, duplicate, missing, unsupported, wrong
from kubesim.apiserver.validation.pod_rules import amount_problems
from kubesim.kinds import PRIORITY_CLASS, Json, Kind

_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_LARGEST_PRIORITY = 1_000_000_000
_SYSTEM = "system-"

Admitted = tuple[Json, list[Problem]]


def node_problems(node: Json) -> list[Problem]:
    problems: list[Problem] = []
    status = node.get("status") or {}
    for key in ("capacity", "allocatable"):
        for resource, amount in (status.get(key) or {}).items():
            problems += amount_problems(resource, amount, f"status.{key}.{resource}")
    seen = set()
    for at, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        where = f"metadata.taints[{at}]"
        key, effect = taint.get("key", ""), taint.get("effect")
        problems += [wrong(f"{where}.key", key, why) for why in metadata.qualified_name_faults(key)]
        if not effect:
            problems.append(missing(f"{where}.effect"))
        elif effect not in _EFFECTS:
            problems.append(unsupported(f"{where}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            problems.append(duplicate(where, _as_go(taint), "taints must be unique by key and effect pair"))
        seen.add((key, effect))
    return problems


def _as_go(taint: Json) -> Json:
    """The taint with the field names of kube-apiserver's Go type."""
    time = taint.get("timeAdded")
    value, effect = taint.get("value") or "", taint.get("effect") or ""
    return {"Key": taint.get("key") or "", "Value": value, "Effect": effect, "TimeAdded": time}


def new_namespace(kind: Kind, namespace: Json) -> Admitted:
    name = namespace["metadata"].get("name", "")
    labels = {**(namespace["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": name}
    done = {
        **namespace,
        "metadata": {**namespace["metadata"], "labels": labels},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }
    return done, []


def priority_class(obj: Json) -> Json:
    return {"preemptionPolicy": "PreemptLowerPriority", "value": 0, **obj}


def new_priority_class(kind: Kind, obj: Json) -> Admitted:
    name, value = obj["metadata"].get("name", ""), obj["value"]
    problems: list[Problem] = []
    if name.startswith(_SYSTEM):
        why = "priority class names with 'system-' prefix are reserved for system use only. error: "
        why += f"{name} is not a known system priority class"
        problems.append(Problem("FieldValueForbidden", "metadata.name", f"Forbidden: {why}"))
    elif value > _LARGEST_PRIORITY:
        why = f"maximum allowed value of a user defined priority is {_LARGEST_PRIORITY}"
        problems.append(Problem("FieldValueForbidden", "value", f"Forbidden: {why}"))
    return obj, problems


def changed_priority_class(new: Json, old: Json) -> Admitted:
    problems = []
    if new["value"] != old["value"]:
        problems.append(Problem("FieldValueForbidden", "value", "Forbidden: may not be changed in an update."))
    if new["preemptionPolicy"] != old["preemptionPolicy"]:
        problems.append(wrong("preemptionPolicy", new["preemptionPolicy"], FIELD_IMMUTABLE))
    return new, problems


def system_priority_classes() -> list[Json]:
    """The classes that kube-apiserver creates itself, as bodies without UID and time."""
    return [
        {
            "kind": PRIORITY_CLASS.name,
            "apiVersion": PRIORITY_CLASS.api_version,
            "metadata": {"name": name, "generation": 1},
            "value": value,
            "description": f"Used for system critical pods that must {must}.",
            "preemptionPolicy": "PreemptLowerPriority",
        }
        for name, value, must in (
            (
                "system-cluster-critical",
                2_000_000_000,
                "run in the cluster, but can be moved to another node if necessary",
            ),
            ("system-node-critical", 2_000_001_000, "not be moved from their current node"),
        )
    ]


def secret(obj: Json) -> Json:
    done = {"type": "Opaque", **{key: value for key, value in obj.items() if key != "stringData"}}
    if obj.get("stringData"):
        texts = {key: base64.b64encode(text.encode()).decode() for key, text in obj["stringData"].items()}
        done["data"] = {**(obj.get("data") or {}), **texts}
    return done


def service(obj: Json) -> Json:
    spec = dict(obj.get("spec") or {})
    if "ports" in spec:
        spec["ports"] = [{"protocol": "TCP", "targetPort": each.get("port"), **each} for each in spec["ports"]]
    spec = {"sessionAffinity": "None", "type": "ClusterIP", "internalTrafficPolicy": "Cluster", **spec}
    return {**obj, "spec": spec}


def new_service(kind: Kind, obj: Json) -> Admitted:
    if not obj["spec"].get("ports") and obj["spec"].get("clusterIP") != "None":
        return obj, [missing("spec.ports")]
    return {**obj, "status": {"loadBalancer": {}}}, _service_port_problems(obj)


def changed_service(new: Json, old: Json) -> Admitted:
    return new, _service_port_problems(new)


def _service_port_problems(obj: Json) -> list[Problem]:
    ports = [each.get("port") or 0 for each in obj["spec"].get("ports") or ()]
    return [
        wrong(f"spec.ports[{at}].port", port, "must be between 1 and 65535, inclusive")
        for at, port in enumerate(ports)
        if not 1 <= port <= 65535
    ]


def new_endpoint_slice(kind: Kind, endpoints: Json) -> Admitted:
    endpoints = {**endpoints, "endpoints": endpoints.get("endpoints"), "ports": endpoints.get("ports")}
    return endpoints, _endpoint_problems(endpoints)


def changed_endpoint_slice(new: Json, old: Json) -> Admitted:
    problems = _endpoint_problems(new)
    if new.get("addressType") != old.get("addressType"):
        problems.append(wrong("addressType", new.get("addressType"), FIELD_IMMUTABLE))
    return new, problems


def _endpoint_problems(endpoints: Json) -> list[Problem]:
    of_type = endpoints.get("addressType")
    if not of_type:
        return [missing("addressType")]
    if of_type not in _ADDRESS_TYPES:
        return [unsupported("addressType", of_type, _ADDRESS_TYPES)]
    problems: list[Problem] = []
    for at, each in enumerate(endpoints.get("endpoints") or ()):
        if not each.get("addresses"):
            problems.append(missing(f"endpoints[{at}].addresses", "must contain at least 1 address"))
        for index, text in enumerate(each.get("addresses") or ()):
            if of_type != "FQDN" and (why := _address_fault(text)):
                problems.append(wrong(f"endpoints[{at}].addresses[{index}]", text, why))
    return problems


def _address_fault(text: str) -> str:
    try:
        found = ip_address(text)
    except ValueError:
        return "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
    if found.is_loopback:
        return "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    return "may not be unspecified (0.0.0.0 or ::)" if found.is_unspecified else ""


def new_lease(kind: Kind, lease: Json) -> Admitted:
    lease = {**lease, "spec": lease.get("spec") or {}}
    return lease, _lease_problems(lease)


def changed_lease(new: Json, old: Json) -> Admitted:
    new = {**new, "spec": new.get("spec") or {}}
    return new, _lease_problems(new)


def _lease_problems(lease: Json) -> list[Problem]:
    problems = []
    seconds, transitions = lease["spec"].get("leaseDurationSeconds"), lease["spec"].get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        problems.append(wrong("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        problems.append(wrong("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return problems
