"""The board: what is seen outside and what the service plans, put together as nodes and jobs."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from rich.console import Console

from lab.compare.trials.outside import LABEL
from lab.demo.board import Board
from lab.demo.jobs import Job
from lab.demo.outside import NODES, Outside
from lab.demo.picture import PLAIN_GLYPHS, picture
from lab.demo.recording.screen import Screen
from lab.demo.room import room
from lab.demo.service import Service
from lab.demo.stage import Stage

pytestmark = pytest.mark.anyio


class Api:
    """Lists of pods and nodes, a watch of each, and the gangs that the service would show."""

    def __init__(self) -> None:
        self.nodes = [node(f"node-{number}") for number in range(4)]
        self.gangs: list[dict[str, Any]] = []
        self.news: dict[bool, asyncio.Queue[bytes]] = {True: asyncio.Queue(), False: asyncio.Queue()}
        self.asked: asyncio.Queue[str] = asyncio.Queue()

    async def request(self, method: str, path: str, body: bytes | None = None, **_: object) -> bytes:
        items = self.nodes if path.startswith(NODES) else []
        return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        while True:
            yield await self.news[path.startswith(NODES)].get()

    def tells(self, kind: str, found: dict[str, Any]) -> None:
        is_node = "allocatable" in found.get("status", {})
        self.news[is_node].put_nowait(json.dumps({"type": kind, "object": found}).encode())

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.put_nowait(request.url.path)
        return httpx.Response(200, json={"items": self.gangs})


def node(name: str, **more: str) -> dict[str, Any]:
    offered = {"cpu": "8", **{key.replace("__", "/").replace("_", "."): amount for key, amount in more.items()}}
    return {"metadata": {"name": name, "resourceVersion": "2"}, "status": {"allocatable": offered}}


def pod(job: str, number: int, on: str | None = None, *, ghost: bool = False) -> dict[str, Any]:
    labels = {"escher.dev/ghost": job} if ghost else {LABEL: job}
    name = f"{'ghost-' if ghost else ''}{job}-{number}"
    return {"metadata": {"name": name, "resourceVersion": "2", "labels": labels}, "spec": {"nodeName": on}}


class Watched:
    def __init__(self, api: Api, outside: Outside, board: Board) -> None:
        self.api, self.outside, self.board = api, outside, board

    async def told(self, kind: str, *objects: dict[str, Any]) -> None:
        """All of it has been seen."""
        before = self.outside.version
        for each in objects:
            self.api.tells(kind, each)
        await self.outside.until(lambda: self.outside.version >= before + len(objects), "the news", within=5)

    def rows(self) -> str:
        """The second line of the picture: the nodes."""
        return self.lines()[1].split(maxsplit=1)[1]

    def lines(self) -> list[str]:
        return [line.plain.strip() for line in picture(self.board.seen(), 90, 4, PLAIN_GLYPHS)]

    def job(self, letter: str) -> str:
        return next(line for line in self.lines() if line.startswith(f"{letter} "))


@asynccontextmanager
async def watched(console: Console | None = None) -> AsyncIterator[Watched]:
    api = Api()
    outside = Outside(api)
    async with httpx.AsyncClient(transport=httpx.MockTransport(api.answer)) as client, outside.following():
        service = Service("http://escher", client, "default")
        board = Board(outside, service, Stage(console or Console(file=None)), room(outside.cpus()))
        async with board.on():
            yield Watched(api, outside, board)


def gang(job: Job, phase: str, **on: str) -> dict[str, Any]:
    members = [{"name": name.replace("_", "-"), "phase": "reserved", "node": node} for name, node in on.items()]
    return {"name": job.name, "phase": phase, "reason": "", "members": members}


async def test_members_and_ghosts_take_places_and_a_member_takes_its_ghosts_place() -> None:
    async with watched() as seen:
        seen.outside.expect("a", "ghosts", 2, "A")
        assert seen.rows() == ".. .. .. .."
        await seen.told("ADDED", pod("a", 0, "node-1", ghost=True), pod("a", 1, "node-2", ghost=True))
        assert seen.rows() == ".. a. a. .."
        assert seen.job("A").endswith("0 of 2  ghosts hold 2")
        await seen.told("ADDED", pod("a", 0, "node-1"), pod("a", 1))
        assert seen.rows() == ".. A. a. .."
        await seen.told("MODIFIED", pod("a", 1, "node-2"))
        await seen.told("DELETED", pod("a", 0, "node-1", ghost=True), pod("a", 1, "node-2", ghost=True))
        assert seen.rows() == ".. A. A. .."
        assert "2 of 2  bound after " in seen.job("A")


async def test_a_job_that_has_ended_is_shown_until_nothing_of_it_is_left() -> None:
    async with watched() as seen:
        job = seen.outside.expect("a", "plain", 2, "A")
        await seen.told("ADDED", pod("a", 0, "node-0"), pod("a", 1, "node-0"))
        seen.outside.close(job)
        await seen.told("DELETED", pod("a", 0, "node-0"))
        assert seen.rows() == "A. .. .. .."
        assert seen.job("A").endswith("1 of 2  ends")
        await seen.told("DELETED", pod("a", 1, "node-0"))
        assert [line for line in seen.lines() if line.startswith("A ")] == []


async def test_a_resource_is_shown_on_the_nodes_that_offer_it() -> None:
    async with watched() as seen:
        await seen.told("MODIFIED", node("node-3", escher_dev__team_data1="2"))
        assert seen.rows() == ".. .. .. ..*"
        assert seen.lines()[2] == "* team.data1: 2 on node-3"
        await seen.told("MODIFIED", node("node-3"))
        assert seen.rows() == ".. .. .. .."


async def test_what_the_ledger_plans_is_asked_for_only_while_somebody_looks_and_a_gang_is_on_its_way() -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=90, height=30, _environ={})
    async with watched(terminal) as seen:
        assert seen.api.asked.empty()
        job = seen.outside.expect("a", "extender", 2, "A")
        seen.api.gangs = [gang(job, "planned", a_0="node-1", a_1="node-2")]
        # Asked for the second time, the board has heard the first answer.
        assert {await seen.api.asked.get() for _ in range(2)} == {"/v1/namespaces/default/gangs"}
        assert seen.rows() == ".. a. a. .."
        assert seen.job("A").endswith("0 of 2  planned")
        await seen.told("ADDED", pod("a", 0, "node-1"))
        assert seen.rows() == ".. A. a. .."
    async with watched() as seen:
        seen.outside.expect("a", "extender", 2, "A")
        await seen.told("ADDED", pod("a", 0, "node-1"))
        assert seen.api.asked.empty()


async def test_the_terminal_follows_the_watch() -> None:
    screen, shown = Screen(90, 24), asyncio.Event()

    class Terminal:
        encoding = "utf-8"

        def write(self, text: str) -> int:
            screen.feed(text.replace("\n", "\r\n"))
            if any("A· ·· ·· A·" in line for line in screen.text()):
                shown.set()
            return len(text)

        def flush(self) -> None:
            return

    console = Console(file=Terminal(), force_terminal=True, width=90, height=24, _environ={})  # type: ignore[arg-type]
    async with watched(console) as seen:
        seen.outside.expect("a", "plain", 2, "A")
        await seen.told("ADDED", pod("a", 0, "node-0"), pod("a", 1, "node-3"))
        await asyncio.wait_for(shown.wait(), 5)
    assert [line for line in screen.text() if line] == []


async def test_pods_of_which_one_waits_are_no_gang_bound_in_part() -> None:
    async with watched() as seen:
        job = seen.outside.expect("w", "", 3, "W")
        job.patience = 0.0
        await seen.told("ADDED", pod("w", 0, "node-0"), pod("w", 1, "node-1"), pod("w", 2))
        assert seen.job("W").endswith("2 of 3  1 waits")
