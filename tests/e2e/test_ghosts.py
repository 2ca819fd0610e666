"""Gangs in pure extended resources whose application is killed, refused or robbed, with the default scheduler."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from extender.adapters.kubernetes.appspace.extended_resource_gangs import ExtendedResourceGangs, GangFailed
from extender.esl import GangSpec, Times, gang
from extender.esl.base import News
from extender.esl.gangs.departed import GHOST_LABEL
from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, from_kubeconfig
from lab.controlplane.api import ApiError
from lab.controlplane.clusters import LocalCluster
from lab.controlplane.nodes import NodeShape
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import CLUSTERS, REAL_ONLY
from tests.e2e.ghost_application import ASK, members
from tests.e2e.outside import NODES, PODS
from tests.e2e.without_service import as_service_account, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.anyio]

COLLECTED_WITHIN = 21.0
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@pytest.fixture(scope="module")
def cluster(state_folder: Path, where: str) -> Iterator[LocalCluster]:
    with CLUSTERS[where].start(nodes=2, service=False, node_shape=NodeShape(cpu="4")) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _clean(cluster: LocalCluster) -> Iterator[None]:
    yield
    for pod in cluster.admin.list_all(PODS):
        cluster.admin.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds=0)
    eventually(lambda: not cluster.admin.list_all(PODS), what="an empty cluster")


@asynccontextmanager
async def gangs_on(kubeconfig: Path, **wishes: Any) -> AsyncIterator[tuple[ExtendedResourceGangs, Connection]]:
    credentials = await Credentials.load(from_kubeconfig(kubeconfig))
    async with Connection(credentials) as connection, ExtendedResourceGangs(connection, **wishes) as gangs:
        yield gangs, connection


def launcher(connection: Connection, seconds: str = "0.5") -> Callable[[GangSpec], Any]:
    async def launch(spec: GangSpec) -> None:
        for member in members(spec, seconds):
            await connection.request("POST", PODS, msgspec.json.encode(member))

    return launch


def ghosts(cluster: LocalCluster) -> list[dict[str, Any]]:
    return cluster.admin.list_all(PODS, labelSelector=GHOST_LABEL)


def keys(cluster: LocalCluster) -> list[tuple[str, str]]:
    return [
        (node["metadata"]["name"], key)
        for node in cluster.admin.list_all(NODES)
        for key in {**node["status"]["capacity"], **node["status"]["allocatable"]}
        if key.startswith("app.escher.dev/")
    ]


def leases(cluster: LocalCluster) -> list[str]:
    names = [each["metadata"]["name"] for each in cluster.admin.list_all(_LEASES)]
    return [name for name in names if name.startswith("escher-ghosts-")]


def nothing_left(cluster: LocalCluster) -> bool:
    return not ghosts(cluster) and not keys(cluster) and not leases(cluster)


def running(cluster: LocalCluster, name: str) -> bool:
    pod = cluster.admin.get(f"{PODS}/{name}")
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") in ("Pending", "Running")


def application(cluster: LocalCluster, when: str) -> subprocess.Popen[str]:
    """It has come as far as that."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.ghost_application", str(cluster.kubeconfig), when],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while process.stdout.readline().strip() != when:
        assert process.poll() is None
    return process


@pytest.mark.parametrize("when", ["starting", "reserved", "launched"])
async def test_killed_nothing_is_left_but_what_members_use_and_the_next_run_comes_about(
    cluster: LocalCluster, when: str
) -> None:
    with await asyncio.to_thread(application, cluster, when) as process:
        process.kill()
    async with gangs_on(cluster.kubeconfig) as (gangs, connection):
        loop = asyncio.get_running_loop()
        began = loop.time()
        report = await gangs.run(ASK, launcher(connection))
        assert report.news is News.ENDED
        await until(
            lambda: not ghosts(cluster) and not keys(cluster) and len(leases(cluster)) == 1,
            within=COLLECTED_WITHIN + 5 - (loop.time() - began),
            what="the end of what was left",
        )
    assert nothing_left(cluster)


async def test_swept_nothing_is_left_of_one_that_was_killed(cluster: LocalCluster) -> None:
    with await asyncio.to_thread(application, cluster, "reserved") as process:
        process.kill()
    command = [sys.executable, "-c", "from extender.cli.main import app; app()", "cleanup", "gangs"]
    command += ["--kubeconfig", str(cluster.kubeconfig)]
    swept = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert swept.returncode == 0, swept.stderr
    assert "default/train: nothing is left of run" in swept.stdout
    assert nothing_left(cluster)


async def test_asked_to_end_it_leaves_nothing_behind(cluster: LocalCluster) -> None:
    with await asyncio.to_thread(application, cluster, "reserved") as process:
        assert len(ghosts(cluster)) == 3
        process.terminate()
        assert await asyncio.to_thread(process.wait, 30) == -15
    assert nothing_left(cluster)


async def test_resources_that_vanish_from_their_nodes_are_there_again(cluster: LocalCluster) -> None:
    async with gangs_on(cluster.kubeconfig) as (gangs, _):
        await gangs.start(ASK).reserved()
        before = keys(cluster)
        for node, key in before:
            gone = {"capacity": {key: None}, "allocatable": {key: None}}
            cluster.admin.patch(f"{NODES}/{node}/status", {"status": gone})
        await until(lambda: sorted(keys(cluster)) == sorted(before), within=5, what="the resources")
    assert nothing_left(cluster)


async def test_a_member_whose_room_is_taken_by_a_pod_of_higher_priority_goes_and_the_gang_says_so(
    cluster: LocalCluster,
) -> None:
    strong = {"metadata": {"name": "strong"}, "value": 1000}
    cluster.admin.post("/apis/scheduling.k8s.io/v1/priorityclasses", strong)
    full = gang("train", 2, {"cpu": "3"}, scheduler="default-scheduler")
    async with gangs_on(cluster.kubeconfig, times=Times(without_room=2, reserve_within=3, attempts=2)) as (
        gangs,
        connection,
    ):
        run = gangs.start(full)
        await run.reserved()
        await launcher(connection, "60")(run.spec)
        names = [member["metadata"]["name"] for member in members(run.spec, "60")]  # type: ignore[index]
        await until(lambda: all(running(cluster, name) for name in names), what="the members")
        intruder = {
            "metadata": {"name": "intruder"},
            "spec": {
                "priorityClassName": "strong",
                "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "3"}}}],
            },
        }
        cluster.admin.post(PODS, intruder)
        await until(lambda: len(cluster.admin.list_all(PODS, labelSelector="escher.dev/gang=train")) == 1, what="one")
        assert any("was preempted" in each or "deleted by another client" in each for each in run.troubles)
        assert any("is evicted: its capacity was taken" in each for each in run.troubles)
        await until(lambda: running(cluster, "intruder"), what="the stronger pod")
        for pod in cluster.admin.list_all(PODS, labelSelector="escher.dev/gang=train"):
            cluster.admin.delete(f"{PODS}/{pod['metadata']['name']}", gracePeriodSeconds=0)
        assert (await run.ended()).news is News.FAILED
    assert nothing_left(cluster)


@REAL_ONLY
async def test_a_quota_is_told_and_tried_a_stated_number_of_times(cluster: LocalCluster, where: str) -> None:
    quotas = "/api/v1/namespaces/default/resourcequotas"
    cluster.admin.post(quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}})
    # Nobody counts here, as kube-controller-manager would.
    few = {"status": {"hard": {"pods": "2"}, "used": {"pods": "0"}}}
    cluster.admin.patch(f"{quotas}/few/status", few)
    try:
        async with gangs_on(cluster.kubeconfig, times=Times(attempts=3, first_pause=0.5)) as (gangs, _):
            run = gangs.start(ASK)
            with pytest.raises(GangFailed, match="exceeded quota: few"):
                await run.reserved()
            assert len(run.roll_backs) == 2
            assert all("exceeded quota: few" in why for why in run.roll_backs)
        assert nothing_left(cluster)
    finally:
        cluster.admin.delete(f"{quotas}/few")


@REAL_ONLY
async def test_members_pass_a_quota_of_requests_and_ghosts_the_default_of_a_limit_range(
    cluster: LocalCluster, where: str
) -> None:
    quotas, ranges = (f"/api/v1/namespaces/default/{kind}" for kind in ("resourcequotas", "limitranges"))
    hard = {"requests.cpu": "3", "limits.cpu": "10"}
    cluster.admin.post(quotas, {"metadata": {"name": "cpus"}, "spec": {"hard": hard}})
    cluster.admin.patch(f"{quotas}/cpus/status", {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})
    usual = {"type": "Container", "default": {"cpu": "100m"}, "defaultRequest": {"cpu": "100m"}}
    cluster.admin.post(ranges, {"metadata": {"name": "usual"}, "spec": {"limits": [usual]}})
    try:
        async with gangs_on(cluster.kubeconfig) as (gangs, connection):
            assert (await gangs.run(ASK, launcher(connection))).news is News.ENDED
        assert nothing_left(cluster)
    finally:
        cluster.admin.delete(f"{quotas}/cpus")
        cluster.admin.delete(f"{ranges}/usual")


@REAL_ONLY
async def test_with_what_the_manifest_grants_in_a_restricted_namespace_a_gang_runs(
    cluster: LocalCluster, where: str, tmp_path: Path
) -> None:
    cluster.admin.patch(
        "/api/v1/namespaces/default", {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    )
    kubeconfig = as_service_account(cluster, tmp_path, "gangs-without-extender.yaml", "escher-gangs")
    careless = {"metadata": {"name": "careless"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    with pytest.raises(ApiError, match="violates PodSecurity"):
        cluster.admin.post(PODS, careless)
    try:
        async with gangs_on(kubeconfig) as (gangs, connection):
            run = gangs.start(ASK)
            await run.reserved()
            assert len(ghosts(cluster)) == 3
            cluster.admin.delete(f"{PODS}/{ghosts(cluster)[0]['metadata']['name']}", gracePeriodSeconds=0)
            await until(lambda: len(keys(cluster)) == 3 and run.troubles, what="another ghost")
            await launcher(connection)(run.spec)
            assert (await run.ended()).news is News.ENDED
        assert nothing_left(cluster)
    finally:
        lifted = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": None}}}
        cluster.admin.patch("/api/v1/namespaces/default", lifted)
