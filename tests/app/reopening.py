"""Reopening: what a service has dumped, read again, as somebody elsewhere has it."""

from __future__ import annotations

import io
from dataclasses import replace

from extender.adapters.state_dump import read, written
from extender.app.contracts.explanation import Explanation
from extender.app.cycle.scheduler import Scheduler
from extender.app.explain.explain import Explain
from extender.app.explain.snapshot import Reopened, records, reopened
from extender.app.resources.capacity import Capacities
from extender.app.resources.set_resource import Resources
from extender.core.names import GangKey


def dumped(scheduler: Scheduler, resources: Resources | None = None) -> bytes:
    """The file."""
    capacities: Capacities | None = None if resources is None else resources.capacities
    return written(records(scheduler, [] if resources is None else resources.all(), capacities))


def elsewhere(file: bytes) -> Reopened:
    """What the file makes. It would be dumped as the same file, and breaks no invariant."""
    found = reopened(read(io.BufferedReader(io.BytesIO(file))))
    assert found.scheduler.cache.violations() == []
    return found


class ExplainedTwice(Explain):
    """Explains, and asserts that a dump of this moment explains the same."""

    def __init__(self, scheduler: Scheduler, resources: Resources) -> None:
        super().__init__(scheduler.cache, resources.capacities.why_withheld)
        self._scheduler = scheduler
        self._resources = resources

    def pod(self, namespace: str, name: str) -> Explanation:
        here = super().pod(namespace, name)
        assert _but_for_time(self._there().pod(namespace, name)) == _but_for_time(here)
        return here

    def gang(self, key: GangKey) -> Explanation:
        here = super().gang(key)
        assert _but_for_time(self._there().gang(key)) == _but_for_time(here)
        return here

    def _there(self) -> Explain:
        there = elsewhere(dumped(self._scheduler, self._resources))
        return Explain(there.scheduler.cache, there.why_withheld)


def _but_for_time(told: Explanation) -> Explanation:
    """A clock that goes on is read twice, a standing one tells the same."""
    return replace(told, reason_since=None if told.reason_since is None else 0.0)
