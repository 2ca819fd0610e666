"""Striking: carries out the faults of a plan on the embedded cluster, each at its own time."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from math import inf

from extender.kube.errors import Away, Expired, Occupied, Refused, Unavailable
from kubesim.apiserver.machinery.store import Store
from kubesim.apiserver.serving import faults as api
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.kinds import LEASE, NODE, POD, Json, Kind
from loadtests.fault_simulation.actors.calls import CALLER
from loadtests.fault_simulation.actors.noise import Noise
from loadtests.fault_simulation.actors.transactions import NAMESPACE
from loadtests.fault_simulation.plan import TARGETS, Fault, FaultKind
from loadtests.fault_simulation.stage import ANY_SERVICE, Stage
from loadtests.life.actors.hands import Hands
from loadtests.shared.replicas import NAMESPACE as LEASES

_NOBODY = Away("connection reset by peer")
_TIME_OUT = Away("context deadline exceeded")
_MET_WITHIN = 20.0
"""Seconds for which a fault waits for what it is to meet."""
_MEDDLES_EVERY = 0.05
_MEDDLED = "fault-simulation/meddled"
_DOMAIN = "escher.dev/"


class Striking:
    """`killed` is called when the service is killed. `ours`: the kinds of the service's objects."""

    def __init__(
        self,
        stage: Stage,
        seed: int,
        ours: Iterable[Kind],
        killed: Callable[[], None],
        restore: Callable[[Fault], Awaitable[None]],
        noise: Noise,
    ) -> None:
        self.done: list[str] = []
        """The kinds of the faults that have begun."""
        self._stage = stage
        self._killed = killed
        self._killed_at = -inf
        self._kinds = (NODE, *ours)
        drawn = random.Random(f"{seed} others")
        self._others = Hands(InProcess(stage.cluster.api, latency=0.001, rng=drawn, user="others"))
        self._ways: dict[FaultKind, Callable[[Fault], Awaitable[None]]] = {
            "outage": self._outage,
            "forbid": self._forbid,
            "hold-watches": self._hold_watches,
            "repeat-events": self._repeat_events,
            "break-watches": self._break_watches,
            "forget-changes": self._forget_changes,
            "silence-watches": self._silence_watches,
            "restore": restore,
            "kill-service": self._kill_service,
            "end-service": self._end_service,
            "cut-off-service": self._cut_off_service,
            "cut-off-lease": self._cut_off_lease,
            "kill-scheduler": self._kill_scheduler,
            "delete-pods": self._delete_pods,
            "lose-node": self._lose_node,
            "reset-node": self._reset_node,
            "meddle": self._meddle,
            "noisy-tenant": noise.disturb,
            "set-clock": self._set_clock,
        }

    @property
    def _store(self) -> Store:
        return self._stage.cluster.api.store

    async def strike(self, fault: Fault) -> None:
        """Begins the fault at its time, and returns at its end."""
        await asyncio.sleep(fault.at)
        self.done.append(fault.kind)
        if fault.kind in self._ways:
            await self._ways[fault.kind](fault)
        elif fault.kind == "time-out-call":
            await self._met(self._stage.calls.time_outs, _of_call(fault))
        elif fault.kind in ("lose-call", "lose-verdict", "delay-call", "repeat-call"):
            await self._met(self._stage.calls.faults, _of_call(fault))
        else:
            await self._met(
                self._stage.cluster.api.faults, replace(_of_request(fault), again_if=self._can_arrive(fault))
            )

    def _can_arrive(self, fault: Fault) -> Callable[[], bool]:
        """Whether a repeated request may arrive.

        If the service created and deleted a resource and was then killed, all within a second, a late creation looks
        like a new one."""
        if (fault.kind, fault.of) != ("repeat-request", "resource creations"):
            return lambda: True
        now = asyncio.get_running_loop().time
        return lambda: self._killed_at < now() - fault.seconds

    async def _met(self, faults: api.Faults, fault: api.Fault) -> None:
        faults.add(fault)
        await asyncio.sleep(_MET_WITHIN)
        faults.remove(fault)

    # -- between the service and the API server --------------------------------------------------------------------

    async def _outage(self, fault: Fault) -> None:
        await self._answer(fault, Unavailable("etcdserver: no leader"))

    async def _forbid(self, fault: Fault) -> None:
        """Ends the watches as well, because only their new requests can be refused."""
        for life in self._stage.living:
            life.line.break_watches()
        await self._answer(fault, Refused(403, 'User "escher" is forbidden: RBAC: clusterrole.rbac not found'))

    async def _answer(self, fault: Fault, error: Unavailable | Refused) -> None:
        """Answers all requests that the fault meets with the error, for its time."""
        method, path = TARGETS[fault.of]
        met = api.Fault(error, method=method, path=path, user=ANY_SERVICE, times=None)
        self._stage.cluster.api.faults.add(met)
        await asyncio.sleep(fault.seconds)
        self._stage.cluster.api.faults.remove(met)

    async def _hold_watches(self, fault: Fault) -> None:
        lives = self._stage.living
        for life in lives:
            life.line.hold_watches(TARGETS[fault.of][1])
        await asyncio.sleep(fault.seconds)
        for life in lives:
            life.line.release_watches()

    async def _repeat_events(self, fault: Fault) -> None:
        lives = self._stage.living
        for life in lives:
            life.line.twice = True
        await asyncio.sleep(fault.seconds)
        for life in lives:
            life.line.twice = False

    async def _break_watches(self, fault: Fault) -> None:
        for life in self._stage.living:
            life.line.break_watches()

    async def _forget_changes(self, fault: Fault) -> None:
        self._stage.forget_changes()

    async def _silence_watches(self, fault: Fault) -> None:
        for life in self._stage.living:
            life.line.silence_watches(TARGETS[fault.of][1])

    async def _cut_off_service(self, fault: Fault) -> None:
        life = self._stage.leading
        if life is not None:
            life.line.turn_away(_NOBODY)
            await asyncio.sleep(fault.seconds)
            life.line.let_in()

    async def _cut_off_lease(self, fault: Fault) -> None:
        found = self._store.get(LEASE, LEASES, "escher")
        if found is None or not (leader := found["spec"].get("holderIdentity")):
            return
        gone = api.Fault(_NOBODY, path=TARGETS["leases"][1], user=re.escape(leader), times=None)
        self._stage.cluster.api.faults.add(gone)
        await asyncio.sleep(fault.seconds)
        self._stage.cluster.api.faults.remove(gone)

    # -- crashes ---------------------------------------------------------------------------------------------------

    async def _kill_service(self, fault: Fault) -> None:
        self._killed_at = asyncio.get_running_loop().time()
        self._stage.back_after = fault.seconds
        self._killed()
        self._stage.kill_leading(losing=fault.losing)

    async def _end_service(self, fault: Fault) -> None:
        self._stage.back_after = fault.seconds
        self._killed()
        await self._stage.end_leading()

    async def _kill_scheduler(self, fault: Fault) -> None:
        await self._stage.cluster.restart_scheduler(0, fault.seconds)

    async def _lose_node(self, fault: Fault) -> None:
        found = self._store.get(NODE, "", fault.of)
        if found is None:
            return
        await self._others.delete(NODE, found)
        if fault.losing:
            return
        await asyncio.sleep(fault.seconds)
        metadata = {key: found["metadata"][key] for key in ("name", "labels")}
        await self._others.create(NODE, {"metadata": metadata, "spec": {}, "status": _without_ours(found["status"])})

    async def _reset_node(self, fault: Fault) -> None:
        found = self._store.get(NODE, "", fault.of)
        if found is not None:
            ours = {key: None for key in found["status"]["capacity"] if key.startswith(_DOMAIN)}
            await self._others.merge(NODE, found, {"status": {"capacity": ours, "allocatable": ours}}, "status")

    # -- others ----------------------------------------------------------------------------------------------------

    async def _delete_pods(self, fault: Fault) -> None:
        for number in range(fault.skip, fault.skip + fault.times):
            found = self._store.get(POD, NAMESPACE, f"{fault.of}-{number}")
            if found is not None:
                await self._others.delete(POD, found)

    async def _meddle(self, fault: Fault) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + fault.seconds
        while loop.time() < until:
            said = {"metadata": {"annotations": {_MEDDLED: f"{loop.time():g}"}}}
            for kind in self._kinds:
                for each in self._store.list(kind):
                    await self._others.merge(kind, each, said)
            await asyncio.sleep(max(_MEDDLES_EVERY, fault.seconds / 40))

    async def _set_clock(self, fault: Fault) -> None:
        self._stage.service_clock.ahead += fault.seconds


def _of_request(fault: Fault) -> api.Fault:
    method, path = TARGETS[fault.of]
    error: Unavailable | Refused | None = None
    after, seconds, again = fault.kind in ("lose-answer", "delay-answer"), fault.seconds, None
    match fault.kind:
        case "lose-request" | "lose-answer":
            error = _NOBODY
        case "late-request":
            error, seconds, again = _NOBODY, 0.0, fault.seconds
        case "repeat-request":
            seconds, again = 0.0, fault.seconds
        case "conflict":
            error = Occupied(409, "the object has been modified; please apply your changes to the latest version")
        case "throttle":
            error, seconds = Unavailable("too many requests, please try again later", fault.seconds), 0.0
        case "expire-watches":
            error = Expired(410, "too old resource version")
        case "refuse":
            error = Refused(422, "the pod cannot be bound")
        case "fail":
            error = Unavailable("an error on the server has prevented the request from succeeding")
    return api.Fault(
        error,
        after=after,
        method=method,
        path=path,
        user=ANY_SERVICE,
        seconds=seconds,
        skip=fault.skip,
        times=fault.times,
        again=again,
    )


def _of_call(fault: Fault) -> api.Fault:
    lost = _TIME_OUT if fault.kind in ("lose-call", "lose-verdict", "time-out-call") else None
    after = fault.kind == "lose-verdict"
    seconds = fault.seconds if fault.kind in ("delay-call", "time-out-call") else 0.0
    again = fault.seconds if fault.kind == "repeat-call" else None
    return api.Fault(
        lost,
        after=after,
        method=fault.of,
        user=CALLER,
        seconds=seconds,
        skip=fault.skip,
        times=fault.times,
        again=again,
    )


def _without_ours(status: Json) -> Json:
    """The status without the service's resources, as a returning kubelet writes it."""
    left = {key: text for key, text in status["capacity"].items() if not key.startswith(_DOMAIN)}
    return {**status, "capacity": left, "allocatable": left}
