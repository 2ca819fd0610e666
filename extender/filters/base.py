"""The shape of a filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from extender.core.cluster import Pod
from extender.core.ledger import Holder, Ledger
from extender.core.names import NodeName
from extender.core.units import Short


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a pod may not be on a node.

    `reason` goes to kube-scheduler and is constant for the same situation; `short` has the numbers, for people.
    `preemption_helps`: whether evicting pods of lower priority could make room.
    """

    reason: str
    short: Short | None = None
    preemption_helps: bool = True


Judge = Callable[[NodeName], Rejection | None]
"""For one pod: None if it may be on the node."""


GivingWay = Mapping[NodeName, Sequence[Holder]]
"""Holders by node that would give up what they hold for the pod: to be counted as free."""


class Filter(Protocol):
    """One policy. `name` is a DNS label, for metrics and explanations.

    Of a pod it judges by what is alike for all of a kind: its namespace, gang, priority, requests, selectors and
    tolerations, and by what is held for it. Others are woken by what one of a kind is told.
    """

    name: str

    def judge(self, pod: Pod, ledger: Ledger, giving_way: GivingWay) -> Judge | None:
        """How this policy judges nodes for the pod; None where it has no say, which must take one look-up to find
        out."""
        ...
