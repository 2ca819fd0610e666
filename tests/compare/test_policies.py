"""Policies other than gangs, by every approach on the embedded cluster: they are kept, and nothing of them is left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.compare.comparing import pod_rows, trial_row
from extender.compare.plan import Plan
from extender.compare.policies import ByPolicy
from extender.compare.running import Outcome, run
from extender.compare.runs import DONE, TrialRow
from extender.compare.vocabulary import POLICIES
from extender.compare.workloads import Ask
from extender.controlplane.clusters import EmbeddedCluster
from extender.controlplane.errors import WrongUse

NODES = 12
APPROACHES = ("ungrouped", "appspace", "libspace", "extender")


@pytest.fixture(scope="module")
def cluster(state_folder: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster.start(nodes=NODES) as made:
        yield made


def plan_of(workload: str, size: int = 5) -> Plan:
    return Plan(
        cluster="embedded", nodes=[NODES], workloads=[workload], sizes=[size], approaches=APPROACHES, rounds=1,
        warm_up=0,
    )  # fmt: skip


@pytest.mark.longer
@pytest.mark.parametrize("workload", sorted(POLICIES))
def test_a_policy_is_kept_by_all_who_know_of_it_and_leaves_nothing(cluster: EmbeddedCluster, workload: str) -> None:
    plan, found = plan_of(workload), list[Outcome]()
    plan.check()
    before = nodes(cluster)
    asyncio.run(run(cluster, plan, plan.trials(), found.append))
    trials: dict[str, TrialRow] = {}
    for outcome in found:
        pods = list(pod_rows(outcome))
        assert all(row.node for row in pods)
        trials[outcome.trial.approach] = trial_row(plan, outcome, pods)
    assert set(trials) == set(APPROACHES)
    assert {trial.outcome for trial in trials.values()} == {DONE}
    kept = {name: trial.kept for name, trial in trials.items()}
    without = kept.pop("ungrouped")
    assert set(kept.values()) == {1.0}
    assert without is not None
    assert without < 1
    assert cluster.admin.list_all("/api/v1/pods") == []
    assert cluster.admin.list_all("/apis/escher.dev/v1alpha1/escherpolicies") == []
    assert cluster.admin.list_all("/apis/escher.dev/v1alpha1/ephemeralresources") == []
    assert nodes(cluster) == before


def nodes(cluster: EmbeddedCluster) -> dict[str, object]:
    """What each offers, bears and takes."""
    return {
        each["metadata"]["name"]: (
            {key: units for key, units in each["status"]["allocatable"].items() if units != "0"},
            each["metadata"]["labels"],
            bool(each["spec"].get("unschedulable")),
        )
        for each in cluster.admin.list_all("/api/v1/nodes")
    }


def test_what_has_no_means_for_a_policy_is_left_out() -> None:
    plan = Plan(workloads=("co-location", "balancing", "fair-share"))
    chosen = {workload: plan.approaches_of(workload) for workload in plan.workloads}
    assert chosen["co-location"] == chosen["balancing"] == ["ungrouped", "appspace", "libspace", "extender", "native"]
    assert chosen["fair-share"] == ["ungrouped", "appspace", "libspace", "extender"]


def test_a_group_that_has_room_on_no_node_is_refused_and_so_is_a_cluster_smaller_than_the_pool() -> None:
    with pytest.raises(WrongUse, match="--size 65 is too large for co-location: at most 64"):
        plan_of("co-location", 65).check()
    with pytest.raises(WrongUse, match=r"--nodes 12 is too few for .*: 25 or more are needed"):
        plan_of("balancing", 64).check()


def test_what_fails_when_a_policy_is_made_is_raised_by_who_needs_it() -> None:
    def block(name: str) -> object:
        raise RuntimeError(name)

    async def prepared() -> None:
        way = ByPolicy(None, block, one_for_all=True)  # type: ignore[arg-type]
        await way.prepare(Ask("a", 1, {"cpu": "1"}))

    with pytest.raises(RuntimeError, match="a"):
        asyncio.run(prepared())
