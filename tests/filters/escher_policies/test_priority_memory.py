"""What changes of a policy leave of when pods count as higher."""

from __future__ import annotations

from extender.core.policies.matched_policy import MatchedPolicy
from extender.core.policies.policy_types import Priority
from extender.filters.escher_policies.priority import PolicyPriority
from tests.builders import pod


def test_changes_of_a_policy_leave_no_more_than_the_pods_that_wait() -> None:
    policy = PolicyPriority()
    for edit in range(50):
        for number in range(100):
            governed = (MatchedPolicy("urgent", Priority(edit, ageing_seconds=86_400)),)
            policy.observe(pod(f"p{number}", governed=governed), float(edit))
    assert len(policy._due) <= 2 * 100 + 64 + 1
    assert policy.next_deadline() == 86_400.0
