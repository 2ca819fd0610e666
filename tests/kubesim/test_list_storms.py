"""An API server that accepts watches and ends them at once is not listed to death, and all heals when that is over."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator

import msgspec
import pytest

from kubesim.kinds import POD
from lab.simulation import Simulation
from loadtests.shared.pods import pod
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio

STORM = 3600.0
MOST_AN_HOUR = 95


class Storm:
    """Every watch of the service is accepted, and ended with an ERROR event, while `rages`."""

    def __init__(self, simulation: Simulation, code: int) -> None:
        assert simulation.service is not None
        self.rages = True
        self.lists: Counter[str] = Counter()
        self._code = code
        line = simulation.service.line
        self._request, self._lines = line.request, line.lines
        line.request = self.request  # type: ignore[method-assign]
        line.lines = self.lines  # type: ignore[method-assign]
        line.break_watches()

    async def request(self, method: str, path: str, *given: object, **named: object) -> bytes:
        if method == "GET" and "limit=500" in path:
            self.lists[path.partition("?")[0].rpartition("/")[2]] += 1
        return await self._request(method, path, *given, **named)  # type: ignore[arg-type]

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        if self.rages:
            error = {"kind": "Status", "metadata": {}, "code": self._code, "message": "not now"}
            yield msgspec.json.encode({"type": "ERROR", "object": error})
            return
        async for line in self._lines(path, silence=silence):
            yield line


@pytest.mark.parametrize("code", [403, 410, 500])
async def test_an_hour_of_watches_that_end_at_once_is_few_lists_of_each_kind_and_then_gangs_are_placed(
    code: int,
) -> None:
    async with Simulation(nodes=2) as simulation:
        await asyncio.sleep(30)
        storm = Storm(simulation, code)
        await asyncio.sleep(STORM)
        assert {"pods", "nodes", "namespaces", "jobs"} <= storm.lists.keys()
        assert {kind: lists for kind, lists in storm.lists.items() if lists > MOST_AN_HOUR} == {}
        storm.rages = False
        for number in range(2):
            await simulation.create(pod(f"late-{number}", gang="late", quorum=2), POD)
        await until(lambda: len(bound(simulation)) == 2, within=90, what="the gang is bound")
        assert simulation.lives == 1


def bound(simulation: Simulation) -> set[str]:
    there = simulation.cluster.api.store.list(POD, "default")
    return {each["metadata"]["name"] for each in there if each["spec"].get("nodeName")}
