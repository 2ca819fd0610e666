"""Jobs: each one's size and the times at which its members were bound, as seen from outside."""

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
    """Its letter in pictures."""
    patience: float = PARTLY_AFTER
    """Seconds for which it may be bound in part."""
    began: float = field(default_factory=time.monotonic)
    bound_at: dict[str, float] = field(default_factory=dict)
    partly_for: float = 0.0
    """Seconds from its first binding until it was complete or closed; 0 before."""
    partly_since: float | None = None
    """When the first of its members was bound."""
    rule: Callable[[Mapping[str, str]], bool] | None = None
    """The condition that its pods' nodes, by pod, must meet at each sighting."""
    nodes: dict[str, str] = field(default_factory=dict)
    """The nodes of its existing bound pods."""
    breaches: int = 0
    """How many sightings did not meet the rule."""

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
        """Records that the pod is on that node; None: that it is gone."""
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
        """Ends the measurement of `partly_for`; later events belong to the job's end."""
        if self.partly_since is not None and self.partly_for == 0.0:
            self.partly_for = now - self.partly_since

    @property
    def was_partial(self) -> bool:
        return self.partly_for > self.patience
