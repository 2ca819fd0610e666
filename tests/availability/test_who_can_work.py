"""Who leads can work: a leader whose requests do not come through gives its Lease back, and replicas take no turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from extender.availability import Candidate
from extender.bootstrap import Cluster
from extender.kube.errors import Refused, Unavailable
from kubesim.apiserver.serving.faults import Fault
from kubesim.kinds import LEASE, POD
from lab.simulation import SERVICE
from loadtests.shared.pods import pod
from loadtests.shared.replicas import NAMESPACE, SETTINGS, Replicas
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio

PATIENCE = 8 * SETTINGS.lease_seconds


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


class Sick:
    """A replica's API server, which answers 503 to what it is asked anew while it is sick, but for Leases; watches that
    are open go on. `only`: the methods for which it is."""

    def __init__(self, inner: Cluster) -> None:
        self._inner = inner
        self.error: Unavailable | Refused | None = None
        self.only: tuple[str, ...] = ()

    async def keep_warm(self, connections: int) -> None:
        await self._inner.keep_warm(connections)

    async def request(self, method: str, path: str, body: bytes | None = None, **given: Any) -> bytes:
        self._check(method, path)
        return await self._inner.request(method, path, body, **given)

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        self._check("GET", path)
        async for line in self._inner.lines(path, silence=silence):
            yield line

    def _check(self, method: str, path: str) -> None:
        if self.error is not None and "/leases" not in path and (not self.only or method in self.only):
            raise self.error


class SickReplicas(Replicas):
    """Each replica has an API server of its own before the one etcd."""

    def __init__(self, **given: Any) -> None:
        super().__init__(nodes=4, **given)
        self.servers: dict[int, Sick] = {}

    def _line_of(self, candidate: Candidate) -> Cluster:
        return self.servers.setdefault(candidate.port, Sick(self._to_service))

    def sicken(self, *ports: int, only: tuple[str, ...] = (), error: Unavailable | Refused | None = None) -> None:
        for port in ports:
            self.servers[port].error, self.servers[port].only = error or Unavailable("sick", 1.0), only

    def heal(self) -> None:
        for each in self.servers.values():
            each.error = None

    @property
    def changes(self) -> int:
        """How often the Lease has changed hands."""
        found = self.cluster.api.store.get(LEASE, NAMESPACE, "escher")
        assert found is not None
        return int(found["spec"]["leaseTransitions"])

    def leads(self, port: int) -> bool:
        return self.holder.startswith(f"escher-{port}")


@pytest.mark.parametrize("only", [(), ("POST", "PATCH", "PUT", "DELETE")], ids=["everything", "writes"])
async def test_a_leader_of_which_only_the_lease_is_answered_gives_it_back_to_one_that_can_work(
    only: tuple[str, ...],
) -> None:
    async with SickReplicas() as simulation:
        await asyncio.sleep(600)
        simulation.sicken(8081, only=only)
        await simulation.gang("train", 4)
        await until(lambda: simulation.leads(8082), within=PATIENCE + 30, what="the other leads")
        await until(lambda: simulation.bound("train") == 4, within=60, what="the gang is bound")
        await until(lambda: bool(simulation.lost), within=60, what="the end of the first")
        assert "reached the API server" in simulation.lost[0]
        await asyncio.sleep(300)
        assert (simulation.changes, simulation.leads(8082)) == (1, True)


async def test_it_gives_it_back_though_nothing_is_to_be_done() -> None:
    async with SickReplicas() as simulation:
        await asyncio.sleep(600)
        simulation.sicken(8081)
        await until(lambda: simulation.leads(8082), within=PATIENCE + 30, what="the other leads")


async def test_in_a_quiet_cluster_a_leader_stays_one() -> None:
    async with SickReplicas() as simulation:
        before = simulation.holder
        await asyncio.sleep(1200)
        assert (simulation.lost, simulation.holder) == ([], before)


async def test_what_is_refused_has_been_answered_for_rights_are_the_same_for_all_replicas() -> None:
    async with SickReplicas() as simulation:
        await asyncio.sleep(60)
        before = simulation.holder
        simulation.sicken(8081, 8082, error=Refused(403, "forbidden"))
        await asyncio.sleep(600)
        assert (simulation.lost, simulation.holder) == ([], before)
        simulation.heal()
        await simulation.gang("train", 4)
        await until(lambda: simulation.bound("train") == 4)


async def test_replicas_of_which_none_can_read_do_not_take_turns_and_one_leads_when_it_can() -> None:
    async with SickReplicas() as simulation:
        await asyncio.sleep(60)
        simulation.sicken(8081, 8082)
        await asyncio.sleep(1200)
        # Each leads once: after that it stands when it has read the nodes.
        assert simulation.changes <= 2
        simulation.heal()
        await simulation.gang("train", 4)
        await until(lambda: simulation.bound("train") == 4, within=60)


async def test_replicas_of_which_none_can_write_take_turns_less_and_less_often() -> None:
    async with SickReplicas() as simulation:
        await asyncio.sleep(60)
        simulation.sicken(8081, 8082, only=("POST", "PATCH", "PUT", "DELETE"))
        await simulation.gang("train", 4)
        counted = []
        for _ in range(3):
            await asyncio.sleep(400)
            counted.append(simulation.changes)
        # Given back after 32, 64, 128, 256, 512 s: after 32 s, were it always so, 30 times.
        assert counted[0] >= 2
        assert counted[2] <= 5
        simulation.heal()
        await until(lambda: simulation.bound("train") == 4, within=120)


async def test_one_replica_alone_leads_again_soon_after_it_can() -> None:
    async with SickReplicas(replicas=1) as simulation:
        await asyncio.sleep(60)
        simulation.sicken(8081)
        await asyncio.sleep(1200)
        assert len(simulation.lost) == 1
        simulation.heal()
        await simulation.create(pod("plain"), POD)
        await until(lambda: "nodeName" in simulation.pods()[0]["spec"], within=60)


async def test_one_that_stays_away_does_not_say_that_it_could_take_over() -> None:
    async with SickReplicas() as simulation:
        await asyncio.sleep(60)
        first = simulation.by_port[8081]
        assert first.replica is not None
        simulation.sicken(8081)
        await until(lambda: simulation.leads(8082), within=PATIENCE + 30)
        standing = first.replica.standing()
        assert (standing.leading, standing.warm) == (False, False)


@pytest.mark.parametrize("kind", ["/namespaces", "/ephemeralresources"])
async def test_where_what_is_needed_is_refused_to_all_they_take_turns_less_and_less_often_and_work_when_rights_come(
    kind: str,
) -> None:
    refused = Fault(error=Refused(403, "forbidden"), user=SERVICE, path=rf"{kind}\?", times=None)
    async with SickReplicas() as simulation:
        simulation.cluster.api.faults.add(refused)
        simulation.kill_leader()
        await asyncio.sleep(1800)
        # Given back after 120, 240, 480, 960 s: after 120 s, were it always so, 14 times.
        assert simulation.changes <= 5
        simulation.cluster.api.faults.remove(refused)
        await simulation.gang("train", 4)
        await until(lambda: simulation.bound("train") == 4, within=60)


async def test_one_that_starts_slowly_and_waits_a_minute_for_a_kind_that_is_refused_keeps_the_lease() -> None:
    """Objects take 50 s to be listed, intents are refused for good after that, and then pods take 50 s."""
    slow = Fault(user=SERVICE, path=r"/(ephemeralresources|pods)\?limit=500", seconds=50.0, times=None)
    refused = Fault(error=Refused(403, "forbidden"), user=SERVICE, path=r"/transactionintents\?", times=None)
    async with SickReplicas() as simulation:
        simulation.cluster.api.faults.add(refused, slow)
        simulation.kill_leader()
        await simulation.gang("train", 4)
        await until(lambda: simulation.bound("train") == 4, within=240)
        assert (simulation.changes, simulation.lost) == (1, [])
