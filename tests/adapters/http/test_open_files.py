"""Every bind that waits holds an open file: gangs of a thousand and more, and a server that has too few."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from extender.adapters.open_files import OTHERS_NEED, binds_that_can_wait, open_at_once, raise_limit
from extender.core.gangs.state.state_machine import Phase
from tests.adapters.http.fakes import on_loopback, service
from tests.app.test_binding_cycle import Stage
from tests.builders import gang_ask, gang_pods, node

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@asynccontextmanager
async def server(limit: int, barrier: int) -> AsyncIterator[tuple[int, int]]:
    """Port and process of a server that may open so many files, while the block lasts. It lives to the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.adapters.http.limited_server",
        str(limit),
        str(barrier),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield int(await process.stdout.readline()), process.pid
        assert process.returncode is None, "it died"
    finally:
        process.kill()
        await process.wait()


def request(number: int, on: str) -> bytes:
    name = f"train-{number}"
    called = {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-{name}", "Node": on}
    body = json.dumps(called).encode()
    head = f"POST /scheduler/bind HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\nConnection: close\r\n\r\n" + body


async def bind(port: int, number: int, within: float = 60.0, on: str = "n1") -> str:
    """What a bind is answered, or what became of its connection."""
    try:
        async with asyncio.timeout(within):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(request(number, on))
                answer = await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        return type(error).__name__
    return answer.rpartition(b"\r\n\r\n")[2].decode() or "closed"


def processor_seconds(pid: int) -> float:
    """What the process has used up so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("size", [1200, pytest.param(2000, marks=pytest.mark.slow)])
async def test_binds_of_a_very_large_gang_wait_for_each_other_and_all_are_answered(size: int) -> None:
    ours = raise_limit()
    if ours < size + OTHERS_NEED:
        pytest.skip(f"this process may open {ours} files only")
    async with server(size + OTHERS_NEED, size) as (port, _):
        answers = Counter(await asyncio.gather(*(bind(port, number) for number in range(size))))
    assert answers == {'{"Error":""}': size}


@pytest.mark.slow
@pytest.mark.parametrize("size", [1000, 2000])
async def test_a_gang_of_so_many_is_bound_as_a_whole_through_a_real_server(size: int) -> None:
    if raise_limit() < 2 * size + OTHERS_NEED:
        pytest.skip("both ends of each connection are files of this process")
    stage = Stage()
    for number in range(-(-size // 100)):
        stage.do(stage.scheduler.observe(node(f"large{number}", {"cpu": 100_000})))
    members = [replace(each, gang=gang_ask("train", size, timeout=30.0)) for each in gang_pods("train", size)]
    stage.see(*members)
    where = [stage.filter(each) for each in members]
    async with on_loopback(service(verbs=stage.scheduling)) as port:
        calls = (bind(port, number, on=chosen) for number, chosen in enumerate(where))
        answers = Counter(await asyncio.gather(*calls))
    assert answers == {'{"Error":""}': size}
    assert stage.phase() is Phase.BOUND
    assert len(stage.api.bound) == size
    await stage.effects.close()


async def test_a_server_that_has_no_file_left_lives_on_and_serves_again_when_it_has() -> None:
    async with server(100, 1000) as (port, pid):
        # More than it can accept: these never meet, and give up.
        waiting = asyncio.gather(*(bind(port, number, within=1.5) for number in range(150)))
        await asyncio.sleep(0.7)
        before = processor_seconds(pid)
        answers = Counter(await waiting)
        assert '{"Error":""}' not in answers
        assert processor_seconds(pid) - before < 0.5, "it spins"
        health = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

        async def ask() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(health.encode())
                return await reader.read()
            except ConnectionError:  # the last of those that gave up still have files
                return b""
            finally:
                writer.close()

        answer = b""
        for _ in range(100):
            answer = await ask()
            if answer:
                break
            await asyncio.sleep(0.1)
        assert answer.startswith(b"HTTP/1.1 200")


def test_the_limit_is_raised_to_what_is_allowed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    assert raise_limit() == (sys.maxsize if hard == resource.RLIM_INFINITY else hard)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


@pytest.mark.parametrize(("limit", "binds"), [(20_000, 19_360), (2000, 1360), (1024, 512), (256, 128)])
def test_some_files_are_left_for_all_else(limit: int, binds: int) -> None:
    assert binds_that_can_wait(limit) == binds


@pytest.mark.parametrize(
    ("files", "most", "binds", "connections"),
    [(20_000, 10_000, 9936, 10_000), (2000, 10_000, 1360, 1424), (256, 10_000, 128, 192), (20_000, 100, 36, 100)],
)
def test_calls_find_a_connection_beside_all_binds_that_wait(
    files: int, most: int, binds: int, connections: int
) -> None:
    assert open_at_once(files, most) == (binds, connections)
