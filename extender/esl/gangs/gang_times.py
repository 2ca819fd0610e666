"""Time-outs, pauses and attempts of a gang without an extender."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from extender.core.common.backoff import doubled


@dataclass(frozen=True, slots=True)
class Times:
    """Times in seconds, and the number of attempts."""

    reserve_within: float = 10.0
    """How long ghosts wait for each other: less wastes attempts, more blocks other gangs."""
    first_pause: float = 1.0
    longest_pause: float = 60.0
    attempts: int | None = 30
    """Attempts, also to replace a lost ghost: about half an hour by default; None: no limit."""
    idle: float = 60.0
    """How long a gang holds room with no living member: none came, or all are to be recreated."""
    without_room: float | None = 10.0
    """How long a member may run after its ghost was lost, before eviction; None: for ever."""

    def pause(self, times: int, seed: int, text: str) -> float:
        """The pause after `times` failures: exponential, times 0.5 to 1.5.

        The factor depends on `seed` and `text`, so that two gangs that collided retry at different times."""
        chance = int.from_bytes(digest(seed, text), "big") / 2**64
        return doubled(self.first_pause, times, self.longest_pause) * (0.5 + chance)


USUAL_TIMES = Times()


def digest(seed: int, text: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{text}".encode(), digest_size=8).digest()
