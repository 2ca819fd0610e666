"""Owners: is a pod of a DaemonSet that exists and wants it, or the mirror of a static pod? By objects, not by its word.

A DaemonSet wants a pod on a node that has the labels of its template's nodeSelector; its other rules are left out, so
that too many pods are taken for its own, and none too few. Judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from loadtests.harm.budgets import selects
from loadtests.harm.facts import Facts
from loadtests.reading import Json

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
        """Whether it makes the pod anew on the node. Of several there it keeps one: the `others` are still there."""
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
    """Whether only a kubelet can have made the pod, as the mirror of a static one."""
    owner = pod.owner
    of_its_node = owner is not None and (owner.kind, owner.name) == ("Node", pod.node)
    return pod.mirror and of_its_node and pod.namespace == _STATIC
