"""Namespaces, followed for their labels where that is allowed; where it is not, the service runs on without them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from msgspec import Struct

from extender.adapters.kube.kinds import WatchedKind
from extender.adapters.kube.reflector import Reflector
from extender.core.cluster import Namespace
from extender.kube.errors import Refused, Unavailable
from extender.kube.requests import Requests

_log = structlog.get_logger(__name__)

_PATH = "/api/v1/namespaces"
_ASK_AGAIN, _TRY_AGAIN = 60.0, 1.0


class NamespaceMetadata(Struct, rename="camel"):
    name: str
    resource_version: str = ""
    labels: dict[str, str] | None = None


class NamespaceJson(Struct):
    metadata: NamespaceMetadata


def _to_namespace(said: NamespaceJson) -> Namespace:
    return Namespace(said.metadata.name, said.metadata.labels or {})


def namespaces() -> WatchedKind[Namespace]:
    return WatchedKind("namespaces", _PATH, NamespaceJson, _to_namespace)


class Labels:
    """`known` is set once what labels say is with the reflector's sink, or it is clear that we may not know: before,
    what they protect could be touched."""

    def __init__(
        self,
        requests: Requests,
        reflector: Reflector[Namespace],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.known = asyncio.Event()
        self._requests = requests
        self._reflector = reflector
        self._sleep = sleep

    async def run(self) -> None:
        """Follows until it is cancelled; asks again, now and then, where it is not allowed to."""
        while not await self._allowed():
            await self._sleep(_ASK_AGAIN if self.known.is_set() else _TRY_AGAIN)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run())
            await self._reflector.synced.wait()
            self.known.set()

    async def _allowed(self) -> bool:
        try:
            await self._requests.request("GET", f"{_PATH}?limit=1")
        except Refused as error:
            if not self.known.is_set():
                _log.warning("namespaces cannot be listed: their labels switch nothing", why=str(error))
            self.known.set()
            return False
        except Unavailable as error:
            _log.info("cannot see whether namespaces may be listed", why=str(error))
            return False
        return True
