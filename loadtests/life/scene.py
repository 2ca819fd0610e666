"""Scene: what all happenings share: the cluster, its works, the users, and random numbers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kubesim.apiserver.machinery.store import Store
from lab.simulation import Simulation
from loadtests.life.actors.crews import Crews
from loadtests.life.actors.hands import Hands
from loadtests.life.works import Works

T = TypeVar("T")


@dataclass
class Scene:
    """`pace`: mean seconds from one happening to the next."""

    simulation: Simulation
    works: Works
    crews: Crews
    user: Hands
    kubelet: Hands
    rng: random.Random
    pace: float
    killed: Callable[[], None]
    """Called when the service is killed."""
    _going_on: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def store(self) -> Store:
        return self.simulation.cluster.api.store

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs it beside everything else, until `stop`."""
        task = asyncio.ensure_future(work)
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)

    async def stop(self) -> None:
        """Cancels all that `start` began."""
        tasks = list(self._going_on)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def any_of(self, things: Sequence[T]) -> T | None:
        return self.rng.choice(things) if things else None

    def a_while(self) -> float:
        return self.rng.uniform(0.2, 4.0) * self.pace
