"""Facts: what the JSON of one pod says, as far as harm is judged by it.

`loadtests.shared.reading` interprets labels and annotations.
"""

from __future__ import annotations

from typing import NamedTuple

from loadtests.shared.reading import ATTEMPT, Attempt, Gang, Json, Owner, attempt_of, controller_of, gang_of

PLACES = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
MIRROR = "kubernetes.io/config.mirror"

SYSTEM_CRITICAL = 2_000_000_000
"""The least priority of pods that a cluster cannot do without."""


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
    """The scheduler that says it preempts the pod, by the name in its profile; empty: none does."""
    nominated: str
    """The node where room is kept for the pod, because others have to leave there for it."""
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
        """What a re-created pod keeps: its controller, its gang, its own labels, or its name."""
        if self.owner is not None:
            return f"{self.owner.kind} {self.owner.uid}"
        if self.gang is not None:
            return f"gang {self.gang.key}"
        # The API server gives each bound pod these labels of its node.
        if own := tuple(each for each in self.labels if each[0] not in PLACES):
            return f"labels {self.namespace} {own}"
        return f"pods {self.key.rpartition('-')[0] or self.key}"


def read(pod: Json) -> Facts:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    annotations = metadata.get("annotations") or {}
    labels = metadata.get("labels") or {}
    owner = controller_of(pod)
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
        gang=gang_of(pod),
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "",
        ready=any(
            each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions") or ()
        ),
        deleting=bool(metadata.get("deletionTimestamp")),
        preempted_by=_preempted_by(status),
        nominated=status.get("nominatedNodeName") or "",
        attempt_text=text,
        attempt=attempt_of(metadata["uid"], text) if text else None,
    )


def _preempted_by(status: Json) -> str:
    for each in status.get("conditions") or ():
        if each.get("type") == "DisruptionTarget" and each.get("reason") == "PreemptionByScheduler":
            return str(each.get("message") or "").partition(": ")[0]
    return ""
