"""Several policies beside each other: each is told every event, and what each of them wants is done.

Implements `base.Esl`. They do not know of each other: each has keys of its own, and what is refused to one is no
concern of another's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from extender.esl.base import Effect, Event
from extender.esl.policy_esl import PolicyEsl


class Several:
    def __init__(self, policies: Sequence[PolicyEsl], namespace: str) -> None:
        """Raises ValueError where two have one name, or one is of another namespace."""
        self._told = tuple(policies)
        self.policies = tuple(each for policy in policies for each in policy.policies())
        """With those that they are made of, to which they pass on what they are told."""
        for policy in self.policies:
            if policy.namespace != namespace:
                raise ValueError(f"policy {policy.name!r} is of namespace {policy.namespace!r}, and not {namespace!r}")
        names = [policy.name for policy in self.policies]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two policies have the name {twice[0]!r}, by which their resources are told apart")
        self.domains = frozenset(policy.domain for policy in self.policies)
        """Whose resources are ephemeral."""

    def begin(self, events: Iterable[Event], now: float) -> list[Effect]:
        """All that there is at first is known to each."""
        known = list(events)
        return [effect for policy in self._told for effect in policy.begin(known, now)]

    def handle(self, event: Event, now: float) -> list[Effect]:
        return [effect for policy in self._told for effect in policy.handle(event, now)]

    def handle_all(self, events: Sequence[Event], now: float) -> list[Effect]:
        """These in turn, which have come together."""
        return [effect for policy in self._told for effect in policy.handle_all(events, now)]

    def end(self, now: float) -> list[Effect]:
        """None decides anything more, and nodes are to have nothing of theirs."""
        return [effect for policy in self.policies for effect in policy.end(now)]

    @property
    def ended(self) -> bool:
        return all(policy.ended for policy in self.policies)

    def next_deadline(self) -> float | None:
        known = [due for policy in self._told if (due := policy.next_deadline()) is not None]
        return min(known, default=None)
