"""Owners: whether a pod is a DaemonSet's own, or the mirror of a static pod, according to objects.

A DaemonSet wants a pod on a node with the labels of its template's nodeSelector. Its other rules are left out, so that
too many pods count as its own, and none too few.
"""

from __future__ import annotations

from collections.abc import Iterable

from loadtests.harm.budgets import selects
from loadtests.harm.facts import Facts
from loadtests.shared.reading import Json

_STATIC = "kube-system"


class DaemonSets:
    def __init__(self) -> None:
        self._by_uid: dict[str, Json] = {}

    def see(self, obj: Json, *, gone: bool) -> None:
        if gone:
            self._by_uid.pop(obj["metadata"]["uid"], None)
        else:
            self._by_uid[obj["metadata"]["uid"]] = obj

    def made(self, pod: Facts, node: Json | None, others: Iterable[Facts]) -> bool:
        """Whether its DaemonSet re-creates the pod on the node: not if another of it is there."""
        owner = pod.owner
        found = None if owner is None or owner.kind != "DaemonSet" else self._by_uid.get(owner.uid)
        if owner is None or found is None or found["metadata"].get("deletionTimestamp"):
            return False
        metadata, template = found["metadata"], found["spec"]["template"]["spec"]
        wanted = template.get("nodeSelector") or {}
        labels = (node or {}).get("labels") or {}
        return (
            (metadata["namespace"], metadata["name"]) == (pod.namespace, owner.name)
            and selects(found["spec"].get("selector") or {}, dict(pod.labels))
            and all(labels.get(key) == value for key, value in wanted.items())
            and not any(other.owner == owner and other.node == pod.node and other.uid != pod.uid for other in others)
        )


def is_static(pod: Facts) -> bool:
    """Whether only a kubelet can have created the pod, as the mirror of a static pod."""
    owner = pod.owner
    of_its_node = owner is not None and (owner.kind, owner.name) == ("Node", pod.node)
    return pod.mirror and of_its_node and pod.namespace == _STATIC
