"""Names: types for names of pods, nodes and resources, and the rules for well-formed names.

The rules are those of Kubernetes (RFC 1123 labels, 63 characters after the slash).
"""

from __future__ import annotations

import re
from typing import NewType

PodUid = NewType("PodUid", str)
NodeName = NewType("NodeName", str)
ResourceKey = NewType("ResourceKey", str)
"""A resource as nodes and pods spell it: `cpu`, `nvidia.com/gpu`, `example.com/licence`."""

LABEL_LIMIT = 63
"""The longest name part in Kubernetes, in labels and after the slash of a resource name."""

CPU = ResourceKey("cpu")
MEMORY = ResourceKey("memory")
PODS = ResourceKey("pods")

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


class InvalidName(ValueError):
    """A malformed or too long name. `field`: its place; `str()`: why, and what is accepted."""

    def __init__(self, field: str, value: str, why: str) -> None:
        shown = value if len(value) <= 2 * LABEL_LIMIT else value[:LABEL_LIMIT] + "..."
        super().__init__(f"{field} {shown!r} {why}")
        self.field = field
        self.value = value


def require_label(field: str, value: str, limit: int = LABEL_LIMIT) -> str:
    """Returns `value`, a DNS label of at most `limit` characters. Raises InvalidName."""
    if len(value) > limit:
        raise InvalidName(field, value, f"has {len(value)} characters; the limit is {limit}")
    if not _LABEL.fullmatch(value):
        raise InvalidName(
            field,
            value,
            "is not a DNS label: use lower-case letters, digits and '-', beginning and ending with a letter or digit",
        )
    return value
