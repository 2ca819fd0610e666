"""The Job controller: creates as many pods as a Job wants, and writes its status.

It handles completions, parallelism, suspension, both completion modes, `backoffLimit`, the tracking finalizer, and
deletion some time after the end. It ignores a Job that names another manager. It lacks pod failure and success
policies, limits by index, and deadlines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubesim.apiserver.machinery.store import Change
from kubesim.controllers.controller import Controller
from kubesim.kinds import JOB, POD, Json

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
OURSELVES = "kubernetes.io/job-controller"
"""The manager of a Job without `managedBy`."""
_SOON = 0.002
"""Seconds of delay, so that changes that come together cause one sync."""
_PATIENCE = 1.0
"""Seconds until a deleted pod counts as failed; Kubernetes, too, gathers pod changes this long."""


class Jobs(Controller):
    kinds = (JOB, POD)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._pods: dict[str, dict[str, Json]] = {}
        """By the Job's UID, then by their own: the pods that it controls."""
        self._counted: dict[str, dict[str, str]] = {}
        """By the Job's UID: the pods that have finished, and their phase."""
        self._expected: dict[str, int] = {}
        """By the Job's UID: how many pods were created but not seen yet."""
        self._syncing: set[str] = set()

    def hear(self, change: Change) -> None:
        if change.kind is JOB:
            uid = change.object["metadata"]["uid"]
            if change.type == "DELETED":
                for known in (self._pods, self._counted, self._expected):
                    known.pop(uid, None)
                self.never(uid)
            else:
                self._sync_soon(change.object)
            return
        pod = change.object
        owner = _controller(pod)
        if owner is None:
            return
        pods = self._pods.setdefault(owner["uid"], {})
        if change.type == "DELETED":
            pods.pop(pod["metadata"]["uid"], None)
        else:
            if pod["metadata"]["uid"] not in pods and self._expected.get(owner["uid"]):
                self._expected[owner["uid"]] -= 1
            pods[pod["metadata"]["uid"]] = pod
        if change.type != "DELETED" and _is_tracked(pod):
            uid = pod["metadata"]["uid"]
            if _is_over(pod):
                self._count(owner["uid"], pod, pod["status"]["phase"])
            elif _is_leaving(pod) and (change.before is None or not _is_leaving(change.before)):
                self.later(f"lost {uid}", _PATIENCE, lambda: self._give_up(owner, pod))
        job = self._store.get(JOB, pod["metadata"]["namespace"], owner["name"])
        if job is not None and job["metadata"]["uid"] == owner["uid"]:
            self._sync_soon(job)

    def _count(self, job: str, pod: Json, phase: str) -> None:
        """Counts the pod with this final phase, whatever follows, and removes its finalizer."""
        self.never(f"lost {pod['metadata']['uid']}")
        self._counted.setdefault(job, {}).setdefault(pod["metadata"]["uid"], phase)
        self.start(self._let_go(pod))

    async def _give_up(self, owner: Json, pod: Json) -> None:
        """A deleted pod that still runs counts as failed, however it ends."""
        self._count(owner["uid"], pod, "Failed")
        job = self._store.get(JOB, pod["metadata"]["namespace"], owner["name"])
        if job is not None and job["metadata"]["uid"] == owner["uid"]:
            self._sync_soon(job)

    def _sync_soon(self, job: Json) -> None:
        uid, namespace, name = (job["metadata"][key] for key in ("uid", "namespace", "name"))
        if uid not in self._syncing:
            self._syncing.add(uid)
            self.later(f"sync {uid}", _SOON, lambda: self._sync(uid, namespace, name))

    async def _sync(self, uid: str, namespace: str, name: str) -> None:
        self._syncing.discard(uid)
        job = self._store.get(JOB, namespace, name)
        if job is None or job["metadata"]["uid"] != uid or job["metadata"].get("deletionTimestamp"):
            return
        status = job.get("status") or {}
        if _condition(status, "Complete") or _condition(status, "Failed"):
            self._end_later(job)
            return
        spec = job["spec"]
        if spec.get("managedBy", OURSELVES) != OURSELVES:
            return
        counted = self._counted.setdefault(uid, {})
        succeeded = sum(phase == "Succeeded" for phase in counted.values())
        failed = len(counted) - succeeded
        living = [
            pod
            for each, pod in self._pods.get(uid, {}).items()
            if not _is_over(pod) and each not in counted and (_is_tracked(pod) or not _is_leaving(pod))
        ]
        completions = spec.get("completions")
        wanted = _wanted(spec, succeeded, len(living))
        over = ""
        if failed > spec.get("backoffLimit", 6):
            over, wanted = "Failed", 0
        elif (succeeded >= completions) if completions is not None else (succeeded > 0 and not living):
            over, wanted = "Complete", 0
        for pod in living[wanted:]:
            if not _is_leaving(pod):
                self.start(self._dismiss(pod))
        missing = wanted - len(living) - self._expected.get(uid, 0)
        if missing > 0:
            self._expected[uid] = self._expected.get(uid, 0) + missing
            for index in self._indexes(job, living, missing):
                self.start(self.create(POD, _pod_of(job, index)))
        await self._tell(job, len(living[:wanted]), succeeded, failed, over)

    def _indexes(self, job: Json, living: Sequence[Json], missing: int) -> list[int | None]:
        if job["spec"].get("completionMode") != "Indexed":
            return [None] * missing
        uid = job["metadata"]["uid"]
        done = {
            pod["metadata"]["annotations"].get(INDEX)
            for pod in self._pods.get(uid, {}).values()
            if pod["status"].get("phase") == "Succeeded"
        }
        taken = {pod["metadata"]["annotations"].get(INDEX) for pod in living} | done
        free = [index for index in range(job["spec"].get("completions") or 0) if str(index) not in taken]
        return list(free[:missing])

    async def _tell(self, job: Json, active: int, succeeded: int, failed: int, over: str) -> None:
        before = job.get("status") or {}
        now = self._clock.stamp()
        ready = sum(_is_ready(pod) for pod in self._pods.get(job["metadata"]["uid"], {}).values())
        suspended = bool(job["spec"].get("suspend"))
        counts = {"active": active, "succeeded": succeeded, "failed": failed}
        status: Json = {**{what: number or None for what, number in counts.items()}, "ready": ready}
        status["startTime"] = None if suspended else before.get("startTime") or now
        conditions = []
        if over:
            reasons = ("SuccessCriteriaMet", "Complete") if over == "Complete" else ("FailureTarget", "Failed")
            why = "CompletionsReached" if over == "Complete" else "BackoffLimitExceeded"
            conditions = [
                {"type": kind, "status": "True", "reason": why, "lastProbeTime": now, "lastTransitionTime": now}
                for kind in reasons
            ]
            status |= {"ready": 0, "active": None}
            if over == "Complete":
                status["completionTime"] = now
        elif suspended != bool(_condition(before, "Suspended")):
            said = "True" if suspended else "False"
            why = "JobSuspended" if suspended else "JobResumed"
            conditions = [
                {"type": "Suspended", "status": said, "reason": why, "lastProbeTime": now, "lastTransitionTime": now}
            ]
        if conditions:
            status["conditions"] = conditions
        changed = {key: value for key, value in status.items() if before.get(key) != value}
        if changed:
            await self.patch(JOB, job, {"status": changed}, subresource="status")

    def _end_later(self, job: Json) -> None:
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is not None:
            self.later(job["metadata"]["uid"], ttl, lambda: self.delete(JOB, job, propagation="Background"))

    async def _dismiss(self, pod: Json) -> None:
        """Deletes an excess pod; it does not count for its Job."""
        await self._let_go(pod)
        await self.delete(POD, pod)

    async def _let_go(self, pod: Json) -> None:
        left = {"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING]}}
        await self.patch(POD, pod, left)


def _wanted(spec: Json, succeeded: int, living: int) -> int:
    """How many unfinished pods should exist."""
    if spec.get("suspend"):
        return 0
    parallelism: int = spec.get("parallelism", 1)
    completions: int | None = spec.get("completions")
    if completions is not None:
        return min(parallelism, max(0, completions - succeeded))
    # In a work queue, no pods are created after the first success.
    return living if succeeded else parallelism


def _pod_of(job: Json, index: int | None) -> Json:
    metadata, template = job["metadata"], job["spec"]["template"]
    given = template.get("metadata") or {}
    labels = {
        "batch.kubernetes.io/controller-uid": metadata["uid"],
        "batch.kubernetes.io/job-name": metadata["name"],
        "controller-uid": metadata["uid"],
        "job-name": metadata["name"],
    }
    annotations = dict(given.get("annotations") or {})
    spec = dict(template["spec"])
    name = f"{metadata['name']}-"
    if index is not None:
        labels[INDEX] = annotations[INDEX] = str(index)
        name = f"{metadata['name']}-{index}-"
        spec["hostname"] = f"{metadata['name']}-{index}"
        field = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
        known = {"name": "JOB_COMPLETION_INDEX", "valueFrom": field}
        spec["containers"] = [{**each, "env": [*(each.get("env") or ()), known]} for each in spec["containers"]]
    owner = {
        "apiVersion": JOB.api_version,
        "kind": JOB.name,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": name,
            "namespace": metadata["namespace"],
            "labels": {**(given.get("labels") or {}), **labels},
            "annotations": annotations,
            "finalizers": [TRACKING],
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _controller(pod: Json) -> Json | None:
    for reference in pod["metadata"].get("ownerReferences") or ():
        if reference.get("controller") and reference["kind"] == JOB.name:
            found: Json = reference
            return found
    return None


def _is_over(pod: Json) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _is_tracked(pod: Json) -> bool:
    """Whether the pod is not counted yet."""
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def _is_leaving(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_ready(pod: Json) -> bool:
    return not _is_leaving(pod) and any(
        each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions") or ()
    )


def _condition(status: Json, kind: str) -> bool:
    return any(each["type"] == kind and each["status"] == "True" for each in status.get("conditions") or ())
