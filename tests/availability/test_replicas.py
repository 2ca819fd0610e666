"""Two replicas in virtual time: whatever becomes of the leader, the other goes on as if it had been restarted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from extender.app.cycle import pod_events as population
from extender.bootstrap import Cluster
from extender.core.cluster import Pod
from extender.kube.errors import Away, Refused, Unavailable
from kubesim.kinds import POD
from kubesim.virtual_time import VirtualTimeLoop
from lab.simulation import Simulation
from loadtests.shared.pods import pod
from loadtests.shared.replicas import NAMESPACE, Replicas
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio

AWAY = Away("the network is down")


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


async def test_one_leads_and_gangs_are_placed_by_it() -> None:
    async with Replicas(nodes=4) as simulation:
        await simulation.gang("train", 4)
        await until(lambda: simulation.bound("train") == 4)
        assert simulation.holder == "escher-8081-1"


async def test_a_killed_leader_is_followed_within_the_lease_and_a_look() -> None:
    async with Replicas(nodes=4) as simulation:
        await asyncio.sleep(5)
        assert simulation.kill_leader()
        began = asyncio.get_running_loop().time()
        await until(lambda: simulation.leader is not None and simulation.leader.application.ready())
        assert asyncio.get_running_loop().time() - began < 5
        await simulation.gang("train", 4)
        await until(lambda: simulation.bound("train") == 4)


async def test_one_that_ends_in_order_is_followed_within_a_look() -> None:
    async with Replicas(nodes=4) as simulation:
        await asyncio.sleep(5)
        leader = simulation.leader
        assert leader is not None
        await leader.stop()
        began = asyncio.get_running_loop().time()
        await until(lambda: simulation.leader is not None and simulation.leader.application.ready())
        assert asyncio.get_running_loop().time() - began < 1


@pytest.mark.parametrize("seed", range(20))
async def test_killed_at_any_moment_of_gangs_lives_it_leaves_none_in_part(seed: int) -> None:
    drawn = random.Random(f"kills {seed}")
    async with Replicas(nodes=6, seed=seed) as simulation:
        for name in ("first", "second", "third"):
            await simulation.gang(name, 2)
            await asyncio.sleep(drawn.uniform(0, 0.05))
            simulation.kill_leader(losing=drawn.random() < 0.5)
            await asyncio.sleep(drawn.uniform(0, 8))
        names = ("first", "second", "third")
        await until(lambda: all(simulation.bound(each) == 2 for each in names), within=120, what="all gangs whole")
        await settled(simulation)


async def settled(simulation: Replicas) -> None:
    """Nothing is left over, nothing was given twice."""
    await until(lambda: simulation.leader is not None and simulation.leader.application.ready())
    assert simulation.over_capacity() == {}
    assert simulation.leader is not None
    cache = simulation.leader.application.scheduler.cache
    await until(lambda: cache.violations() == [], what="no violations")


async def test_one_that_is_cut_off_stops_deciding_before_the_other_begins() -> None:
    async with Replicas(nodes=4) as simulation:
        await asyncio.sleep(5)
        first = simulation.leader
        assert first is not None
        first.line.turn_away(AWAY)
        # Both believe in nothing but their own lease: `leader` asserts that they never lead at the same time.
        await until(lambda: simulation.leader is None, within=4, what="the end of the first")
        await until(lambda: simulation.leader is not None, within=4, what="the second")
        assert simulation.lost
        assert "could not be renewed" in simulation.lost[0]
        await simulation.gang("train", 4)
        await until(lambda: simulation.bound("train") == 4)
        await settled(simulation)


@pytest.mark.parametrize("seed", range(6))
async def test_cut_off_while_its_bindings_are_written_it_leaves_no_gang_in_part(seed: int) -> None:
    drawn = random.Random(f"cuts {seed}")
    async with Replicas(nodes=4, seed=seed) as simulation:
        await asyncio.sleep(1)
        await simulation.gang("train", 4)
        await asyncio.sleep(drawn.uniform(0, 0.03))
        assert simulation.leader is not None
        simulation.leader.line.turn_away(AWAY)
        await until(lambda: simulation.bound("train") == 4, within=120)
        await settled(simulation)


async def many_are_there(simulation: Replicas) -> None:
    for number in range(250):
        await simulation.create(pod(f"old-{number}", "nobody", gang="old", quorum=1), POD)
    await asyncio.sleep(5)


def each_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 ms for each pod that is taken in from now on: 250 take longer than a lease holds."""
    loop, observe = cast(VirtualTimeLoop, asyncio.get_running_loop()), population.PodEvents.observe

    def taking_long(self: population.PodEvents, pod: Pod) -> None:
        loop.pass_by(0.02)
        observe(self, pod)

    monkeypatch.setattr(population.PodEvents, "observe", taking_long)


@pytest.mark.parametrize(("at_once", "leads_on"), [(2, True), (10_000, False)])
async def test_who_takes_in_the_list_for_longer_than_its_lease_holds_leads_on(
    at_once: int, leads_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two slices the lease is renewed; without them it would be lost, again and again."""
    monkeypatch.setattr(population, "SLICE", at_once)
    async with Replicas(nodes=4) as simulation:
        await many_are_there(simulation)
        each_takes_long(monkeypatch)
        assert simulation.kill_leader()
        await asyncio.sleep(20)
        assert (simulation.lost == []) is leads_on
        monkeypatch.undo()
        await simulation.gang("train", 4)
        await until(lambda: simulation.bound("train") == 4)
        await settled(simulation)


@pytest.mark.parametrize(("at_once", "leads_on"), [(2, True), (10_000, False)])
async def test_so_does_who_has_to_list_all_again(at_once: int, leads_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And plain pods are placed meanwhile; a gang is when all is known."""
    monkeypatch.setattr(population, "SLICE", at_once)
    async with Replicas(nodes=6) as simulation:
        await many_are_there(simulation)
        leader = simulation.leader
        assert leader is not None
        cache = leader.application.scheduler.cache

        def placed() -> set[str]:
            return {each["metadata"]["name"] for each in simulation.pods() if "nodeName" in each["spec"]}

        simulation.hold_watches()
        await simulation.create(pod("old-more", "nobody", gang="old", quorum=1), POD)
        each_takes_long(monkeypatch)
        simulation.forget_changes()
        simulation.release_watches()
        await until(lambda: not cache.whole or bool(simulation.lost), what="the list")
        if leads_on:
            await simulation.create(pod("plain"), POD)
            await simulation.gang("train", 2)
            await asyncio.sleep(1.5)
            assert not cache.whole
            assert placed() == {"plain"}
        await asyncio.sleep(20)
        assert (simulation.lost == []) is leads_on
        monkeypatch.undo()
        await until(lambda: simulation.leader is not None and simulation.leader.application.ready())
        if not leads_on:
            await simulation.gang("train", 2)
        await until(lambda: {"train-0", "train-1"} <= placed())
        await settled(simulation)


class Slow:
    """A line on which the first Bindings arrive so much later, though whoever sent them has given them up: no fence of
    ours can hold them back."""

    def __init__(self, inner: Cluster, seconds: float, first: int) -> None:
        self._inner = inner
        self._seconds = seconds
        self._first = first
        self.late: set[asyncio.Task[bytes]] = set()

    async def keep_warm(self, connections: int) -> None:
        await self._inner.keep_warm(connections)

    def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        return self._inner.lines(path, silence=silence)

    async def request(self, method: str, path: str, body: bytes | None = None, **given: Any) -> bytes:
        if "/binding" not in path or not self._first:
            return await self._inner.request(method, path, body, **given)
        self._first -= 1
        arriving = asyncio.ensure_future(self._arrive(method, path, body, given))
        self.late.add(arriving)
        return await asyncio.shield(arriving)

    async def _arrive(self, method: str, path: str, body: bytes | None, given: Any) -> bytes:
        await asyncio.sleep(self._seconds)
        try:
            return await self._inner.request(method, path, body, **given)
        except Refused:
            return b"{}"


@pytest.mark.parametrize("seconds", [1.5, 5.0, 6.0, 9.0])
@pytest.mark.parametrize("first", [1, 2, 4])
async def test_bindings_that_arrive_when_another_leads_leave_no_gang_in_part(seconds: float, first: int) -> None:
    """They are facts like a stranger's: the gang goes on around them, and is whole in the end."""
    simulation = Replicas(nodes=8)
    slow = None

    def line() -> Cluster:
        nonlocal slow
        slow = Slow(Simulation.connection_of_service(simulation), seconds, first)
        return slow

    simulation.connection_of_service = line  # type: ignore[method-assign]
    async with simulation:
        await simulation.gang("train", 4)
        await until(lambda: bool(slow and slow.late), what="the first Binding on its way")
        simulation.kill_leader(losing=False)
        await until(lambda: simulation.bound("train") == 4, within=120, what="the gang whole")
        assert slow is not None
        await until(lambda: all(each.done() for each in slow.late), what="the last of them")
        assert simulation.bound("train") == 4
        await settled(simulation)


async def test_a_clock_that_is_set_changes_nothing_about_who_leads() -> None:
    async with Replicas(nodes=4) as simulation:
        await asyncio.sleep(5)
        before = simulation.holder
        for ahead in (3600.0, -86_400.0, 0.0):
            simulation.service_clock.ahead = ahead
            await asyncio.sleep(10)
        assert simulation.holder == before
        assert not simulation.lost


async def test_who_finds_its_lease_deleted_gives_up() -> None:
    async with Replicas(nodes=4) as simulation:
        await asyncio.sleep(5)
        await simulation.ask("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/escher")
        await until(lambda: bool(simulation.lost), what="the end of the first")
        assert simulation.lost == ["the lease names no replica now"]
        await simulation.gang("train", 4)
        await until(lambda: simulation.bound("train") == 4)


async def test_the_service_leads_to_the_leader_again_when_somebody_deletes_the_slice() -> None:
    async with Replicas(nodes=4) as simulation:
        await asyncio.sleep(1)
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
        found = await simulation.ask("GET", f"{slices}/escher-leader")
        assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "escher"
        assert found["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}]
        await simulation.ask("DELETE", f"{slices}/escher-leader")
        await simulation.gang("train", 4)
        await until(lambda: simulation.bound("train") == 4)


class Noting:
    """A line that notes which writes are under way. `slow`: those whose path has that take most of a second; `refused`:
    so are reads whose path begins so."""

    def __init__(self, inner: Cluster, *, slow: str = "nothing", refused: str = "nothing") -> None:
        self._inner = inner
        self._slow = slow
        self._refused = refused
        self.under_way: list[str] = []

    async def keep_warm(self, connections: int) -> None:
        await self._inner.keep_warm(connections)

    def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        return self._inner.lines(path, silence=silence)

    async def request(self, method: str, path: str, body: bytes | None = None, **given: Any) -> bytes:
        if method == "GET" and path.startswith(self._refused):
            raise Refused(403, "forbidden")
        if method == "GET" or "/leases/" in path:
            return await self._inner.request(method, path, body, **given)
        self.under_way.append(path)
        try:
            await asyncio.sleep(0.8 if self._slow in path else 0.0)
            return await self._inner.request(method, path, body, **given)
        finally:
            self.under_way.remove(path)


@pytest.mark.parametrize("what", ["/status", "/binding"])
async def test_the_lease_is_given_back_when_the_last_write_is_over(what: str) -> None:
    """Also where those who wait for it are hurried away, or nobody waits for it."""
    simulation = Replicas(nodes=4)
    lines: list[Noting] = []

    def line() -> Cluster:
        lines.append(Noting(Simulation.connection_of_service(simulation), slow=what))
        return lines[-1]

    simulation.connection_of_service = line  # type: ignore[method-assign]
    async with simulation:
        await asyncio.sleep(5)
        leader = simulation.leader
        assert leader is not None
        assert leader.replica is not None
        resource = {"metadata": {"name": "data", "namespace": "default"}, "spec": {"nodes": {"node-0": 3}}}
        of_ours = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource"}
        path = "/apis/escher.dev/v1alpha1/namespaces/default/ephemeralresources"
        await simulation.ask("POST", path, of_ours | resource)
        await simulation.gang("train", 4)
        await until(lambda: any(what in each for at in lines for each in at.under_way), what="a write under way")
        await leader.application.close()
        await leader.replica.resign()
        assert simulation.holder == ""
        assert not [each for at in lines for each in at.under_way if what in each]


async def test_who_cannot_read_the_cluster_does_not_lead_for_long() -> None:
    async with Replicas(nodes=4) as simulation:
        await asyncio.sleep(5)
        line = Noting(Simulation.connection_of_service(simulation), refused="/api/v1/pods")
        simulation.own_line[8082] = line
        simulation.by_port[8082].kill(losing=False)
        await asyncio.sleep(5)
        simulation.kill_leader(losing=False)
        await until(lambda: simulation.holder.startswith("escher-8082"), what="the one that cannot read leads")
        await until(lambda: simulation.holder.startswith("escher-8081"), within=300, what="the other does")
        await until(lambda: bool(simulation.lost), within=60, what="the end of who could not read")
        assert "could not be read" in simulation.lost[0]
        await simulation.gang("train", 4)
        await until(lambda: simulation.bound("train") == 4)


class Deaf(Noting):
    """A line by which nothing is heard of nodes while it is `deaf`."""

    deaf = False

    async def request(self, method: str, path: str, body: bytes | None = None, **given: Any) -> bytes:
        self._listen(path)
        return await super().request(method, path, body, **given)

    async def _lines(self, path: str, silence: float) -> AsyncGenerator[bytes, None]:
        self._listen(path)
        async for line in super().lines(path, silence=silence):
            self._listen(path)
            yield line

    def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        return self._lines(path, silence)

    def _listen(self, path: str) -> None:
        if self.deaf and path.startswith("/api/v1/nodes"):
            raise Unavailable("too busy")


async def test_nodes_of_which_nothing_was_heard_for_long_are_read_anew() -> None:
    async with Replicas(nodes=4) as simulation:
        await asyncio.sleep(5)
        line = simulation.own_line[8082] = Deaf(Simulation.connection_of_service(simulation))
        simulation.by_port[8082].kill(losing=False)
        await asyncio.sleep(5)
        line.deaf = True
        await simulation.ask("DELETE", "/api/v1/nodes/node-3")
        await asyncio.sleep(600)
        simulation.restarts = False
        simulation.kill_leader(losing=False)
        await until(lambda: simulation.holder.startswith("escher-8082"), within=60, what="the other leads")
        await asyncio.sleep(10)
        leader = simulation.leader
        assert leader is not None
        assert not leader.application.ready()
        line.deaf = False
        await until(leader.application.ready, within=60, what="it has read the nodes")
        assert "node-3" not in leader.application.scheduler.cache.nodes
