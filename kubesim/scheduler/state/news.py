"""News: changes of pods and nodes as the events to which kube-scheduler's plugins subscribe."""

from __future__ import annotations

from enum import Enum

from kubesim.scheduler.state.seen import SeenNode, SeenPod


class ClusterEvent(Enum):
    """An event. `ASSIGNED_POD`: of pods with a node, assumed ones too.

    `PENDING_POD`: the pod's own updates before it has a node. `..._UPDATE`: an update of no narrower sort.
    """

    ASSIGNED_POD_ADD = "AssignedPodAdd"
    ASSIGNED_POD_DELETE = "AssignedPodDelete"
    ASSIGNED_POD_UPDATE = "AssignedPodUpdate"
    ASSIGNED_POD_LABEL = "AssignedPodUpdatePodLabel"
    ASSIGNED_POD_SCALE_DOWN = "AssignedPodUpdatePodScaleDown"
    ASSIGNED_POD_TOLERATION = "AssignedPodUpdatePodToleration"
    ASSIGNED_POD_GATES = "AssignedPodUpdatePodSchedulingGatesEliminated"
    PENDING_POD_UPDATE = "UnschedulablePodUpdate"
    PENDING_POD_LABEL = "UnschedulablePodUpdatePodLabel"
    PENDING_POD_SCALE_DOWN = "UnschedulablePodUpdatePodScaleDown"
    PENDING_POD_TOLERATION = "UnschedulablePodUpdatePodToleration"
    PENDING_POD_GATES = "UnschedulablePodUpdatePodSchedulingGatesEliminated"
    NODE_ADD = "NodeAdd"
    NODE_DELETE = "NodeDelete"
    NODE_ALLOCATABLE = "NodeUpdateNodeAllocatable"
    NODE_LABEL = "NodeUpdateNodeLabel"
    NODE_TAINT = "NodeUpdateNodeTaint"
    NODE_CONDITION = "NodeUpdateNodeCondition"
    NODE_ANNOTATION = "NodeUpdateNodeAnnotation"
    TIMEOUT = "UnschedulableTimeout"
    """For all pods, whatever plugin rejected them."""
    FORCED = "ForceActivate"
    """For one pod, whatever plugin rejected it."""


_ASSIGNED = {
    "label": ClusterEvent.ASSIGNED_POD_LABEL,
    "scale down": ClusterEvent.ASSIGNED_POD_SCALE_DOWN,
    "gates": ClusterEvent.ASSIGNED_POD_GATES,
    "toleration": ClusterEvent.ASSIGNED_POD_TOLERATION,
    "other": ClusterEvent.ASSIGNED_POD_UPDATE,
}
_PENDING = {
    "label": ClusterEvent.PENDING_POD_LABEL,
    "scale down": ClusterEvent.PENDING_POD_SCALE_DOWN,
    "gates": ClusterEvent.PENDING_POD_GATES,
    "toleration": ClusterEvent.PENDING_POD_TOLERATION,
    "other": ClusterEvent.PENDING_POD_UPDATE,
}


def of_pod(old: SeenPod, new: SeenPod) -> list[ClusterEvent]:
    """The events of a pod's update; at least one."""
    names = _ASSIGNED if new.node else _PENDING
    events: list[ClusterEvent] = []
    if old.labels != new.labels:
        events.append(names["label"])
    if any(units > new.requests.get(resource, 0) for resource, units in old.requests.items()):
        events.append(names["scale down"])
    if old.gates and not new.gates:
        events.append(names["gates"])
    if len(old.rules.tolerations) != len(new.rules.tolerations):
        events.append(names["toleration"])
    return events or [names["other"]]


def of_node(old: SeenNode, new: SeenNode) -> list[ClusterEvent]:
    """The events of a node's update; none for a heartbeat."""
    events: list[ClusterEvent] = []
    if old.rules.unschedulable and not new.rules.unschedulable:
        events.append(ClusterEvent.NODE_TAINT)
    if old.allocatable != new.allocatable:
        events.append(ClusterEvent.NODE_ALLOCATABLE)
    if old.labels != new.labels:
        events.append(ClusterEvent.NODE_LABEL)
    if old.rules.taints != new.rules.taints:
        events.append(ClusterEvent.NODE_TAINT)
    if old.conditions != new.conditions:
        events.append(ClusterEvent.NODE_CONDITION)
    if old.annotations != new.annotations:
        events.append(ClusterEvent.NODE_ANNOTATION)
    return events
