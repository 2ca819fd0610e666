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
        self._begin_slice = [(name, each.begin_slice) for name, each in self._settles.items()]
        self._has_work = [(name, each.has_work) for name, each in self._settles.items()]
        self._settle = [(name, each.settle) for name, each in self._settles.items()]
        self._slice_is_over = [(name, each.slice_is_over) for name, each in self._settles.items()]

    def begin_slice(self, now: float) -> None:
        self._contained.call_each(self._begin_slice, now, now=now)

    def has_work(self, now: float) -> bool:
        return self._contained.first_of(self._has_work, False, now, now=now)

    def settle(self, gains: Collection[NodeName], now: float) -> None:
        self._contained.call_each(self._settle, gains, now, now=now)

    def left_for_others(self, gains: Collection[NodeName]) -> Collection[NodeName]:
        """All is settled: the nodes that are left for pods that wait for no policy."""
        for name, policy in self._settles.items():
            gains = self._contained.ask(name, partial(policy.left_for_others, gains), gains)
        return gains

    def slice_is_over(self) -> bool:
        return self._contained.first_of(self._slice_is_over, False)
