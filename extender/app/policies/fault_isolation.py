"""Containment: a defect of one policy is told and ends here; all others are asked as ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

from extender.core.policy import Policy, Refuse, has

FAILED = "a policy has met a defect of its own: see Escher's log"
REFUSED = Refuse(FAILED, preemption_helps=False)
_PAUSE = 1.0
"""Seconds."""
P = TypeVar("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """Event: the policy raised what no policy should."""

    policy: str
    defect: Exception


class FaultIsolation:
    def __init__(self) -> None:
        self.failures: dict[tuple[str, type[Exception]], PolicyFailed] = {}
        """Of which nobody has been told: of each policy the first of a kind, for one is met on thousands of nodes."""
        self.resting: dict[str, float] = {}
        """Policies that are left alone for a while, and until when: what was due is due still."""

    def ask(self, name: str, question: Callable[[], T], otherwise: T, now: float | None = None) -> T:
        """What the policy of that name answers, or else, where it meets a defect. `now`: it then rests."""
        try:
            return question()
        except Exception as defect:
            self._met(name, defect, now)
            return otherwise

    def ask_each(
        self, policies: Mapping[str, P], question: Callable[[P], T], otherwise: T, now: float | None = None
    ) -> Iterator[T]:
        """What each of them answers, in their order. `now`: but for those who rest, as whoever meets a defect then
        does."""
        # All that is decided goes through here and below, many times a step: neither calls `ask`.
        for name, policy in policies.items():
            if now is None or self.resting.get(name, now) <= now:
                try:
                    answer = question(policy)
                except Exception as defect:
                    self._met(name, defect, now)
                    answer = otherwise
                yield answer

    def tell_each(self, policies: Mapping[str, P], tell: Callable[[P], None], now: float | None = None) -> None:
        for name, policy in policies.items():
            if now is None or self.resting.get(name, now) <= now:
                try:
                    tell(policy)
                except Exception as defect:
                    self._met(name, defect, now)

    def met(self, name: str, defect: Exception) -> None:
        """The policy of that name has raised it."""
        self.failures.setdefault((name, type(defect)), PolicyFailed(name, defect))

    def _met(self, name: str, defect: Exception, now: float | None) -> None:
        self.met(name, defect)
        if now is not None:
            self.resting[name] = now + _PAUSE


def having(point: type[P], policies: Iterable[Policy]) -> dict[str, P]:
    """Those that have the extension point, by name and in their order."""
    return {policy.name: cast(P, policy) for policy in policies if has(policy, point)}
