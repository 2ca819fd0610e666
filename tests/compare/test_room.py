"""Pods that take room: only what differs from one set-up to the next comes and goes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from extender.kube.client.requests import Requests
from extender.kube.errors import Gone
from lab.compare.trials import room
from lab.compare.trials.pods import manifest
from lab.compare.trials.room import rooms, standing
from lab.compare.trials.workloads import Ask, Standing


class ApiServer:
    """Nodes of 8 CPUs, and pods that run as soon as they are created."""

    def __init__(self, nodes: int) -> None:
        self._nodes = [f"n{number}" for number in range(nodes)]
        self.pods: dict[str, Any] = {}
        self.writes = 0

    async def request(self, method: str, path: str, body: bytes = b"", *, accept: str = "", within: float = 0) -> bytes:
        if method == "GET":
            nodes = [{"metadata": {"name": each}, "status": {"allocatable": {"cpu": "8"}}} for each in self._nodes]
            return msgspec.json.encode({"items": nodes if path.endswith("/nodes") else []})
        self.writes += 1
        if method == "POST":
            pod = msgspec.json.decode(body)
            assert pod["metadata"]["name"] not in self.pods
            self.pods[pod["metadata"]["name"]] = pod
        elif self.pods.pop(path.rpartition("/")[2], None) is None:
            raise Gone(404, path)
        return b"{}"

    @property
    def free(self) -> set[str]:
        taken = {each["spec"]["nodeName"] for each in self.pods.values()}
        return set(self._nodes) - taken


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SETTLE", 0)


def test_only_the_difference_comes_and_goes_and_at_the_end_all_is_free() -> None:
    server, told = ApiServer(10), list[int]()

    async def go() -> None:
        async with rooms(cast(Requests, server), told.append) as made:
            for pods, free in ((12, 3), (20, 5), (20, 5), (8, 2), (None, 10), (1, 1)):
                await made.leave_free(pods, "2")
                assert server.free == {f"n{number}" for number in range(free)}

    asyncio.run(go())
    assert server.pods == {}
    # Seven come, two go, nothing, three come, eight go, nine come, and at last these go.
    assert told == [7, 2, 3, 8, 9, 9]
    assert server.writes == sum(told)


def test_pods_stand_on_their_nodes_while_the_block_lasts_and_some_may_have_gone_by_themselves() -> None:
    server = ApiServer(2)
    pods = [Standing(f"p{number}", f"n{number}", {"cpu": "1", "nvidia.com/gpu": "1"}, 5.0) for number in range(2)]

    async def go() -> None:
        async with standing(cast(Requests, server), pods):
            assert [each["spec"]["nodeName"] for each in server.pods.values()] == ["n0", "n1"]
            await room.leave(cast(Requests, server), pods[0])
            assert list(server.pods) == ["p1"]

    asyncio.run(go())
    assert server.pods == {}


def test_extended_resources_are_limits_too_for_kubernetes_refuses_them_otherwise() -> None:
    asked = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"}
    [container] = manifest(Ask("a", 1, asked), 0)["spec"]["containers"]
    assert container["resources"] == {"requests": asked, "limits": {"nvidia.com/gpu": "2"}}
