"""A gang that waits says that it stays apart from all other pods, or beside some: others are placed all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loadtests.shared.pods import pod
from tests.lies.town import LIAR, VICTIM, Town, no_tenants_yet

pytestmark = pytest.mark.anyio

NOT_WIDE = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["wide"]}]}
WEB = {"matchLabels": {"app": "web"}}
HOST, ANYWHERE = "kubernetes.io/hostname", "kubernetes.io/os"


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


async def wide_gangs(town: Town, size: int, cpu: str, affinity: str, selector: Any, key: str, *, port: bool) -> None:
    """Three of the liar, that cannot be placed."""
    for number in range(3 * size):
        name = f"wide{number % 3}"
        body = pod(
            f"{name}-{number}", gang=name, quorum=size, cpu=cpu, labels={"app": "web" if selector is WEB else "wide"}
        )
        term = {"labelSelector": selector, "namespaceSelector": {}, "topologyKey": key}
        if port:
            body["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
        else:
            body["spec"]["affinity"] = {affinity: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        await town.lie(body)


@pytest.mark.parametrize(
    ("size", "cpu", "affinity", "selector", "key"),
    [
        (1, "1m", "podAntiAffinity", NOT_WIDE, ANYWHERE),
        (4, "1m", "podAntiAffinity", NOT_WIDE, HOST),
        (2, "3", "podAffinity", WEB, HOST),
        (4, "1m", "port", None, ""),
    ],
    ids=("apart in one domain", "apart on each node", "near the first of a series", "a port on each node"),
)
@pytest.mark.parametrize("gang", [False, True], ids=("pods", "gangs"))
async def test_a_small_gang_that_waits_closes_no_nodes_to_other_tenants(
    size: int, cpu: str, affinity: str, selector: Any, key: str, gang: bool
) -> None:
    port = affinity == "port"
    async with no_tenants_yet() as town:
        for number in range(4):
            runs = pod(f"runs-{number}", cpu="6")
            if port:
                runs["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
            await town.create(VICTIM, runs)
        await town.bound_within(VICTIM, "runs-", 4)
        await wide_gangs(town, size, cpu, affinity, selector, key, port=port)
        await asyncio.sleep(100)
        if port:
            for number in range(2):
                await town.simulation.ask("DELETE", f"/api/v1/namespaces/{VICTIM}/pods/runs-{number}")
        for number in range(2):
            about: dict[str, Any] = {"gang": "new", "quorum": 2} if gang else {}
            body = pod(f"new-{number}", cpu="100m", labels={"app": "web"}, **about)
            if port:
                body["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
            await town.create(VICTIM, body)
        await town.bound_within(VICTIM, "new-", 2)
        assert town.bound(LIAR) == {}
        assert town.simulation.application.scheduler.cache.violations() == []
