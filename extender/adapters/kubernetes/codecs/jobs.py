"""Jobs (batch/v1): reads how many pods a Job's spec asks for at a time, its promise.

A watch follows the Jobs. A Job exists before its pods, so Escher knows the promise when the pods appear, and no filter
call waits for a request. JobSets create their pods through Jobs. Other controllers promise nothing: Escher plans their
gangs when the members exist.
"""

from __future__ import annotations

from msgspec import Struct

from extender.adapters.kubernetes.reflectors.watched_kind import WatchedKind
from extender.core.gang_ask import derived_key
from extender.core.gangs.cycle.expected_members import Promise
from extender.kube.client.requests import address

GROUP, VERSION, PLURAL = "batch", "v1", "jobs"


class _Json(Struct, rename="camel", gc=False):
    pass


class JobMetadata(_Json):
    uid: str
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class JobSpec(_Json):
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None


class JobCondition(_Json):
    type: str = ""
    status: str = ""


class JobStatus(_Json):
    succeeded: int = 0
    conditions: list[JobCondition] | None = None


class JobJson(_Json):
    metadata: JobMetadata
    spec: JobSpec | None = None
    status: JobStatus | None = None


_OVER = frozenset({"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget", "Suspended"})


def to_promise(job: JobJson) -> Promise:
    """Converts the Job. One that is over, suspended or being deleted promises no pods."""
    spec, status = job.spec or JobSpec(), job.status or JobStatus()
    at_a_time = 1 if spec.parallelism is None else spec.parallelism
    left = at_a_time if spec.completions is None else spec.completions - status.succeeded
    over = any(each.type in _OVER and each.status == "True" for each in status.conditions or ())
    if spec.suspend or over or job.metadata.deletion_timestamp is not None:
        left = 0
    meta = job.metadata
    gang = derived_key(meta.namespace, "Job", meta.name, GROUP, meta.uid)
    parallel = at_a_time if spec.completions is None else min(at_a_time, spec.completions)
    return Promise(meta.uid, max(0, min(at_a_time, left)), meta.namespace, gang, max(0, parallel))


def jobs() -> WatchedKind[Promise]:
    return WatchedKind("jobs", address("apis", GROUP, VERSION, PLURAL), JobJson, to_promise)
