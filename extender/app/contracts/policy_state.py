"""Policy state: an EscherPolicy as callers see it. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from extender.app.objects.kind import Identity
from extender.core.policies.policy_types import PolicyInForce, PolicySpec


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
