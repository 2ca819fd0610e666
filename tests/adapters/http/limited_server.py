"""A server as `escher serve` makes it, in a process of its own, with so many open files: `python -m ... LIMIT BINDS`.

Binds wait for each other, and so many open the barrier; it prints its port.
"""

from __future__ import annotations

import asyncio
import resource
import sys

import uvloop
from prometheus_client import CollectorRegistry

from extender.adapters.http.server.asgi import create_app
from extender.adapters.http.server.listening import http_server
from extender.app.contracts.ports import PodRef
from extender.kube.names import NodeName
from extender.settings.settings import Settings
from tests.adapters.http.fakes import NotedManagement, NotedVerbs, listening


class Barrier(NotedVerbs):
    """Binds wait until so many are there."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size, self._there, self._open = size, 0, asyncio.Event()

    async def bind(self, pod: PodRef, node: NodeName) -> str:
        self._there += 1
        if self._there == self._size:
            self._open.set()
        await self._open.wait()
        return ""


async def _serve(size: int) -> None:
    app = create_app(Barrier(size), NotedManagement().by_noun(), ready=lambda: True, registry=CollectorRegistry())
    server = http_server(app, Settings.model_validate({"port": 0}))
    listener = listening()
    print(listener.getsockname()[1], flush=True)  # noqa: T201
    await server.serve(sockets=[listener])


if __name__ == "__main__":
    limit, barrier = map(int, sys.argv[1:])
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(barrier))
