"""Quota state: what a namespace has and may have, as people and programs are shown it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from extender.core.isolation import Counted


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaState:
    """What a namespace has and may have at once: (used, limit) of each, a limit of None where there is none. `nodes`,
    `names`: its scheduling domain, None where it is not narrowed; `node_count`: how many nodes are in it now."""

    namespace: str
    counted: Mapping[Counted, tuple[int, int | None]]
    waiting: Mapping[Counted, int]
    """How many wait for room in it: objects that are not wholly in force, gangs, kinds of pods."""
    nodes: Mapping[str, Sequence[str]] | None = None
    names: Sequence[str] | None = None
    node_count: int = 0


class QuotaCalls(Protocol):
    """What namespaces may have and touch, and what they have."""

    def quota(self, namespace: str) -> QuotaState:
        """As it is now."""
        ...
