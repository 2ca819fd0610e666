"""Jobs: what is known of each from outside, which is its size and when its members were bound.

Knows nothing of gangs, plans or the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

PARTLY_AFTER = 1.0
"""Seconds after which a job that is bound in part counts as such, unless it is large."""


@dataclass
class Job:
    """One job as seen from outside. Times are of the monotonic clock, in seconds."""

    name: str
    approach: str
    size: int
    letter: str = "?"
    """How it is called in pictures."""
    patience: float = PARTLY_AFTER
    """Seconds for which it may be bound in part."""
    began: float = field(default_factory=time.monotonic)
    bound_at: dict[str, float] = field(default_factory=dict)
    partly_for: float = 0.0
    """The longest time for which some, but not all, of its members were bound."""
    partly_since: float | None = None
    """When the first of its members was bound."""
    rule: Callable[[Mapping[str, str]], bool] | None = None
    """What is to hold of the nodes of its pods, by pod, whenever one is seen."""
    nodes: dict[str, str] = field(default_factory=dict)
    """Of its pods that are there and bound."""
    breaches: int = 0
    """How often the rule did not hold."""

    @property
    def bound(self) -> int:
        return len(self.bound_at)

    @property
    def complete(self) -> bool:
        return self.bound >= self.size

    @property
    def took(self) -> float:
        """Seconds from `began` until its last member was bound."""
        return max(self.bound_at.values()) - self.began

    def stands(self, pod: str, node: str | None) -> None:
        """The pod is seen on that node; None: it is gone."""
        if node is None:
            self.nodes.pop(pod, None)
        else:
            self.nodes[pod] = node
        if self.rule is not None and not self.rule(self.nodes):
            self.breaches += 1

    def sees(self, pod: str, now: float) -> None:
        self.bound_at.setdefault(pod, now)
        if self.partly_since is None:
            self.partly_since = now
        if self.complete:
            self.closes(now)

    def closes(self, now: float) -> None:
        """Whatever happens to it from now on is its end, and says nothing."""
        if self.partly_since is not None and self.partly_for == 0.0:
            self.partly_for = now - self.partly_since

    @property
    def was_partial(self) -> bool:
        return self.partly_for > self.patience
