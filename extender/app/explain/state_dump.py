"""State dump: writes the whole state in a copy of the process, so that no request waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from extender.app.contracts.ports import EphemeralResource
from extender.app.cycle.scheduler import Scheduler
from extender.app.explain.simulate import Copied
from extender.app.explain.snapshot import Record, records
from extender.app.resources.capacity import Capacities


class Dumping:
    """Implements `api.DumpCalls`. `resources`: the EphemeralResources that are known.

    `foreign_policies`: names of policies that do not come with Escher.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        resources: Callable[[], Iterable[EphemeralResource]],
        capacities: Capacities,
        copied: Copied,
        written: Callable[[Iterable[Record]], bytes],
        foreign_policies: Sequence[str] = (),
    ) -> None:
        self._scheduler = scheduler
        self._resources = resources
        self._capacities = capacities
        self._copied = copied
        self._written = written
        self._foreign_policies = foreign_policies

    async def dump(self) -> bytes:
        self._scheduler.cache.require_whole()
        return await self._copied.in_a_copy(self._dump)

    def _dump(self) -> bytes:
        return self._written(records(self._scheduler, self._resources(), self._capacities, self._foreign_policies))
