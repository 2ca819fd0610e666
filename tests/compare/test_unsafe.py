"""The watcher is tested by gangs that are wrong: it sees those that are left in part, and none of the extender's.

Two gangs of six that are asked for at the same moment are planned on the same two nodes, where four and two of each are
to be. There is room for eight of the twelve, so that six of one and two of the other come, or neither gang is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.kube.names import NodeName
from lab.compare.comparing import pod_rows, trial_row
from lab.compare.plan import Plan
from lab.compare.reporting.timeline import times_of
from lab.compare.trials import workloads
from lab.compare.trials.unsafe import first_fit
from lab.compare.vocabulary import EXTENDER, LIBSPACE, UNSAFE
from lab.controlplane.clusters import EmbeddedCluster, LocalCluster, RealCluster
from tests.compare.test_running import outcomes

LONG = 0.5
"""Seconds: the Bindings of a gang take some milliseconds, and a gang that has the room lasts for a second."""
A, B, C = NodeName("a"), NodeName("b"), NodeName("c")


def test_first_fit_takes_nodes_in_order_and_all_or_nothing() -> None:
    free = {A: 5, B: 1, C: 4}
    assert first_fit(free, 2, 3) == [A, A, C]
    assert first_fit(free, 2, 4) == [A, A, C, C]
    assert first_fit(free, 2, 5) is None


@pytest.fixture(
    params=[pytest.param(EmbeddedCluster, marks=pytest.mark.longer), pytest.param(RealCluster, marks=pytest.mark.e2e)]
)
def cluster(state_folder: Path, request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with request.param.start(nodes=12) as made:
        yield made


@pytest.mark.timeout(300)
def test_gangs_are_left_in_part_by_the_unsafe_variant_and_none_is_by_the_extender(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workloads, "QUIET", 3.0)
    plan = Plan(
        cluster="real" if isinstance(cluster, RealCluster) else "embedded",
        nodes=[12],
        workloads=["contention"],
        sizes=[6],
        approaches=[LIBSPACE, EXTENDER, UNSAFE],
        rounds=1,
        warm_up=0,
    )
    left: dict[str, int] = dict.fromkeys(plan.approaches, 0)
    for each in outcomes(cluster, plan):
        pods = list(pod_rows(each))
        times = times_of(trial_row(plan, each, pods), pods)
        in_part = sum(gang.partly > LONG for gang in times.gangs)
        approach = each.trial.approach
        assert approach == UNSAFE or each.done, each
        assert approach != UNSAFE or in_part, each
        left[approach] += in_part
    assert left[EXTENDER] == 0
    assert left[UNSAFE] >= 2
