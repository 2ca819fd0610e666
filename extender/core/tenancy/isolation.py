"""Isolation: the quota of each namespace, and the nodes and names that it may use.

A namespace over its quota keeps its present use and gets no more. Before a decision that adds to the use, the caller
asks `over`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase


class Counted(Enum):
    """What a quota limits. The value is its name in the settings and for people."""

    RESOURCES = "resources"
    UNITS = "units"
    POLICIES = "policies"
    GANG_PLACES = "gang_places"
    CLAIMS = "claims"
    WAITING_KINDS = "waiting_kinds"


@dataclass(frozen=True, slots=True)
class Allowance:
    """The quota and domain of one namespace. None: no limit; `most` has only what is limited.

    `nodes`: labels, each with the allowed values, as in a nodeSelector. `names`: patterns with `*` and `?`; a
    resource's name must match one.
    """

    most: Mapping[Counted, int] = field(default_factory=dict)
    nodes: Mapping[str, tuple[str, ...]] | None = None
    names: tuple[str, ...] | None = None

    def has_node(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is in the domain."""
        return self.nodes is None or all(labels.get(key) in values for key, values in self.nodes.items())

    def has_name(self, name: str) -> bool:
        """Whether a resource of that name is in the domain."""
        return self.names is None or any(fnmatchcase(name, pattern) for pattern in self.names)

    def told_nodes(self) -> str:
        """The node labels of the domain, in words."""
        said = ("|".join(values) for values in (self.nodes or {}).values())
        return ", ".join(f"{key}={values}" for key, values in zip(self.nodes or (), said, strict=True))


UNLIMITED = Allowance()


@dataclass(frozen=True, slots=True)
class Over:
    """The request exceeds the remaining quota."""

    namespace: str
    of: Counted
    asked: int
    used: int
    limit: int

    def __str__(self) -> str:
        # The words of Kubernetes for an exceeded quota.
        what = self.of.value
        numbers = f"requested: {what}={self.asked}, used: {what}={self.used}, limited: {what}={self.limit}"
        return f"exceeded quota of namespace {self.namespace}: {numbers}"


class Isolation:
    """The allowances in force. `version` changes with each change."""

    def __init__(self, default: Allowance = UNLIMITED, namespaces: Mapping[str, Allowance] | None = None) -> None:
        self.default = default
        self.namespaces = dict(namespaces or {})
        self.version = 0

    def of(self, namespace: str) -> Allowance:
        return self.namespaces.get(namespace, self.default)

    def limit(self, namespace: str, of: Counted) -> int | None:
        return self.of(namespace).most.get(of)

    def over(self, namespace: str, of: Counted, asked: int, used: int) -> Over | None:
        """Whether `asked` more, beside `used`, exceed the quota; 0 more never do."""
        limit = self.limit(namespace, of)
        if limit is None or asked <= 0 or used + asked <= limit:
            return None
        return Over(namespace, of, asked, used, limit)

    def set(self, default: Allowance, namespaces: Mapping[str, Allowance]) -> bool:
        """Applies the settings. Returns whether they changed."""
        if (default, dict(namespaces)) == (self.default, self.namespaces):
            return False
        self.default, self.namespaces = default, dict(namespaces)
        self.version += 1
        return True
