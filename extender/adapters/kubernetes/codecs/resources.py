"""Resources: converts EphemeralResource between JSON and `app.contracts.ports`. See `schema`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from extender.adapters.kubernetes.codecs.schema import (
    MARK,
    ObjectJson,
    ObjectMetadata,
    Shape,
    StatusJson,
    annotated,
    facts,
    manifest,
    read_status,
    timestamp,
    worded,
)
from extender.app.contracts.ports import (
    FIRST_MOMENT,
    LAST_MOMENT,
    EphemeralResource,
    MadeChoice,
    NodeChoice,
    PodOwner,
    ResourceChange,
    ResourceStatus,
)
from extender.core.names import DOMAIN, FORMER_INTENT, EphemeralName, ephemeral_name
from extender.core.tenancy.tenancy import MOST_EXPORTS
from extender.kube.names import InvalidName, NodeName, PodUid, ResourceKey, require_label
from extender.kube.nesting import Decoder
from extender.kube.pod_requests import Quantity
from extender.kube.quantities import LARGEST_AMOUNT, InvalidQuantity, count

KIND = "EphemeralResource"
PLURAL = "ephemeralresources"
MADE = f"{DOMAIN}/chosen"
"""Annotation: the last choice by rule of the management API, and the nodes that it took."""
POLICY = f"{DOMAIN}/policy"
"""Annotation: the type and the name of the policy that has set the object."""
CHOSEN = "Chosen"
"""The condition with the nodeSpec of status.nodes, so that other changes move nothing."""
_LONGEST = 100_000
"""Characters. A longer choice is not stored: it is recomputed, preferring nodes that have units."""
_MOST_NODES = 20_000
"""The limit of the CustomResourceDefinition; a cluster may still have an earlier definition."""
_MOST_WANTED = 64
"""Labels or resources that choose nodes; also the definition's limit."""
_LONGEST_PROBLEM = 1000
"""Characters of a problem's text, because it may contain node names of any length."""
_LONGEST_POLICY = 512
"""Characters. A namespace, a slash and a policy's name have fewer."""


class _Available(Shape):
    node_name: str | None = None
    available: dict[str, Quantity] | None = None
    match_labels: dict[str, str] | None = None


class _Owner(Shape):
    name: str
    uid: str
    kind: str = "Pod"


class _Spec(Shape):
    nodes: dict[str, int] | None = None
    capacity: int | None = None
    node_spec: _Available | None = None
    num_nodes: int | None = None
    shared: bool = False
    owner: _Owner | None = None
    expires_at: datetime | None = None
    ttl_seconds: int | None = None
    export_to: list[str] | None = None


class _Made(Shape):
    capacity: int
    node_spec: _Available
    num_nodes: int | None = None
    nodes: list[str] = msgspec.field(default_factory=list)


class _Status(StatusJson):
    nodes: dict[str, int] | None = None


class _NotUnderstood(ValueError):
    """`str()` is the problem, in words for the author."""


_TOO_LONG = 10**12
"""Seconds: longer than any real time, and safe as a float."""

_specs: Decoder[_Spec | None] = Decoder(_Spec | None)
_choices = Decoder(_Made)
_statuses: Decoder[_Status | None] = Decoder(_Status | None)


class EphemeralResources:
    """`schema.Schema` of EphemeralResource."""

    kind = KIND
    plural = PLURAL

    def read(self, said: ObjectJson) -> EphemeralResource:
        return to_resource(said)

    def manifest(self, item: EphemeralResource) -> dict[str, Any]:
        return to_json(item)

    def patch(self, change: ResourceChange) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "nodes": dict(change.nodes),
            "owner": None if change.owner is None else _owner_json(change.owner),
            "expiresAt": None if change.expires_at is None else timestamp(change.expires_at),
            "ttlSeconds": None,
        }
        if change.exports is not None:
            spec["exportTo"] = list(change.exports) or None
        said = {} if change.made is None else {"metadata": {"annotations": {MADE: choice_text(change.made)}}}
        return {"spec": spec, **said}

    def status(
        self, item: EphemeralResource, status: ResourceStatus
    ) -> tuple[dict[str, Any], Mapping[str, tuple[str, str]]]:
        content = {} if status.chosen is None else {"nodes": dict(status.chosen)}
        return content, {CHOSEN: ("NodeSpec", _chosen_for_text(item))} if status.chosen and item.choice else {}


def to_resource(resource: ObjectJson) -> EphemeralResource:
    """Converts the object; `problem` says what about it cannot be read."""
    metadata = resource.metadata
    status = read_status(_statuses, resource.status, _Status())
    more: dict[str, Any] = {
        **facts(metadata, status),
        "chosen": None if status.nodes is None else {NodeName(node): units for node, units in status.nodes.items()},
        "created": metadata.creation_timestamp.timestamp() if metadata.creation_timestamp is not None else 0.0,
        "policy": annotated(metadata, POLICY, _LONGEST_POLICY),
        "made": _read_choice(annotated(metadata, MADE, _LONGEST)),
        "chosen_for": _chosen_for(status),
    }
    name = EphemeralName(metadata.namespace, metadata.name)
    try:
        if (entries := bytes(resource.spec).count(b":")) > 2 * _MOST_NODES:
            raise msgspec.ValidationError(f"Has {entries} entries; write at most {_MOST_NODES} nodes")
        spec = _specs.decode(resource.spec) or _Spec()
    except msgspec.DecodeError as error:
        return EphemeralResource(name, nodes={}, problem=worded(error), **more)
    name = EphemeralName(metadata.namespace, metadata.name, spec.shared)
    more["owner"] = None if spec.owner is None else PodOwner(spec.owner.name, PodUid(spec.owner.uid))
    try:
        _require_no_former_intent(metadata, spec)
        return EphemeralResource(
            ephemeral_name(metadata.namespace, metadata.name, shared=spec.shared),
            nodes=_nodes(spec.nodes or {}),
            capacity=_amount("spec.capacity", spec.capacity),
            choice=_choice(spec),
            expires_at=_expiry(spec, metadata),
            exports=_exports(spec.export_to or ()),
            **more,
        )
    except (_NotUnderstood, InvalidName) as error:
        problem, expires_at = str(error)[:_LONGEST_PROBLEM], _expiry_if_any(spec, metadata)
        return EphemeralResource(name, nodes={}, problem=problem, expires_at=expires_at, **more)


def _require_no_former_intent(metadata: ObjectMetadata, spec: _Spec) -> None:
    """Raises _NotUnderstood for an unfinished transaction that an earlier version stored."""
    transaction = metadata.name.removeprefix("transaction-")
    if transaction == metadata.name or FORMER_INTENT not in (metadata.annotations or {}):
        return
    if not spec.nodes and spec.node_spec is None:
        raise _NotUnderstood(
            f"an earlier version of Escher recorded a transaction here that it did not finish (annotation "
            f"{FORMER_INTENT}). Escher rolls nothing back by it: look at the objects whose "
            f"annotation {MARK} begins with {transaction}. and delete this one (docs/upgrade.md)"
        )


def to_json(resource: EphemeralResource) -> dict[str, Any]:
    """The object as the POST contains it."""
    spec: dict[str, Any] = {}
    if resource.nodes or resource.choice is None:
        spec["nodes"] = dict(resource.nodes)
    if resource.capacity is not None:
        spec["capacity"] = resource.capacity
    if resource.choice is not None:
        spec |= _choice_json(resource.choice)
    if resource.name.shared:
        spec["shared"] = True
    if resource.owner is not None:
        spec["owner"] = _owner_json(resource.owner)
    if resource.expires_at is not None:
        spec["expiresAt"] = timestamp(resource.expires_at)
    if resource.exports:
        spec["exportTo"] = list(resource.exports)
    made = None if resource.made is None else choice_text(resource.made)
    said = {MARK: resource.mark, MADE: made, POLICY: resource.policy}
    return manifest(KIND, resource.name.namespace, resource.name.name, spec, said)


def _owner_json(owner: PodOwner) -> dict[str, str]:
    return {"kind": "Pod", "name": owner.name, "uid": owner.uid}


def choice_text(made: MadeChoice) -> str | None:
    """The choice, in the form for `_read_choice`; None without nodes, or if it is too long."""
    content = {"capacity": made.capacity, **_choice_json(made.choice), "nodes": list(made.nodes)}
    text = msgspec.json.encode(content, order="deterministic").decode()
    return text if made.nodes and len(text) <= _LONGEST else None


def _chosen_for_text(resource: EphemeralResource) -> str:
    """The capacity and nodeSpec of the object, as JSON text; empty without nodeSpec."""
    if resource.choice is None:
        return ""
    content = {"capacity": resource.capacity, **_choice_json(resource.choice)}
    return msgspec.json.encode(content, order="deterministic").decode()


def _chosen_for(status: _Status) -> MadeChoice | None:
    said = next((each.message for each in status.conditions or () if each.type == CHOSEN), "")
    return _read_choice(said) if len(said) <= _LONGEST else None


def _read_choice(text: str) -> MadeChoice | None:
    """The choice; None for text that Escher has not written in this form."""
    if not text:
        return None
    try:
        said = _choices.decode(text)
        _amount("capacity", said.capacity)
        choice = _choice(_Spec(capacity=said.capacity, node_spec=said.node_spec, num_nodes=said.num_nodes))
    except (msgspec.DecodeError, _NotUnderstood):
        return None
    return None if choice is None else MadeChoice(said.capacity, choice, tuple(NodeName(node) for node in said.nodes))


def _expiry(spec: _Spec, metadata: ObjectMetadata) -> float | None:
    if spec.expires_at is not None:
        # The API server requires RFC 3339, so a time always has a zone; UTC is the safe default.
        aware = spec.expires_at if spec.expires_at.tzinfo is not None else spec.expires_at.replace(tzinfo=UTC)
        return _moment("expiresAt", spec.expires_at.isoformat(), aware.timestamp())
    if spec.ttl_seconds is None or metadata.creation_timestamp is None:
        return None
    lives = min(max(spec.ttl_seconds, -_TOO_LONG), _TOO_LONG)
    return _moment("ttlSeconds", spec.ttl_seconds, metadata.creation_timestamp.timestamp() + lives)


def _expiry_if_any(spec: _Spec, metadata: ObjectMetadata) -> float | None:
    try:
        return _expiry(spec, metadata)
    except _NotUnderstood:
        return None


def _moment(where: str, value: object, seconds: float) -> float:
    # An offset from UTC can give a time that no timestamp can express.
    if not FIRST_MOMENT <= seconds <= LAST_MOMENT:
        raise _NotUnderstood(f"spec.{where} is {value}, which is not within the years 1 to 9999 (UTC)")
    return seconds


def _nodes(raw: Mapping[str, int]) -> dict[NodeName, int]:
    if len(raw) > _MOST_NODES:
        raise _NotUnderstood(f"spec.nodes has {len(raw)} nodes; write at most {_MOST_NODES}")
    for node, units in raw.items():
        _amount(f"spec.nodes[{node}]", units)
    return {NodeName(node): units for node, units in raw.items()}


def _exports(namespaces: Sequence[str]) -> tuple[str, ...]:
    if len(namespaces) > MOST_EXPORTS:
        raise _NotUnderstood(f"spec.exportTo has {len(namespaces)} namespaces; write at most {MOST_EXPORTS}")
    return tuple(dict.fromkeys(require_label("spec.exportTo", each) for each in namespaces))


def _amount(where: str, value: int | None) -> int | None:
    if value is not None and value < 0:
        raise _NotUnderstood(f"{where} is {value}; write 0 or more")
    if value is not None and value > LARGEST_AMOUNT:
        # A larger amount would make every write to the node fail.
        raise _NotUnderstood(f"{where} is {value}; the most that a node can have is {LARGEST_AMOUNT}")
    return value


def _choice(spec: _Spec) -> NodeChoice | None:
    wanted = spec.node_spec
    if wanted is None:
        for key, value in (("capacity", spec.capacity), ("numNodes", spec.num_nodes)):
            if value is not None:
                raise _NotUnderstood(f"spec.{key} needs spec.nodeSpec to select nodes; {{}} selects all")
        return None
    if spec.capacity is None:
        raise _NotUnderstood("spec.nodeSpec needs spec.capacity: how many units each of its nodes gets")
    if spec.num_nodes is not None and spec.num_nodes < 1:
        raise _NotUnderstood(f"spec.numNodes is {spec.num_nodes}; write 1 or more, or leave it out")
    given = [
        key
        for key, value in (
            ("nodeName", wanted.node_name),
            ("available", wanted.available),
            ("matchLabels", wanted.match_labels),
        )
        if value
    ]
    if len(given) > 1:
        raise _NotUnderstood(f"spec.nodeSpec has {' and '.join(given)}; write one of them")
    for key, there in (("available", wanted.available), ("matchLabels", wanted.match_labels)):
        if len(there or ()) > _MOST_WANTED:
            raise _NotUnderstood(f"spec.nodeSpec.{key} has {len(there or ())} entries; write at most {_MOST_WANTED}")
    return NodeChoice(
        node=NodeName(wanted.node_name) if wanted.node_name else None,
        available=_vector(wanted.available) if wanted.available else None,
        labels=wanted.match_labels or None,
        limit=spec.num_nodes,
    )


def _vector(raw: Mapping[str, Quantity]) -> dict[ResourceKey, int]:
    try:
        return {ResourceKey(resource): count(resource, str(quantity)) for resource, quantity in raw.items()}
    except InvalidQuantity as error:
        raise _NotUnderstood(f"spec.nodeSpec.available: {error}") from None


def _choice_json(choice: NodeChoice) -> dict[str, Any]:
    where: dict[str, Any] = {}
    if choice.node is not None:
        where["nodeName"] = choice.node
    if choice.available is not None:
        where["available"] = {
            str(resource): f"{units}m" if resource == "cpu" else str(units)
            for resource, units in choice.available.items()
        }
    if choice.labels is not None:
        where["matchLabels"] = dict(choice.labels)
    return {"nodeSpec": where} | ({} if choice.limit is None else {"numNodes": choice.limit})
