"""Filter: a pod waits until the policies that it names exist.

    metadata: {annotations: {escher.dev/policy: "apart, near-data"}}

Both apply; of `apart | near-data`, the first that can be satisfied. A policy that tasks ask does not apply to a pod
that only names it: the pod gets this reason, and waits until it is recreated with the answer.
"""

from __future__ import annotations

from extender.core.cluster import Pod
from extender.core.gang_ask import MalformedAsk
from extender.core.policies.matched_policy import MatchedPolicy
from extender.core.policies.policy_matching import MOST_GOVERNING, POLICY, names_in
from extender.core.policies.policy_types import MOST_NAMES, Hosted
from extender.core.policy import Concerns, Facts, NodeFilter, OnlyTheseNodes, Refuse
from extender.filters.asks import malformed


class PolicyNamed:
    name = "policy-named"
    concerns = Concerns.GOVERNED

    def malformed(self, pod: Pod) -> MalformedAsk | None:
        value = pod.annotations.get(POLICY)
        if value is None or names_in(value) is not None:
            return None
        expected = (
            f"at most {MOST_NAMES} policy names, with ',' between those that all apply and '|' between alternatives: "
            "each of at most 63 lower-case letters, digits and '-', beginning and ending with a letter or digit"
        )
        return malformed(POLICY, value, expected, "apart, near-data")

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        if len(pod.governed) > MOST_GOVERNING:
            reason = (
                f"{len(pod.governed)} policies match the pod (escher.dev/policy, selectors); limit: {MOST_GOVERNING}"
            )
            return _nowhere(Refuse(reason, preemption_helps=False))
        why = next(((each.name, why) for each in pod.governed if (why := _why_not(each))), None)
        if why is None:
            return None
        return _nowhere(Refuse(why[1], preemption_helps=False, policy=why[0]))


def _nowhere(why: Refuse) -> NodeFilter:
    return OnlyTheseNodes((), lambda node: why, why)


def _why_not(each: MatchedPolicy) -> str:
    """Why the policy can match no pod; empty if it can."""
    if each.parameters is None:
        return f"policy {each.name} applies to the pod but does not exist yet"
    if isinstance(each.parameters, Hosted):
        return (
            f"naming policy {each.name} is not enough: ask it for each task, and put its answer into the pod"
            f" (escher policy ask {each.name} --task NAME)"
        )
    return ""
