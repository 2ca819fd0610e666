"""Virtual: the embedded cluster without sockets in the running event loop (real or virtual time).

    async with VirtualCluster() as cluster:
        await cluster.add_nodes(3)
        await cluster.ask("POST", "/api/v1/namespaces/default/pods", pod)
        await asyncio.sleep(86_400)

It offers the same as `local`, for tests that run in an event loop. It does not use the machine's clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import msgspec

from extender.kube.client.requests import JSON
from kubesim.apiserver.serving.api import ADMIN
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.clock import Clock
from kubesim.kinds import NODE
from kubesim.nodes import plain
from kubesim.options import Options


class VirtualCluster:
    """An embedded cluster for `async with`. `requests`: an `extender.kube.client.requests.Requests`."""

    def __init__(self, options: Options | None = None) -> None:
        self._options = options or Options()

    async def __aenter__(self) -> Self:
        self.clock = Clock()
        self.cluster = self._options.cluster(self.clock)
        self.requests = InProcess(self.cluster.api, user=ADMIN)
        self._running = asyncio.create_task(self.cluster.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._running.cancel()
        [outcome] = await asyncio.gather(self._running, return_exceptions=True)
        if isinstance(outcome, Exception):
            raise outcome

    async def ask(self, method: str, path: str, body: Any = None, *, content_type: str = JSON) -> Any:
        """The answer to one request as admin. Raises the errors of `extender.kube.errors`."""
        sent = None if body is None else msgspec.json.encode(body)
        return msgspec.json.decode(await self.requests.request(method, path, sent, content_type=content_type))

    async def add_nodes(
        self,
        count: int,
        offered: Mapping[str, str] | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        start: int = 0,
    ) -> list[str]:
        """Creates the nodes `node-0`, `node-1` ... and returns their names."""
        made = [await self.ask("POST", NODE.path(), each) for each in plain(count, offered, labels=labels, start=start)]
        return [each["metadata"]["name"] for each in made]
