"""Server: the API server on a port of this machine, in real time."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn

from kubesim.apiserver.serving.api import ApiServer
from kubesim.apiserver.serving.server import application
from kubesim.clock import Clock
from tests.kubesim.apiserver.apis import PODS, pod

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def served(token: str | None = None) -> AsyncIterator[tuple[ApiServer, httpx.AsyncClient]]:
    api = ApiServer(Clock(), random.Random(1), token=token)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(api), http="httptools", log_level="warning"))
    serving = asyncio.ensure_future(server.serve([listening]))
    headers = {"authorization": f"Bearer {token}"} if token else {}
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    async with httpx.AsyncClient(base_url=address, headers=headers, trust_env=False, timeout=10) as client:
        yield api, client
    server.should_exit = True
    await serving


async def test_requests_are_answered_with_their_status_and_type() -> None:
    async with served() as (_, client):
        made = await client.post(PODS, json=pod())
        assert (made.status_code, made.headers["content-type"]) == (201, "application/json")
        found = await client.get(f"{PODS}/p")
        assert found.json() == made.json()
        assert (await client.get(f"{PODS}?fieldSelector=metadata.name%3Dp")).json()["items"]
        assert (await client.get(f"{PODS}/none")).status_code == 404
        head = await client.head(f"{PODS}/p")
        assert (head.status_code, head.content) == (200, b"")
        assert (await client.get("/readyz")).text == "ok"


async def test_who_brings_no_token_is_turned_away() -> None:
    async with served("secret") as (_, client):
        assert (await client.get(PODS)).status_code == 200
        turned_away = await client.get(PODS, headers={"authorization": "Bearer other"})
        assert (turned_away.status_code, turned_away.json()["reason"]) == (401, "Unauthorized")


async def test_a_body_that_is_too_large_is_refused() -> None:
    async with served() as (_, client):
        assert (await client.post(PODS, content=b"x" * (4 * 2**20))).status_code == 413


async def test_a_watch_is_a_stream_that_ends_with_its_time() -> None:
    async with served() as (_, client), client.stream("GET", f"{PODS}?watch=true&timeoutSeconds=1") as answer:
        assert answer.status_code == 200
        await client.post(PODS, json=pod())
        events = [json.loads(line) async for line in answer.aiter_lines()]
        assert [event["type"] for event in events] == ["ADDED"]


async def test_a_client_that_leaves_is_forgotten() -> None:
    async with served() as (api, client):
        async with client.stream("GET", f"{PODS}?watch=true") as answer:
            assert answer.status_code == 200
            assert api.open_watches == 1
        for _ in range(100):
            if not api.open_watches:
                break
            await asyncio.sleep(0.01)
        assert api.open_watches == 0


async def test_open_watches_do_not_keep_the_server_from_stopping() -> None:
    async with served() as (_, client):
        stream = client.stream("GET", f"{PODS}?watch=true")
        answer = await stream.__aenter__()
        assert answer.status_code == 200
        # The server is told to stop while the stream is open.
        await stream.__aexit__(None, None, None)
