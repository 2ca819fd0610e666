"""Simulates several replicas of the service; verbs go where the EndpointSlice points.

kube-proxy does the same. An ended replica starts again after two seconds, as under a kubelet.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from extender.app.admin.leader_election import LeaseLost
from extender.availability import Candidate
from extender.bootstrap import Cluster as Connection
from extender.settings.settings import Settings, load_settings
from kubesim.kinds import ENDPOINT_SLICE, LEASE, POD, Json
from kubesim.scheduler.extender_client import ExtenderFailed
from lab.simulated_service import NoAnswer, ServiceLife
from lab.simulation import Simulation
from loadtests.shared.pods import pod

NAMESPACE = "kube-system"
SETTINGS = load_settings(None, leader_election=True, lease_namespace=NAMESPACE, leader_service="escher")
CPU_OF_NODE = 8
BACK_AFTER = 2.0


class Replicas(Simulation):
    """A simulation with replicas. After `__aenter__` one leads and the others are candidates."""

    def __init__(self, *, replicas: int = 2, settings: Settings = SETTINGS, **given: Any) -> None:
        super().__init__(settings=settings, **given)
        self._replicas = replicas
        self.by_port: dict[int, ServiceLife] = {}
        """Replicas that live."""
        self.lost: list[str] = []
        """Why leaders gave up, in order."""
        self.restarts = True
        self.back_after = BACK_AFTER
        self.own_line: dict[int, Connection] = {}
        """The connection to the API server of replicas that do not use the common one."""

    def _new_service(self) -> ServiceLife:
        return self._life(8081)

    def _life(self, port: int) -> ServiceLife:
        self.lives += 1
        candidate = Candidate(f"escher-{port}-{self.lives}", f"10.0.0.{port - 8080}", port, NAMESPACE)
        line = self.own_line.get(port) or self._line_of(candidate)
        self._last = self.by_port[port] = ServiceLife(line, self._settings, self._world, candidate)
        return self._last

    def _line_of(self, candidate: Candidate) -> Connection:
        """Returns its connection to the API server."""
        return self._to_service

    async def _start(self) -> None:
        await super()._start()
        for port in range(8082, 8081 + self._replicas):
            self._stack.callback(self._group.create_task(self._live(self._life(port))).cancel)

    async def _live(self, service: ServiceLife) -> None:
        life = service
        port = next(port for port, each in self.by_port.items() if each is life)
        while True:
            try:
                await life.run()
            except LeaseLost as error:
                self.lost.append(str(error))
            if self.by_port.get(port) is life:
                del self.by_port[port]
            if not self.restarts:
                return
            await asyncio.sleep(self.back_after)
            life = self._life(port)

    @property
    def leader(self) -> ServiceLife | None:
        leading = [each for each in self.by_port.values() if each.replica and each.replica.leading.leads]
        assert len(leading) <= 1
        return leading[0] if leading else None

    def kill_leader(self, *, losing: bool = True) -> bool:
        """Kills the leader and returns True, or returns False if there was none."""
        leader = self.leader
        if leader is not None:
            leader.kill(losing=losing)
        return leader is not None

    async def _call(self, verb: str, body: bytes) -> bytes:
        found = self.cluster.api.store.get(ENDPOINT_SLICE, NAMESPACE, "escher-leader")
        life = self.by_port.get(found["ports"][0]["port"]) if found else None
        if life is None:
            raise ExtenderFailed("connection refused")
        try:
            return await life.call(verb, body)
        except NoAnswer as error:
            raise ExtenderFailed(str(error)) from error

    # -- the view from outside

    @property
    def holder(self) -> str:
        found = self.cluster.api.store.get(LEASE, NAMESPACE, "escher")
        return str(found["spec"]["holderIdentity"]) if found else ""

    def pods(self) -> list[Json]:
        return list(self.cluster.api.store.list(POD, "default"))

    def bound(self, gang: str) -> int:
        return sum(
            bool(each["spec"].get("nodeName"))
            for each in self.pods()
            if each["metadata"]["labels"]["escher.dev/gang"] == gang
        )

    async def gang(self, name: str, size: int, cpu: int = CPU_OF_NODE) -> None:
        for number in range(size):
            await self.create(pod(f"{name}-{number}", gang=name, quorum=size, cpu=cpu), POD)

    def over_capacity(self) -> dict[str, int]:
        """Returns the CPU bound to nodes beyond their capacity."""
        used: Counter[str] = Counter()
        for each in self.pods():
            if each["spec"].get("nodeName"):
                used[each["spec"]["nodeName"]] += int(each["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        return {node: units - CPU_OF_NODE for node, units in used.items() if units > CPU_OF_NODE}
