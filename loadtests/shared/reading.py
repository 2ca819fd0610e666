"""Reading: what the JSON of pods and nodes says of gangs, attempts and amounts, for outside judges.

It reads labels and annotations as a user of the documentation does, with its own arithmetic. It imports nothing of the
service, and so cannot share a mistake with it. It imports only the standard library, because Locust has its own
environment.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

Json = dict[str, Any]
Amounts = dict[str, Fraction]

OURS = "escher.dev/"
GANG, MIN_MEMBER, ATTEMPT, WAKE = f"{OURS}gang", f"{OURS}gang-min-member", f"{OURS}attempt", f"{OURS}wake"
GATE = GANG
"""Scheduling gate: kube-scheduler ignores the pod until its gang has room."""
POD_GROUP = "scheduling.x-k8s.io/pod-group"

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@lru_cache(maxsize=4096)
def quantity(text: str) -> Fraction:
    """Returns the value of a Kubernetes quantity."""
    for suffix, factor in _BINARY.items():
        if text.endswith(suffix):
            return Fraction(text.removesuffix(suffix)) * factor
    if text[-1] in _DECIMAL:
        return Fraction(text[:-1]) * Fraction(10) ** _DECIMAL[text[-1]]
    return Fraction(text)


def amounts(said: dict[str, str] | None) -> Amounts:
    return {name: quantity(text) for name, text in (said or {}).items()}


def requests_of(pod: Json) -> Amounts:
    """Returns a pod's requests without init containers; a limit alone is a request."""
    total: Amounts = defaultdict(Fraction, pods=Fraction(1))
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        for name, units in amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})}).items():
            total[name] += units
    return dict(total)


class Attempt(NamedTuple):
    """What a Binding says of its attempt: at least `needed` of `size` members had to be bound.

    `named`: UIDs of members of the attempt, the pod's own first. `joins`: the gang was running before.
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
    """A pod's gang. `key`: as the service shows it while no other gang has the same key.

    `quorum`: the pod's own; None: its PodGroup's. `controller`: UID of the controller, if the controller is the gang.
    """

    key: str
    quorum: int | None
    controller: str = ""

    @property
    def id(self) -> str:
        return f"{self.key}@{self.controller}" if self.controller else self.key


def gang_of(pod: Json) -> Gang | None:
    """Returns the gang that the pod names."""
    metadata = pod["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return _gang(metadata.get("namespace") or "", labels, annotations, controller_of(pod))


def quorum_of(pod: Json) -> tuple[str, int] | None:
    """Returns key and quorum of its gang, if the pod itself gives the quorum."""
    found = gang_of(pod)
    return None if found is None or found.quorum is None else (found.key, found.quorum)


def controller_of(pod: Json) -> Owner | None:
    for each in pod["metadata"].get("ownerReferences") or ():
        if each.get("controller"):
            return Owner(each.get("kind") or "", each.get("name") or "", each.get("uid") or "")
    return None


def _gang(
    namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str], owner: Owner | None
) -> Gang | None:
    """Returns the gang of a pod by the documentation of labels and annotations."""
    name, members, controller = labels.get(GANG), annotations.get(MIN_MEMBER), ""
    if name is None and members is None:
        group = labels.get(POD_GROUP)
        return None if group is None else Gang(_group_key(namespace, group), None)
    if members is None or not (members.isascii() and members.isdigit()) or int(members) < 1:
        return None
    if name is None:
        if owner is None:
            return None
        name, controller = f"{owner.kind.lower()}.{owner.name}", owner.uid
    return Gang(f"{namespace}/{name}", int(members), controller)


def group_key(group: Json) -> str:
    return _group_key(group["metadata"].get("namespace") or "", group["metadata"]["name"])


def _group_key(namespace: str, name: str) -> str:
    return f"{namespace}/podgroup.{name}"


def attempt_of(uid: str, text: str) -> Attempt | None:
    """Parses the annotation; None if it is not about the pod of this UID, or malformed."""
    try:
        said: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.get("pod") != uid:
        return None
    name, needed, size, others = said.get("attempt"), said.get("needed"), said.get("size"), said.get("with")
    if not (isinstance(name, str) and isinstance(needed, int) and isinstance(size, int) and isinstance(others, list)):
        return None
    if not 1 <= needed <= size or not all(isinstance(each, str) for each in others):
        return None
    return Attempt(name, needed, size, (uid, *others), bool(said.get("joins")))


def node_of(pod: Json) -> str:
    said: str = pod["spec"].get("nodeName") or ""
    return said


def is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_leaving(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_gated(pod: Json) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def scheduler_of(pod: Json) -> str:
    said: str = pod["spec"].get("schedulerName") or "default-scheduler"
    return said


def is_of_daemon_set(pod: Json) -> bool:
    owner = controller_of(pod)
    return owner is not None and owner.kind == "DaemonSet"


def seconds(stamp: str | None) -> float:
    """Converts an API server's time to seconds since the epoch; 0 if there is none."""
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp() if stamp else 0.0
