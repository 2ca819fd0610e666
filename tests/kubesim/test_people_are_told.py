"""On the embedded cluster: who waits for a policy has one event that says so, and what explain tells helps there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from extender.app.contracts.explanation import Explanation
from extender.core.names import GangKey
from kubesim.kinds import EVENT, POD, Json
from tests.app.town import Town

pytestmark = pytest.mark.anyio

OBJECTS = "/apis/escher.dev/v1alpha1/namespaces/default/escherpolicies"


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with Town(3) as made:
        yield made
        await made.come_to_rest()


async def govern(town: Town, name: str, kind: str, **parameters: Any) -> None:
    """A policy for the pods with the label of its name."""
    spec = {"type": kind, "parameters": parameters, "selector": {"matchLabels": {"app": name}}}
    body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": name}, "spec": spec}
    await town.simulation.ask("POST", OBJECTS, body)
    await asyncio.sleep(1)


def labelled(pod: Json, app: str) -> Json:
    pod["metadata"].setdefault("labels", {})["app"] = app
    return pod


def notes(town: Town, reason: str) -> list[tuple[str, str]]:
    """(pod, note) of our events with that reason."""
    ours = [each for each in town.store.list(EVENT) if each.get("reportingInstance") == "escher"]
    return [(each["involvedObject"]["name"], each["message"]) for each in ours if each["reason"] == reason]


def node_of(town: Town, name: str) -> str | None:
    found = town.store.get(POD, "default", name)
    assert found is not None
    node: str | None = found["spec"].get("nodeName")
    return node


async def explained(town: Town, name: str, *, gang: bool = False) -> Explanation:
    explain = town.simulation.application.management.explain
    return await (explain.gang(GangKey("default", name)) if gang else explain.pod("default", name))


async def test_a_pod_that_is_kept_apart_is_told_once_and_helped_by_what_explain_tells(town: Town) -> None:
    await govern(town, "web", "anti-affinity")
    for number in range(4):
        town.create(labelled(town.pod(f"web-{number}", 1), "web"))
        await asyncio.sleep(2)
    await asyncio.sleep(2400)
    why = "a pod that must stay apart from this one is in the same topology domain"
    said = f"policy web (anti-affinity): {why} (3 of 3 nodes)"
    assert notes(town, "PolicyWaiting") == [("web-3", said)]

    town.crash(for_seconds=5)
    await asyncio.sleep(600)
    assert len(notes(town, "PolicyWaiting")) <= 2
    assert {note for _, note in notes(town, "PolicyWaiting")} == {said}

    told = await explained(town, "web-3")
    assert [(group.policy, group.type, group.count) for group in told.groups] == [("web", "anti-affinity", 3)]
    assert told.since is not None
    assert told.reason_since is not None
    assert told.tried[0].said.startswith("end pod default/web-")
    assert " on n" in told.tried[0].said
    town.delete(told.tried[0].said.split()[2].removeprefix("default/"))
    await asyncio.sleep(30)
    assert node_of(town, "web-3") is not None


async def test_a_gang_of_which_one_too_many_is_to_be_apart_is_told_of_a_node_that_helps(town: Town) -> None:
    await govern(town, "train", "anti-affinity")
    town.create(*(labelled(each, "train") for each in town.gang("train", 4, cpu=1)))
    await asyncio.sleep(2400)
    assert town.bound() == {}
    assert len(notes(town, "GangWaiting")) == 1

    told = await explained(town, "train", gang=True)
    assert "required pod anti-affinity of policy train" in told.summary
    assert "add 1 node like n0, with 1 cpu free" in [each.said for each in told.tried]
    town.add_node("n3")
    await town.until_bound(4, within=30)
