"""Pod ends: how the containers of a pod end, and the resulting status.

It has no clock and no store. It follows kubelets since Kubernetes 1.27 (KEP 3329; getPhase, mergePodStatus and
canBeDeleted in pkg/kubelet):

- A pod that is deleted with grace gets a terminal phase once its containers have ended. The object is removed only when
  the API server shows that phase: each watch sees deletionTimestamp, then Failed or Succeeded, then the removal.
- Failed if one container ended with a code other than 0, as by SIGTERM (143) and SIGKILL (137), whatever the
  restart policy; Succeeded if none did. A pod that never began is Failed, and has no ended container.
- The grace is that of the deletion (deletionGracePeriodSeconds), at least one second. A later deletion can shorten it.
- Conditions of others, such as DisruptionTarget, stay. Ready and ContainersReady become false in the same write.
- A mirror pod gets no terminal phase: it is removed, and created again from the file of the static pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kubesim.apiserver.validation.pod_rules import MIRROR
from kubesim.kinds import Json

USUAL_STOP = 0.1
SIGTERM, SIGKILL = 143, 137
FINISHED = ("Succeeded", "Failed")

_NUMBER = re.compile(r"[0-9]+([.][0-9]+)?")
_CODE = re.compile(r"[0-9]{1,3}")
_WHY = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}


@dataclass(frozen=True, slots=True)
class Annotations:
    """The annotations that determine how a pod is played. `domain`: the part before their slash."""

    domain: str

    def run_seconds(self, pod: Json) -> float | None:
        """`run-seconds`: how long the pod runs before it succeeds; None: until it is deleted."""
        return self._seconds(pod, "run-seconds")

    def stop_seconds(self, pod: Json) -> float:
        """`stop-seconds`: how long the containers take to end after a stop signal."""
        wanted = self._seconds(pod, "stop-seconds")
        return USUAL_STOP if wanted is None else wanted

    def stop_code(self, pod: Json) -> int:
        """`stop-exit-code`: the exit code after a stop signal, if the grace period suffices."""
        text = self._said(pod, "stop-exit-code")
        return int(text) if _CODE.fullmatch(text) else SIGTERM

    def _seconds(self, pod: Json, name: str) -> float | None:
        text = self._said(pod, name)
        return float(text) if _NUMBER.fullmatch(text) else None

    def _said(self, pod: Json, name: str) -> str:
        return annotations_of(pod).get(f"{self.domain}/{name}", "")


def grace_of(pod: Json) -> float:
    """Seconds until the containers of a deleted pod are killed."""
    return max(1.0, float(pod["metadata"].get("deletionGracePeriodSeconds") or 0))


def is_leaving(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_finished(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in FINISHED


def is_mirror(pod: Json) -> bool:
    return MIRROR in annotations_of(pod)


def ended(pod: Json, code: int, now: str) -> Json:
    """The status fields of a pod whose containers ended with this code, or never began."""
    began = pod["status"].get("phase") == "Running"
    phase = "Succeeded" if began and code == 0 else "Failed"
    status: Json = {
        "phase": phase,
        "conditions": [
            {"type": kind, "status": "False", "reason": _WHY[phase], "lastTransitionTime": now}
            for kind in ("Ready", "ContainersReady")
        ],
    }
    if began:
        over = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "startedAt": pod["status"].get("startTime"),
            "finishedAt": now,
        }
        status["containerStatuses"] = [
            container(each, ready=False, state={"terminated": over}) for each in pod["spec"]["containers"]
        ]
    return status


def container(of: Json, *, ready: bool, state: Json) -> Json:
    """The status of one container of a pod's spec."""
    return {
        "name": of["name"],
        "image": of.get("image", ""),
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }


def made_anew(mirror: Json) -> Json:
    """The mirror pod as the kubelet creates it again: the same, but another object."""
    kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
    metadata = {key: mirror["metadata"][key] for key in kept if key in mirror["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": mirror["spec"]}


def annotations_of(pod: Json) -> Mapping[str, str]:
    return pod["metadata"].get("annotations") or {}
