"""Containment: a defect of one policy is told and ends here; all others are asked as ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

from extender.core.policy import Policy, Refuse, has

FAILED = "a policy has met a defect of its own: see Escher's log"
REFUSED = Refuse(FAILED, preemption_helps=False)
P = TypeVar("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """Event: the policy raised what no policy should."""

    policy: str
    defect: Exception


class Containment:
    def __init__(self) -> None:
        self.failures: list[PolicyFailed] = []
        """Of which nobody has been told."""

    def ask(self, name: str, question: Callable[[], T], otherwise: T) -> T:
        """What the policy of that name answers, or else, where it meets a defect."""
        try:
            return question()
        except Exception as defect:
            self.failures.append(PolicyFailed(name, defect))
            return otherwise

    def ask_each(self, policies: Mapping[str, P], question: Callable[[P], T], otherwise: T) -> Iterator[T]:
        """What each of them answers, in their order."""
        for name, policy in policies.items():
            yield self.ask(name, partial(question, policy), otherwise)

    def tell_each(self, policies: Mapping[str, P], tell: Callable[[P], None]) -> None:
        for name, policy in policies.items():
            self.ask(name, partial(tell, policy), None)


def having(point: type[P], policies: Iterable[Policy]) -> dict[str, P]:
    """Those that have the extension point, by name and in their order."""
    return {policy.name: cast(P, policy) for policy in policies if has(policy, point)}
