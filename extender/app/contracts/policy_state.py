"""Policy state: an EscherPolicy as calls are told of it. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.app.objects.kind import Identity
from extender.core.policy_types import PolicyInForce, PolicySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyState:
    """A policy as its author says it, and what of it is in force."""

    name: Identity
    spec: PolicySpec | None
    """None where it is not understood at all."""
    version: str
    """What If-Match compares with; empty where it is not stored."""
    ready: bool
    reason: str
    message: str
    in_force: PolicyInForce | None = None
    pods: int | None = None
    """How many it governs now; None where nothing of it is in force."""
    finalizers: Sequence[str] = ()
