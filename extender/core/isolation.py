"""Isolation: how much each namespace may have at once, and which nodes and names it may touch (its scheduling domain).

Values, and what follows from them. A namespace that is over its quota keeps what it has and gets no more: whoever
decides asks `over` about what would be *more*. Must not know what anybody has now, nor where the limits were written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase


class Counted(Enum):
    """What there is a quota on. The value is its name in the settings and for people."""

    RESOURCES = "resources"
    UNITS = "units"
    POLICIES = "policies"
    GANG_PLACES = "gang_places"
    CLAIMS = "claims"
    WAITING_KINDS = "waiting_kinds"


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one namespace may have and touch. None: without a limit; `most` has no entry where there is none.

    `nodes`: labels, each with the values that a node may have, as in a nodeSelector. `names`: patterns with `*` and
    `?`, of which a resource's name has to match one.
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
        """The labels that a node of the domain has, in words."""
        said = ("|".join(values) for values in (self.nodes or {}).values())
        return ", ".join(f"{key}={values}" for key, values in zip(self.nodes or (), said, strict=True))


UNLIMITED = Allowance()


@dataclass(frozen=True, slots=True)
class Over:
    """What was asked for is more than the quota leaves."""

    namespace: str
    of: Counted
    asked: int
    used: int
    limit: int

    def __str__(self) -> str:
        # As Kubernetes words it where its own quota is exceeded.
        what = self.of.value
        numbers = f"requested: {what}={self.asked}, used: {what}={self.used}, limited: {what}={self.limit}"
        return f"exceeded quota of namespace {self.namespace}: {numbers}"


class Isolation:
    """The allowances in force. `version` is another after each change."""

    def __init__(self, default: Allowance = UNLIMITED, namespaces: Mapping[str, Allowance] | None = None) -> None:
        self.default = default
        self.namespaces = dict(namespaces or {})
        self.version = 0

    def of(self, namespace: str) -> Allowance:
        return self.namespaces.get(namespace, self.default)

    def limit(self, namespace: str, of: Counted) -> int | None:
        return self.of(namespace).most.get(of)

    def over(self, namespace: str, of: Counted, asked: int, used: int) -> Over | None:
        """Whether `asked` more would be too many, `used` being there; nothing more never is."""
        limit = self.limit(namespace, of)
        if limit is None or asked <= 0 or used + asked <= limit:
            return None
        return Over(namespace, of, asked, used, limit)

    def set(self, default: Allowance, namespaces: Mapping[str, Allowance]) -> bool:
        """The settings say so now. Whether that is news."""
        if (default, dict(namespaces)) == (self.default, self.namespaces):
            return False
        self.default, self.namespaces = default, dict(namespaces)
        self.version += 1
        return True
