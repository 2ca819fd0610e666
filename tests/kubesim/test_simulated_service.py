"""The service in a simulation dies, is started anew, is told the wrong time and hears late; what is seen of it."""

from __future__ import annotations

import asyncio

import pytest

from kubesim.apiserver.serving.faults import Fault
from kubesim.kinds import NODE, POD, Json
from lab.controlplane.nodes import NodeShape, plain
from lab.simulated_service import ARRIVES_WITHIN, NoAnswer
from lab.simulation import Simulation
from loadtests.shared.pods import pod
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio


def bound(simulation: Simulation) -> int:
    found: list[Json] = simulation.cluster.api.store.list(POD, "default")
    return sum(bool(each["spec"].get("nodeName")) for each in found)


async def gang(simulation: Simulation, name: str, size: int) -> None:
    for number in range(size):
        await simulation.create(pod(f"{name}-{number}", gang=name, quorum=size, cpu=8), POD)


async def test_nobody_answers_while_it_is_dead_and_its_next_life_goes_on_from_the_cluster() -> None:
    async with Simulation(nodes=3) as simulation:
        await gang(simulation, "first", 1)
        await until(lambda: bound(simulation) == 1)
        simulation.kill()
        await gang(simulation, "second", 2)
        await asyncio.sleep(30)
        assert bound(simulation) == 1
        await simulation.restart()
        await until(lambda: bound(simulation) == 3)
        assert simulation.lives == 2
        assert simulation.application.scheduler.cache.violations() == []


async def test_it_plans_nothing_on_what_is_too_old_and_goes_on_when_it_hears_again() -> None:
    async with Simulation(nodes=3) as simulation:
        await asyncio.sleep(200)
        assert max(simulation.application.ages().values()) < 70, "there is a bookmark every minute"
        simulation.hold_watches()
        await asyncio.sleep(400)
        assert min(simulation.application.ages().values()) > 300
        await gang(simulation, "late", 2)
        await asyncio.sleep(60)
        assert bound(simulation) == 0
        simulation.release_watches()
        await until(lambda: bound(simulation) == 2)
        assert max(simulation.application.ages().values()) < 70
        assert simulation.application.scheduler.cache.violations() == []


async def test_whoever_waits_at_its_barrier_when_it_dies_hears_of_it() -> None:
    async with Simulation(nodes=3) as simulation:
        await gang(simulation, "whole", 1)
        await until(lambda: bound(simulation) == 1)
        service = simulation.service
        assert service is not None
        waiting = asyncio.ensure_future(service.call("bind", _bind(simulation)))
        await asyncio.sleep(0)
        simulation.kill()
        with pytest.raises(NoAnswer, match="reset by peer"):
            await waiting
        with pytest.raises(NoAnswer, match="refused"):
            await service.call("bind", _bind(simulation))


def _bind(simulation: Simulation) -> bytes:
    found = simulation.cluster.api.store.list(POD, "default")[0]["metadata"]
    asked = f'"PodName":"{found["name"]}","PodNamespace":"default","PodUID":"{found["uid"]}","Node":"node-0"'
    return f"{{{asked}}}".encode()


async def test_its_clock_is_set_and_the_clusters_is_not() -> None:
    async with Simulation(nodes=1) as simulation:
        before, steady = simulation.clock.now(), simulation.service_clock.steady()
        simulation.service_clock.ahead = 3600
        assert simulation.service_clock.now() == before + 3600
        assert simulation.service_clock.steady() == steady
        assert simulation.clock.now() == before


@pytest.mark.parametrize("forgotten", [False, True])
async def test_it_hears_what_it_has_missed_when_its_watches_are_let_go(forgotten: bool) -> None:
    async with Simulation(nodes=1) as simulation:
        await asyncio.sleep(1)
        simulation.hold_watches()
        await simulation.create(pod("p", "default-scheduler"), POD)
        await asyncio.sleep(5)
        assert not simulation.application.scheduler.cache.pods
        if forgotten:
            simulation.forget_changes()
        simulation.release_watches()
        await until(lambda: len(simulation.application.scheduler.cache.pods) == 1, within=120)


async def test_a_scheduler_that_is_started_anew_places_what_is_pending() -> None:
    async with Simulation(nodes=2) as simulation:
        await gang(simulation, "waits", 3)
        await asyncio.sleep(5)
        await simulation.cluster.restart_scheduler(0)
        await gang(simulation, "fits", 2)
        await until(lambda: bound(simulation) == 2)


async def test_watches_are_held_by_what_they_are_about_and_others_tell_on() -> None:
    async with Simulation(nodes=1) as simulation:
        simulation.hold_watches("/pods")
        unheard = pod("unheard")
        # kube-scheduler does not ask about it.
        unheard["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
        await simulation.create(unheard, POD)
        [more] = plain(1, NodeShape(), start=1)
        await simulation.create(more, NODE)
        await asyncio.sleep(1)
        cache = simulation.application.scheduler.cache
        assert (len(cache.nodes), len(cache.pods)) == (2, 0)
        simulation.release_watches()
        await until(lambda: len(cache.pods) == 1)


@pytest.mark.parametrize(("seconds", "arrives"), [(ARRIVES_WITHIN - 0.3, True), (5.0, False)])
async def test_what_it_had_sent_when_it_died_arrives_soon_or_never(seconds: float, arrives: bool) -> None:
    async with Simulation(nodes=1) as simulation:
        late = Fault(method="POST", path="/binding", seconds=seconds)
        simulation.cluster.api.faults.add(late)
        await gang(simulation, "one", 1)
        await asyncio.sleep(0.2)
        assert bound(simulation) == 0
        simulation.kill(losing=False)
        await asyncio.sleep(20)
        assert bound(simulation) == arrives
