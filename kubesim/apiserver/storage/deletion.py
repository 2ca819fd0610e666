"""Deletion: removes an object at once, or marks it until its finalizers or grace period are over.

It handles grace periods, finalizers, preconditions and propagation. The garbage collector deletes dependents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kubesim import kinds
from kubesim.apiserver.machinery.failures import bad_request, conflict, forbidden, invalid, unsupported
from kubesim.apiserver.machinery.wire import Request
from kubesim.apiserver.validation.pods import FINISHED
from kubesim.clock import Clock
from kubesim.kinds import Json, Kind

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_DELETE_OPTIONS = Kind("meta.k8s.io", "v1", "DeleteOptions", "")
_IMMORTAL = ("default", "kube-public", "kube-system")
_POLICIES = ("Background", "Foreground", "Orphan")


@dataclass(frozen=True)
class Options:
    """DeleteOptions, from the body and the query."""

    grace: int | None = None
    uid: str | None = None
    version: str | None = None
    policy: str | None = None
    dry_run: bool = False


def options(request: Request, body: Any) -> Options:
    """The options of the request; a body replaces the query. Raises Failure (400, 422)."""
    given: Mapping[str, Any] = body if isinstance(body, dict) else {}
    preconditions = given.get("preconditions") or {}
    grace: Any = given.get("gracePeriodSeconds")
    if not given and "gracePeriodSeconds" in request.query:
        text = request.query["gracePeriodSeconds"]
        try:
            grace = int(text)
        except ValueError:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
    policy = given.get("propagationPolicy") or (None if given else request.query.get("propagationPolicy"))
    if given.get("orphanDependents") is not None and policy is None:
        policy = "Orphan" if given["orphanDependents"] else "Background"
    if policy is not None and policy not in _POLICIES:
        problem = unsupported("propagationPolicy", policy, ("Foreground", "Background", "Orphan", "nil"))
        raise invalid(_DELETE_OPTIONS, "", [problem])
    dry = "All" in (given.get("dryRun") or ()) if given else request.dry_run
    return Options(grace, preconditions.get("uid"), preconditions.get("resourceVersion"), policy, dry)


def check(kind: Kind, obj: Json, wanted: Options) -> None:
    """Checks that the object may be deleted and preconditions hold. Raises Failure (403, 409)."""
    metadata = obj["metadata"]
    if kind is kinds.NAMESPACE and metadata["name"] in _IMMORTAL:
        raise forbidden(kind, metadata["name"], "this namespace may not be deleted")
    if wanted.uid is not None and wanted.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(kind, metadata["name"], why, kind.name)
    if wanted.version is not None and wanted.version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({wanted.version}) does not match the ResourceVersion in record "
            f"({metadata['resourceVersion']}). The object might have been modified"
        )
        raise conflict(kind, metadata["name"], why, kind.name)


def marked(kind: Kind, obj: Json, wanted: Options, clock: Clock) -> tuple[Json, bool]:
    """The object after the deletion request, and whether it stays marked for now."""
    metadata = dict(obj["metadata"])
    # The default for a Job keeps the pods that it created.
    policy = wanted.policy or ("Orphan" if kind is kinds.JOB else None)
    finalizers = _finalizers(metadata.get("finalizers") or [], policy)
    held = bool(finalizers) or kind is kinds.NAMESPACE
    period = _mark(kind, obj, wanted, metadata, held, clock)
    metadata.pop("finalizers", None)
    if finalizers:
        metadata["finalizers"] = finalizers
    done = {**obj, "metadata": metadata}
    if kind is kinds.NAMESPACE:
        done["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return done, held or period > 0


def _mark(kind: Kind, obj: Json, wanted: Options, metadata: Json, held: bool, clock: Clock) -> int:
    """Sets the deletion time in the metadata; returns the grace period in seconds."""
    grace = _grace(kind, obj, wanted)
    if metadata.get("deletionTimestamp") is None:
        if grace is None and not held:
            return 0
        metadata["deletionTimestamp"] = _stamp(clock.now() + (grace or 0))
        if kind is not kinds.NAMESPACE:
            metadata["deletionGracePeriodSeconds"] = grace or 0
        if metadata.get("generation"):
            metadata["generation"] += 1
        return grace or 0
    left: int = metadata.get("deletionGracePeriodSeconds") or 0
    asked = grace if wanted.grace is not None or grace == 0 else None
    if not left or asked is None or asked >= left:
        return left
    now = int(clock.now())
    due = _seconds(metadata["deletionTimestamp"]) - left + asked
    if due < now:
        due, asked = now, min(asked, 1)
    metadata["deletionTimestamp"] = _stamp(due)
    metadata["deletionGracePeriodSeconds"] = asked
    return asked


def let_go(kind: Kind, obj: Json, old: Json) -> bool:
    """Whether this update removes the last finalizer that kept a deleted object."""
    metadata, before = obj["metadata"], old["metadata"]
    if metadata.get("finalizers") or not before.get("deletionTimestamp"):
        return False
    if kind is kinds.NAMESPACE and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not before.get("deletionGracePeriodSeconds")


def _grace(kind: Kind, obj: Json, wanted: Options) -> int | None:
    """The grace period of a pod, in seconds; None for kinds without one."""
    if kind is not kinds.POD:
        return None
    spec = obj.get("spec") or {}
    if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in FINISHED:
        return 0
    grace = wanted.grace if wanted.grace is not None else spec.get("terminationGracePeriodSeconds")
    return 1 if grace is not None and grace < 0 else grace or 0


def _finalizers(present: list[str], policy: str | None) -> list[str]:
    kept = [each for each in present if policy is None or each not in (FOREGROUND, ORPHAN)]
    if policy == "Foreground":
        kept.append(FOREGROUND)
    elif policy == "Orphan":
        kept.append(ORPHAN)
    return kept


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(stamp: str) -> int:
    return int(datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp())
