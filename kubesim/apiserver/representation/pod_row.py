"""The row of a pod in a Table, computed from its phase, conditions and containers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubesim.apiserver.representation.ages import AGE, NAME, age, column, human_duration, seconds
from kubesim.kinds import Json

POD_COLUMNS = [
    NAME,
    column("Ready", "How many of the containers are ready."),
    column("Status", "How the pod is, as told by its containers."),
    column("Restarts", "How often containers were started again, and when last."),
    AGE,
    column("IP", "The pod's address.", wide=True),
    column("Node", "The node it is bound to.", wide=True),
    column("Nominated Node", "The node on which pods are evicted for it.", wide=True),
    column("Readiness Gates", "How many of its readiness gates are true.", wide=True),
]


def pod_cells(pod: Json, now: float) -> list[Any]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    conditions = {each.get("type", ""): each for each in status.get("conditions") or ()}
    sidecars = {each["name"] for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"}
    initializing, ready, seen = _initializing(spec, status, sidecars)
    said = status.get("reason") or status.get("phase") or ""
    if conditions.get("PodScheduled", {}).get("reason") == "SchedulingGated":
        said = "SchedulingGated"
    started = list(status.get("initContainerStatuses") or ())[:seen]
    if initializing:
        said = initializing
    if not initializing or _is_true(conditions, "Initialized"):
        containers = status.get("containerStatuses") or ()
        said = _by_containers(said, containers, _is_true(conditions, "Ready"))
        ready += sum(_is_running(each) for each in containers)
        started = [each for each in started if each.get("name") in sidecars] + list(containers)
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            said = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            said = "Terminating"
    addresses = status.get("podIPs") or [{"ip": status.get("podIP")}]
    return [
        pod["metadata"].get("name", ""),
        f"{ready}/{len(spec.get('containers') or ()) + len(sidecars)}",
        said,
        _restarts(started, now),
        age(pod, now),
        addresses[0].get("ip") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        _gates(spec, conditions),
    ]


def pod_row_conditions(pod: Json) -> list[Json]:
    """For a pod that ended: a condition that its row no longer changes."""
    phase = (pod.get("status") or {}).get("phase")
    messages = {"Succeeded": "The pod has ended well.", "Failed": "The pod has failed."}
    if phase not in messages:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": messages[phase]}]


def _is_true(conditions: dict[str, Json], name: str) -> bool:
    return name in conditions and conditions[name].get("status") == "True"


def _initializing(spec: Json, status: Json, sidecars: set[str]) -> tuple[str, int, int]:
    """First unfinished init container's status ("" if none), ready sidecars before, its number."""
    ready = 0
    containers = status.get("initContainerStatuses") or ()
    for index, container in enumerate(containers):
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), (state.get("waiting") or {}).get("reason")
        if ended is not None and not ended.get("exitCode"):
            continue
        if container.get("name") in sidecars and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        if ended is not None:
            return f"Init:{_end(ended)}", ready, index + 1
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}", ready, index + 1
        return f"Init:{index}/{len(spec.get('initContainers') or ())}", ready, index + 1
    return "", ready, len(containers)


def _by_containers(said: str, containers: Sequence[Json], pod_is_ready: bool) -> str:
    """The pod's status by the first container that waits or ended; failure outweighs success."""
    failure = ""
    for container in reversed(containers):
        state = container.get("state") or {}
        if reason := (state.get("waiting") or {}).get("reason"):
            said = reason
        elif (ended := state.get("terminated")) is not None:
            said = _end(ended)
            failure = said if ended.get("exitCode") else failure
    running = any(_is_running(each) for each in containers)
    if said != "Completed":
        return said
    if running and pod_is_ready:
        return "Running"
    return failure or ("NotReady" if running else said)


def _is_running(container: Json) -> bool:
    """Whether the container is running and ready, and neither waiting nor ended."""
    state = container.get("state") or {}
    return bool(
        container.get("ready")
        and state.get("running") is not None
        and state.get("terminated") is None
        and not (state.get("waiting") or {}).get("reason")
    )


def _end(terminated: Json) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode') or 0}"


def _restarts(containers: Sequence[Json], now: float) -> str:
    count = sum(each.get("restartCount") or 0 for each in containers)
    ends = (((each.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for each in containers)
    last = max((time for end in ends if (time := seconds(end)) is not None), default=None)
    if not count or last is None:
        return str(count)
    return f"{count} ({human_duration(now - last)} ago)"


def _gates(spec: Json, conditions: dict[str, Json]) -> str:
    gates = spec.get("readinessGates") or ()
    if not gates:
        return "<none>"
    return f"{sum(_is_true(conditions, each['conditionType']) for each in gates)}/{len(gates)}"
