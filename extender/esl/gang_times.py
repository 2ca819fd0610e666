"""How long a gang without an extender waits for what, and how often it tries. Knows no state."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from extender.core.backoff import doubled


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds, and how often."""

    reserve_within: float = 10.0
    """How long ghosts may wait for each other. Shorter wastes attempts, longer keeps others from what is half held."""
    first_pause: float = 1.0
    longest_pause: float = 60.0
    attempts: int | None = 30
    """After so many the gang has failed, about half an hour by default; None: never. A ghost that was lost is replaced
    as often."""
    idle: float = 60.0
    """How long a gang may hold its room without a living member: none has come, or all have failed or gone before their
    time, and are to be made anew."""
    without_room: float | None = 10.0
    """How long a member may run on after its ghost was taken from it and before it is evicted; None: for ever."""

    def pause(self, times: int, seed: int, text: str) -> float:
        """The pause after so many failures before it: exponential, times 0.5 to 1.5, the same for the same seed and
        text. Two that collided come back apart."""
        chance = int.from_bytes(digest(seed, text), "big") / 2**64
        return doubled(self.first_pause, times, self.longest_pause) * (0.5 + chance)


USUAL_TIMES = Times()


def digest(seed: int, text: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{text}".encode(), digest_size=8).digest()
