"""Policies other than gangs in the comparison, on both control planes: by every approach that knows of them they are
kept, as seen from outside, and nothing of them is left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.compare.comparing import pod_rows, trial_row
from lab.compare.plan import Plan
from lab.compare.running import Outcome, run
from lab.compare.runs import DONE, TrialRow
from lab.compare.vocabulary import POLICIES
from lab.controlplane.clusters import LocalCluster
from tests.e2e.conftest import CLUSTERS

pytestmark = [pytest.mark.longer, pytest.mark.timeout(300)]
NODES = 12


@pytest.fixture(scope="module")
def cluster(state_folder: Path, where: str) -> Iterator[LocalCluster]:
    with CLUSTERS[where].start(nodes=NODES) as made:
        yield made


@pytest.mark.parametrize("workload", sorted(POLICIES))
def test_a_policy_is_kept_by_all_who_know_of_it_and_leaves_nothing(
    cluster: LocalCluster, where: str, workload: str
) -> None:
    approaches = ["ungrouped", "appspace", "libspace", "extender", *["native"] * (where == "real")]
    plan = Plan(
        cluster=where, nodes=[NODES], workloads=[workload], sizes=[5], approaches=approaches, rounds=1, warm_up=0
    )
    plan.check()
    found: list[Outcome] = []
    before = nodes(cluster)
    asyncio.run(run(cluster, plan, plan.trials(), found.append))
    trials: dict[str, TrialRow] = {}
    for outcome in found:
        pods = list(pod_rows(outcome))
        assert all(row.node for row in pods)
        trials[outcome.trial.approach] = trial_row(plan, outcome, pods)
    assert set(trials) == set(plan.approaches_of(workload))
    assert {trial.outcome for trial in trials.values()} == {DONE}
    kept = {name: trial.kept for name, trial in trials.items()}
    without = kept.pop("ungrouped")
    assert set(kept.values()) == {1.0}, kept
    assert without is not None
    assert without < 1
    assert cluster.admin.list_all("/api/v1/pods") == []
    assert cluster.admin.list_all("/apis/escher.dev/v1alpha1/escherpolicies") == []
    assert cluster.admin.list_all("/apis/escher.dev/v1alpha1/ephemeralresources") == []
    assert nodes(cluster) == before


def nodes(cluster: LocalCluster) -> dict[str, object]:
    """What each offers, bears and takes."""
    return {
        each["metadata"]["name"]: (
            {key: units for key, units in each["status"]["allocatable"].items() if units != "0"},
            each["metadata"]["labels"],
            bool(each["spec"].get("unschedulable")),
        )
        for each in cluster.admin.list_all("/api/v1/nodes")
    }
