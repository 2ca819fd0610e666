"""A plain watch on pods and nodes, from outside: it knows nothing of ESLs, and what it saw is put in the order of the
resource versions, which one etcd counts for pods and nodes alike."""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple, Self

from lab.controlplane.api import Api
from lab.controlplane.clusters import LocalCluster
from lab.controlplane.witness import Collection, Json, Sighting, Watching, name_of
from tests.controlplane.deadline import eventually

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"


class Seen(NamedTuple):
    """A pod or a node. `where` is a pod's node; `keys` what a node offers in escher.dev and below it."""

    name: str
    where: str | None
    labels: frozenset[str]
    keys: frozenset[str]


History = list[Sighting[Seen]]


class Outside:
    """Watches while its `with` block lasts; `history` is what happened, in order."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._seen: History = []
        self._api = Api(cluster.access)
        collections = [
            Collection(path, kind, self._seen.append, read=_seen) for path, kind in ((PODS, "Pod"), (NODES, "Node"))
        ]
        self._watching = [Watching(self._api, each) for each in collections]

    def __enter__(self) -> Self:
        for each in self._watching:
            each.start()
        assert all(each.begun.wait(30) for each in self._watching)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for each in self._watching:
            each.end()
        self._api.close()

    def history(self) -> History:
        """Everything that has happened up to now: both watches are waited for until they are as new as the cluster."""
        marks = []
        for path, body in (
            (PODS, {"metadata": {"generateName": "mark-"}, "spec": _NOWHERE}),
            (NODES, {"metadata": {"generateName": "mark-"}, "spec": {"unschedulable": True}}),
        ):
            made = self._cluster.admin.post(path, body)
            marks.append(made["metadata"]["name"])
            self._cluster.admin.delete(f"{path}/{marks[-1]}", gracePeriodSeconds=0)
        eventually(lambda: {each.seen.name for each in self._seen} >= set(marks), what="the watches to catch up")
        happened = [each for each in self._seen if not each.seen.name.startswith("mark-")]
        return sorted(happened, key=lambda each: each.version)


_NOWHERE = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]}


def _seen(found: Json) -> Seen:
    status = found.get("status", {})
    offered = {**status.get("capacity", {}), **status.get("allocatable", {})}
    return Seen(
        name_of(found),
        found.get("spec", {}).get("nodeName"),
        frozenset(f"{key}={value}" for key, value in found["metadata"].get("labels", {}).items()),
        frozenset(key for key in offered if "escher.dev/" in key),
    )


def bound_at(history: History, *names: str) -> dict[str, int]:
    """The version at which each of these pods was first seen with a node; those that never were are left out."""
    found: dict[str, int] = {}
    for each in history:
        if each.kind == "Pod" and each.seen.where and each.seen.name in names:
            found.setdefault(each.seen.name, each.version)
    return found


def ghosts_in(history: History, gang: str) -> list[str]:
    """The names of the gang's ghosts, oldest first."""
    label = f"escher.dev/ghost={gang}"
    return list(dict.fromkeys(each.seen.name for each in history if each.kind == "Pod" and label in each.seen.labels))


def offered_at(history: History, key: str) -> tuple[int, int] | None:
    """The versions at which a node first offered the key, and at which the last one ceased to; None if none did."""
    nodes: set[str] = set()
    first = last = 0
    for each in history:
        if each.kind != "Node":
            continue
        if key in each.seen.keys:
            nodes.add(each.seen.name)
            first = first or each.version
        elif each.seen.name in nodes:
            nodes.discard(each.seen.name)
            last = each.version
    assert not (first and nodes), f"{nodes} still offer {key}"
    return (first, last) if first else None
