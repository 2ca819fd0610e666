"""Shared writes: limits the concurrent writes to the API server, per namespace and in total.

    write --room for its namespace?--> sent
          --none--> waits; where a write is answered, the namespaces that wait take turns

The limit per namespace lets others write at once while one namespace's writes are slow, for example by a webhook.
Bindings of a namespace have a limit of their own: they do not wait behind its wakes and events. Reads have no limit.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from functools import partial

from extender.app.fair_semaphore import FairSemaphore
from extender.kube.client.fenced import READS, Warm
from extender.kube.client.requests import JSON, TIMEOUT

_AT_ONCE, _EACH = 384, 128
"""Fewer than the connections: reads and watches use the others."""
_OF_NAMESPACE = re.compile(r"/namespaces/([^/?]+)/")
_BINDING = re.compile(r"/binding(?:\?|$)")


class SharedWrites:
    """`bootstrap.Cluster` over another one."""

    def __init__(self, inner: Warm, at_once: int = _AT_ONCE, each: int = _EACH) -> None:
        self._inner = inner
        self._room = FairSemaphore(at_once, each)

    async def keep_warm(self, connections: int) -> None:
        await self._inner.keep_warm(connections)

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
        """As of the inner one, once there is room. `within`: seconds from the sending."""
        ask = partial(self._inner.request, method, path, body, content_type=content_type, accept=accept, within=within)
        if method in READS:
            return await ask()
        async with self._room.held(_part(path)):
            return await ask()

    def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        return self._inner.lines(path, silence=silence)


def _part(path: str) -> str:
    """The key of the limit: a namespace, its Bindings, or an API group for cluster-wide objects."""
    found = _OF_NAMESPACE.search(path)
    if found is None:
        return "/".join(path.split("/", 3)[:3])
    return f"bindings in {found[1]}" if _BINDING.search(path) else found[1]
