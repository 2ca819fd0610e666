"""A pod names the policies that are to govern it, and waits for those that are not there.

    metadata: {annotations: {escher.dev/policy: "apart, near-data"}}

Both hold; of `apart | near-data` the first that can be had.
"""

from __future__ import annotations

from extender.core.cluster import Pod
from extender.core.gang_ask import MalformedAsk
from extender.core.governing import POLICY, names_in
from extender.core.policy import Facts, Judge, Refuse
from extender.core.policy_types import MOST_NAMES
from extender.filters.asks import malformed


class PolicyNamed:
    name = "policy-named"

    def malformed(self, pod: Pod) -> MalformedAsk | None:
        value = pod.annotations.get(POLICY)
        if value is None or names_in(value) is not None:
            return None
        expected = (
            f"at most {MOST_NAMES} names of policies, with ',' between those that are to hold together and '|' between "
            "alternatives: each of at most 63 lower-case letters, digits and '-', beginning and ending with a letter "
            "or digit"
        )
        return malformed(POLICY, value, expected, "apart, near-data")

    def filter(self, pod: Pod, facts: Facts) -> Judge | None:
        if not pod.governed:
            return None
        missing = next((each.name for each in pod.governed if each.parameters is None), None)
        if missing is None:
            return None
        reason = f"policy {missing}, which is to govern the pod, does not exist yet"
        refusal = Refuse(reason, preemption_helps=False, policy=missing)
        return lambda node: refusal
