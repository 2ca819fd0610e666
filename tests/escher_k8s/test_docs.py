"""docs/python.md is true: its examples run, one after the other, on a service in simulation."""

from __future__ import annotations

import asyncio
import doctest
import functools
import re
from pathlib import Path
from typing import Any

import pytest

import escher_k8s
import escher_k8s.esl
from kubesim.kinds import NAMESPACE, POD
from tests.escher_k8s.conftest import Stage
from tests.escher_k8s.polling_port import PollingPort

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("on_stage")
def test_what_is_typed_answers_what_is_shown() -> None:
    session = doctest.DocTestParser().get_doctest("\n".join(_blocks("pycon")), {}, "docs/python.md", None, 0)
    assert len(session.examples) > 15
    told: list[str] = []
    failed, _ = doctest.DocTestRunner().run(session, out=told.append)
    assert not failed, "".join(told)


def test_what_is_awaited_does_what_it_says(on_stage: Stage) -> None:
    [block] = [each for each in _blocks("python") if "async def" in each and "renew" in each]
    names: dict[str, Any] = {}
    exec(block, names)
    on_stage.run(names["renew"]())

    async def made() -> escher_k8s.Resource:
        async with escher_k8s.AsyncEscher(namespace="team-a") as escher:
            return await escher.get_resource("data1")

    assert on_stage.run(made()).nodes == {"node-3": 4}


def test_every_call_and_every_exception_is_on_the_page() -> None:
    calls = [name for name in vars(escher_k8s.calls.Calls) if not name.startswith("_") and name != "namespace"]
    errors = [name for name in escher_k8s.__all__ if issubclass(getattr(escher_k8s, name), escher_k8s.EscherError)]
    assert [name for name in calls if f"{name}(" not in PAGE] == []
    assert [name for name in errors if f"`{name}`" not in PAGE] == []


def test_gangs_without_the_service_run_as_the_page_says(on_stage: Stage) -> None:
    [block] = [each for each in _blocks("python") if "AppSpace(" in each]
    names: dict[str, Any] = {}
    exec(block, names)
    created: list[Any] = []

    async def create(pod: dict[str, Any]) -> None:
        pod["metadata"]["annotations"]["escher.dev/run-seconds"] = "2"
        created.append(
            await on_stage.simulation.create({**pod, "metadata": {"namespace": "team-b", **pod["metadata"]}}, POD)
        )

    async def run() -> None:
        await on_stage.simulation.create({"metadata": {"name": "team-b"}}, NAMESPACE)
        names["AppSpace"] = functools.partial(escher_k8s.esl.AppSpace, namespace="team-b")
        names["gang"] = functools.partial(escher_k8s.esl.gang, namespace="team-b")
        await names["train"](PollingPort(on_stage.simulation, "team-b"), create)

    on_stage.run(run())
    assert [pod["spec"]["schedulerName"] for pod in created] == ["escher-resources"] * 2


def test_policies_without_the_service_run_as_the_page_says(on_stage: Stage) -> None:
    [block] = [each for each in _blocks("python") if "PolicySpace(" in each]
    names: dict[str, Any] = {}
    exec(block, names)

    async def create(pod: dict[str, Any]) -> None:
        await on_stage.simulation.create({**pod, "metadata": {"namespace": "default", **pod["metadata"]}}, POD)

    async def run() -> list[str | None]:
        stopped = asyncio.Event()
        serving = asyncio.create_task(names["serve"](PollingPort(on_stage.simulation, "default"), create, stopped))
        await asyncio.sleep(10)
        stopped.set()
        await serving
        pods = [await on_stage.simulation.ask("GET", f"{POD.path('default')}/web-{number}") for number in range(3)]
        for pod in pods:
            await on_stage.simulation.ask("DELETE", f"{POD.path('default')}/{pod['metadata']['name']}")
        return [pod["spec"].get("nodeName") for pod in pods]

    places = on_stage.run(run())
    assert None not in places
    assert len(set(places)) == 3
