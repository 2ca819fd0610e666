"""Facts: what the JSON of a pod says, as far as harm is judged by it.

Reads labels, annotations and status as a user of the documentation would. Knows one object at a time; must not know
what happened before.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

Json = dict[str, Any]

GANG, MIN_MEMBER, ATTEMPT = "escher.dev/gang", "escher.dev/gang-min-member", "escher.dev/attempt"
POD_GROUP = "scheduling.x-k8s.io/pod-group"
MIRROR = "kubernetes.io/config.mirror"

SYSTEM_CRITICAL = 2_000_000_000
"""Priorities from here on are those of pods that a cluster cannot do without."""


class Attempt(NamedTuple):
    """What a Binding says of the attempt that it was written in: `needed` of `size` members had to be bound at least.

    `named`: UIDs of members of the attempt, the pod's own first. `joins`: its gang ran already.
    """

    id: str
    needed: int
    size: int
    named: tuple[str, ...]
    joins: bool = False


class Owner(NamedTuple):
    kind: str
    name: str
    uid: str


class Gang(NamedTuple):
    """A pod's gang: its key as the service spells it, and the quorum that the pod asks for; None: its PodGroup's."""

    key: str
    quorum: int | None


class Facts(NamedTuple):
    """A pod as an event of a watch shows it."""

    uid: str
    key: str
    namespace: str
    scheduler: str
    priority: int
    preempts: bool
    owner: Owner | None
    mirror: bool
    labels: tuple[tuple[str, str], ...]
    gang: Gang | None
    node: str
    phase: str
    ready: bool
    deleting: bool
    preempted_by: str
    """The scheduler that says it preempts the pod, by the name in its profile; empty if none does."""
    attempt_text: str
    attempt: Attempt | None

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def healthy(self) -> bool:
        return self.phase == "Running" and self.ready

    @property
    def identity(self) -> str:
        """What stays the same when the pod is made anew: its controller, its gang, its labels, or how it is called."""
        if self.owner is not None:
            return f"{self.owner.kind} {self.owner.uid}"
        if self.gang is not None:
            return f"gang {self.gang.key}"
        if self.labels:
            return f"labels {self.namespace} {self.labels}"
        return f"pods {self.key.rpartition('-')[0] or self.key}"


def read(pod: Json) -> Facts:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    labels = metadata.get("labels") or {}
    owner = _controller(metadata)
    text = annotations.get(ATTEMPT) or ""
    namespace = metadata.get("namespace") or ""
    return Facts(
        uid=metadata["uid"],
        key=f"{namespace}/{metadata['name']}",
        namespace=namespace,
        scheduler=spec.get("schedulerName") or "default-scheduler",
        priority=spec.get("priority") or 0,
        preempts=spec.get("preemptionPolicy") != "Never",
        owner=owner,
        mirror=MIRROR in annotations,
        labels=tuple(sorted(labels.items())),
        gang=gang_of(namespace, labels, annotations, owner),
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "",
        ready=any(
            each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions") or ()
        ),
        deleting=bool(metadata.get("deletionTimestamp")),
        preempted_by=_preempted_by(status),
        attempt_text=text,
        attempt=attempt_of(metadata["uid"], text) if text else None,
    )


def _preempted_by(status: Json) -> str:
    for each in status.get("conditions") or ():
        if each.get("type") == "DisruptionTarget" and each.get("reason") == "PreemptionByScheduler":
            return str(each.get("message") or "").partition(": ")[0]
    return ""


def _controller(metadata: Json) -> Owner | None:
    for each in metadata.get("ownerReferences") or ():
        if each.get("controller"):
            return Owner(each.get("kind") or "", each.get("name") or "", each.get("uid") or "")
    return None


def gang_of(
    namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str], owner: Owner | None
) -> Gang | None:
    """The gang of a pod, as the documentation of labels and annotations has it."""
    name, members = labels.get(GANG), annotations.get(MIN_MEMBER)
    if name is None and members is None:
        group = labels.get(POD_GROUP)
        return None if group is None else Gang(f"{namespace}/podgroup.{group}", None)
    if members is None or not (members.isascii() and members.isdigit()) or int(members) < 1:
        return None
    if name is None:
        if owner is None:
            return None
        name = f"{owner.kind.lower()}.{owner.name}"
    return Gang(f"{namespace}/{name}", int(members))


def attempt_of(uid: str, text: str) -> Attempt | None:
    """What the annotation says; None where it is not about the pod of this UID, or makes no sense."""
    try:
        said: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not isinstance(said, dict) or said.get("pod") != uid:
        return None
    name, needed, size, others = said.get("attempt"), said.get("needed"), said.get("size"), said.get("with")
    if not (isinstance(name, str) and isinstance(needed, int) and isinstance(size, int) and isinstance(others, list)):
        return None
    if not 1 <= needed <= size or not all(isinstance(each, str) for each in others):
        return None
    return Attempt(name, needed, size, (uid, *others), bool(said.get("joins")))


def seconds(stamp: str | None) -> float:
    """A time of the API server's, in seconds since the epoch; 0 where there is none."""
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp() if stamp else 0.0
