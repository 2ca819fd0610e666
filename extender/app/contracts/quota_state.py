"""Quota state: what a namespace has and may have, as callers see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from extender.core.tenancy.isolation import Counted


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaState:
    """A namespace's use and limit (None: no limit) of each, and its domain (None: not narrowed)."""

    namespace: str
    counted: Mapping[Counted, tuple[int, int | None]]
    waiting: Mapping[Counted, int]
    """How many wait for the quota: objects that are not wholly in force, gangs, kinds of pods."""
    nodes: Mapping[str, Sequence[str]] | None = None
    names: Sequence[str] | None = None
    node_count: int = 0


class QuotaCalls(Protocol):
    """Quotas and scheduling domains of namespaces, and their use."""

    def quota(self, namespace: str) -> QuotaState:
        """Returns the present state."""
        ...
