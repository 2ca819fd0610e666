"""Measures how long a list of pods blocks the service's event loop: a lease must last longer.

    python -m loadtests.lists --pods 10000 50000 100000

For each number, a separate process lists that many pods over 5,000 nodes. It reads, parses and stores them as the
service does; then the watch expires, and it lists all again. Half of the pods are plain, half are members of gangs of
eight, and 90 % are bound. A task that wants a turn every 10 ms reports the longest pause. Pauses are CPU time of the
process, so other load on the machine does not count. Pages are read before the clock runs; a page has 500 pods.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, NamedTuple

from extender.bootstrap import Application
from extender.cli.common.terminal import quietly
from extender.kube.client.requests import JSON, TIMEOUT
from extender.kube.errors import Expired, Gone
from extender.settings.settings import load_settings
from loadtests.shared.pods import pod

_NODES = 5_000
_PAGE = 500
_GANG = 8


class Taken(NamedTuple):
    pods: int
    seconds: float
    """CPU seconds from the first list until the application is ready."""
    pause: float
    """The longest CPU seconds between two turns of another task meanwhile."""
    seconds_again: float
    pause_again: float
    """The same for the second list."""


def _pod(number: int) -> dict[str, Any]:
    in_gang = number % 16 < _GANG
    gang: dict[str, Any] = {"gang": f"g{number // 16}", "quorum": _GANG} if in_gang else {}
    made = pod(f"p{number}", cpu="100m", memory="64Mi", **gang)
    made["metadata"] |= {"namespace": f"team-{number % 50}", "uid": f"uid-{number}", "resourceVersion": "9"}
    if number % 160 < 144:
        made["spec"]["nodeName"] = f"n{number % _NODES}"
    return {**made, "status": {"phase": "Running" if "nodeName" in made["spec"] else "Pending"}}


def _node(number: int) -> dict[str, Any]:
    has = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    return {
        "metadata": {"name": f"n{number}", "uid": f"n{number}", "resourceVersion": "9"},
        "spec": {},
        "status": {"capacity": has, "allocatable": has},
    }


def _pages(make: Callable[[int], dict[str, Any]], count: int) -> list[bytes]:
    starts = range(0, max(count, 1), _PAGE)
    return [
        json.dumps(
            {
                "metadata": {"resourceVersion": "9", **({"continue": str(at)} if first + _PAGE < count else {})},
                "items": [make(number) for number in range(first, min(first + _PAGE, count))],
            }
        ).encode()
        for at, first in enumerate(starts, 1)
    ]


_KINDS = b'{"resources": [{"name": "ephemeralresources"}, {"name": "jobs"}, {"name": "daemonsets"}]}'


class Listed:
    """Implements the application's connection: fixed lists, and silent watches.

    The watch of pods expires once, when `expire` is set.
    """

    def __init__(self, pods: int) -> None:
        self.expire, self.watched_again = asyncio.Event(), asyncio.Event()
        self._pages = {"/api/v1/pods": _pages(_pod, pods), "/api/v1/nodes": _pages(_node, _NODES)}

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        within: float = TIMEOUT,
    ) -> bytes:
        del body, content_type, accept, within
        await asyncio.sleep(0)
        if method != "GET":
            return b"{}"
        where, _, query = path.partition("?")
        if "scheduling.x-k8s.io" in where or "escherpolicies" in where:
            raise Gone(404, "this kind is not there")
        if where == "/apis":
            return b'{"groups": [{"name": "escher.dev", "versions": [{"version": "v1alpha1"}]}]}'
        if where.startswith("/apis/") and where.count("/") == 3:
            return _KINDS
        pages = self._pages.get(where) or [b'{"metadata": {"resourceVersion": "9"}, "items": []}']
        following = query.partition("continue=")[2]
        return pages[int(following or 0)]

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        del silence
        if path.startswith("/api/v1/pods?"):
            if not self.expire.is_set():
                await self.expire.wait()
                raise Expired(410, "too old")
            self.watched_again.set()
        await asyncio.Event().wait()
        yield b""

    async def keep_warm(self, connections: int) -> None:
        del connections
        await asyncio.Event().wait()


async def take_in(pods: int) -> Taken:
    """The application has become ready with this many pods, and its memory is settled."""
    connection = Listed(pods)
    application = Application(connection, load_settings(None))
    turns = Turns()
    working = [asyncio.create_task(each) for each in (application.run(), turns.want())]
    began = time.process_time()
    await application.settle_memory()
    pause, seconds = await turns.longest(), time.process_time() - began
    began = time.process_time()
    connection.expire.set()
    await connection.watched_again.wait()
    pause_again, seconds_again = await turns.longest(), time.process_time() - began
    for each in working:
        each.cancel()
    await asyncio.gather(*working, return_exceptions=True)
    assert len(application.scheduler.cache.pods) == pods
    await application.close()
    return Taken(pods, seconds, pause, seconds_again, pause_again)


class Turns:
    """Measures pauses with a task that wants a turn every 10 ms."""

    def __init__(self) -> None:
        self._longest, self._before = 0.0, time.process_time()

    async def want(self) -> None:
        while True:
            self._note()
            await asyncio.sleep(0.01)

    def _note(self) -> None:
        now = time.process_time()
        self._longest, self._before = max(self._longest, now - self._before), now

    async def longest(self) -> float:
        """Returns the longest CPU seconds between two turns since the last call."""
        self._note()
        await asyncio.sleep(0)
        longest, self._longest = self._longest, 0.0
        return longest


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.lists", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--pods", type=int, nargs="+", default=[10_000, 50_000, 100_000])
    wanted = parser.parse_args(given)
    if min(wanted.pods) < 1:
        parser.error("--pods must be 1 or more")
    if len(wanted.pods) == 1:
        with quietly("warning"):
            taken = asyncio.run(take_in(*wanted.pods))
        sys.stdout.write(
            f"{taken.pods} pods: {taken.seconds:.1f} s of CPU until ready, {taken.pause:.2f} s the longest pause; "
            f"listed again: {taken.seconds_again:.1f} s, {taken.pause_again:.2f} s\n"
        )
        return 0
    for each in wanted.pods:
        subprocess.run([sys.executable, "-m", "loadtests.lists", "--pods", str(each)], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
