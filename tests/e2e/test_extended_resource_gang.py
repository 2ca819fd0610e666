"""Gangs in pure extended resources on a real control plane: scenarios 12, 13 and 14, watched from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from extender.adapters.kubernetes.appspace.extended_resource_gangs import ExtendedResourceGangs, GangFailed
from extender.esl import Approach, GangSpec, GhostPhase, Space, Times, gang
from extender.esl.base import News
from extender.esl.gangs.departed import GHOST_LABEL
from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, from_kubeconfig
from lab.controlplane import nodes as node_objects
from lab.controlplane.clusters import LocalCluster
from lab.controlplane.nodes import NodeShape
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import CLUSTERS
from tests.e2e.outside import NODES, PODS, Outside, bound_at, ghosts_in, offered_at

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200), pytest.mark.anyio]

Value = TypeVar("Value")


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(params=["escher-resources", "default-scheduler"])
def scheduler(request: pytest.FixtureRequest) -> str:
    """Any kube-scheduler will do, that of the cluster too."""
    chosen: str = request.param
    return chosen


@contextmanager
def cluster_of(where: str, nodes: int, cpu: str) -> Iterator[tuple[LocalCluster, Outside]]:
    with (
        CLUSTERS[where].start(nodes=nodes, service=False, node_shape=NodeShape(cpu=cpu)) as cluster,
        Outside(cluster) as outside,
    ):
        yield cluster, outside


@asynccontextmanager
async def gangs_on(cluster: LocalCluster, **wishes: Any) -> AsyncIterator[ExtendedResourceGangs]:
    credentials = await Credentials.load(from_kubeconfig(cluster.kubeconfig))
    async with Connection(credentials) as connection, ExtendedResourceGangs(connection, **wishes) as gangs:
        yield gangs


@asynccontextmanager
async def dying(connection: Connection, **wishes: Any) -> AsyncIterator[ExtendedResourceGangs]:
    """An application that is dead at the end of the block, as if it had been killed: it has cleaned nothing up."""
    gangs = ExtendedResourceGangs(connection, **wishes)
    await gangs.__aenter__()
    yield gangs
    assert gangs._beating is not None
    gangs._beating.cancel()
    await gangs._driver.__aexit__()
    gangs._signal.__exit__(None, None, None)


async def until(look: Callable[[], Value], *, within: float = 30, what: str = "it") -> Value:
    return await asyncio.to_thread(eventually, look, within=within, what=what)


def plain_pod(name: str, cpu: str | None = None, **annotations: str) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "none"}
    if cpu is not None:
        container["resources"] = {"requests": {"cpu": cpu}}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"schedulerName": "escher-resources", "containers": [container]},
    }


def members(spec: GangSpec, *, seconds: str | None = None) -> list[dict[str, Any]]:
    """The members' pods; they end after `seconds`, or never."""
    annotations = {} if seconds is None else {"escher.dev/run-seconds": seconds}
    return [
        spec.requirement(bundle, Approach.EXTENDED_RESOURCES).attach(
            plain_pod(f"{spec.gang.name}-{bundle}", **annotations)
        )
        for bundle in range(spec.size)
    ]


def names(spec: GangSpec) -> list[str]:
    return [f"{spec.gang.name}-{bundle}" for bundle in range(spec.size)]


def create(cluster: LocalCluster, pods: Sequence[dict[str, Any]]) -> None:
    for pod in pods:
        cluster.admin.post(PODS, pod)


def node_of(cluster: LocalCluster, name: str) -> str | None:
    found: str | None = cluster.admin.get(f"{PODS}/{name}")["spec"].get("nodeName")
    return found


def unschedulable(cluster: LocalCluster, name: str) -> bool:
    return _is_unschedulable(cluster.admin.get(f"{PODS}/{name}"))


def _is_unschedulable(pod: dict[str, Any]) -> bool:
    return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", []))


def all_bound(cluster: LocalCluster, wanted: Sequence[str]) -> bool:
    placed = {pod["metadata"]["name"] for pod in cluster.admin.list_all(PODS) if pod["spec"].get("nodeName")}
    return placed >= set(wanted)


def ghosts(cluster: LocalCluster) -> list[dict[str, Any]]:
    return cluster.admin.list_all(PODS, labelSelector=GHOST_LABEL)


def places_of_ghosts(cluster: LocalCluster) -> list[str]:
    return [pod["spec"]["nodeName"] for pod in ghosts(cluster) if "nodeName" in pod["spec"]]


def keys_on_nodes(cluster: LocalCluster) -> set[str]:
    return {
        key
        for node in cluster.admin.list_all(NODES)
        for said in (node["status"]["capacity"], node["status"]["allocatable"])
        for key in said
        if "escher.dev/" in key
    }


def nothing_left(cluster: LocalCluster) -> bool:
    return not ghosts(cluster) and not keys_on_nodes(cluster)


async def test_a_gang_of_eight_on_32_nodes_is_bound_only_when_all_of_it_can_be_and_its_cpu_is_counted_once(
    where: str, scheduler: str
) -> None:
    train = gang("train", 8, {"cpu": "8"}, scheduler=scheduler)
    with cluster_of(where, 32, "8") as (cluster, outside):
        # Seven nodes are free, one too few.
        create(cluster, [plain_pod(f"busy-{number}", "8") for number in range(25)])
        await until(lambda: all_bound(cluster, [f"busy-{number}" for number in range(25)]), what="the busy nodes")
        async with gangs_on(cluster, times=Times(reserve_within=60)) as gangs:
            run = gangs.start(train)
            train = run.spec
            create(cluster, members(train))
            await until(lambda: len(places_of_ghosts(cluster)) == 7, what="seven ghosts")
            await until(lambda: all(unschedulable(cluster, name) for name in names(train)), what="the members' wait")
            assert keys_on_nodes(cluster) == set()
            cluster.admin.delete(f"{PODS}/busy-7", gracePeriodSeconds=0)
            await run.reserved()
            await until(lambda: all_bound(cluster, names(train)), what="the members")

            # On each of its nodes 8 CPU are asked for, by the ghost, and no stranger finds any there.
            cluster.admin.post(PODS, plain_pod("stranger", "1"))
            await until(lambda: unschedulable(cluster, "stranger"))
            assert len(ghosts(cluster)) == 8
            assert {node_of(cluster, name) for name in names(train)} == set(places_of_ghosts(cluster))

            for name in names(train):
                cluster.admin.delete(f"{PODS}/{name}", gracePeriodSeconds=0)
            assert (await run.ended()).news is News.ENDED
            assert nothing_left(cluster)
            await until(lambda: node_of(cluster, "stranger"), what="the stranger")
        history = outside.history()
    reserved = bound_at(history, *ghosts_in(history, "train"))
    assert len(reserved) == 8
    for bundle, name in enumerate(names(train)):
        offered = offered_at(history, train.key(bundle))
        assert offered is not None
        assert max(reserved.values()) < offered[0] < bound_at(history, name)[name]


async def test_a_gang_that_does_not_fit_leaves_nothing_behind_and_a_task_that_does_fit_runs(
    where: str, scheduler: str
) -> None:
    train = gang("train", 12, {"cpu": "1"}, scheduler=scheduler)
    with cluster_of(where, 1, "10") as (cluster, outside):
        async with gangs_on(cluster, times=Times(reserve_within=3, first_pause=60)) as gangs:
            run = gangs.start(train)
            train = run.spec
            create(cluster, members(train))
            await until(lambda: len(places_of_ghosts(cluster)) == 10, what="ten ghosts")
            await until(lambda: run.roll_backs, what="the roll-back")
            assert run.roll_backs == ["10 of 12 ghosts were bound in time"]
            assert run.phase is GhostPhase.BACKING_OFF
            assert nothing_left(cluster)
            cluster.admin.post(PODS, plain_pod("task", "10"))
            await until(lambda: node_of(cluster, "task"), what="the task of 10 CPU")
            run.cancel()
            assert (await run.ended()).news is News.ENDED
            with pytest.raises(GangFailed):
                await run.reserved()
        history = outside.history()
    assert bound_at(history, *names(train)) == {}
    assert not any(each.seen.keys for each in history if each.kind == "Node")


@pytest.mark.parametrize("space", list(Space), ids=[space.value for space in Space])
async def test_two_gangs_that_cannot_both_fit_run_one_after_the_other(where: str, space: Space, scheduler: str) -> None:
    left, right = (gang(name, 12, {"cpu": "1"}, scheduler=scheduler) for name in ("left", "right"))
    with cluster_of(where, 2, "8") as (cluster, outside):
        times = Times(reserve_within=2, first_pause=1)
        async with gangs_on(cluster, space=space, times=times, seed=1) as one:
            # AppSpace: two applications that know nothing of each other; LibSpace: both ask one.
            async with gangs_on(cluster, times=times, seed=2) as other:
                runs = [one.start(left), (other if space is Space.APP else one).start(right)]
                left, right = (run.spec for run in runs)
                pairs = zip(members(left, seconds="1"), members(right, seconds="1"), strict=True)
                create(cluster, [pod for pair in pairs for pod in pair])
                async with asyncio.timeout(100):
                    reports = [await run.ended() for run in runs]
            assert [report.news for report in reports] == [News.ENDED, News.ENDED]
            assert nothing_left(cluster)
        history = outside.history()
    spans = []
    for spec in (left, right):
        assert len(bound_at(history, *names(spec))) == 12
        offered = [offered_at(history, spec.key(bundle)) for bundle in range(12)]
        assert None not in offered
        spans.append((min(each[0] for each in offered if each), max(each[1] for each in offered if each)))
    spans.sort()
    assert spans[0][1] < spans[1][0]


async def test_two_that_hold_half_each_are_freed_by_time_out_and_back_off(where: str) -> None:
    # Until each has its half, the second node is for the one alone: whose ghosts come first is up to kube-scheduler.
    tolerates = {"tolerations": [{"key": "only", "operator": "Equal", "value": "right", "effect": "NoSchedule"}]}
    left, right = gang("left", 12, {"cpu": "1"}), gang("right", 12, {"cpu": "1"}, placement=tolerates)
    with cluster_of(where, 1, "8") as (cluster, _):
        second = node_objects.plain(2, NodeShape(cpu="8"))[1]
        second["spec"] = {"taints": [{"key": "only", "value": "right", "effect": "NoSchedule"}]}
        cluster.create_nodes([second])
        times = Times(reserve_within=10, first_pause=2)
        async with gangs_on(cluster, times=times, seed=1) as one, gangs_on(cluster, times=times, seed=2) as other:
            runs = [one.start(left)]
            await until(lambda: len(places_of_ghosts(cluster)) == 8, what="eight ghosts of the one")
            runs.append(other.start(right))
            await until(lambda: len(places_of_ghosts(cluster)) == 16, what="eight ghosts of the other")
            cluster.admin.patch(f"{NODES}/{second['metadata']['name']}", {"spec": {"taints": None}})
            assert keys_on_nodes(cluster) == set()
            left, right = (run.spec for run in runs)
            create(cluster, [*members(left, seconds="0.5"), *members(right, seconds="0.5")])
            async with asyncio.timeout(100):
                reports = [await run.ended() for run in runs]
        assert [report.news for report in reports] == [News.ENDED, News.ENDED]
        assert any(run.roll_backs for run in runs)
        assert nothing_left(cluster)


async def test_what_a_process_that_died_left_behind_is_swept(where: str) -> None:
    train = gang("train", 3, {"cpu": "1"})
    with cluster_of(where, 2, "8") as (cluster, _):
        async with Connection(await Credentials.load(from_kubeconfig(cluster.kubeconfig))) as connection:
            async with dying(connection) as dead:
                earlier = dead.start(train)
                await earlier.reserved()
            assert len(ghosts(cluster)) == 3
            assert keys_on_nodes(cluster) == {earlier.spec.key(bundle) for bundle in range(3)}
            async with ExtendedResourceGangs(connection) as gangs:
                await gangs.sweep(train)
                assert nothing_left(cluster)
                # And the same name can be used again.
                run = gangs.start(train)
                create(cluster, members(run.spec, seconds="0.1"))
                assert (await run.ended()).news is News.ENDED
                assert nothing_left(cluster)
