"""Shared writes: the connection to the API server, with as many writes under way as it answers well.

    write --room for its namespace?--> sent
          --none--> waits; where a write is answered, the namespaces that wait take turns

One namespace has a part of the room at most, so that others are served at once though its own writes take long, as
where a webhook is slow for it. Bindings of a namespace have a part of their own: they wait behind none of its wakes and
events. Reads pass.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from functools import partial

from extender.app.fair_semaphore import FairSemaphore
from extender.kube.fenced import READS, Warm
from extender.kube.requests import JSON, TIMEOUT

_AT_ONCE, _EACH = 384, 128
"""Fewer than there are connections: reads and watches have the others."""
_OF_NAMESPACE = re.compile(r"/namespaces/([^/?]+)/")
_BINDING = re.compile(r"/binding(?:\?|$)")


class SharedWrites:
    """Implements `bootstrap.Cluster` over another."""

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
        """As of the other, once there is room for it. `within`: from when it is sent."""
        ask = partial(self._inner.request, method, path, body, content_type=content_type, accept=accept, within=within)
        if method in READS:
            return await ask()
        async with self._room.held(_part(path)):
            return await ask()

    def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        return self._inner.lines(path, silence=silence)


def _part(path: str) -> str:
    """Whose part of the room it is: a namespace's, its Bindings', or that of what an API group has in no namespace."""
    found = _OF_NAMESPACE.search(path)
    if found is None:
        return "/".join(path.split("/", 3)[:3])
    return f"bindings in {found[1]}" if _BINDING.search(path) else found[1]
