"""A plain watch on pods and nodes, from outside: it knows nothing of ESLs, and what it saw is put in the order of the
resource versions, which one etcd counts for pods and nodes alike."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from extender.controlplane.api import Api
from extender.controlplane.cluster import LocalCluster
from tests.controlplane.deadline import eventually

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"


@dataclass(frozen=True, slots=True)
class Seen:
    """One change. `where` is a pod's node; `keys` what a node offers in escher.dev and below it."""

    version: int
    kind: str
    type: str
    name: str
    where: str | None = None
    phase: str = ""
    labels: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()


class Outside:
    """Watches while its `with` block lasts; `history` is what happened, in order."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._seen: list[Seen] = []
        self._threads: list[threading.Thread] = []
        self._apis: list[Api] = []

    def __enter__(self) -> Self:
        for path in (PODS, NODES):
            version = self._cluster.admin.get(path, limit=1)["metadata"]["resourceVersion"]
            api = Api(self._cluster.access)
            thread = threading.Thread(target=self._follow, args=(api, path, version), daemon=True)
            self._apis.append(api)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for api in self._apis:
            api.close()

    def _follow(self, api: Api, path: str, version: str) -> None:
        try:
            for event in api.watch(path, resourceVersion=version, timeoutSeconds=300):
                self._seen.append(_seen(event))
        except (httpx.HTTPError, httpx.StreamError, RuntimeError, OSError, ValueError):
            return  # The block has ended, and with it the client.

    def history(self) -> list[Seen]:
        """Everything that has happened up to now: both watches are waited for until they are as new as the cluster."""
        marks = []
        for path, body in (
            (PODS, {"metadata": {"generateName": "mark-"}, "spec": _NOWHERE}),
            (NODES, {"metadata": {"generateName": "mark-"}, "spec": {"unschedulable": True}}),
        ):
            made = self._cluster.admin.post(path, body)
            marks.append(made["metadata"]["name"])
            self._cluster.admin.delete(f"{path}/{marks[-1]}", gracePeriodSeconds=0)
        eventually(lambda: {each.name for each in self._seen} >= set(marks), what="the watches to catch up")
        return sorted((each for each in self._seen if not each.name.startswith("mark-")), key=lambda seen: seen.version)


_NOWHERE = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]}


def _seen(event: dict[str, Any]) -> Seen:
    found = event["object"]
    metadata, spec, status = found["metadata"], found.get("spec", {}), found.get("status", {})
    offered = {**status.get("capacity", {}), **status.get("allocatable", {})}
    return Seen(
        int(metadata["resourceVersion"]),
        found["kind"],
        event["type"],
        metadata["name"],
        spec.get("nodeName"),
        status.get("phase", ""),
        frozenset(f"{key}={value}" for key, value in metadata.get("labels", {}).items()),
        frozenset(key for key in offered if "escher.dev/" in key),
    )


def bound_at(history: list[Seen], *names: str) -> dict[str, int]:
    """The version at which each of these pods was first seen with a node; those that never were are left out."""
    found: dict[str, int] = {}
    for each in history:
        if each.kind == "Pod" and each.where and each.name in names:
            found.setdefault(each.name, each.version)
    return found


def ghosts_in(history: list[Seen], gang: str) -> list[str]:
    """The names of the gang's ghosts, oldest first."""
    label = f"escher.dev/ghost={gang}"
    return list(dict.fromkeys(each.name for each in history if each.kind == "Pod" and label in each.labels))


def offered_at(history: list[Seen], key: str) -> tuple[int, int] | None:
    """The versions at which a node first offered the key, and at which the last one ceased to; None if none did."""
    nodes: set[str] = set()
    first = last = 0
    for each in history:
        if each.kind != "Node":
            continue
        if key in each.keys:
            nodes.add(each.name)
            first = first or each.version
        elif each.name in nodes:
            nodes.discard(each.name)
            last = each.version
    assert not (first and nodes), f"{nodes} still offer {key}"
    return (first, last) if first else None
