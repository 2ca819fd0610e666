"""Kubelets, played: bound pods run, succeed after as long as their annotation says, and end when they are deleted.

As kwok does for the real control plane (controlplane/kwok-stages.yaml): no containers, no probes, no leases. A pod that
is bound to a node that does not exist is nobody's.
"""

from __future__ import annotations

import re

from extender.core.names import DOMAIN
from extender.sim.controllers.controller import Controller
from extender.sim.kinds import NODE, POD, Json
from extender.sim.store import Change

RUN_SECONDS = f"{DOMAIN}/run-seconds"
"""Annotation: the pod succeeds so many seconds after it has begun to run. Without it runs until it is deleted."""

_NUMBER = re.compile(r"[0-9]+([.][0-9]+)?")
_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ("Ready", "True", "KubeletReady"),
)


class Kubelets(Controller):
    kinds = (NODE, POD)

    _addresses = 0

    def hear(self, change: Change) -> None:
        if change.kind is NODE:
            self._hear_node(change)
        elif change.type == "DELETED":
            self.never(change.object["metadata"]["uid"])
        else:
            self._hear_pod(change.object, change.before)

    def _hear_node(self, change: Change) -> None:
        node = change.object
        if change.type == "DELETED":
            return
        if not _is_ready(node):
            self.start(self._make_ready(node))
        if change.type == "ADDED":
            for pod in self._store.list(POD):
                if pod["spec"].get("nodeName") == node["metadata"]["name"]:
                    self._hear_pod(pod, None)

    def _hear_pod(self, pod: Json, before: Json | None) -> None:
        node = pod["spec"].get("nodeName")
        if not node or self._store.get(NODE, "", node) is None:
            return
        phase = pod["status"].get("phase")
        if pod["metadata"].get("deletionTimestamp"):
            if before is None or not before["metadata"].get("deletionTimestamp"):
                self.start(self.delete(POD, pod, grace=0))
        elif phase == "Pending":
            if before is None or not before["spec"].get("nodeName"):
                self.start(self._begin(pod))
        elif phase == "Running" and (before is None or before["status"].get("phase") != "Running"):
            seconds = (pod["metadata"].get("annotations") or {}).get(RUN_SECONDS, "")
            if _NUMBER.fullmatch(seconds):
                self.later(pod["metadata"]["uid"], float(seconds), lambda: self._succeed(pod))

    async def _make_ready(self, node: Json) -> None:
        now = self._clock.stamp()
        conditions = [
            {"type": kind, "status": status, "reason": reason, "lastHeartbeatTime": now, "lastTransitionTime": now}
            for kind, status, reason in _CONDITIONS
        ]
        await self.patch(NODE, node, {"status": {"phase": "Running", "conditions": conditions}}, subresource="status")

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
                _container(each, ready=True, state={"running": {"startedAt": now}})
                for each in pod["spec"]["containers"]
            ],
        }
        await self.patch(POD, pod, {"status": status}, subresource="status")

    async def _succeed(self, pod: Json) -> None:
        now = self._clock.stamp()
        over = {"exitCode": 0, "reason": "Completed", "startedAt": pod["status"].get("startTime"), "finishedAt": now}
        status = {
            "phase": "Succeeded",
            "conditions": [
                {"type": kind, "status": "False", "reason": "PodCompleted", "lastTransitionTime": now}
                for kind in ("Ready", "ContainersReady")
            ],
            "containerStatuses": [
                _container(each, ready=False, state={"terminated": over}) for each in pod["spec"]["containers"]
            ],
        }
        await self.patch(POD, pod, {"status": status}, subresource="status")


def _container(container: Json, *, ready: bool, state: Json) -> Json:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }


def _is_ready(node: Json) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
