"""What ephemeral resources cost: every row comes of the pods that it speaks of, and the cluster is as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.controlplane.clusters import EmbeddedCluster
from loadtests.goals import resource_costs
from loadtests.goals.measuring.rows import BY_NAME, RESOURCES
from loadtests.goals.resource_costs import COMPARISONS, Bench, Sizes, Took, measure
from loadtests.shared.pods import Json

SMALL = Sizes(nodes=6, pods=3, resources=9, asked=4, data=2, places=2, tasks=2, lasts=0.05, rounds=2)


@pytest.fixture(scope="module")
def cluster(state_folder: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster.start(nodes=SMALL.nodes) as made:
        yield made


def empty(cluster: EmbeddedCluster) -> bool:
    """No pod, and nothing on nodes that a comparison has put there."""
    nodes = cluster.admin.list_all("/api/v1/nodes")
    keys = [key for each in nodes for key in (*each["status"]["capacity"], *each["metadata"]["labels"])]
    left = [key for key in keys if "cost-" in key]
    return not (left or cluster.admin.list_all("/api/v1/pods"))


@pytest.mark.longer
def test_every_row_is_measured_and_the_cluster_is_left_as_it_was(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_costs, "_SETTLES", 0.2)
    asked: dict[str, set[int]] = {}
    create = Bench._create

    async def seen(self: Bench, made: Json) -> None:
        [container] = made["spec"]["containers"]
        asked.setdefault(made["spec"]["schedulerName"], set()).add(len(container["resources"]["limits"]))
        await create(self, made)

    monkeypatch.setattr(Bench, "_create", seen)
    told = asyncio.run(measure(cluster, SMALL, 1, COMPARISONS))
    goals = {row.name for row in BY_NAME.values() if row.measure == RESOURCES}
    assert goals < {each.row for each in told}
    assert {each.samples for each in told} == {SMALL.rounds}
    assert all(0 < each.low <= each.now <= each.high for each in told)
    # None, one, or as many as there are; without the extender nobody asks for any.
    assert asked == {"escher": {0, 1, SMALL.asked}, "escher-resources": {0}}
    assert empty(cluster)


@pytest.mark.longer
def test_a_task_that_is_not_where_its_data_is_ends_it(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource_costs, "_SETTLES", 0.2)

    def anywhere(self: Bench, data: str) -> Json:
        made = self._pod("escher-resources")
        made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "node-0"}
        return made

    monkeypatch.setattr(Bench, "_by_affinity", anywhere)
    with pytest.raises(RuntimeError, match="is on node-0, its data on node-"):
        asyncio.run(measure(cluster, SMALL, 1, ["locality"]))
    assert empty(cluster)


def test_what_warms_up_does_not_count() -> None:
    took = Took()
    for number in (-1, 0, 1):
        took.add("a", number, [float(number)], 2.0)
    assert took.passed == {"a": {0: [0.0], 1: [1.0]}}
    assert took.cpu == {"a": {0: [2.0], 1: [2.0]}}


@pytest.mark.parametrize(
    ("given", "said"), [(["--nodes", "10"], "should be 20 or more, found 10"), (["--only", "all"], "invalid choice")]
)
def test_wrong_use_is_refused(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        resource_costs.main(given)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
