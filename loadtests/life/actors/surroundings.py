"""Surroundings: restarts service and schedulers, sets the service's clock, delays its watches."""

from __future__ import annotations

import asyncio

from loadtests.life.scene import Scene


class Surroundings:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    async def mend(self) -> None:
        """The service runs and receives all events. Its clock stays as it is."""
        self._scene.simulation.release_watches()
        if self._scene.simulation.service is None:
            await self._scene.simulation.restart()

    async def restart(self) -> str:
        away = self._scene.rng.choice((0.0, 0.5, 5.0, 60.0, self._scene.a_while()))
        twice, again_after = self._scene.rng.random() < 0.2, self._scene.rng.uniform(0.0, 3.0)

        async def restart() -> None:
            self._scene.killed()
            await self._scene.simulation.restart(away)
            if twice:
                await asyncio.sleep(again_after)
                self._scene.killed()
                await self._scene.simulation.restart()

        if self._scene.simulation.service is None:
            return "the service is away already"
        # In half of the cases the restart meets a gang that begins.
        gang = await self._scene.works.begin_gang() if self._scene.rng.random() < 0.5 else "nothing"
        await asyncio.sleep(self._scene.rng.uniform(0.0, 0.05))
        self._scene.start(restart())
        return f"the service is away for {away:.1f} s{', twice' if twice else ''}, while {gang} begins"

    async def scheduler_restart(self) -> str:
        number = self._scene.rng.randrange(len(self._scene.simulation.cluster.schedulers))
        gang = await self._scene.works.begin_gang() if self._scene.rng.random() < 0.5 else "nothing"
        await asyncio.sleep(self._scene.rng.uniform(0.0, 0.05))
        await self._scene.simulation.cluster.restart_scheduler(number)
        return f"scheduler {number} is started anew, while {gang} begins"

    async def clock(self) -> str:
        by = self._scene.rng.choice((-86_400.0, -7200.0, -60.0, -2.0, 2.0, 60.0, 7200.0, 86_400.0))
        clock = self._scene.simulation.service_clock
        # In half of the cases the clock is set right.
        clock.ahead = 0.0 if clock.ahead and self._scene.rng.random() < 0.5 else clock.ahead + by
        return f"the service's clock is {clock.ahead:+.0f} s from the API server's"

    async def watches(self) -> str:
        """Delays all watch events; afterwards they arrive, or the service has to list."""
        late, forgotten = self._scene.rng.choice((0.2, 3.0, 40.0)), self._scene.rng.random() < 0.5

        async def hold() -> None:
            self._scene.simulation.hold_watches()
            await asyncio.sleep(late)
            if forgotten:
                self._scene.simulation.forget_changes()
            self._scene.simulation.release_watches()

        self._scene.start(hold())
        return f"watches are {late:g} s late{' and begin anew' if forgotten else ''}"
