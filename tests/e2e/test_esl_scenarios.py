"""Scenarios 7, 9, 10, 11, 16 and 17 of policies for applications, in every space over the API server. In virtual time,
and on a port of the application's own: tests/esl/test_scenarios_in_spaces.py, test_{soft,policy}_spaces.py."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extender.esl.base import PodRequirement
from extender.esl.compositions.composed import AllOf
from extender.esl.policies.anti_affinity import AntiAffinity, PairedAntiAffinity
from extender.esl.policies.balance import Balance, DynamicBalance
from extender.esl.policies.co_location import CoLocation
from extender.esl.policies.fair_share import FairShare
from extender.esl.policies.signal import Signal
from extender.esl.policies.soft import Soft
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.names import NodeName
from extender.kube.quantities import Vector
from lab.controlplane.clusters import LocalCluster
from lab.controlplane.nodes import NodeShape
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import CLUSTERS, REAL_ONLY
from tests.e2e.esl_stage import PLAIN, every_space, places, pod, staged, units
from tests.e2e.outside import NODES, PODS
from tests.e2e.without_service import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.anyio]

GPU, TPU, DATA1, DATA2 = (f"example.com/{name}" for name in ("gpu", "tpu", "data1", "data2"))


@pytest.fixture(scope="module")
def cluster(state_folder: Path, where: str) -> Iterator[LocalCluster]:
    with CLUSTERS[where].start(nodes=2, service=False, node_shape=NodeShape(cpu="8")) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _clean(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for name in {"cluster", "hundred"} & set(request.fixturenames):
        cluster: LocalCluster = request.getfixturevalue(name)
        _empty(cluster)


def _empty(cluster: LocalCluster) -> None:
    for each in cluster.admin.list_all(PODS):
        cluster.admin.delete(f"{PODS}/{each['metadata']['name']}", gracePeriodSeconds=0)
    eventually(lambda: not cluster.admin.list_all(PODS), what="an empty cluster")


def have(cluster: LocalCluster, node: str, **resources: str | None) -> None:
    """The node has these of `example.com`, whoever sets them; None: no more."""
    there = {f"example.com/{name}": units for name, units in resources.items()}
    cluster.admin.patch(f"{NODES}/{node}/status", {"status": {"capacity": there, "allocatable": there}})


@every_space
@pytest.mark.parametrize(("tasks", "is_known"), [(4, True), (10, False)])
async def test_tasks_are_spread_over_two_nodes_and_all_run(
    cluster: LocalCluster, space: str, tasks: int, is_known: bool
) -> None:
    """Scenario 7: of a number that is known, and of one that is not."""
    even: PolicyEsl = DynamicBalance("even", scheduler=PLAIN)
    if is_known:
        even = Balance("even", scheduler=PLAIN, tasks=tasks)
    names = [f"t{n}" for n in range(tasks)]
    async with staged(cluster.kubeconfig, [even], space) as stage:
        for n, name in enumerate(names):
            await stage.launch(stage.one if n % 2 else stage.other, even, name)
        await until(lambda: None not in places(cluster, *names), within=60, what="all of them")
        assert set(Counter(places(cluster, *names)).values()) == {tasks // 2}


@every_space
async def test_each_of_two_pairs_is_together_and_no_node_has_both(cluster: LocalCluster, space: str) -> None:
    """Scenario 9."""
    together = CoLocation("together", scheduler=PLAIN)
    apart = PairedAntiAffinity("apart", pairs=[("p", "q")], scheduler=PLAIN)
    both = AllOf("both", together, apart, scheduler=PLAIN)
    async with staged(cluster.kubeconfig, [both], space) as stage:
        names = ["p0", "q1", "p2", "q3"]
        for name in names:
            await stage.launch(stage.one if name[0] == "p" else stage.other, both, name, name[0])
        await until(lambda: None not in places(cluster, *names), within=60, what="both pairs")
        first, second, third, fourth = places(cluster, *names)
        assert first == third != second == fourth


@every_space
async def test_a_successor_of_three_starts_only_after_all_three_have_succeeded(
    cluster: LocalCluster, space: str
) -> None:
    """Scenario 10."""
    graph = Signal("graph", after={"last": ["a", "b", "c"]}, scheduler=PLAIN)

    def succeeded() -> set[str]:
        there = cluster.admin.list_all(PODS)
        return {each["metadata"]["name"] for each in there if each["status"].get("phase") == "Succeeded"}

    async with staged(cluster.kubeconfig, [graph], space) as stage:
        await stage.launch(stage.other, graph, "last")
        for name, seconds in (("a", 1), ("b", 3), ("c", 4)):
            await stage.launch(stage.one, graph, name, seconds=seconds)
        while places(cluster, "last") == [None]:
            # In this order: it may start between the two looks.
            started, done = places(cluster, "last") != [None], succeeded()
            assert not started or done == set("abc")
            await asyncio.sleep(0.2)
        assert succeeded() >= set("abc")


@every_space
async def test_the_third_preference_wins_and_the_task_runs_once_though_the_first_is_possible_later(
    cluster: LocalCluster, space: str, where: str
) -> None:
    """Scenario 11: hard is a GPU; what is preferred is data1 and a TPU, data2 and a TPU, data1."""
    wait = 5.0 if where == "real" else 1.0
    have(cluster, "node-0", data1="1", gpu="1")
    have(cluster, "node-1", data2="1", tpu="1")
    wishes = [PodRequirement(dict.fromkeys(each, "1")) for each in ((DATA1, TPU), (DATA2, TPU), (DATA1,))]
    soft = Soft("soft", lambda task: wishes, wait=wait, scheduler=PLAIN)
    hard = {"requests": {"cpu": "1", GPU: "1"}, "limits": {GPU: "1"}}

    def there(field: str, key: str) -> list[Any]:
        return [each[field].get(key) for each in cluster.admin.list_all(PODS)]

    async with staged(cluster.kubeconfig, [soft], space) as stage:
        began = asyncio.get_running_loop().time()
        await stage.one.ask(soft, Task("t"), pod("template", seconds=5, resources=hard))
        await until(lambda: there("spec", "nodeName") == ["node-0"], what="the task")
        assert asyncio.get_running_loop().time() - began >= 2 * wait - 0.5
        have(cluster, "node-0", tpu="1")
        await until(lambda: there("status", "phase") == ["Succeeded"], what="its end")
        await asyncio.sleep(wait)
        [ran] = cluster.admin.list_all(PODS)
        asked = ran["spec"]["containers"][0]["resources"]["requests"]
        assert {key for key in asked if key.startswith("example.com/")} == {GPU, DATA1}
    for node in ("node-0", "node-1"):
        have(cluster, node, data1=None, data2=None, gpu=None, tpu=None)


@every_space
async def test_two_tenants_with_policies_of_one_name_do_not_meet_and_neither_sets_what_is_the_nodes_own(
    cluster: LocalCluster, space: str
) -> None:
    """Scenario 17."""
    namespace = f"team-b-{space.lower()}"
    cluster.admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    ours, theirs = (AntiAffinity("cpu", namespace=each, scheduler=PLAIN) for each in ("default", namespace))
    own, foreign = (str(each.key("web")) for each in (ours, theirs))
    both = {"node-0": "1", "node-1": "1"}
    async with staged(cluster.kubeconfig, [ours], space) as stage:
        async with staged(cluster.kubeconfig, [theirs], space, namespace=namespace) as others:
            await others.one.ask(theirs, Task("a", "web"))
            for name in ("a", "b"):
                await stage.launch(stage.one, ours, name, "web")
            await until(lambda: set(places(cluster, "a", "b")) == set(both), what="one on each node")
            await until(lambda: units(cluster, own) == units(cluster, foreign) == both, what="the marks of both")
        await until(lambda: not units(cluster, foreign), what="that theirs are gone")
        assert units(cluster, own) == both
        assert set(units(cluster, "cpu").values()) == {"8"}


class Stored(PolicyEsl):
    """Data are on `nodes`, on all of them."""

    def __init__(self, name: str) -> None:
        super().__init__(name, scheduler=PLAIN)
        self.nodes: list[str] = []

    def requires(self, task: Task) -> Vector:
        return {self.key("data"): 1}

    def capacities(self, now: float) -> Wanted:
        return {NodeName(node): {self.key("data"): 100} for node in self.nodes}


@pytest.fixture(scope="module")
def hundred(state_folder: Path, where: str) -> Iterator[LocalCluster]:
    with CLUSTERS[where].start(nodes=100, service=False) as cluster:
        yield cluster


@REAL_ONLY
@every_space
async def test_users_have_their_weights_part_of_100_nodes_as_they_come_and_idle(
    hundred: LocalCluster, space: str
) -> None:
    """Scenario 16."""
    fair, stored = FairShare("fair", scheduler=PLAIN), Stored("stored")

    def nodes(user: str) -> set[str]:
        return set(units(hundred, str(fair.key(user))))

    async with staged(hundred.kubeconfig, [fair, stored], space) as stage:

        async def divided(*parts: int) -> None:
            await until(lambda: [len(nodes(user)) for user in "abc"] == [*parts], within=60, what=f"{parts}")

        async def comes(user: str, weight: int = 1, parent: str | None = None) -> None:
            await stage.policies.do(lambda now: fair.create_user(user, weight, parent, now=now))

        await comes("p")
        await comes("a", 2, "p")
        await divided(100, 0, 0)
        await stage.launch(stage.one, fair, "runs", "a")
        await until(lambda: places(hundred, "runs") != [None], what="the task")
        there = places(hundred, "runs")
        await comes("b", 3, "p")
        await divided(40, 60, 0)
        await comes("q")
        await comes("c", 1, "q")
        await divided(20, 30, 50)
        await stage.policies.do(lambda now: fair.set_idle("b", now=now))
        await divided(50, 0, 50)
        assert places(hundred, "runs") == there
        here, not_here = min(nodes("a")), min(nodes("c"))
        stored.nodes = [not_here, here]
        both = await stage.one.ask(fair, Task("reader", "a")) & await stage.other.ask(stored, Task("reader"))
        await stage.create(both, "reader")
        await until(lambda: places(hundred, "reader") == [here], what="the reader, where its user's part has the data")
