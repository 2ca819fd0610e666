"""Workloads of policies other than gangs: which approaches they have, and what is refused. That policies are kept, and
leave nothing, is shown on both control planes: tests/e2e/test_compared_policies.py."""

from __future__ import annotations

import asyncio

import pytest

from extender.shipped.errors import WrongUse
from lab.compare.plan import Plan
from lab.compare.trials.policies import ByPolicy
from lab.compare.trials.workloads import Ask


def test_what_has_no_means_for_a_policy_is_left_out() -> None:
    plan = Plan(workloads=("co-location", "balancing", "fair-share"))
    chosen = {workload: plan.approaches_of(workload) for workload in plan.workloads}
    assert chosen["co-location"] == chosen["balancing"] == ["ungrouped", "appspace", "libspace", "extender", "native"]
    assert chosen["fair-share"] == ["ungrouped", "appspace", "libspace", "extender"]


def test_a_group_that_has_room_on_no_node_is_refused_and_so_is_a_cluster_smaller_than_the_pool() -> None:
    with pytest.raises(WrongUse, match="--size 65 is too large for co-location: at most 64"):
        Plan(workloads=["co-location"], sizes=[65]).check()
    with pytest.raises(WrongUse, match=r"--nodes 12 is too few for .*: 25 or more are needed"):
        Plan(workloads=["balancing"], sizes=[64], nodes=[12]).check()


def test_what_fails_when_a_policy_is_made_is_raised_by_who_needs_it() -> None:
    def block(name: str) -> object:
        raise RuntimeError(name)

    async def prepared() -> None:
        way = ByPolicy(None, block, one_for_all=True)  # type: ignore[arg-type]
        await way.prepare(Ask("a", 1, {"cpu": "1"}))

    with pytest.raises(RuntimeError, match="a"):
        asyncio.run(prepared())
