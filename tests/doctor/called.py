"""What is asked of an API server, as permissions: each request by group, resource and verb."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from extender.bootstrap import Cluster
from extender.kube.client.requests import JSON, TIMEOUT

Called = tuple[str, str, str]
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def permission_of(method: str, path: str, *, watched: bool = False) -> Called | None:
    """(group, resource, verb); None for what everybody may ask: versions, and which kinds there are."""
    match urlsplit(path).path.strip("/").split("/"):
        case ["api", _, *rest]:
            group = ""
        case ["apis", group, _, *rest]:
            pass
        case _:
            return None
    match rest:
        case ["namespaces", _, resource, *names]:
            pass
        case [resource, *names]:
            pass
        case _:
            return None
    verb = _VERBS.get(method) or ("watch" if watched else "get" if names else "list")
    return group, "/".join([resource, *names[1:]]), verb


class Noted:
    """Implements `Requests` by another, or by answers that suit every kind; keeps what was asked for."""

    def __init__(self, inner: Cluster | None = None) -> None:
        self.called: set[Called] = set()
        self._inner = inner

    def _note(self, method: str, path: str, *, watched: bool = False) -> None:
        if (asked := permission_of(method, path, watched=watched)) is not None:
            self.called.add(asked)

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
        self._note(method, path)
        if self._inner is None:
            return (
                b'{"metadata": {"name": "a", "namespace": "team", "uid": "u"}, "spec": {}, "status": {}, "items": []}'
            )
        return await self._inner.request(method, path, body, content_type=content_type, accept=accept, within=within)

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        self._note("GET", path, watched=True)
        if self._inner is not None:
            async for line in self._inner.lines(path, silence=silence):
                yield line

    async def keep_warm(self, connections: int, sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep) -> None:
        if self._inner is not None:
            await self._inner.keep_warm(connections)
