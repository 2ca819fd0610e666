"""Writer: writes bindings, conditions, nominations, deletions and events to the API.

It sends the requests of kube-scheduler's client. Callers handle failures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from extender.kube.client.requests import STRATEGIC_MERGE_PATCH, Requests
from extender.kube.errors import Gone, Occupied, Refused, Unavailable
from kubesim.clock import Clock
from kubesim.kinds import EVENTS, POD, Json
from kubesim.scheduler.state.seen import SeenPod
from kubesim.scheduler.state.verdicts import shortened

SCHEDULED = "PodScheduled"
DISRUPTED = "DisruptionTarget"
_PAUSES = (0.01, 0.05, 0.25)
_SERIES_ENDS = 360.0

_encode = msgspec.json.Encoder().encode


class Writer:
    """`host`: the name of the scheduler's machine. Close the writer after use."""

    def __init__(self, requests: Requests, clock: Clock, host: str = "embedded") -> None:
        self._requests = requests
        self._clock = clock
        self._host = host
        self._series: dict[tuple[Any, ...], tuple[str, int, float]] = {}
        self._last_stamp = 0
        self._running: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        for task in list(self._running):
            task.cancel()

    async def bind(self, pod: SeenPod, node: str) -> None:
        """Writes the Binding. Raises Unavailable, Refused."""
        binding = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"kind": "Node", "name": node},
        }
        await self._requests.request("POST", POD.path(pod.namespace, pod.name, "binding"), _encode(binding))

    async def patch_status(self, pod: SeenPod, condition: Json | None, nominated: str | None) -> None:
        """Patches what changes in the pod's status (None: nothing). Raises Unavailable, Refused."""
        status = pod.raw.get("status") or {}
        patch: Json = {}
        if condition is not None:
            condition = self._stamped(pod, condition)
            if not _same(condition, _find(status, condition["type"])):
                patch["conditions"] = [condition]
        if nominated is not None and nominated != pod.nominated:
            patch["nominatedNodeName"] = nominated or None
        if patch:
            await self._patch(pod, {"status": patch})

    async def delete(self, pod: SeenPod) -> None:
        """Raises Unavailable, Refused."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1"}
        await self._requests.request("DELETE", POD.path(pod.namespace, pod.name), _encode(options))

    def record(self, pod: SeenPod, kind: str, reason: str, action: str, note: str, profile: str) -> None:
        """Starts to write an event about the pod; a repeated one only increases a count."""
        reporter = f"{profile}-{self._host}"
        about = (profile, kind, reason, action, pod.key, pod.uid, pod.version)
        now = self._clock.now()
        self._end_series(now)
        known = self._series.pop(about, None)
        if known is not None:
            name, times, _ = known
            self._series[about] = (name, times + 1, now)
            # As in kube-scheduler's recorder: the second is written at once, later ones are only counted for a while.
            if times == 1:
                self._start(self._write_series(pod.namespace, name, times + 1))
            return
        stamp = max(int(now * 1e9), self._last_stamp + 1)
        self._last_stamp = stamp
        name = f"{pod.name}.{stamp:x}"
        self._series[about] = (name, 1, now)
        event = {
            "kind": "Event",
            "apiVersion": EVENTS.api_version,
            "metadata": {"name": name, "namespace": pod.namespace},
            "eventTime": self._clock.micro_stamp(),
            "reportingController": profile,
            "reportingInstance": reporter,
            "action": action,
            "reason": reason,
            "regarding": {
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
                "apiVersion": "v1",
                "resourceVersion": pod.version,
            },
            "note": shortened(note),
            "type": kind,
        }
        self._start(self._write("POST", EVENTS.path(pod.namespace), event))

    # -- requests ------------------------------------------------------------------------------------------------

    async def _patch(self, pod: SeenPod, patch: Json) -> None:
        """Patches the status; retries while the API server is busy, as kube-scheduler does."""
        path = POD.path(pod.namespace, pod.name, "status")
        for pause in (*_PAUSES, None):
            try:
                await self._requests.request("PATCH", path, _encode(patch), content_type=STRATEGIC_MERGE_PATCH)
                return
            except (Unavailable, Occupied):
                if pause is None:
                    raise
                await asyncio.sleep(pause)

    async def _write_series(self, namespace: str, name: str, times: int) -> None:
        series = {"series": {"count": times, "lastObservedTime": self._clock.micro_stamp()}}
        await self._write("PATCH", EVENTS.path(namespace, name), series, content_type=STRATEGIC_MERGE_PATCH)

    async def _write(self, method: str, path: str, body: Json, **how: str) -> None:
        try:
            await self._requests.request(method, path, _encode(body), **how)  # type: ignore[arg-type]
        except (Unavailable, Refused):
            return

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def _end_series(self, now: float) -> None:
        while self._series:
            oldest = next(iter(self._series))
            if now - self._series[oldest][2] < _SERIES_ENDS:
                return
            del self._series[oldest]

    def _stamped(self, pod: SeenPod, condition: Json) -> Json:
        """The condition with its last transition time and observed generation."""
        before = _find(pod.raw.get("status") or {}, condition["type"])
        moved = before is None or before.get("status") != condition["status"]
        stamp = self._clock.stamp() if moved or before is None else before.get("lastTransitionTime")
        generation = pod.raw["metadata"].get("generation")
        observed = {"observedGeneration": generation} if generation else {}
        return {"lastProbeTime": None, "lastTransitionTime": stamp, **observed, **condition}


def gone(error: Exception) -> bool:
    """Whether the target of the write no longer exists."""
    return isinstance(error, Gone)


def _find(status: Json, kind: str) -> Json | None:
    return next((each for each in status.get("conditions") or () if each.get("type") == kind), None)


def _same(new: Json, old: Json | None) -> bool:
    return old is not None and all(
        new.get(key) == old.get(key) for key in ("status", "reason", "message", "lastTransitionTime")
    )
