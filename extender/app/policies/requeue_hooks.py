# mypy: disable-error-code="type-abstract"
"""Requeue hooks: dispatch slices of work to policies that plan and wake as room comes free."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from extender.app.policies.fault_isolation import FaultIsolation, having
from extender.core.policy import Policy, Settles
from extender.kube.names import NodeName


class RequeueHooks:
    def __init__(self, policies: Sequence[Policy], containment: FaultIsolation) -> None:
        self._contained = containment
        self._settles = having(Settles, policies)

    def begin_slice(self, now: float) -> None:
        self._contained.call_each(self._settles, lambda policy: policy.begin_slice(now), now)

    def has_work(self, now: float) -> bool:
        return any(self._contained.ask_each(self._settles, lambda policy: policy.has_work(now), False, now))

    def settle(self, gains: Collection[NodeName], now: float) -> None:
        self._contained.call_each(self._settles, lambda policy: policy.settle(gains, now), now)

    def left_for_others(self, gains: Collection[NodeName]) -> Collection[NodeName]:
        """All is settled: the nodes that are left for pods that wait for no policy."""
        for name, policy in self._settles.items():
            gains = self._contained.ask(name, partial(policy.left_for_others, gains), gains)
        return gains

    def slice_is_over(self) -> bool:
        return any(self._contained.ask_each(self._settles, lambda policy: policy.slice_is_over(), False))
