"""The same work said three ways: alike in what it asks for, sound in what it names, and gone when it is over."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from escher_k8s.esl import Soft
from extender.core.policies.policy_types import TYPES
from loadtests.native_policies.__main__ import LEAST_NODES, LEAST_PODS, WORKS, packing_scheduler
from loadtests.native_policies.rules import Placement
from loadtests.native_policies.work import CPU_OF_A_NODE, PACKED, POLICY, WAYS, Way, Work
from loadtests.shared.pods import EXTENDER, PURE, Json
from loadtests.shared.reading import requests_of

NODES = [f"node-{number}" for number in range(20)]
works = pytest.mark.parametrize("make", WORKS, ids=lambda make: make.name)


class Remembered:
    """Implements `Site`: what was made and is there."""

    def __init__(self) -> None:
        self.there: dict[tuple[str, ...], Any] = {}
        self.policies: dict[str, tuple[str, dict[str, Any]]] = {}

    def _set(self, key: tuple[str, ...], value: Any) -> None:
        if value is None:
            self.there.pop(key, None)
        else:
            self.there[key] = value

    async def label(self, nodes: Sequence[str], key: str, value: str | None) -> None:
        for node in nodes:
            assert node in NODES
            self._set(("label", node, key), value)

    async def offer(self, nodes: Sequence[str], resource: str, units: int | None) -> None:
        for node in nodes:
            self._set(("offer", node, resource), units)

    async def fill(self, name: str, node: str, **asks: Any) -> None:
        self._set(("filler", name), node)

    async def empty(self, name: str) -> None:
        self.there.pop(("filler", name), None)

    async def make(self, path: str, body: Json) -> None:
        self._set(("object", f"{path}/{body['metadata']['name']}"), body)

    async def patch(self, path: str, body: Json) -> None:
        assert ("object", path.removesuffix("/status")) in self.there

    async def remove(self, path: str) -> None:
        del self.there["object", path]

    async def put_policy(self, name: str, kind: str, **parameters: Any) -> None:
        self.policies[name] = (kind, parameters)
        self._set(("policy", name), kind)

    async def drop_policy(self, name: str) -> None:
        del self.there["policy", name]

    async def set_resource(self, name: str, units: int, nodes: str | Mapping[str, Any]) -> None:
        self._set(("resource", name), units)

    async def drop_resource(self, name: str) -> None:
        self.there.pop(("resource", name), None)


def asked(work: Work, way: Way, number: int) -> Mapping[str, Any]:
    return {key: units for key, units in requests_of(work.pod(way, "p", number)).items() if units}


@works
def test_pods_ask_for_the_same_and_go_to_the_same_nodes_whatever_way_they_are_said(make: type[Work]) -> None:
    work = make(NODES, 30)
    for number in range(work.size):
        pods = [work.pod(way, "p", number) for way in WAYS]
        assert asked(work, "native", number) == asked(work, "extender", number) == asked(work, "esl", number)
        assert len({str(pod["spec"]["nodeSelector"]) for pod in pods}) == 1
        assert pods[1]["spec"]["schedulerName"] == EXTENDER
        assert pods[2]["spec"]["schedulerName"] == PURE
        assert pods[0]["spec"]["schedulerName"] in (PURE, PACKED)


@works
def test_a_pod_names_policies_that_stand_and_are_of_their_type(make: type[Work]) -> None:
    work, site = make(NODES, 30), Remembered()
    asyncio.run(work.lay(site))
    if "extender" not in work.said:
        assert not site.policies
        return
    for number in range(work.size):
        assert work.pod("extender", "p", number)["metadata"]["annotations"][POLICY] in site.policies
        assert POLICY not in work.pod("native", "p", number)["metadata"]["annotations"]
    for kind, parameters in site.policies.values():
        assert set(parameters) <= {field.name for field in dataclasses.fields(TYPES[kind])}


@works
def test_nothing_of_it_is_left_when_it_is_over(make: type[Work], monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(seconds: float) -> None:
        return None

    work, site = make(NODES, 30), Remembered()

    async def play() -> None:
        await work.lay(site)
        laid = dict(site.there)
        for way in ("native", "extender"):
            if way in work.said:
                await work.before(site, way)
                if work.happens is not None:
                    await work.happen(site, way, None, None)
                await work.after(site, way)
                assert site.there == laid
        await work.clear(site)

    monkeypatch.setattr(asyncio, "sleep", at_once)
    asyncio.run(play())
    assert site.there == {}


@works
def test_an_esl_is_asked_for_tasks_of_its_own_by_whatever_runs_it(make: type[Work]) -> None:
    work = make(NODES, 30)
    if "esl" not in work.said:
        with pytest.raises(NotImplementedError):
            work.policies()
        return
    *_, policy = work.policies()
    again = work.policies()[-1]
    assert policy is not again
    assert (policy.name, policy.scheduler) == (again.name, PURE)
    for number in range(work.size):
        requirement, _ = policy.ask(work.task(f"t{number}", number), 0.0)
        assert isinstance(policy, Soft) or requirement.labels[policy.label] == f"t{number}"


@works
def test_the_smallest_work_has_room_and_not_every_placement_will_do(make: type[Work]) -> None:
    work = make(NODES[:LEAST_NODES], LEAST_PODS)
    assert 0 < work.expected <= work.size <= LEAST_PODS
    assert sum(float(asked(work, "native", number)["cpu"]) for number in range(work.expected)) <= (
        CPU_OF_A_NODE * LEAST_NODES
    )
    on_one: Placement = dict.fromkeys(range(work.size), NODES[0])
    on_all: Placement = {number: NODES[number % LEAST_NODES] for number in range(work.size)}
    allowed = [work.judge(placed, work.size - len(placed)).held for placed in ({}, on_one, on_all)]
    assert not all(allowed)
    assert work.rule
    assert work.measure
    assert work.best_amount
    assert "native" in work.said


def test_the_scheduler_that_packs_differs_in_one_setting_alone() -> None:
    config = packing_scheduler()
    [profile] = config["profiles"]
    assert profile["schedulerName"] == PACKED
    [plugin] = profile["pluginConfig"]
    assert plugin["args"]["scoringStrategy"]["type"] == "MostAllocated"
    assert config["podMaxBackoffSeconds"] == 1
