"""Seeing: what objects of the API server say, asked in one place.

Shares no code with the service: this is what others judge it by.
"""

from __future__ import annotations

from collections.abc import Iterable

from extender.sim.kinds import NODE, POD, Json
from extender.sim.store import Store

GANG_LABEL, MIN_MEMBER = "escher.dev/gang", "escher.dev/gang-min-member"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
OURS = ("escher", "escher-ledger")
CREW_LABEL = "life/crew"


def uid(found: Json) -> str:
    said: str = found["metadata"]["uid"]
    return said


def name(found: Json) -> str:
    said: str = found["metadata"]["name"]
    return said


def label(found: Json, key: str) -> str:
    said: str = (found["metadata"].get("labels") or {}).get(key, "")
    return said


def annotation(found: Json, key: str) -> str:
    said: str = (found["metadata"].get("annotations") or {}).get(key, "")
    return said


def is_over(pod: Json) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def is_leaving(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_running(pod: Json) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def node_of(pod: Json) -> str:
    said: str = pod["spec"].get("nodeName") or ""
    return said


def is_gated(pod: Json) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def scheduler_of(pod: Json) -> str:
    said: str = pod["spec"].get("schedulerName") or "default-scheduler"
    return said


def controller(pod: Json) -> Json | None:
    for reference in pod["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Json = reference
            return found
    return None


def is_of_daemon_set(pod: Json) -> bool:
    owner = controller(pod)
    return owner is not None and owner["kind"] == "DaemonSet"


def gang_of(pod: Json) -> str:
    """The gang that a pod of ours says it is of; empty: of none."""
    if scheduler_of(pod) not in OURS:
        return ""
    namespace = pod["metadata"]["namespace"]
    if named := label(pod, GANG_LABEL):
        return f"{namespace}/{named}"
    owner = controller(pod)
    if annotation(pod, MIN_MEMBER) and owner is not None:
        return f"{namespace}/{owner['kind'].lower()}.{owner['name']}"
    if group := label(pod, GROUP_LABEL):
        return f"{namespace}/podgroup.{group}"
    return ""


def quorum_said(pod: Json) -> int:
    """What the pod itself says; 0: nothing."""
    said = annotation(pod, MIN_MEMBER)
    return int(said) if said.isdigit() else 0


def amount(quantity: str) -> int:
    """CPU in thousandths."""
    return int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000


def cpu_of(pod: Json) -> int:
    """In thousandths. Only what is made here is read: one container or more, no init containers."""
    asked = (each["resources"]["requests"].get("cpu", "0") for each in pod["spec"]["containers"])
    return sum(map(amount, asked))


def holders(store: Store) -> Iterable[Json]:
    """Pods that hold room on a node."""
    return (pod for pod in store.list(POD) if node_of(pod) and not is_over(pod))


def free_cpu(store: Store) -> dict[str, int]:
    """Of each node that takes new pods, in thousandths."""
    free = {
        name(node): amount(node["status"]["allocatable"]["cpu"])
        for node in store.list(NODE)
        if not node["spec"].get("unschedulable") and not node["spec"].get("taints")
    }
    for pod in holders(store):
        if node_of(pod) in free:
            free[node_of(pod)] -= cpu_of(pod)
    return free
