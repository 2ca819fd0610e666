"""Fault isolation: a defect of one policy is reported and ends here; others are called as ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, TypeVarTuple, cast

from extender.app.contracts.effects import PolicyFailed
from extender.core.policy import Policy, Refuse, has

FAILED = "a policy failed with an internal error: see Escher's log"
REFUSED = Refuse(FAILED, preemption_helps=False)
_PAUSE = 1.0
"""Seconds."""
P = TypeVar("P")
T = TypeVar("T")
A = TypeVarTuple("A")
Hook = tuple[str, Callable[[*A], T]]
"""The name of a policy, and one of its methods."""


class FaultIsolation:
    def __init__(self) -> None:
        self.failures: dict[tuple[str, type[Exception]], PolicyFailed] = {}
        """Not reported yet, the first of a kind a policy: one is met on thousands of nodes."""
        self.resting: dict[str, float] = {}
        """Policies that are not called for a while, and until when: what was due stays due."""

    def ask(self, name: str, question: Callable[[], T], otherwise: T, now: float | None = None) -> T:
        """The policy's answer, or `otherwise` if it raises; if `now` is given, it then rests."""
        try:
            return question()
        except Exception as defect:
            self._met(name, defect, now)
            return otherwise

    def ask_each(self, hooks: Sequence[Hook[*A, T]], otherwise: T, *given: *A, now: float | None = None) -> list[T]:
        """Each answer, in order; if `now` is given, policies that raise rest and are left out."""
        # All decisions go through here and below, many times a step: neither calls another function of ours.
        answers: list[T] = []
        for name, hook in hooks:
            if now is None or self.resting.get(name, now) <= now:
                try:
                    answers.append(hook(*given))
                except Exception as defect:
                    self._met(name, defect, now)
                    answers.append(otherwise)
        return answers

    def first_of(self, hooks: Sequence[Hook[*A, T]], otherwise: T, *given: *A, now: float | None = None) -> T:
        """The first true answer, `otherwise` if there is none; policies after it are not asked."""
        for name, hook in hooks:
            if now is None or self.resting.get(name, now) <= now:
                try:
                    if answer := hook(*given):
                        return answer
                except Exception as defect:
                    self._met(name, defect, now)
        return otherwise

    def call_each(self, hooks: Sequence[Hook[*A, None]], *given: *A, now: float | None = None) -> None:
        for name, hook in hooks:
            if now is None or self.resting.get(name, now) <= now:
                try:
                    hook(*given)
                except Exception as defect:
                    self._met(name, defect, now)

    def met(self, name: str, defect: Exception) -> None:
        """The policy of that name has raised the defect."""
        self.failures.setdefault((name, type(defect)), PolicyFailed(name, defect))

    def _met(self, name: str, defect: Exception, now: float | None) -> None:
        self.met(name, defect)
        if now is not None:
            self.resting[name] = now + _PAUSE


def having(point: type[P], policies: Iterable[Policy]) -> dict[str, P]:
    """The policies that have the extension point, by name and in their order."""
    return {policy.name: cast(P, policy) for policy in policies if has(policy, point)}
