"""What a gang without an extender, and each of its ghosts, can be; `gang_life` says what leads from one to another."""

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
    """By when it is to be bound, of one that takes another's place."""
