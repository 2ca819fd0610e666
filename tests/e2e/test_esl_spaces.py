"""Policies for applications on a cluster without the service: scenarios 6, 8 and 15, each in every space over the API
server. The same in virtual time, and on a port of the application's own: tests/esl/test_policy_spaces.py."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extender.adapters.kubernetes.appspace.extended_resource_policies import Policies
from extender.esl.base import CancelTask, Event, PodGone
from extender.esl.policies.anti_affinity import AntiAffinity
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, from_kubeconfig
from extender.kube.names import NodeName, PodUid
from extender.kube.quantities import Vector
from lab.controlplane.clusters import LocalCluster
from lab.controlplane.nodes import NodeShape, plain
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import CLUSTERS, REAL_ONLY
from tests.e2e.esl_stage import PLAIN, Stage, every_space, places, staged, units
from tests.e2e.outside import NODES, PODS
from tests.e2e.without_service import as_service_account, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.anyio]

APART = "app.escher.dev/default.apart--web"
COUNT = "app.escher.dev/default.counting--n"
DATA = "app.escher.dev/default.near--data-1"


class Near(PolicyEsl):
    """Data are where the first of the `holders` is that is there."""

    def __init__(self, *holders: str) -> None:
        super().__init__("near", scheduler=PLAIN)
        self.holders = holders

    def requires(self, task: Task) -> Vector:
        return {self.key("data-1"): 1}

    def capacities(self, now: float) -> Wanted:
        there = [NodeName(node) for node in self.holders if node in self.view.nodes]
        return {node: {self.key("data-1"): 100} for node in there[:1]}


class Counting(PolicyEsl):
    """Whoever is asked for adds one unit to what a node has, and takes one."""

    def __init__(self) -> None:
        super().__init__("counting", scheduler=PLAIN)

    def requires(self, task: Task) -> Vector:
        return {self.key("n"): 1}

    def capacities(self, now: float) -> Wanted:
        return {NodeName("node-0"): {self.key("n"): len(self.tasks)}} if self.tasks else {}


class Told(AntiAffinity):
    """Notes what it is told."""

    def __init__(self) -> None:
        super().__init__("apart", scheduler=PLAIN)
        self.told: list[Event] = []

    def handle(self, event: Event, now: float) -> list[Any]:
        self.told.append(event)
        return super().handle(event, now)


@pytest.fixture(scope="module")
def cluster(state_folder: Path, where: str) -> Iterator[LocalCluster]:
    with CLUSTERS[where].start(nodes=3, service=False, node_shape=NodeShape(cpu="8")) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _clean(cluster: LocalCluster) -> Iterator[None]:
    yield
    for pod in cluster.admin.list_all(PODS):
        cluster.admin.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds=0)
    eventually(lambda: not cluster.admin.list_all(PODS), what="an empty cluster")
    assert all(units(cluster, key) == {} for key in (APART, COUNT, DATA))


@every_space
async def test_of_four_on_three_nodes_three_run_apart_one_waits_and_another_group_is_placed(
    cluster: LocalCluster, space: str
) -> None:
    """Scenario 8."""
    apart = AntiAffinity("apart", scheduler=PLAIN)
    names = [f"web-{n}" for n in range(4)]
    async with staged(cluster.kubeconfig, [apart], space) as stage:
        for n, name in enumerate(names):
            await stage.launch(stage.one if n % 2 else stage.other, apart, name, "web")
        await until(lambda: len(set(places(cluster, *names)) - {None}) == 3, what="three apart")
        await stage.launch(stage.other, apart, "db-0", "db")
        await until(lambda: places(cluster, "db-0") != [None], what="the other group")
        assert sorted(map(str, places(cluster, *names))) == ["None", "node-0", "node-1", "node-2"]
        gone = next(name for name in names if places(cluster, name) == ["node-1"])
        waits = next(name for name in names if places(cluster, name) == [None])
        cluster.admin.delete(f"{PODS}/{gone}", gracePeriodSeconds=0)
        await until(lambda: places(cluster, waits) == ["node-1"], what="the fourth, when one has gone")


@every_space
async def test_50_concurrent_plus_one_add_exactly_50(cluster: LocalCluster, space: str) -> None:
    """Scenario 6."""
    counting = Counting()
    names = [f"plus-{number}" for number in range(50)]
    async with staged(cluster.kubeconfig, [counting], space) as stage:
        asking = (stage.launch(stage.one if n % 2 else stage.other, counting, name) for n, name in enumerate(names))
        await asyncio.gather(*asking)
        await until(lambda: places(cluster, *names) == ["node-0"] * 50, what="50 pods with a unit each")
        assert units(cluster, COUNT) == {"node-0": "50"}


@every_space
async def test_what_a_lost_node_had_is_made_again_on_a_peer_or_when_one_comes(
    cluster: LocalCluster, space: str
) -> None:
    """Scenario 15."""
    holders = [f"holder-{n}-{space.lower()}" for n in range(2)]

    def add(name: str) -> None:
        [node] = plain(1, NodeShape(cpu="8"))
        cluster.admin.post(NODES, {**node, "metadata": {**node["metadata"], "name": name}})

    for name in holders:
        add(name)
    near = Near(*holders)
    async with staged(cluster.kubeconfig, [near], space) as stage:
        await until(lambda: units(cluster, DATA) == {holders[0]: "100"}, what="the data's place")
        cluster.admin.delete(f"{NODES}/{holders[0]}")
        await until(lambda: units(cluster, DATA) == {holders[1]: "100"}, what="the data's place on the peer")
        await stage.launch(stage.one, near, "reader")
        await until(lambda: places(cluster, "reader") == [holders[1]], what="the reader")
        cluster.admin.delete(f"{NODES}/{holders[1]}")
        await until(lambda: not near.view.nodes.keys() & set(holders), what="the news")
        # kube-scheduler has its own watch, and may have it later: it would bind to a node that is no more.
        await asyncio.sleep(2)
        await stage.launch(stage.other, near, "late")
        await asyncio.sleep(2)
        assert places(cluster, "late") == [None]
        add(holders[0])
        await until(lambda: places(cluster, "late") == [holders[0]], what="the reader that has waited")
    cluster.admin.delete(f"{NODES}/{holders[0]}")


@every_space
async def test_a_kubelet_that_resets_its_resources_gets_them_back(cluster: LocalCluster, space: str) -> None:
    """Scenario 15."""
    apart = AntiAffinity("apart", scheduler=PLAIN)
    async with staged(cluster.kubeconfig, [apart], space) as stage:
        await stage.launch(stage.one, apart, "web-0", "web")
        whole = dict.fromkeys(("node-0", "node-1", "node-2"), "1")
        await until(lambda: units(cluster, APART) == whole, what="what the policy wants")
        for _ in range(2):
            gone = {"capacity": {APART: None}, "allocatable": {APART: None}}
            forgotten = cluster.admin.patch(f"{NODES}/node-1/status", {"status": gone})
            assert APART not in forgotten["status"]["capacity"]
            await until(lambda: units(cluster, APART) == whole, within=10, what="what the kubelet has forgotten")


async def test_who_waits_can_be_cancelled_and_who_is_bound_cannot(cluster: LocalCluster) -> None:
    apart = Told()
    async with staged(cluster.kubeconfig, [apart], "AppSpace") as stage:
        for n in range(4):
            await stage.launch(stage.one, apart, f"web-{n}", "web")
        names = [f"web-{n}" for n in range(4)]
        await until(lambda: len(set(places(cluster, *names)) - {None}) == 3, what="three apart")
        waits = next(name for name in names if places(cluster, name) == [None])
        cancels = [CancelTask("default", name, uid(cluster, name)) for name in names]
        await stage.policies.do(lambda now: cancels)
        await until(lambda: PodGone("default", waits) in apart.told, what="the end of who waits")
        await asyncio.sleep(1)
        left = {pod["metadata"]["name"] for pod in cluster.admin.list_all(PODS)}
        assert left == set(names) - {waits}


async def test_what_is_kept_is_adopted_by_the_next(cluster: LocalCluster) -> None:
    first = AntiAffinity("apart", scheduler=PLAIN)
    credentials = await Credentials.load(from_kubeconfig(cluster.kubeconfig))
    async with Connection(credentials) as connection:
        async with Policies(connection, [first], keep=True) as running:
            await Stage(running, connection, "AppSpace").launch(running, first, "web-0", "web")
            await until(lambda: places(cluster, "web-0") != [None], what="the first")
            await until(lambda: len(units(cluster, APART)) == 3, what="what the policy wants")
        second = AntiAffinity("apart", scheduler=PLAIN)
        async with Policies(connection, [second]) as running:
            assert list(second.tasks) == ["web-0"]
            await Stage(running, connection, "AppSpace").launch(running, second, "web-1", "web")
            await until(lambda: places(cluster, "web-1") != [None], what="the second")
            assert len(set(places(cluster, "web-0", "web-1"))) == 2


@REAL_ONLY
async def test_what_the_manifest_grants_is_enough(cluster: LocalCluster, where: str, tmp_path: Path) -> None:
    kubeconfig = as_service_account(cluster, tmp_path, "policies-without-extender.yaml", "escher-policies")
    apart = Told()
    async with staged(kubeconfig, [apart], "AppSpace") as stage:
        await stage.launch(stage.one, apart, "web-0", "web")
        await until(lambda: places(cluster, "web-0") != [None], what="a placement")
        await stage.policies.do(lambda now: [CancelTask("default", "web-0", uid(cluster, "web-0"))])
        await until(lambda: any("bound" in str(event) for event in apart.told), what="the refusal")


def uid(cluster: LocalCluster, name: str) -> PodUid:
    return PodUid(cluster.admin.get(f"{PODS}/{name}")["metadata"]["uid"])
