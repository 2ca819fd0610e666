"""Policy answers: what a policy says that is asked for a task, and who answers. Values, and the noun's Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from extender.app.objects.kind import Identity
from extender.esl.base import PodRequirement
from extender.esl.policy_esl import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`requirement`: what the task's pod has to say. `effects`: what is under way for it and for all who asked at the
    same moment, and `notices` what stands in the way of the policy now, in words."""

    name: Identity
    type: str
    task: str
    requirement: PodRequirement
    effects: Sequence[str] = ()
    notices: Sequence[str] = ()


class AskCalls(Protocol):
    """Policies that are asked."""

    async def ask_policy(self, name: Identity, task: Task, *, dry_run: bool = False) -> Answer:
        """What the task's pod has to say. Asking again for the same changes nothing.

        Raises NotFound, NotInForce, Invalid; NotYet where the policy is not at work yet, or has too many tasks.
        """
        ...
