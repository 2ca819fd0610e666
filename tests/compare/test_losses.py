"""Members that are lost have an owner who makes others, whatever the watcher has seen by then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from msgspec import json

from extender.kube.names import CPU
from lab.compare.trials.disruptions import Losses
from lab.compare.trials.outside import LABEL, Seen, Watched
from lab.compare.trials.workloads import Ask, Loss

ASK = Ask("train", 2, {CPU: "1"})
NODE = {"metadata": {"name": "n0", "labels": {}}, "status": {"capacity": {CPU: "8", "memory": "1Gi", "pods": "110"}}}


class OneNode:
    """Members of ASK on one node, and a pod that is nobody's. What is deleted is seen to be gone, if at all, before the
    answer is."""

    def __init__(self, watched: Watched, *, tells_of_ends: bool, tells_of_the_second: bool) -> None:
        self.watched, self._tells_of_ends = watched, tells_of_ends
        self.members = [f"train-{number}" for number in range(ASK.size)]
        self.replaced: list[tuple[int, str]] = []
        self._see(self.members[0])
        self._see(self.members[1], node="n0" if tells_of_the_second else "")

    async def request(self, method: str, path: str, *more: Any, **options: Any) -> bytes:
        if method == "GET":
            return json.encode(NODE)
        if "fieldSelector" not in path:
            return b"{}"
        ended, self.members = self.members, []
        for member in ended:
            if self._tells_of_ends:
                self._see(member, gone=True)
        of_gang = [{"metadata": {"name": each, "labels": {LABEL: ASK.name}}} for each in ended]
        return json.encode({"items": [*of_gang, {"metadata": {"name": "ghost"}}]})

    def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        raise AssertionError("nobody watches")

    async def replace(self, ask: Ask, number: int, name: str) -> None:
        self.replaced.append((number, name))
        self._see(name, node="n1")

    async def prepare(self, ask: Ask) -> None: ...

    async def submit(self, ask: Ask) -> None: ...

    async def end(self, ask: Ask) -> None: ...

    def _see(self, pod: str, *, node: str = "n0", gone: bool = False) -> None:
        self.watched.take(json.encode(Seen(0.0, pod, ASK.name, 1.0, node, "Running", gone)))


def replaced(*losses: Loss, tells_of_ends: bool = True, tells_of_the_second: bool = True) -> list[tuple[int, str]]:
    async def suffered() -> list[tuple[int, str]]:
        watched = Watched()
        there = OneNode(watched, tells_of_ends=tells_of_ends, tells_of_the_second=tells_of_the_second)
        made = Losses(there, watched)
        for loss in losses:
            async with asyncio.timeout(5):
                await made.suffer(loss, ASK, there)
        return there.replaced

    return asyncio.run(suffered())


def test_those_that_were_on_a_lost_node_are_replaced_though_they_were_seen_gone_before_the_call_is_answered() -> None:
    assert replaced(Loss("train", 1, "bound", "node")) == [(0, "train-0-1"), (1, "train-1-2")]


def test_those_are_replaced_whom_the_watcher_has_not_seen_there_yet() -> None:
    again = replaced(Loss("train", 1, "bound", "node"), tells_of_ends=False, tells_of_the_second=False)
    assert again == [(0, "train-0-1"), (1, "train-1-2")]


def test_one_that_was_lost_alone_is_not_replaced_again_when_its_node_goes() -> None:
    again = replaced(Loss("train", 1, "created", "member"), Loss("train", 1, "bound", "node"))
    assert [number for number, _ in again] == [0, 1]
