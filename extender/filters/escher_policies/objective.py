"""Objective score: the policy's pods prefer the node with the best value of a label."""

from __future__ import annotations

from math import isfinite

from extender.core.cluster import Pod
from extender.core.policies.matched_policy import of_type
from extender.core.policies.policy_types import Objective
from extender.core.policy import Concerns, Facts, Scorer
from extender.kube.names import NodeName


class PolicyObjective:
    name = "policy-objective"
    concerns = Concerns.GOVERNED
    decides = True

    def score(self, pod: Pod, facts: Facts) -> Scorer | None:
        if (each := next(of_type(pod.governed, Objective), None)) is None:
            return None
        best = 1.0 if each[1].prefer == "highest" else -1.0
        said = ((name, _number(node.labels.get(each[1].label, ""))) for name, node in facts.nodes.items())
        values = {name: best * value for name, value in said if value is not None}
        # By rank: values may differ by less than a part of the largest.
        ranks = {value: rank for rank, value in enumerate(sorted(set(values.values())), 1)}

        def score(node: NodeName) -> float:
            return ranks[values[node]] / len(ranks) if node in values else 0.0

        return score


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None
