"""The coscheduling plugin of scheduler-plugins in the comparison: its PodGroups on a real control plane, and, where
ESCHER_COSCHEDULING names its kube-scheduler, gangs that it places."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from extender.shipped.errors import ClusterError
from extender.shipped.progress import Progress
from lab.compare import comparing
from lab.compare.external_schedulers import BROUGHT
from lab.compare.plan import Plan
from lab.compare.running import Outcome
from lab.compare.runs import DONE, STUCK, read
from lab.compare.trials import workloads
from lab.controlplane.api import ApiError
from lab.controlplane.clusters import RealCluster
from lab.controlplane.processes import binaries

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

NODES, SIZE = 6, 4
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"


class Unheard:
    def cluster(self, nodes: int) -> None:
        return

    def taking(self, pods: int) -> None:
        return

    def trial(self, outcome: Outcome, left: int, seconds_left: float) -> None:
        return


def planned(program: Path, size: int, cpu: str, rounds: int = 1) -> Plan:
    return Plan(
        nodes=[NODES],
        sizes=[size],
        approaches=["ungrouped", "coscheduling"],
        rounds=rounds,
        warm_up=0,
        cpu=cpu,
        scheduler_binaries={"coscheduling": str(program)},
    )


@pytest.fixture(scope="module")
def program() -> Path:
    """The kube-scheduler of scheduler-plugins."""
    if not (path := os.environ.get("ESCHER_COSCHEDULING")):
        pytest.skip("ESCHER_COSCHEDULING names no kube-scheduler of scheduler-plugins (see docs/comparison.md)")
    return Path(path).absolute()


def test_pod_groups_are_served_with_a_status_and_one_of_nobody_is_refused(state_folder: Path) -> None:
    with RealCluster.start(service=False, definitions=BROUGHT["coscheduling"].definitions) as cluster:
        group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "a"}}
        spec = {"minMember": 3, "minResources": {"cpu": 2, "memory": "1Gi"}, "scheduleTimeoutSeconds": 10}
        made = cluster.admin.post(GROUPS, {**group, "spec": spec, "status": {"phase": "Running"}})
        assert made["spec"] == spec
        assert "status" not in made
        made["status"] = {"phase": "Scheduling", "running": 1, "scheduleStartTime": None}
        told = cluster.admin.put(f"{GROUPS}/a/status", made)
        assert told["status"]["phase"] == "Scheduling"
        with pytest.raises(ApiError, match="minMember"):
            cluster.admin.post(GROUPS, {**group, "metadata": {"name": "b"}, "spec": {"minMember": 0}})


def test_a_kube_scheduler_without_the_plugin_is_reported_in_its_own_words(state_folder: Path, tmp_path: Path) -> None:
    plain = binaries.build(Progress()) / "kube-scheduler"
    with pytest.raises(ClusterError, match=r'"Coscheduling.*" does not exist'):
        asyncio.run(comparing.begin(planned(plain, SIZE, "1"), tmp_path / "run", "", Unheard()))


def test_a_gang_is_placed_by_the_plugin_and_its_scheduler_is_counted(
    program: Path, state_folder: Path, tmp_path: Path
) -> None:
    asyncio.run(comparing.begin(planned(program, SIZE, "1", rounds=3), tmp_path / "run", "", Unheard()))
    found = read(tmp_path / "run")
    pods = found.pods_by_trial()
    for trial in found.trials:
        assert trial.outcome == DONE
        assert all(pod.bound is not None for pod in pods[trial.trial])
        assert (trial.attempts or 0) >= SIZE
        assert trial.cpu_scheduler is not None


def test_nobody_of_a_gang_without_room_is_bound(
    program: Path, state_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workloads, "_patience", lambda size: 8.0)
    asyncio.run(comparing.begin(planned(program, NODES + 1, "8"), tmp_path / "run", "", Unheard()))
    found = read(tmp_path / "run")
    pods = found.pods_by_trial()
    by_approach = {trial.approach: trial for trial in found.trials}
    assert {trial.outcome for trial in by_approach.values()} == {STUCK}
    assert any(pod.bound is not None for pod in pods[by_approach["ungrouped"].trial])
    assert not any(pod.bound is not None for pod in pods[by_approach["coscheduling"].trial])
