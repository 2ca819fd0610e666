"""Names: what a pod, a node, a gang and an ephemeral resource are called, and what makes a name well formed.

Knows the naming rules of Kubernetes (RFC 1123 labels, 63 characters after the slash) and ours (the first dot after
the slash separates namespace from name). Must not know where a name came from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NewType

PodUid = NewType("PodUid", str)
NodeName = NewType("NodeName", str)
ResourceKey = NewType("ResourceKey", str)
"""A resource as nodes and pods spell it: `cpu`, `nvidia.com/gpu`, `escher.dev/team-a.data1`."""

DOMAIN = "escher.dev"
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


@dataclass(frozen=True, slots=True, order=True)
class GangKey:
    """A gang's identity: a namespace and a name in it."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class EphemeralName:
    """An ephemeral resource's identity. `namespace` is its owner's; the key of a shared one does not show it."""

    namespace: str
    name: str
    shared: bool = False

    def key(self, domain: str = DOMAIN) -> ResourceKey:
        """The spelling on nodes and in pods."""
        part = self.name if self.shared else f"{self.namespace}.{self.name}"
        return ResourceKey(f"{domain}/{part}")

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


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


def ephemeral_name(namespace: str, name: str, *, shared: bool = False) -> EphemeralName:
    """The resource of that namespace and name. Raises InvalidName, with limit and length where it is too long."""
    require_label("namespace", namespace)
    require_label("name", name)
    whole = name if shared else f"{namespace}.{name}"
    if len(whole) > LABEL_LIMIT:
        raise InvalidName(
            "name",
            name,
            f"is too long: {whole!r} has {len(whole)} characters; the limit for the part after '/' is {LABEL_LIMIT}",
        )
    return EphemeralName(namespace, name, shared)


@lru_cache(maxsize=65536)
def in_domain(key: str, domain: str = DOMAIN) -> bool:
    """Whether the resource is one of ours, that is, ephemeral."""
    return key.startswith(domain + "/")
