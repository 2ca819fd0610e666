"""Policies come from outside too, where types are not checked: what one answers stops no other."""

from __future__ import annotations

from typing import Any

from extender.app.policies.event_hooks import EventHooks
from extender.app.policies.fault_isolation import FaultIsolation
from extender.core.ledger.ledger import Ledger
from extender.core.policy import Facts


class Hinting:
    def __init__(self, name: str, hints: Any) -> None:
        self.name, self.hints = name, hints

    def take_requeue_hints(self) -> Any:
        if isinstance(self.hints, Exception):
            raise self.hints
        return self.hints


def test_hints_are_those_of_all_policies_that_have_some() -> None:
    contained = FaultIsolation()
    policies = [Hinting("a", ["team"]), Hinting("none", None), Hinting("bad", ValueError()), Hinting("b", {"other"})]
    hooks = EventHooks(policies, Facts(Ledger(), {}), contained)
    assert hooks.take_requeue_hints() == {"team", "other"}
    assert [failed.policy for failed in contained.failures.values()] == ["bad"]
