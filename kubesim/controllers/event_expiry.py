"""Event expiry: removes events an hour after their last write, like kube-apiserver's `--event-ttl`.

In Kubernetes a lease of etcd ends, without a request, so the removal is not audited.
"""

from __future__ import annotations

import asyncio
from collections import deque

from kubesim.apiserver.machinery.store import Change
from kubesim.controllers.controller import Controller
from kubesim.kinds import EVENT, EVENTS

EVENT_SECONDS = 3600.0
_HAIR = 1e-6


class EventExpiry(Controller):
    kinds = (EVENT, EVENTS)

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._ends: deque[tuple[float, str, str, str]] = deque()
        """End, namespace, name and version of each write of the last hour, oldest first."""

    def hear(self, change: Change) -> None:
        if change.type == "DELETED":
            return
        metadata = change.object["metadata"]
        end = asyncio.get_running_loop().time() + EVENT_SECONDS
        version = metadata["resourceVersion"]
        self._ends.append((end, metadata.get("namespace") or "", metadata["name"], version))
        if len(self._ends) == 1:
            self._set_timer()

    def _set_timer(self) -> None:
        self.later("next", self._ends[0][0] - asyncio.get_running_loop().time(), self._end)

    async def _end(self) -> None:
        # A timer may fire early by a rounding error, and on a virtual loop time does not pass meanwhile.
        now = asyncio.get_running_loop().time() + _HAIR
        while self._ends and self._ends[0][0] <= now:
            _, namespace, name, version = self._ends.popleft()
            found = self._store.get(EVENT, namespace, name)
            # An event written again since then has another hour.
            if found is not None and found["metadata"]["resourceVersion"] == version:
                self._store.remove(EVENT, namespace, name)
        if self._ends:
            self._set_timer()
