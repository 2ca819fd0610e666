"""Models: the bodies of the management API, as pydantic checks and OpenAPI describes them.

Translates them into the core's types. Unknown keys are refused, because ignoring a misspelt `capactiy` is worse than an
error. Numbers are read strictly: "4", 1.5 and true are no capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    StrictStr,
    WithJsonSchema,
)

from extender.adapters.http.models.node_spec import NODE_NAME_SCHEMA, NodeSpec, node_name
from extender.adapters.http.models.quantities import read_vector
from extender.app.contracts.api import Claim, Operation, Release, SetResource, Transact
from extender.app.contracts.ports import NodeChoice, PodOwner
from extender.core.ledger.ledger import Detection, Mode
from extender.core.names import EphemeralName, ephemeral_name
from extender.core.tenancy.tenancy import MOST_EXPORTS
from extender.kube.names import LABEL_LIMIT, NodeName, PodUid, ResourceKey, require_label
from extender.kube.quantities import LARGEST_AMOUNT

_MOST_OPERATIONS = 1000
_LONGEST_TTL = 10 * 365 * 86400

LABEL_SCHEMA: dict[str, JsonValue] = {"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": LABEL_LIMIT}
"""A DNS label for OpenAPI. `require_label` checks it, and explains errors in words."""

Capacity = Annotated[
    StrictInt,
    Field(ge=0, le=LARGEST_AMOUNT, description="Units, absolute; a whole number. 0 removes it.", examples=[4]),
]
Ttl = Annotated[
    float,
    Field(
        gt=0,
        le=_LONGEST_TTL,
        strict=True,
        allow_inf_nan=False,
        description="Seconds until it is removed, unless it is set again. Null: it stays.",
        examples=[600],
    ),
]
Node = Annotated[
    str,
    AfterValidator(node_name),
    Field(description="A node's name", examples=["node-3"], json_schema_extra=NODE_NAME_SCHEMA),
]
Quantities = Annotated[
    dict[ResourceKey, int],
    BeforeValidator(lambda value: read_vector(value) if isinstance(value, dict) else value),
    Field(min_length=1),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]},
            "description": "Units by resource; cpu in cores, others in whole units, or as Kubernetes quantities",
            "examples": [{"cpu": 0.5, "memory": "1Gi", "escher.dev/team-a.data1": 1}],
        }
    ),
]


class Body(BaseModel):
    """Refuses keys that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _namespaces(names: Sequence[str] | None) -> Sequence[str] | None:
    return names if names is None else [require_label("export_to", each) for each in dict.fromkeys(names)]


class OwnerBody(Body):
    """The pod whose end removes the resource. In a pod, the downward API gives both values."""

    name: Annotated[StrictStr, Field(min_length=1, max_length=253, examples=["trainer-0"])]
    uid: Annotated[StrictStr, Field(min_length=1, max_length=64, examples=["3f0c1c1e-0f8e-4f1c-9a51-6a3f1c3c9a51"])]

    def owner(self) -> PodOwner:
        return PodOwner(self.name, PodUid(self.uid))


class ResourceBody(Body):
    """The desired state of an ephemeral resource on the chosen nodes."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"capacity": 4, "node_spec": "node-3", "ttl_seconds": 600},
                {"capacity": 1, "node_spec": {"nvidia.com/gpu": 2}, "num_nodes": 1},
                {"capacity": 1, "node_spec": {"labels": {"topology.kubernetes.io/zone": "a"}}},
            ]
        }
    )

    capacity: Capacity
    node_spec: NodeSpec = None
    num_nodes: Annotated[
        StrictInt | None,
        Field(ge=1, le=1_000_000, description="The maximum number of nodes. A repeated call keeps the chosen nodes."),
    ] = None
    ttl_seconds: Ttl | None = None
    owner: OwnerBody | None = None
    shared: Annotated[
        StrictBool, Field(description="Without the namespace in its key: `escher.dev/data1`. Needs its own permission.")
    ] = False
    export_to: Annotated[
        Sequence[Annotated[StrictStr, Field(json_schema_extra=LABEL_SCHEMA)]] | None,
        Field(
            max_length=MOST_EXPORTS,
            description="Other namespaces whose pods may request it; null: as before, []: none.",
            examples=[["team-b"]],
        ),
        AfterValidator(_namespaces),
    ] = None

    def request(
        self,
        name: EphemeralName,
        *,
        caller_node: NodeName | None = None,
        if_version: str | None = None,
        if_absent: bool = False,
        dry_run: bool = False,
    ) -> SetResource:
        """Returns the request in the core's types. Raises ValueError if no node can be derived."""
        choice = self.node_spec
        if choice is None and caller_node is None and self.owner is None:
            raise ValueError(
                "names no node, and the caller's node is unknown: set node_spec to a node's name, to resources or"
                " to labels, or name your pod (owner) or your node (header Escher-Node)"
            )
        if choice is not None and self.num_nodes is not None:
            choice = NodeChoice(choice.node, choice.available, choice.labels, self.num_nodes)
        return SetResource(
            name=name,
            capacity=self.capacity,
            choice=choice,
            caller_node=caller_node,
            ttl_seconds=self.ttl_seconds,
            owner=self.owner.owner() if self.owner else None,
            if_version=if_version,
            if_absent=if_absent,
            dry_run=dry_run,
            exports=None if self.export_to is None else tuple(self.export_to),
        )


class SetOperation(ResourceBody):
    """set_resource, as one of several operations."""

    op: Literal["set"]
    namespace: Annotated[StrictStr, Field(examples=["team-a"], json_schema_extra=LABEL_SCHEMA)]
    name: Annotated[StrictStr, Field(examples=["data1"], json_schema_extra=LABEL_SCHEMA)]
    if_version: StrictStr | None = None

    def operation(self, caller_node: NodeName | None, dry_run: bool) -> SetResource:
        name = ephemeral_name(self.namespace, self.name, shared=self.shared)
        return self.request(name, caller_node=caller_node, if_version=self.if_version, dry_run=dry_run)


class ClaimOperation(Body):
    """Units of a node, held for a holder that the caller names."""

    op: Literal["claim"]
    namespace: Annotated[StrictStr, Field(examples=["team-a"], json_schema_extra=LABEL_SCHEMA)]
    holder: Annotated[StrictStr, Field(examples=["agent-1-task-7"], json_schema_extra=LABEL_SCHEMA)]
    node: Node
    units: Quantities
    ttl_seconds: Ttl

    def operation(self, caller_node: NodeName | None, dry_run: bool) -> Claim:
        return Claim(
            namespace=require_label("namespace", self.namespace),
            holder=require_label("holder", self.holder),
            node=NodeName(self.node),
            units=self.units,
            ttl_seconds=self.ttl_seconds,
        )


class ReleaseOperation(Body):
    """Releases the holder's units."""

    op: Literal["release"]
    namespace: Annotated[StrictStr, Field(examples=["team-a"], json_schema_extra=LABEL_SCHEMA)]
    holder: Annotated[StrictStr, Field(examples=["agent-1-task-7"], json_schema_extra=LABEL_SCHEMA)]

    def operation(self, caller_node: NodeName | None, dry_run: bool) -> Release:
        return Release(
            namespace=require_label("namespace", self.namespace), holder=require_label("holder", self.holder)
        )


AnyOperation = Annotated[SetOperation | ClaimOperation | ReleaseOperation, Field(discriminator="op")]


def _not_too_many(value: object) -> object:
    # pydantic checks all items of a list, and has an error for each, before it finds that there are too many.
    if isinstance(value, list) and len(value) > _MOST_OPERATIONS:
        raise ValueError(f"at most {_MOST_OPERATIONS} operations")
    return value


class TransactionBody(Body):
    """Several operations, committed all or none, or all that do not conflict."""

    operations: Annotated[
        Sequence[AnyOperation], Field(min_length=1, max_length=_MOST_OPERATIONS), BeforeValidator(_not_too_many)
    ]
    mode: Annotated[Mode, Field(description="Whether one conflict refuses all operations.")] = Mode.ALL_OR_NOTHING
    detection: Annotated[
        Detection, Field(description="A conflict is: too few units free now; or any claim on the node after the read.")
    ] = Detection.RESOURCE_FIT
    read: Annotated[
        dict[Node, StrictInt] | None,
        Field(description="For sequence-number: `sequence` of the nodes in the cluster state that you read."),
    ] = None

    def request(self, caller_node: NodeName | None, dry_run: bool) -> Transact:
        """Returns the request in the core's types. Raises ValueError, InOperation."""
        if self.detection is Detection.SEQUENCE_NUMBER and self.read is None:
            raise ValueError("is needed for detection sequence-number: `sequence` of each node, from the cluster state")
        operations: list[Operation] = []
        for index, each in enumerate(self.operations):
            try:
                operations.append(each.operation(caller_node, dry_run))
            except ValueError as error:
                raise InOperation(index, getattr(error, "field", "node_spec"), str(error)) from error
        read = None if self.read is None else {NodeName(node): number for node, number in self.read.items()}
        return Transact(operations=operations, mode=self.mode, detection=self.detection, read=read, dry_run=dry_run)


class InOperation(Exception):
    """An unacceptable operation of a transaction: its index, the field in it, and why."""

    def __init__(self, index: int, field: str, detail: str) -> None:
        super().__init__(detail)
        self.field = f"operations[{index}].{field}"
