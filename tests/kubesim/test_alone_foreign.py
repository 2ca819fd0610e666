"""A pod of no gang asks for units of another namespace: for those that are not exported to it no pod is evicted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from extender.app.explain.explain import Explain
from extender.core.tenancy.tenancy import FOREIGN
from kubesim.kinds import NAMESPACE, POD, Json
from loadtests.shared.pods import pod
from tests.kubesim.test_preempting import HALF_AN_HOUR
from tests.kubesim.test_preempting_alone import FIT, LEDGER, LICENCE, RESOURCES, Alone, alone
from tests.kubesim.until import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

OWN = "escher.dev/team.own"


def of_team(name: str, scheduler: str, **asks: Any) -> Json:
    made = pod(name, scheduler, priority_class="alone-high", **{"cpu": "100m", **asks})
    return made | {"metadata": made["metadata"] | {"namespace": "team"}}


@asynccontextmanager
async def with_team(licences: int = 2) -> AsyncIterator[Alone]:
    """One node, and a namespace that owns no licence."""
    async with alone(1, licences) as made:
        await made.sim.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}, NAMESPACE)
        yield made


async def export(made: Alone, *namespaces: str) -> None:
    merge = "application/merge-patch+json"
    await made.sim.ask("PATCH", f"{RESOURCES}/lic", {"spec": {"exportTo": list(namespaces)}}, content_type=merge)


def why(made: Alone, name: str) -> str:
    found = Explain(made.sim.application.scheduler.cache).pod("team", name)
    return f"{found.summary} {found.remedies}"


def of_team_run(made: Alone) -> int:
    return sum(bool(each["spec"].get("nodeName")) for each in made.store.list(POD, "team"))


@pytest.mark.parametrize("scheduler", [FIT, LEDGER])
@pytest.mark.parametrize("more", [{}, {"cpu": "8"}], ids=["units alone", "cores too"])
async def test_no_pod_leaves_for_one_that_asks_for_foreign_units_and_it_is_told_so_until_they_are_exported(
    scheduler: str, more: dict[str, Any]
) -> None:
    async with with_team() as made:
        await made.lows(scheduler)
        asks: dict[str, Any] = {LICENCE: 1, **more}
        await made.sim.create(of_team("high", scheduler, **asks), POD)
        await asyncio.sleep(HALF_AN_HOUR)
        assert (made.runs("low-"), of_team_run(made)) == (2, 0)
        assert made.sim.application.scheduler.cache.gangs.by_key == {}, "it is no gang of one"
        assert FOREIGN in why(made, "high")
        assert f"let the owner of {LICENCE} export it to namespace team" in why(made, "high")
        await export(made, "team")
        # No unit is free, so the export wakes no pod: kube-scheduler asks again in five minutes.
        await until(lambda: of_team_run(made) == 1, within=400)
        await asyncio.sleep(60)
        assert made.runs("low-") == (0 if more else 1)


@pytest.mark.parametrize("size", [1, 2], ids=["a pod", "a gang"])
async def test_no_pod_leaves_for_units_of_its_own_namespace_where_it_asks_for_foreign_ones_too(size: int) -> None:
    async with with_team() as made:
        body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": "own"}}
        path = RESOURCES.replace("/default/", "/team/")
        await made.sim.ask("POST", path, {**body, "spec": {"nodes": {"node-0": size}}})
        holding = of_team("low", LEDGER, **{OWN: size})
        holding["spec"]["priorityClassName"] = "alone-low"
        await made.sim.create(holding, POD)
        await until(lambda: of_team_run(made) == 1)
        gang: dict[str, Any] = {"gang": "high", "quorum": size} if size > 1 else {}
        asks: dict[str, Any] = {LICENCE: 1, OWN: 1, **gang}
        for number in range(size):
            await made.sim.create(of_team(f"high-{number}", LEDGER, **asks), POD)
        await asyncio.sleep(HALF_AN_HOUR)
        assert [each["metadata"]["name"] for each in made.store.list(POD, "team") if each["spec"].get("nodeName")] == [
            "low"
        ]
        assert f"let the owner of {LICENCE} export it to namespace team" in why(made, "high-0")


async def test_an_export_that_ends_while_the_victim_takes_its_time_leaves_the_unit_to_others() -> None:
    async with with_team(1) as made:
        await export(made, "team")
        await made.lows(LEDGER, 1, grace=20)
        await made.sim.create(of_team("high", LEDGER, **{LICENCE: 1}), POD)
        await until(lambda: made.evicted)
        await export(made)
        asks: dict[str, Any] = {LICENCE: 1}
        await made.create(pod("next", LEDGER, cpu="100m", **asks))
        await until(lambda: made.runs("next") == 1, within=120)
        await asyncio.sleep(HALF_AN_HOUR)
        assert (len(made.evicted), made.runs("next"), of_team_run(made)) == (1, 1, 0)
        assert FOREIGN in why(made, "high")
