"""Pods: defaults that the API server sets in a pod's spec and status.

`pod_rules` finds errors in pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extender.kube.quantities import InvalidQuantity
from kubesim.apiserver.machinery.failures import unreadable_quantity
from kubesim.apiserver.representation.quantities import amounts, canonical
from kubesim.clock import Clock
from kubesim.kinds import Json

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
_PLACES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
FINISHED = ("Succeeded", "Failed")

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_TOLERATION_SECONDS = 300
_VOLUMES: dict[str, Json] = {
    "configMap": {"defaultMode": 420},
    "secret": {"defaultMode": 420},
    "downwardAPI": {"defaultMode": 420},
    "projected": {"defaultMode": 420},
    "hostPath": {"type": ""},
}
_PROBE: Json = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_NO_ENDPOINTS: Json = {"kubeletEndpoint": {"Port": 0}}
_NO_INFO: Json = dict.fromkeys(
    (
        "machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
        "kubeProxyVersion", "operatingSystem", "architecture",
    ),
    "",
)  # fmt: skip
_CONTAINER_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_NO_CONTAINER: Json = {"ready": False, "restartCount": 0, "image": "", "imageID": ""}
_NO_STATE: dict[str, Json] = {
    "running": {"startedAt": None},
    "terminated": {"exitCode": 0, "startedAt": None, "finishedAt": None},
}
_GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"


def completed_spec(spec: Json, *, template: bool = False) -> Json:
    """A pod's spec with the defaults of decoding; `template`: with only those of a Job's template.

    Raises Failure (400) if an amount is no quantity."""
    done = {key: value for key, value in spec.items() if value is not None and value != []}
    for key in _CONTAINERS:
        if key in done:
            done[key] = [_container(each, template=template) for each in done[key]]
    if "volumes" in done:
        done["volumes"] = [_volume(each) for each in done["volumes"]]
    if done.get("hostNetwork"):
        for key in _CONTAINERS:
            if key in done:
                done[key] = [_on_host(each) for each in done[key]]
    if "overhead" in done:
        done["overhead"] = _amounts(done["overhead"])
    done.setdefault("restartPolicy", "Always")
    done.setdefault("terminationGracePeriodSeconds", 30)
    if done["terminationGracePeriodSeconds"] < 0:
        done["terminationGracePeriodSeconds"] = 1
    done.setdefault("dnsPolicy", "ClusterFirst")
    done.setdefault("securityContext", {})
    done.setdefault("schedulerName", "default-scheduler")
    if not template:
        done.setdefault("enableServiceLinks", True)
    for name, other in (("serviceAccount", "serviceAccountName"), ("serviceAccountName", "serviceAccount")):
        if other in done:
            done.setdefault(name, done[other])
    return done


def _container(raw: Json, *, template: bool) -> Json:
    container = {key: value for key, value in raw.items() if value is not None and value != []}
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits"), resources.get("requests")
    done: Json = {key: value for key, value in resources.items() if key not in ("limits", "requests")}
    if limits:
        done["limits"] = _amounts(limits)
    if requests or (limits and not template):
        done["requests"] = {**({} if template else done.get("limits") or {}), **_amounts(requests or {})}
    container["resources"] = done
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image") or ""))
    if "ports" in container:
        container["ports"] = [{**each, "protocol": each.get("protocol") or "TCP"} for each in container["ports"]]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            container[probe] = _probe(container[probe])
    if "env" in container:
        container["env"] = [_variable(each) for each in container["env"]]
    return container


def _probe(probe: Json) -> Json:
    done = {**_PROBE, **probe}
    if isinstance(done.get("httpGet"), dict):
        done["httpGet"] = {"path": "/", "scheme": "HTTP", **done["httpGet"]}
    return done


def _variable(variable: Json) -> Json:
    source = variable.get("valueFrom") or {}
    if "fieldRef" not in source:
        return variable
    return {**variable, "valueFrom": {**source, "fieldRef": {"apiVersion": "v1", **source["fieldRef"]}}}


def _volume(volume: Json) -> Json:
    if set(volume) == {"name"}:
        return {**volume, "emptyDir": {}}
    for source, defaults in _VOLUMES.items():
        if isinstance(volume.get(source), dict):
            return {**volume, source: {**defaults, **volume[source]}}
    return volume


def _on_host(container: Json) -> Json:
    if "ports" not in container:
        return container
    ports = [{**each, "hostPort": each.get("hostPort") or each.get("containerPort")} for each in container["ports"]]
    return {**container, "ports": ports}


def _pull_policy(image: str) -> str:
    last = image.rpartition("/")[2]
    if "@" in last:
        return "IfNotPresent"
    return "Always" if last.partition(":")[2] in ("", "latest") else "IfNotPresent"


def _amounts(raw: Any) -> Json:
    try:
        return amounts(raw)
    except (InvalidQuantity, AttributeError):
        raise unreadable_quantity("Pod") from None


def of_new(spec: Json, priorities: Mapping[str, Json], default: Json | None) -> Json:
    """A completed spec with what admission adds: priority and the usual tolerations.

    `priorities`: PriorityClasses by name; `default`: the global default. Raises KeyError with the name of a missing
    class."""
    done = dict(spec)
    name = done.get("priorityClassName")
    chosen = priorities[name] if name else default
    if chosen is not None:
        done["priorityClassName"] = chosen["metadata"]["name"]
    done["priority"] = chosen["value"] if chosen is not None else 0
    done.setdefault("preemptionPolicy", (chosen or {}).get("preemptionPolicy") or "PreemptLowerPriority")
    return tolerant(done)


def tolerant(spec: Json) -> Json:
    """The spec with the tolerations that every pod gets, also on each update."""
    tolerations = spec.get("tolerations") or []
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_SECONDS}
        for key in (NOT_READY, UNREACHABLE)
        if not any(each.get("key") in (None, "", key) and each.get("effect") in (None, "", "NoExecute")
                   for each in tolerations)
    ]  # fmt: skip
    return {**spec, "tolerations": [*tolerations, *added]} if added else spec


def with_labels_of(pod: Json, node: Json | None) -> Json:
    """A pod assigned to this node, with the topology labels of the node."""
    if node is None:
        return pod
    there = node["metadata"].get("labels") or {}
    labels = {key: there[key] for key in _PLACES if key in there}
    if not labels:
        return pod
    metadata = pod["metadata"]
    return {**pod, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}}


def new_status(spec: Json, clock: Clock) -> Json:
    status: Json = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": clock.stamp(),
                "reason": "SchedulingGated",
                "message": _GATED_MESSAGE,
            }
        ]
    status["qosClass"] = qos_class(spec)
    return status


def with_times(status: Json, *names: str) -> Json:
    """The status with the times of its conditions; missing times become null."""
    conditions = status.get("conditions")
    if not conditions or all(name in each for each in conditions for name in names):
        return status
    empty = dict.fromkeys(names)
    return {**status, "conditions": [{**empty, **each} for each in conditions]}


def with_states(status: Json) -> Json:
    """A pod's status with the default fields of its container statuses."""
    told = {key: [_told(each) for each in status[key]] for key in _CONTAINER_STATUSES if status.get(key)}
    return {**status, **told} if told else status


def _told(container: Json) -> Json:
    states = {key: _state(container.get(key) or {}) for key in ("state", "lastState")}
    return {**_NO_CONTAINER, **container, **states}


def _state(state: Any) -> Any:
    if not isinstance(state, dict):
        return state
    return {key: {**_NO_STATE.get(key, {}), **value} for key, value in state.items() if isinstance(value, dict)}


def qos_class(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort, by its containers' cpu and memory amounts."""
    guaranteed, any_amount = True, False
    for container in [*(spec.get("initContainers") or ()), *spec.get("containers", ())]:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for resource in ("cpu", "memory"):
            asked, limit = requests.get(resource, "0"), limits.get(resource, "0")
            any_amount = any_amount or asked != "0" or limit != "0"
            guaranteed = guaranteed and limit != "0" and asked == limit
    if not any_amount:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def with_condition(conditions: list[Json], wanted: Json, now: str) -> list[Json]:
    """The conditions with this one replaced; its transition time changes only with its status."""
    new: Json = {"lastProbeTime": None, "lastTransitionTime": now, **wanted}
    for at, old in enumerate(conditions):
        if old.get("type") == wanted["type"]:
            if old.get("status") == wanted["status"]:
                new["lastTransitionTime"] = old.get("lastTransitionTime")
            return [*conditions[:at], new, *conditions[at + 1 :]]
    return [*conditions, new]


def node_amounts(status: Json) -> Json:
    """A node's status with canonical amounts; allocatable defaults to capacity.

    Raises Failure (400)."""
    done = {"daemonEndpoints": _NO_ENDPOINTS, "nodeInfo": _NO_INFO, **status}
    try:
        for key in ("capacity", "allocatable"):
            if done.get(key) is not None:
                done[key] = {resource: canonical(str(amount)) for resource, amount in done[key].items()}
    except (InvalidQuantity, AttributeError):
        raise unreadable_quantity("Node") from None
    if done.get("allocatable") is None and done.get("capacity") is not None:
        done["allocatable"] = done["capacity"]
    return done
