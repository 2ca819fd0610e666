"""Crews: played controllers keep so many pods there, as those of a real cluster do; and another scheduler binds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubesim.apiserver.serving.in_process import InProcess
from kubesim.kinds import NODE, POD, Json
from lab.simulation import Simulation
from loadtests.life.actors.crews import DAEMONS, REPLICAS, STATEFUL, TRAINING, Crew, Crews
from loadtests.life.actors.foreign import COSCHEDULING, ForeignScheduler
from loadtests.life.actors.hands import Hands
from loadtests.life.seeing import is_running, name, uid
from loadtests.shared.pods import pod
from loadtests.shared.reading import node_of
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio


class Place:
    def __init__(self, simulation: Simulation, crews: Crews) -> None:
        self.simulation = simulation
        self.crews = crews
        self.user = Hands(InProcess(simulation.cluster.api, user="somebody"))

    def pods(self, namespace: str = "default") -> list[Json]:
        return self.simulation.cluster.api.store.list(POD, namespace)

    def running(self, prefix: str = "") -> list[str]:
        found = [each for each in self.pods() if is_running(each) and "deletionTimestamp" not in each["metadata"]]
        return [name(each) for each in found if name(each).startswith(prefix)]

    async def crew(self, kind: str, size: int, seconds: float | None = None, **about: Any) -> Crew:
        def make(_: int) -> Json:
            return pod("", "default-scheduler", run_seconds=seconds)

        crew = Crew(kind, about.pop("namespace", "default"), "crew", size, make, **about)
        await self.crews.add(crew)
        return crew

    async def fails(self, pod_name: str) -> None:
        [found] = [each for each in self.pods() if name(each) == pod_name]
        await self.user.merge(POD, found, {"status": {"phase": "Failed"}}, "status")


@asynccontextmanager
async def place(nodes: int = 3, quotas: Mapping[str, int] | None = None) -> AsyncIterator[Place]:
    async with Simulation(nodes=nodes) as simulation:
        api = simulation.cluster.api
        crews = Crews(InProcess(api, user="controllers"), api.store, simulation.clock, quotas=quotas or {})
        running = asyncio.ensure_future(crews.run())
        yield Place(simulation, crews)
        running.cancel()


async def test_a_replica_set_gives_each_pod_a_new_name_and_those_that_go_successors() -> None:
    async with place() as there:
        await there.crew(REPLICAS, 3)
        await until(lambda: there.running() == ["crew-0", "crew-1", "crew-2"])
        await there.user.delete(POD, there.pods()[0])
        await until(lambda: there.running() == ["crew-1", "crew-2", "crew-3"])


async def test_a_replica_set_that_is_scaled_down_has_as_many_pods_as_it_should() -> None:
    async with place() as there:
        crew = await there.crew(REPLICAS, 4)
        await until(lambda: len(there.running()) == 4)
        crew.size = 1
        there.crews.sync_soon(crew)
        await until(lambda: len(there.pods()) == 1)


async def test_a_stateful_set_makes_one_after_the_other_and_each_again_under_its_name() -> None:
    async with place(nodes=0) as there:
        await there.crew(STATEFUL, 3)
        await asyncio.sleep(5)
        assert [name(each) for each in there.pods()] == ["crew-0"], "the second comes when the first runs"
    async with place() as there:
        await there.crew(STATEFUL, 3)
        await until(lambda: len(there.running()) == 3)
        before = {name(each): uid(each) for each in there.pods()}
        await there.user.delete(POD, there.pods()[1])
        await until(lambda: len(there.running()) == 3 and {name(p): uid(p) for p in there.pods()} != before)
        assert there.running() == ["crew-0", "crew-1", "crew-2"]


async def test_a_daemon_set_has_one_pod_on_each_node_cordoned_or_not() -> None:
    async with place(nodes=3) as there:
        [first, *_] = there.simulation.cluster.api.store.list(NODE)
        await there.user.merge(NODE, first, {"spec": {"unschedulable": True}})
        await there.crew(DAEMONS, 0)
        await until(lambda: len(there.running()) == 3)
        assert {node_of(each) for each in there.pods()} == {"node-0", "node-1", "node-2"}
        gone = there.pods()[0]
        await there.user.delete(POD, gone)
        await until(lambda: len(there.running()) == 3 and uid(gone) not in map(uid, there.pods()))


async def test_a_training_job_makes_members_that_failed_again_and_none_that_succeeded() -> None:
    async with place() as there:
        crew = await there.crew(TRAINING, 3, seconds=100.0, linger=50.0)
        await until(lambda: len(there.running()) == 3)
        await there.fails("crew-1")
        await until(lambda: len(there.running()) == 3 and crew.failures == 5, within=30)
        await until(lambda: len(crew.succeeded) == 3, within=200)
        assert {each["status"]["phase"] for each in there.pods()} == {"Succeeded"}
        await until(lambda: not there.pods(), within=60, what="its pods are taken away")


async def test_a_training_job_gives_up_after_so_many_failures() -> None:
    async with place() as there:
        crew = await there.crew(TRAINING, 2, failures=0)
        await until(lambda: len(there.running()) == 2)
        await there.fails("crew-0")
        await until(lambda: crew.ended and not there.pods())


async def test_a_crew_that_ends_takes_its_pods_with_it() -> None:
    async with place() as there:
        crew = await there.crew(REPLICAS, 2)
        await until(lambda: len(there.running()) == 2)
        await there.crews.end(crew)
        await until(lambda: not there.pods())


async def test_a_quota_puts_pods_off_until_there_is_room_in_it() -> None:
    async with place(quotas={"default": 2}) as there:
        await there.crew(TRAINING, 3, seconds=30.0)
        await asyncio.sleep(20)
        assert len(there.pods()) == 2
        await until(lambda: len(there.pods()) == 3, within=60)


async def test_another_scheduler_binds_some_of_its_pods_soon_and_others_late() -> None:
    async with Simulation(nodes=8) as simulation:
        api = simulation.cluster.api
        other = ForeignScheduler(
            InProcess(api, user=COSCHEDULING),
            api.store,
            simulation.clock,
            hands=Hands(InProcess(api, user=COSCHEDULING)),
            rng=random.Random(3),
        )
        running = asyncio.ensure_future(other.run())
        for number in range(20):
            await simulation.create(pod(f"other-{number}", COSCHEDULING), POD)
        await asyncio.sleep(60)
        bound = sum(bool(node_of(each)) for each in api.store.list(POD, "default"))
        assert 5 < bound < 20
        await asyncio.sleep(40_000)
        assert all(node_of(each) for each in api.store.list(POD, "default"))
        running.cancel()
