"""node_spec: which nodes a resource is meant for, in its four forms.

null                        the caller's own node
"node-3"                    that node
{"nvidia.com/gpu": 2}       every node that has at least this much available; {} is every node
{"labels": {"zone": "a"}}   every node with these labels
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, JsonValue, WithJsonSchema

from extender.adapters.http.models.quantities import read_vector
from extender.adapters.http.problems import quoted
from extender.app.contracts.ports import NodeChoice
from extender.kube.names import NodeName

_NODE_NAME_LIMIT = 253
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

NODE_NAME_SCHEMA: dict[str, JsonValue] = {"pattern": f"^{_NODE_NAME.pattern}$", "maxLength": _NODE_NAME_LIMIT}
"""The OpenAPI schema of a node's name; `node_name` checks the same."""

_SCHEMA = {
    "anyOf": [
        {"type": "null", "description": "the caller's own node: that of `owner`, or of the header Escher-Node"},
        {"type": "string", **NODE_NAME_SCHEMA, "description": "this node"},
        {
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]},
            "description": "every node with at least this much available; {} is every node",
        },
        {
            "type": "object",
            "properties": {"labels": {"type": "object", "additionalProperties": {"type": "string"}}},
            "required": ["labels"],
            "additionalProperties": False,
            "description": "every node with these labels",
        },
    ],
    "default": None,
    "examples": ["node-3", {"nvidia.com/gpu": 2}, {"labels": {"topology.kubernetes.io/zone": "a"}}],
}


def node_name(value: str) -> NodeName:
    """Returns the text if it is a valid node name. Raises ValueError, with limit and length."""
    if len(value) > _NODE_NAME_LIMIT:
        raise ValueError(f"a node's name of {len(value)} characters is too long; the limit is {_NODE_NAME_LIMIT}")
    if not _NODE_NAME.fullmatch(value):
        raise ValueError(f"{value!r} is not a node's name: use lower-case letters, digits, '-' and '.'")
    return NodeName(value)


def read_node_spec(value: object) -> NodeChoice | None:
    """Returns the choice; None for the caller's own node. Raises ValueError, in the API's words."""
    if value is None or isinstance(value, NodeChoice):
        return value
    if isinstance(value, str):
        return NodeChoice(node=node_name(value))
    if isinstance(value, dict):
        if isinstance(value.get("labels"), dict):
            return NodeChoice(labels=_labels(value))
        return NodeChoice(available=read_vector(value))
    raise ValueError(
        f"{quoted(value)} is none of: null (your own node), a node's name, resources such as"
        ' {"nvidia.com/gpu": 2}, or {"labels": {...}}'
    )


def _labels(value: dict[str, Any]) -> dict[str, str]:
    if others := sorted(str(key)[:80] for key in value if key != "labels"):
        raise ValueError(f"labels cannot be combined with {', '.join(others[:3])}")
    for key, text in value["labels"].items():
        if not isinstance(text, str):
            raise ValueError(f"label {key[:80]!r} is {quoted(text)}, not a text")
    return dict(value["labels"])


NodeSpec = Annotated[NodeChoice | None, BeforeValidator(read_node_spec), WithJsonSchema(_SCHEMA)]
