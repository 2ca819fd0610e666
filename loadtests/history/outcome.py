"""The outcome of a play: what was found, and what the service has done meanwhile."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from loadtests.shared.pods import Json


@dataclass
class Outcome:
    touched: list[str] = field(default_factory=list)
    """The service's writes to others' objects."""
    harmed: list[str] = field(default_factory=list)
    """What the harm witness has found."""
    failed: list[str] = field(default_factory=list)
    """Requests that failed, or that succeeded although the API server had to refuse them."""
    changed: list[str] = field(default_factory=list)
    """Where others' objects differ from before, other than by their own side's changes."""
    left: list[str] = field(default_factory=list)
    """Where the cluster differs from the start, after Escher is uninstalled."""
    writes: Counter[str] = field(default_factory=Counter)
    """The service's writes, by resource and subresource."""
    evictions: int = 0
    """Pods that the service had evicted, of any owner."""

    keys: dict[str, Json] = field(default_factory=dict)
    """By node: the keys of the service's domain just before Escher was uninstalled."""

    @property
    def findings(self) -> list[str]:
        return [*self.touched, *self.harmed, *self.failed, *self.changed, *self.left]
