"""Bin packing score: the fullest node with pods of the policy, else the emptiest for later pods."""

from __future__ import annotations

from extender.core.cluster import Pod
from extender.core.policies.matched_policy import of_type
from extender.core.policies.policy_types import BinPacking
from extender.core.policy import Concerns, Facts, Scorer
from extender.filters.escher_policies.standing import Standing
from extender.kube.names import CPU, MEMORY, NodeName


class PolicyBinPacking:
    name = "policy-bin-packing"
    concerns = Concerns.GOVERNED
    decides = True

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def score(self, pod: Pod, facts: Facts) -> Scorer | None:
        if (each := next(of_type(pod.governed, BinPacking), None)) is None:
            return None
        there = self._standing.of(each[0].name, pod, facts)

        def score(node: NodeName) -> float:
            full = fullness(node, facts)
            return (1.0 + full) / 2 if node in there else (1.0 - full) * 0.49

        return score


def fullness(node: NodeName, facts: Facts) -> float:
    """From 0 to 1: the held part of CPU or memory, whichever is larger."""
    row = facts.ledger.rows.get(node)
    if row is None:
        return 0.0
    parts = (row.held.get(each, 0) / row.capacity[each] for each in (CPU, MEMORY) if row.capacity.get(each))
    return min(1.0, max(parts, default=0.0))
