"""The base of the embedded controllers: handles changes, and runs work in tasks.

A controller writes by ordinary requests. A refusal, as of an object that is gone or has changed, is no failure: a
change about it is on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import structlog

from extender.kube.client.requests import JSON, METADATA_ONLY, STRATEGIC_MERGE_PATCH, Requests
from extender.kube.errors import Refused
from kubesim.apiserver.machinery.store import Change, Store
from kubesim.clock import Clock
from kubesim.controllers.following import Following
from kubesim.kinds import NAMESPACE, Json, Kind

_log = structlog.get_logger(__name__)


class Controller:
    """A controller; `run` until cancelled. `kinds`: what it follows, as in `Following`."""

    kinds: tuple[Kind, ...] | None = ()

    def __init__(self, requests: Requests, store: Store, clock: Clock) -> None:
        self._requests = requests
        self._store = store
        self._clock = clock
        self._work: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def run(self) -> None:
        following = Following(self._store, self.kinds, self.hear)
        following.start()
        try:
            await asyncio.Event().wait()
        finally:
            following.stop()
            for timer in self._timers.values():
                timer.cancel()
            for task in list(self._work):
                task.cancel()

    def hear(self, change: Change) -> None:
        """Handles one change: decides, and starts the work."""
        raise NotImplementedError

    def known(self, kind: Kind, namespace: str | None = None) -> list[Json]:
        """The stored readable objects with spec and status; `namespace` None: of all namespaces."""
        return [each for each in self._store.list(kind, namespace) if _is_readable(each)]

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The work was about one object; the controller continues with others.
            _log.error("a controller has failed on an object", controller=type(self).__name__, exc_info=error)

    def later(self, name: str, seconds: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Starts the work after this delay, unless `never` or `later` replaces that name."""
        self.never(name)

        def begin() -> None:
            self._timers.pop(name, None)
            self.start(work())

        self._timers[name] = asyncio.get_running_loop().call_later(seconds, begin)

    def never(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    # -- writes --------------------------------------------------------------------------------------------------

    async def create(self, kind: Kind, body: Json) -> None:
        await self._write("POST", kind.path(body["metadata"].get("namespace", "")), body)

    async def patch(
        self,
        kind: Kind,
        found: Json,
        body: Json,
        *,
        subresource: str = "",
        content_type: str = STRATEGIC_MERGE_PATCH,
    ) -> None:
        """Patches the object, if it still has the same UID."""
        metadata = found["metadata"]
        path = kind.path(metadata.get("namespace", ""), metadata["name"], subresource)
        patch = {**body, "metadata": {**body.get("metadata", {}), "uid": metadata["uid"]}}
        await self._write("PATCH", path, patch, content_type=content_type)

    async def delete(self, kind: Kind, found: Json, *, grace: int | None = None, propagation: str = "") -> None:
        metadata = found["metadata"]
        options: Json = {"preconditions": {"uid": metadata["uid"]}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if propagation:
            options["propagationPolicy"] = propagation
        await self._write("DELETE", kind.path(metadata.get("namespace", ""), metadata["name"]), options)

    async def finalize(self, namespace: Json) -> None:
        """Removes the last finalizer of an empty namespace."""
        body = {**namespace, "spec": {}}
        await self._write("PUT", NAMESPACE.path("", namespace["metadata"]["name"], "finalize"), body)

    async def _write(self, method: str, path: str, body: Json, *, content_type: str = JSON) -> None:
        try:
            await self._requests.request(
                method, path, msgspec.json.encode(body), content_type=content_type, accept=METADATA_ONLY
            )
        except Refused:
            return


def _is_readable(obj: Json) -> bool:
    """Whether it has a spec and a status of the right shape; a restored store may hold anything."""
    spec, status, labels = obj.get("spec"), obj.get("status"), obj["metadata"].get("labels", {})
    if not isinstance(spec, dict) or not isinstance(status, dict) or not isinstance(labels, dict):
        return False
    conditions = status.get("conditions") or ()
    return isinstance(conditions, list | tuple) and all(isinstance(each, dict) for each in conditions)
