"""Several independent policies side by side: each gets every event, and all effects are returned.

Implements `base.Esl`. Each policy has its own keys, and a refusal to one does not concern another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from extender.esl.base import Effect, Event
from extender.esl.runtime.policy_esl import PolicyEsl


class Several:
    def __init__(self, policies: Sequence[PolicyEsl], namespace: str) -> None:
        """Raises ValueError if two have one name, or one is of another namespace."""
        self._told = tuple(policies)
        self.policies = tuple(each for policy in policies for each in policy.policies())
        """The policies and their parts, to which they pass their events."""
        for policy in self.policies:
            if policy.namespace != namespace:
                raise ValueError(f"policy {policy.name!r} is of namespace {policy.namespace!r}, not {namespace!r}")
        names = [policy.name for policy in self.policies]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two policies have the name {twice[0]!r}, and their resources would collide; rename one")
        self.domains = frozenset(policy.domain for policy in self.policies)
        """The domains whose resources are ephemeral."""

    def begin(self, events: Iterable[Event], now: float) -> list[Effect]:
        """Each policy takes in everything that exists at the start."""
        known = list(events)
        return [effect for policy in self._told for effect in policy.begin(known, now)]

    def handle(self, event: Event, now: float) -> list[Effect]:
        return [effect for policy in self._told for effect in policy.handle(event, now)]

    def handle_all(self, events: Sequence[Event], now: float) -> list[Effect]:
        """These events in turn, which came together."""
        return [effect for policy in self._told for effect in policy.handle_all(events, now)]

    def end(self, now: float) -> list[Effect]:
        """No policy decides anything more; their resources are removed from nodes."""
        return [effect for policy in self.policies for effect in policy.end(now)]

    @property
    def ended(self) -> bool:
        return all(policy.ended for policy in self.policies)

    def next_deadline(self) -> float | None:
        known = [due for policy in self._told if (due := policy.next_deadline()) is not None]
        return min(known, default=None)
