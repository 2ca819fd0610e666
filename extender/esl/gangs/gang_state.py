"""The phases of a gang without an extender, and of its ghosts; `gang_life` has the transitions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from extender.kube.names import NodeName, ResourceKey


class GhostPhase(Enum):
    QUEUED = "queued"
    RESERVING = "reserving"
    HELD = "held"
    ROLLING_BACK = "rolling back"
    BACKING_OFF = "backing off"
    ENDING = "ending"
    ENDED = "ended"


@dataclass(slots=True)
class Held:
    """A ghost that may exist. `lost`: it holds nothing any more, or is about to go."""

    key: ResourceKey
    bundle: int
    node: NodeName | None = None
    lost: bool = False
    bound_at: float = 0.0
    until: float | None = None
    """The deadline for its binding, if it replaces a lost ghost."""
