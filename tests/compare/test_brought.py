"""Approaches whose scheduler the user brings: what they need is here and fits together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import yaml

from lab.compare.external_schedulers import BROUGHT
from lab.compare.trials import approaches
from lab.compare.trials.workloads import Ask
from lab.controlplane import schedulers


class Written:
    """In place of an API server; it takes everything."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []

    async def request(self, method: str, path: str, body: bytes | None = None, **_: Any) -> bytes:
        self.calls.append((method, path, msgspec.json.decode(body) if body else None))
        return b"{}"

    def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        raise AssertionError(path)


def test_each_has_a_configuration_with_a_profile_of_its_name_and_definitions_of_its_resources() -> None:
    for name, brought in BROUGHT.items():
        assert [each["schedulerName"] for each in schedulers.load(brought.config)["profiles"]] == [name]
        for file in brought.definitions:
            definition = yaml.safe_load(file.read_text())
            spec = definition["spec"]
            assert definition["metadata"]["name"] == f"{spec['names']['plural']}.{spec['group']}"


def test_a_gang_of_coscheduling_is_a_pod_group_of_the_definition_and_pods_with_its_label() -> None:
    server = Written()

    async def placed() -> None:
        async with AsyncExitStack() as stack:
            ways = await approaches.ways(server, ["coscheduling"], stack, seed=1)
            way, ask = ways["coscheduling"].gangs, Ask("a", 3, {"cpu": "1"})
            await way.prepare(ask)
            await way.submit(ask)
            await way.end(ask)

    asyncio.run(placed())
    [definition] = BROUGHT["coscheduling"].definitions
    spec = yaml.safe_load(definition.read_text())["spec"]
    version = f"{spec['group']}/{spec['versions'][0]['name']}"
    (made, groups, group), *pods, _, (gone, path, _) = server.calls
    assert (made, gone) == ("POST", "DELETE")
    assert groups == f"/apis/{version}/namespaces/default/{spec['names']['plural']}"
    assert path == f"{groups}/a"
    assert group == {
        "apiVersion": version,
        "kind": spec["names"]["kind"],
        "metadata": {"name": "a"},
        "spec": {"minMember": 3},
    }
    assert len(pods) == 3
    for _, _, pod in pods:
        assert pod["metadata"]["labels"][f"{spec['group']}/pod-group"] == "a"
        assert pod["spec"]["schedulerName"] == "coscheduling"
