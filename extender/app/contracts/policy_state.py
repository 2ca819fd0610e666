"""Policy state: an EscherPolicy as callers see it, and what it answers for a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from extender.app.contracts.kind import Identity
from extender.core.policies.policy_types import PolicyInForce, PolicySpec
from extender.esl.base import PodRequirement
from extender.esl.runtime.policy_esl import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
    """A policy as its author wrote it, and what of it is in force."""

    name: Identity
    spec: PolicySpec | None
    """None if it is not understood at all."""
    version: str
    """What If-Match compares with; empty if it is not stored."""
    ready: bool
    reason: str
    message: str
    in_force: PolicyInForce | None = None
    pods: int | None = None
    """How many pods it matches now; None if nothing of it is in force."""
    finalizers: Sequence[str] = ()


class PolicyReceiver(Protocol):
    """Receives the policies in force."""

    def put(self, name: Identity, policy: PolicyInForce) -> None:
        """This is in force of the policy now."""
        ...

    def drop(self, name: Identity) -> None:
        """Nothing is in force of the policy any more."""
        ...


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
