"""AppSpace: gangs without the service, on a cluster port of the application's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from escher_k8s.esl import (
    Approach,
    AppSpace,
    GangFailed,
    GangSpec,
    News,
    Refused,
    Report,
    Times,
    gang,
    pod_seen,
)
from extender.adapters.translation.objects import to_pod
from extender.kube import objects
from extender.kube.names import PODS
from kubesim.kinds import POD
from kubesim.virtual_time import BACKEND
from lab.controlplane.nodes import NodeShape
from lab.simulation import Simulation
from tests.escher_k8s.polling_port import LOST, PollingPort


@pytest.fixture
def anyio_backend() -> object:
    return BACKEND


pytestmark = pytest.mark.anyio


class Stage:
    """Two nodes of four CPUs, the application's port, and gangs of it."""

    def __init__(self, simulation: Simulation, **more: Any) -> None:
        self.simulation = simulation
        self.port = PollingPort(simulation, "default")
        self.news: list[Report] = []
        self.gangs = AppSpace(self.port, seed=1, on_news=self.news.append, **more)

    async def launch(self, spec: GangSpec, seconds: str = "3") -> None:
        for bundle in range(spec.size):
            plain = {
                "metadata": {
                    "name": f"{spec.gang.name}-{bundle}",
                    "namespace": "default",
                    "annotations": {"escher.dev/run-seconds": seconds},
                },
                "spec": {"containers": [{"name": "main", "image": "x"}]},
            }
            await self.simulation.create(spec.requirement(bundle, Approach.EXTENDED_RESOURCES).attach(plain), POD)

    async def pods(self, ghosts: bool) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await self.simulation.ask("GET", POD.path("default")))["items"]
        return [pod for pod in items if ("escher.dev/ghost" in pod["metadata"].get("labels", {})) is ghosts]

    async def keys(self) -> dict[tuple[str, str], int]:
        return await self.port._resources()


@asynccontextmanager
async def staged(seed: int = 1, **more: Any) -> AsyncIterator[Stage]:
    """`seed`: of the cluster."""
    async with Simulation(seed=seed, nodes=2, node_shape=NodeShape(cpu="4")) as simulation:
        yield Stage(simulation, **more)


TWO = gang("train", size=2, each={"cpu": "3"})


async def test_a_gang_is_reserved_runs_and_leaves_nothing_behind() -> None:
    async with staged() as stage:
        async with stage.gangs as gangs:
            run = gangs.start(TWO)
            await run.reserved()
            assert sorted((await stage.keys()).values()) == [1, 1]
            await stage.launch(run.spec)
            assert (await run.ended()).news is News.ENDED
        members = await stage.pods(ghosts=False)
        assert [pod["status"]["phase"] for pod in members] == ["Succeeded", "Succeeded"]
        assert (await stage.pods(ghosts=True), await stage.keys()) == ([], {})


async def test_members_that_exist_before_their_gang_is_asked_for_are_its_own() -> None:
    async with staged() as stage:
        await stage.launch(TWO.with_run("monday"))
        async with stage.gangs as gangs:
            await asyncio.sleep(1)
            run = gangs.start(TWO.with_run("monday"))
            assert (await run.ended()).news is News.ENDED


async def test_of_two_gangs_that_do_not_fit_beside_each_other_one_waits() -> None:
    rolled_back = []
    for seed in range(1, 9):
        async with staged(seed) as stage, stage.gangs as gangs:
            first, second = gangs.start(TWO), gangs.start(gang("other", size=2, each={"cpu": "3"}))
            for run in (first, second):
                asyncio.get_running_loop().create_task(_follow(stage, run))
            assert {(await run.ended()).news for run in (first, second)} == {News.ENDED}
            rolled_back += [*first.roll_backs, *second.roll_backs]
    # Whether each gets a node, and must give it back, is the scheduler's toss.
    assert rolled_back


async def _follow(stage: Stage, run: Any) -> None:
    await run.reserved()
    await stage.launch(run.spec)


async def test_leaving_the_block_takes_back_what_is_not_in_use() -> None:
    async with staged() as stage:
        async with stage.gangs as gangs:
            await gangs.start(TWO).reserved()
        assert (await stage.pods(ghosts=True), await stage.keys()) == ([], {})


async def test_a_ghost_that_somebody_deletes_is_replaced() -> None:
    async with staged() as stage, stage.gangs as gangs:
        await gangs.start(TWO).reserved()
        victim = (await stage.pods(ghosts=True))[0]["metadata"]["name"]
        await stage.simulation.ask("DELETE", f"{POD.path('default')}/{victim}")
        await asyncio.sleep(3)
        names = {pod["metadata"]["name"] for pod in await stage.pods(ghosts=True)}
        assert len(names - {victim}) == 2
        assert sorted((await stage.keys()).values()) == [1, 1]


async def test_what_nobody_answers_is_tried_again() -> None:
    async with staged() as stage, stage.gangs as gangs:
        stage.port.trouble = [LOST, LOST, LOST]
        await gangs.start(TWO).reserved()
        assert stage.port.trouble == []


async def test_what_is_refused_ends_the_attempt_and_is_told() -> None:
    async with staged(times=Times(attempts=1)) as stage, stage.gangs as gangs:
        stage.port.trouble = [Refused("exceeded quota")]
        run = gangs.start(TWO)
        with pytest.raises(GangFailed, match="exceeded quota"):
            await run.reserved()
        assert (await run.ended()).news is News.FAILED


async def test_who_waits_hears_when_the_port_dies() -> None:
    async with staged() as stage:
        stage.port.dies = RuntimeError("the port is dead")
        with pytest.raises(RuntimeError, match="the port is dead"):
            async with stage.gangs as gangs:
                await gangs.start(TWO).reserved()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda gangs: gangs.start(gang("train", 2, {"cpu": "1"}, namespace="team-b")), "'default'"),
        (lambda gangs: [gangs.start(TWO), gangs.start(TWO)], "has not ended yet"),
    ],
)
async def test_what_cannot_be_started_is_told(make: Callable[[AppSpace], Awaitable[object]], said: str) -> None:
    async with staged() as stage, stage.gangs as gangs:
        with pytest.raises(ValueError, match=said):
            make(gangs)


async def test_a_pod_is_seen_as_the_service_sees_it() -> None:
    """All that an ESL reads of one."""
    async with staged() as stage, stage.gangs as gangs:
        run = gangs.start(TWO)
        await run.reserved()
        await stage.launch(run.spec, seconds="1")
        await asyncio.sleep(0.5)
        seen = [*await stage.pods(ghosts=True), *await stage.pods(ghosts=False)]
        await run.ended()
        seen += await stage.pods(ghosts=False)
        assert [pod["status"]["phase"] for pod in seen[2:]].count("Succeeded") == 2
        for pod in seen:
            said = to_pod(_decoded(pod), 30.0)
            mine = pod_seen(pod).pod
            read: tuple[str, ...] = ("uid", "namespace", "name", "node", "created", "deleting")
            read += ("finished", "succeeded", "labels", "owner", "node_selector")
            assert [getattr(mine, name) for name in read] == [getattr(said, name) for name in read]
            assert {**mine.requests, PODS: 1} == said.requests


def _decoded(pod: dict[str, Any]) -> objects.Pod:
    return msgspec.convert(pod, objects.Pod)
