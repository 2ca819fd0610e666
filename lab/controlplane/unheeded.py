"""Unsupported fields: which settings of pods an embedded cluster ignores, read from its events.

Reads the API server of a cluster of this tool. The result is empty if that API server cannot be reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import yaml

from extender.shipped import places
from lab.controlplane.api import Access, Api, ApiError, Json
from lab.controlplane.processes import state
from lab.controlplane.processes.state import ClusterState

_REASON = "NotHeeded"
_WITHIN = 2.0
_CANNOT_BE_ASKED = (ApiError, httpx.HTTPError, OSError, yaml.YAMLError, LookupError)


def notes(cluster: ClusterState) -> list[dict[str, str]]:
    """Namespace, name and note of each pod with such an event; empty for a real control plane."""
    if cluster.kind != "embedded":
        return []
    try:
        with closing(_api(cluster)) as api:
            events = api.list_all("/apis/events.k8s.io/v1/events", fieldSelector=f"reason={_REASON}")
    except _CANNOT_BE_ASKED:
        return []
    return [_note(each) for each in events]


def of_pod(service_url: str, namespace: str, name: str) -> list[str]:
    """The notes on this very pod, in the local embedded cluster whose service has that URL."""
    for cluster in _embedded():
        if not _same_address(cluster.service_url, service_url):
            continue
        try:
            with closing(_api(cluster)) as api:
                uid = api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["metadata"]["uid"]
                path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
                events = api.list_all(path, fieldSelector=f"reason={_REASON}")
        except _CANNOT_BE_ASKED:
            continue
        return [_note(each)["note"] for each in events if (each.get("regarding") or {}).get("uid") == uid]
    return []


def _embedded() -> Iterator[ClusterState]:
    for folder in sorted(places.clusters().glob("*")):
        found = state.read(folder)
        if found is not None and found.kind == "embedded" and state.alive(found.supervisor):
            yield found


def _same_address(one: str, other: str) -> bool:
    def place(text: str) -> tuple[str, int | None]:
        url = httpx.URL(text)
        return "127.0.0.1" if url.host == "localhost" else url.host, url.port

    return place(one) == place(other)


def _api(cluster: ClusterState) -> Api:
    return Api(Access(Path(cluster.kubeconfig)), timeout=_WITHIN)


def _note(event: Json) -> dict[str, str]:
    about = event.get("regarding") or {}
    return {"namespace": about.get("namespace", ""), "pod": about.get("name", ""), "note": event.get("note", "")}
