"""The outcome of a play: what was found, and what the service has done meanwhile."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from loadtests.pods import Json


@dataclass
class Outcome:
    touched: list[str] = field(default_factory=list)
    """What the service has written to others."""
    harmed: list[str] = field(default_factory=list)
    """What the harm witness has found."""
    failed: list[str] = field(default_factory=list)
    """What others, or those who try Escher, have asked of the API server and could not have, or had against rights."""
    changed: list[str] = field(default_factory=list)
    """Where others' objects are not as they were, or as their own side has made them."""
    left: list[str] = field(default_factory=list)
    """Where the cluster is not as it was found, once Escher is uninstalled."""
    writes: Counter[str] = field(default_factory=Counter)
    """What the service has written, by resource and subresource."""
    evictions: int = 0
    """Pods that the service had evicted, whosever they were."""

    keys: dict[str, Json] = field(default_factory=dict)
    """By node: what nodes had of our domain when Escher was about to go."""

    @property
    def findings(self) -> list[str]:
        return [*self.touched, *self.harmed, *self.failed, *self.changed, *self.left]
