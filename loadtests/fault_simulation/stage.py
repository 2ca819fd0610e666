"""Stage: the cluster of a run, with one service or several replicas, which restart after a kill.

Each life of a replica has its own user name at the API server, which shows whose write took effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from extender.availability import Candidate
from extender.bootstrap import Cluster as Connection
from kubesim.apiserver.machinery.store import Backup
from kubesim.clock import Clock
from kubesim.embedded import Cluster
from kubesim.scheduler.extender_client import CallableExtender, ExtenderClient
from lab.controlplane.nodes import NodeShape
from lab.simulated_service import ServiceLife, SteppedClock
from lab.simulation import SERVICE, Simulation
from loadtests.fault_simulation.actors.calls import Calls
from loadtests.fault_simulation.drawing import CPU_OF_NODE
from loadtests.fault_simulation.plan import Plan
from loadtests.fault_simulation.rounds import IN_SERVICE
from loadtests.shared.replicas import Replicas

ANY_SERVICE = rf"{SERVICE}(-\d+-\d+)?"
"""A pattern: the user names of the service and its replicas at the API server."""
_MOST_LIVES = 60
_PORTS = (8081, 8082)
SERVICES = frozenset({SERVICE, *(f"{SERVICE}-{port}-{life}" for port in _PORTS for life in range(_MOST_LIVES))})
_SHAPE = NodeShape(cpu=str(CPU_OF_NODE))


class Stage(Protocol):
    """What a run needs of its cluster, with one service or several."""

    clock: Clock
    cluster: Cluster
    service_clock: SteppedClock
    calls: Calls
    lives: int
    back_after: float
    """Seconds after which a killed service starts again."""

    @property
    def living(self) -> Sequence[ServiceLife]: ...

    @property
    def leaders(self) -> Sequence[ServiceLife]:
        """The replicas that believe they lead."""
        ...

    @property
    def leading(self) -> ServiceLife | None:
        """The service that decides; None while none is ready to."""
        ...

    def kill_leading(self, *, losing: bool) -> None: ...

    async def end_leading(self) -> None:
        """Stops it in the regular way."""
        ...

    def forget_changes(self) -> None: ...

    def restore(self, backup: Backup, version: int | None = None) -> None: ...


def stage_of(plan: Plan) -> Alone | Several:
    """The stage, not entered yet."""
    given: dict[str, Any] = {"seed": plan.seed, "nodes": plan.nodes, "node_shape": _SHAPE}
    return Alone(**given) if plan.replicas == 1 else Several(replicas=plan.replicas, **given)


class Alone(Simulation):
    """One service."""

    back_after = 1.0

    def extender_client(self) -> ExtenderClient:
        self.calls = Calls(self._call)
        return CallableExtender(self.calls)

    @property
    def living(self) -> Sequence[ServiceLife]:
        return [] if self.service is None else [self.service]

    @property
    def leaders(self) -> Sequence[ServiceLife]:
        return self.living

    @property
    def leading(self) -> ServiceLife | None:
        return self.service if self.service is not None and self.application.ready() else None

    def kill_leading(self, *, losing: bool) -> None:
        self.kill(losing=losing)

    async def end_leading(self) -> None:
        life = self.service
        if life is not None:
            await life.stop()
            if self.service is life:
                self.service = None

    async def _live(self, service: ServiceLife) -> None:
        IN_SERVICE.set(True)
        life = service
        while True:
            await life.run()
            await asyncio.sleep(self.back_after)
            life = self.service = self._new_service()


class Several(Replicas):
    """Replicas; one of them leads at a time."""

    def extender_client(self) -> ExtenderClient:
        self.calls = Calls(self._call)
        return CallableExtender(self.calls)

    def _line_of(self, candidate: Candidate) -> Connection:
        return self._connection(f"network {candidate.name}", candidate.name)

    async def _live(self, service: ServiceLife) -> None:
        IN_SERVICE.set(True)
        await super()._live(service)

    @property
    def living(self) -> Sequence[ServiceLife]:
        return list(self.by_port.values())

    @property
    def leaders(self) -> Sequence[ServiceLife]:
        return [each for each in self.living if each.replica is not None and each.replica.leading.leads]

    @property
    def leading(self) -> ServiceLife | None:
        return next((each for each in self.leaders if each.application.ready()), None)

    def kill_leading(self, *, losing: bool) -> None:
        for life in self.leaders[:1]:
            life.kill(losing=losing)

    async def end_leading(self) -> None:
        for life in self.leaders[:1]:
            await life.stop()

    def forget_changes(self) -> None:
        self.cluster.api.store.compact(self.cluster.api.store.version)
        for life in self.living:
            life.line.break_watches()
