"""Names: what pods, nodes and resources are called, and what makes a name well formed.

Knows the naming rules of Kubernetes (RFC 1123 labels, 63 characters after the slash). Must not know where a name came
from.
"""

from __future__ import annotations

import re
from typing import NewType

PodUid = NewType("PodUid", str)
NodeName = NewType("NodeName", str)
ResourceKey = NewType("ResourceKey", str)
"""A resource as nodes and pods spell it: `cpu`, `nvidia.com/gpu`, `example.com/licence`."""

LABEL_LIMIT = 63
"""The longest name part that Kubernetes allows, in labels and after the slash of a resource name."""

CPU = ResourceKey("cpu")
MEMORY = ResourceKey("memory")
PODS = ResourceKey("pods")

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class InvalidName(ValueError):
    """A name that is malformed or too long. `field` says whose, `str()` says why and what would be accepted."""

    def __init__(self, field: str, value: str, why: str) -> None:
        shown = value if len(value) <= 2 * LABEL_LIMIT else value[:LABEL_LIMIT] + "..."
        super().__init__(f"{field} {shown!r} {why}")
        self.field = field
        self.value = value


def require_label(field: str, value: str, limit: int = LABEL_LIMIT) -> str:
    """`value`, known to be a DNS label of at most `limit` characters. Raises InvalidName."""
    if len(value) > limit:
        raise InvalidName(field, value, f"has {len(value)} characters; the limit is {limit}")
    if not _LABEL.fullmatch(value):
        raise InvalidName(
            field,
            value,
            "is not a DNS label: use lower-case letters, digits and '-', beginning and ending with a letter or digit",
        )
    return value
