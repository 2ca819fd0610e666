"""Decisions, as callers follow them. Values, and the Protocol of the noun."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionEvent:
    """One decision; fields that do not apply are empty.

    `number` grows by one a decision; `time`: seconds since the epoch; `what`: one CamelCase word."""

    number: int
    time: float
    what: str
    namespace: str = ""
    gang: str = ""
    pod: str = ""
    node: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Missed:
    """`count` decisions were forgotten before they were read; `before`: the number of the next."""

    count: int
    before: int


class Following(Protocol):
    """A follower's position. Call `take`, or `wait` if there is nothing, until it has `ended`."""

    @property
    def ended(self) -> bool:
        """True when nothing more comes: the stream is closed, or the follower was dropped."""
        ...

    def take(self, most: int) -> list[DecisionEvent | Missed]:
        """Returns at most `most` next decisions, or none. The follower may end with this call."""
        ...

    async def wait(self) -> None:
        """Waits until there is something to take, or the follower has ended."""
        ...


class EventCalls(Protocol):
    """Decisions, as they happen."""

    def follow(self, after: int | None = None, *, namespace: str | None = None) -> Following:
        """Follows from now on, or after number `after`; ends with the service."""
        ...
