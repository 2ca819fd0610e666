"""Objects: pods and nodes as Kubernetes' JSON spells them.

The shapes are those of the API server's answers and of the objects in kube-scheduler's calls. They declare only the
fields that a decision needs; the decoder skips the others. Required fields have no default. So the decoder refuses an
empty pod or one in other spelling (msgspec.ValidationError), and never takes it for a pod without requests. `reading`
interprets the shapes.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, field

from extender.kube.names import PodUid
from extender.kube.pod_requests import Quantity

Quantities = dict[str, Quantity]


class _Json(Struct, rename="camel", gc=False):
    """Short-lived and without cycles, so the garbage collector need not track them."""


class Anything(_Json):
    """An object that is present; its content does not matter."""


class ContainerPort(_Json):
    container_port: int = 0
    host_port: int = 0
    protocol: str = ""
    host_ip: str = field(default="", name="hostIP")


class LabelRequirement(_Json):
    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(_Json):
    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelRequirement] | None = None


class PodAffinityTerm(_Json):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PodAffinity(_Json):
    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None


class SpreadConstraint(_Json):
    topology_key: str
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class Volume(_Json):
    """Only the kinds of volumes for which kube-scheduler checks more than the pod."""

    persistent_volume_claim: Anything | None = None
    ephemeral: Anything | None = None
    gce_persistent_disk: Anything | None = None
    aws_elastic_block_store: Anything | None = None
    iscsi: Anything | None = None
    rbd: Anything | None = None


class OwnerReference(_Json):
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    api_version: str = ""


class PodMetadata(_Json):
    name: str
    namespace: str
    uid: PodUid
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] | None = None
    resource_version: str = ""


class Resources(_Json):
    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(_Json):
    name: str = ""
    resources: Resources | None = None
    ports: list[ContainerPort] | None = None
    restart_policy: str | None = None


class SelectorRequirement(_Json):
    key: str
    operator: str
    values: list[str] | None = None


class NodeSelectorTerm(_Json):
    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(_Json):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(_Json):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(_Json):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TolerationJson(_Json):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SchedulingGate(_Json):
    name: str = ""


class PodSpec(_Json):
    containers: list[Container]
    init_containers: list[Container] | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[TolerationJson] | None = None
    overhead: Quantities | None = None
    resources: Resources | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    host_network: bool | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[Anything] | None = None


class ContainerStatus(_Json):
    name: str
    resources: Resources | None = None
    allocated_resources: Quantities | None = None


class PodCondition(_Json):
    type: str
    status: str = ""
    reason: str = ""
    last_transition_time: datetime | None = None


class PodStatus(_Json):
    phase: str = ""
    nominated_node_name: str | None = None
    start_time: datetime | None = None
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: Resources | None = None
    allocated_resources: Quantities | None = None


class Pod(_Json):
    """A Pod, `v1`."""

    metadata: PodMetadata
    spec: PodSpec
    status: PodStatus | None = None
    cut: dict[str, int] | None = None
    """Not from Kubernetes: bytes of each field that was cut out before decoding."""


class NodeMetadata(_Json):
    name: str
    uid: str = ""
    labels: dict[str, str] | None = None
    resource_version: str = ""


class TaintJson(_Json):
    key: str
    effect: str
    value: str = ""


class NodeSpec(_Json):
    taints: list[TaintJson] | None = None
    unschedulable: bool = False


class NodeStatus(_Json):
    capacity: Quantities | None = None
    allocatable: Quantities | None = None


class Node(_Json):
    """A Node, `v1`."""

    metadata: NodeMetadata
    spec: NodeSpec | None = None
    status: NodeStatus | None = None
