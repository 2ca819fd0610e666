"""Policy answers: what a policy answers for a task. Values, and the Protocol of the noun."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from extender.app.objects.kind import Identity
from extender.esl.base import PodRequirement
from extender.esl.runtime.policy_esl import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`requirement`: what the task's pod must declare.

    `effects`: what is under way for it and for all asked at the same moment. `notices`: what hinders the policy now."""

    name: Identity
    type: str
    task: str
    requirement: PodRequirement
    effects: Sequence[str] = ()
    notices: Sequence[str] = ()


class AskCalls(Protocol):
    """Policies that are asked for a task's requirement."""

    async def ask_policy(self, name: Identity, task: Task, *, dry_run: bool = False) -> Answer:
        """Returns what the task's pod must declare. A repeated request changes nothing.

        Raises NotFound, NotInForce, Invalid; NotYet if the policy is not at work yet, or has too many tasks."""
        ...
