"""Kubelets: run bound pods for their annotated time, and end them by the rules of `pod_ends`.

They act like kwok for the real control plane (controlplane/kwok-stages.yaml): no containers, probes or leases. Nothing
happens to a pod bound to a missing node until the node exists or the garbage collector deletes the pod.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from kubesim.apiserver.machinery.store import Change
from kubesim.controllers import pod_ends
from kubesim.controllers.controller import Controller
from kubesim.controllers.pod_ends import Annotations
from kubesim.kinds import NODE, POD, Json

_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ("Ready", "True", "KubeletReady"),
)


@dataclass
class _Stop:
    """A pod whose containers are stopping; times of the event loop."""

    ends_at: float
    killed_at: float


class Kubelets(Controller):
    """All kubelets. `annotations`: those that determine how a pod is played."""

    kinds = (NODE, POD)

    _addresses = 0

    def __init__(self, *given: Any, annotations: Annotations) -> None:
        super().__init__(*given)
        self._annotations = annotations
        self._stops: dict[str, _Stop] = {}
        """By the UID of the pod."""

    def hear(self, change: Change) -> None:
        if change.kind is NODE:
            self._hear_node(change)
        elif change.type == "DELETED":
            self._forget(change.object["metadata"]["uid"])
        else:
            self._hear_pod(change.object, change.before)

    def _forget(self, uid: str) -> None:
        self.never(uid)
        self._stops.pop(uid, None)

    def _hear_node(self, change: Change) -> None:
        node = change.object
        if change.type == "DELETED":
            return
        if not _is_ready(node):
            self.start(self._make_ready(node))
        if change.type == "ADDED":
            for pod in self.known(POD):
                if pod["spec"].get("nodeName") == node["metadata"]["name"]:
                    self._hear_pod(pod, None)

    def _hear_pod(self, pod: Json, before: Json | None) -> None:
        if not self._is_ours(pod):
            return
        phase = pod["status"].get("phase")
        if pod_ends.is_leaving(pod):
            self._hear_leaving(pod, before)
        elif phase == "Pending":
            if before is None or not before["spec"].get("nodeName"):
                self.start(self._begin(pod))
        elif phase == "Running" and (before is None or before["status"].get("phase") != "Running"):
            seconds = self._annotations.run_seconds(pod)
            if seconds is not None:
                self.later(pod["metadata"]["uid"], seconds, lambda: self._end(pod, 0))

    def _is_ours(self, pod: Json) -> bool:
        node = pod["spec"].get("nodeName")
        return bool(node) and self._store.get(NODE, "", node) is not None

    # -- the end of a pod ----------------------------------------------------------------------------------------

    def _hear_leaving(self, pod: Json, before: Json | None) -> None:
        uid = pod["metadata"]["uid"]
        # Without grace, the pod is already removed, or only a finalizer holds it.
        has_grace = bool(pod["metadata"].get("deletionGracePeriodSeconds"))
        if pod_ends.is_mirror(pod):
            if has_grace and (before is None or not pod_ends.is_leaving(before)):
                self.start(self._renew(pod))
        elif pod_ends.is_finished(pod):
            if has_grace and uid not in self._stops:
                self.start(self.delete(POD, pod, grace=0))
        else:
            self._stop(pod)

    def _stop(self, pod: Json) -> None:
        """Stops the containers; while they stop, a shorter grace period moves the kill forward."""
        uid, now = pod["metadata"]["uid"], asyncio.get_running_loop().time()
        killed_at = now + pod_ends.grace_of(pod)
        stop = self._stops.setdefault(uid, _Stop(now + self._annotations.stop_seconds(pod), killed_at))
        stop.killed_at = min(stop.killed_at, killed_at)
        self.later(uid, max(0.0, min(stop.ends_at, stop.killed_at) - now), lambda: self._stopped(pod, stop))

    async def _stopped(self, pod: Json, stop: _Stop) -> None:
        self._stops.pop(pod["metadata"]["uid"], None)
        await self._end(
            pod,
            pod_ends.SIGKILL if stop.killed_at < stop.ends_at else self._annotations.stop_code(pod),
        )

    async def _end(self, pod: Json, code: int) -> None:
        """Ends the containers: writes the final phase, or removes a finished, deleted pod."""
        metadata = pod["metadata"]
        found = self._store.get(POD, metadata["namespace"], metadata["name"])
        if found is None or found["metadata"]["uid"] != metadata["uid"] or not self._is_ours(found):
            return
        if not pod_ends.is_finished(found):
            status = pod_ends.ended(found, code, self._clock.stamp())
            await self.patch(POD, found, {"status": status}, subresource="status")
        elif pod_ends.is_leaving(found):
            await self.delete(POD, found, grace=0)

    async def _renew(self, mirror: Json) -> None:
        """Creates the mirror pod again.

        One deleted by force is not created again, as if its file had been removed from the node."""
        await self.delete(POD, mirror, grace=0)
        if self._is_ours(mirror):
            await self.create(POD, pod_ends.made_anew(mirror))

    async def _make_ready(self, node: Json) -> None:
        now = self._clock.stamp()
        conditions = [
            {"type": kind, "status": status, "reason": reason, "lastHeartbeatTime": now, "lastTransitionTime": now}
            for kind, status, reason in _CONDITIONS
        ]
        await self.patch(NODE, node, {"status": {"phase": "Running", "conditions": conditions}}, subresource="status")

    # -- the start of a pod --------------------------------------------------------------------------------------

    async def _begin(self, pod: Json) -> None:
        now = self._clock.stamp()
        self._addresses += 1
        address = f"10.{64 + (self._addresses >> 16) % 64}.{(self._addresses >> 8) % 256}.{self._addresses % 256}"
        ready = [
            {"type": kind, "status": "True", "lastTransitionTime": now}
            for kind in ("Initialized", "Ready", "ContainersReady")
        ]
        status = {
            "phase": "Running",
            "startTime": now,
            "hostIP": "10.0.0.1",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": ready,
            "containerStatuses": [
                pod_ends.container(each, ready=True, state={"running": {"startedAt": now}})
                for each in pod["spec"]["containers"]
            ],
        }
        await self.patch(POD, pod, {"status": status}, subresource="status")


def _is_ready(node: Json) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
