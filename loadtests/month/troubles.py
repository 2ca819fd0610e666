"""Troubles: what happens to cluster and service meanwhile. Each takes minutes, and ends.

Applications hear what they may have lost by it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta

from extender.kube.errors import Away, Unavailable
from kubesim.apiserver.machinery.store import MODIFIED, Backup, Change
from kubesim.kinds import NODE, Json
from lab.controlplane.nodes import NodeShape, plain
from lab.simulation import Simulation
from loadtests.life.actors.hands import Hands
from loadtests.life.seeing import name
from loadtests.month.agreement import ephemeral_resources
from loadtests.month.applications import LABEL, Applications

LONGEST = 3600.0
"""Seconds within which each trouble has ended."""
_DOMAIN = "escher.dev/"
_AWAY = (0.0, 5.0, 60.0, 600.0)
_FOUGHT_EVERY = 0.05


def nodes(count: int, start: int = 0) -> list[Json]:
    made = plain(count, NodeShape(), start=start)
    for number, node in enumerate(made, start):
        node["metadata"]["labels"][LABEL] = ("left", "right")[number % 2]
    return made


class Troubles:
    def __init__(self, simulation: Simulation, applications: Applications, hands: Hands, rng: random.Random) -> None:
        self._simulation = simulation
        self._applications = applications
        self._hands = hands
        self._rng = rng
        self._store = simulation.cluster.api.store
        self._kind = ephemeral_resources(simulation)
        self._made = len(self._store.list(NODE))
        self._backup: Backup = self._store.back_up()
        self.by_name: Mapping[str, Callable[[], Awaitable[str]]] = {
            "rotation": self.rotation,
            "restart": self.restart,
            "restore": self.restore,
            "clock": self.clock,
            "replacement": self.replacement,
            "reboot": self.reboot,
            "wiped": self.wiped,
            "fight": self.fight,
            "watches": self.watches,
            "deleted": self.deleted,
            "edited": self.edited,
        }

    def back_up(self) -> None:
        self._backup = self._store.back_up()

    # -- the service -----------------------------------------------------------------------------------------------

    async def rotation(self) -> str:
        """The service's certificate has run out, and the next one comes after some seconds."""
        seconds = self._rng.choice((0.5, 5.0, 30.0))
        await self._without_api_server(seconds, Unavailable("401 Unauthorized"))
        return f"its certificate is renewed after {seconds:g} s"

    async def restart(self) -> str:
        away = self._rng.choice(_AWAY)
        await self._simulation.restart(away)
        return f"the service was away for {away:g} s"

    async def clock(self) -> str:
        clock = self._simulation.service_clock
        by = self._rng.choice((-7200.0, -60.0, -2.0, 2.0, 60.0, 7200.0))
        clock.ahead = 0.0 if clock.ahead and self._rng.random() < 0.5 else clock.ahead + by
        self._applications.expired()
        return f"the service's clock is {clock.ahead:+.0f} s from the API server's"

    async def watches(self) -> str:
        late, forgotten = self._rng.choice((3.0, 40.0, 120.0)), self._rng.random() < 0.5
        self._simulation.hold_watches()
        await asyncio.sleep(late)
        if forgotten:
            self._simulation.forget_changes()
        self._simulation.release_watches()
        return f"watches were {late:g} s late{' and began anew' if forgotten else ''}"

    async def _without_api_server(self, seconds: float, answer: Unavailable) -> None:
        """Answers all requests of the service so, for this many seconds."""
        service = self._simulation.service
        if service is not None:
            service.line.turn_away(answer)
        await asyncio.sleep(seconds)
        if service is not None:
            service.line.let_in()

    # -- the cluster -----------------------------------------------------------------------------------------------

    async def restore(self) -> str:
        version = self._store.version
        away = self._rng.choice((1.0, 10.0, 100.0))
        self._simulation.restore(self._backup)
        await self._without_api_server(away, Away("connection refused"))
        # Earlier answers may be void, and so may answers given while the service finds the restore out.
        self._applications.time_went_back()
        await asyncio.sleep(10.0)
        self._applications.time_went_back()
        return f"etcd is restored after {away:g} s: version {self._backup.version} after {version}"

    async def replacement(self) -> str:
        lost = await self._lose()
        away = self._rng.choice((30.0, 200.0, 900.0))
        await asyncio.sleep(away)
        [made] = nodes(1, self._made)
        self._made += 1
        await self._hands.create(NODE, made)
        return f"{name(made)} has come for {name(lost)} after {away:g} s"

    async def reboot(self) -> str:
        """A node is registered again, without the units that it had."""
        lost = await self._lose()
        away = self._rng.choice((5.0, 60.0, 200.0))
        await asyncio.sleep(away)
        number = int(name(lost).removeprefix("node-"))
        await self._hands.create(NODE, nodes(1, number)[0])
        return f"{name(lost)} was away for {away:g} s"

    async def _lose(self) -> Json:
        lost = self._rng.choice(self._store.list(NODE))
        self._applications.node_lost(name(lost))
        await self._hands.delete(NODE, lost)
        return lost

    async def wiped(self) -> str:
        node = self._rng.choice(self._store.list(NODE))
        await self._wipe(node)
        return f"all of ours was taken from the status of {name(node)}"

    async def fight(self) -> str:
        """Another controller removes the service's keys from a node's status again and again."""
        node = name(self._rng.choice(self._store.list(NODE)))
        seconds, stirred = self._rng.uniform(300.0, LONGEST - 600.0), asyncio.Event()

        def hear(change: Change) -> None:
            if change.kind is NODE and change.type == MODIFIED and name(change.object) == node:
                stirred.set()

        stop = self._store.subscribe(hear)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    found = self._store.get(NODE, "", node)
                    if found is not None:
                        await self._wipe(found)
                    await stirred.wait()
                    stirred.clear()
                    await asyncio.sleep(_FOUGHT_EVERY)
        except TimeoutError:
            return f"another controller has fought for {node} for {seconds / 60:.0f} min"
        finally:
            stop()

    async def _wipe(self, node: Json) -> None:
        ours = {key: None for key in node["status"]["capacity"] if key.startswith(_DOMAIN)}
        if ours:
            await self._hands.merge(NODE, node, {"status": {"capacity": ours, "allocatable": ours}}, "status")

    async def deleted(self) -> str:
        """A user deletes an object by kubectl."""
        gone = self._any_object()
        if gone is None:
            return "there is nothing to delete"
        self._applications.deleted(gone["metadata"]["namespace"], name(gone))
        await self._hands.delete(self._kind, gone)
        return f"somebody deleted {name(gone)}"

    async def edited(self) -> str:
        """A user lets an object live longer by kubectl, which moves nothing."""
        found = self._any_object()
        if found is None or "expiresAt" not in found["spec"]:
            return "there is nothing to edit"
        until = datetime.fromisoformat(found["spec"]["expiresAt"]) + timedelta(hours=1)
        await self._hands.merge(self._kind, found, {"spec": {"expiresAt": until.strftime("%Y-%m-%dT%H:%M:%SZ")}})
        return f"somebody let {name(found)} live longer"

    def _any_object(self) -> Json | None:
        found = self._store.list(self._kind)
        return self._rng.choice(found) if found else None
