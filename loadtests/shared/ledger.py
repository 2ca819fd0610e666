"""Compares the service's ledger, read over HTTP, with the cluster that the API server reports.

Imports no module that decides, so that it cannot share a mistake with the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Protocol

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from loadtests.shared.reading import Amounts, Json, amounts, quantity, requests_of
from loadtests.shared.room import Saved

SAVING = "saving"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Value by metric name and labels."""


class Lists(Protocol):
    """An API server that lists collections."""

    def list_all(self, path: str) -> list[Json]:
        """Returns the items of a collection, of all pages."""
        ...


class Answering(Protocol):
    """A service that reports its state."""

    def cluster_state(self) -> dict[str, Json]:
        """Returns all nodes, by name."""
        ...

    def metrics(self) -> Samples: ...


def samples_of(families: Iterable[Metric]) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


class Service:
    """The service's HTTP side: management API and metrics."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def call(self, method: str, path: str, body: object = None, *, expect: int = 200, **headers: str) -> Json:
        """Returns the answer's JSON, or {} if empty. Raises AssertionError on another status."""
        answer = self.raw(method, path, body, **headers)
        assert answer.status_code == expect, f"{method} {path}: {answer.status_code} {answer.text}"
        said: Json = answer.json() if answer.content else {}
        return said

    def raw(self, method: str, path: str, body: object = None, **headers: str) -> httpx.Response:
        """Returns the answer with any status. `headers`: `if_match`, `escher_node`."""
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._client.request(method, path, json=body, headers=said)

    def cluster_state(self, **query: str) -> dict[str, Json]:
        """Returns the answers of get_cluster_state, of all pages, by node."""
        found: dict[str, Json] = {}
        token: str | None = None
        while True:
            more = {"continue": token} if token else {}
            answer = self._client.get("/v1/cluster-state", params={"limit": 5000, **query, **more})
            assert answer.status_code == 200, answer.text
            page = answer.json()
            found |= {each["node"]: each for each in page["items"]}
            token = page["continue"]
            if token is None:
                return found

    def metrics(self) -> Samples:
        return samples_of(text_string_to_metric_families(self._client.get("/metrics").text))

    def metric(self, name: str, **labels: str) -> float:
        """Returns the sum over all samples of that name that have these labels."""
        return sum(
            value
            for (found, with_labels), value in self.metrics().items()
            if found == name and labels.items() <= dict(with_labels).items()
        )

    def calls(self, verb: str) -> int:
        """Returns how often kube-scheduler has called this verb."""
        return int(self.metric("escher_extender_duration_seconds_count", verb=verb))

    def close(self) -> None:
        self._client.close()


def saved(service: Answering) -> Saved:
    """Returns the backfill reservation that the service reports: its gang or pod, and its nodes."""
    gangs: set[tuple[str | None, str | None]] = set()
    places: list[tuple[str, Amounts]] = []
    for node, told in service.cluster_state().items():
        for each in told["holders"]:
            if each["kind"] == SAVING:
                gangs.add((each["gang"], None if each["gang"] else each["pod"]))
                places.append((node, amounts({key: str(Decimal(str(units))) for key, units in each["units"].items()})))
    assert len(gangs) <= 1, f"room is saved for several gangs: {sorted(map(str, gangs))}"
    gang, pod = next(iter(gangs), (None, None))
    return Saved(gang, tuple(places), pod)


def differences(api: Lists, service: Answering) -> list[str]:
    """Returns where the service's ledger differs from the API server; empty if they are equal.

    The comparison uses the objects, without the ledger's arithmetic. Capacity is the nodes' allocatable. Available is
    capacity without the requests of the node's unfinished pods. Holders are exactly those pods, plus the backfill
    reservation.
    """
    pods = [each for each in api.list_all("/api/v1/pods") if each["spec"].get("nodeName")]
    pods = [each for each in pods if each["status"].get("phase") not in ("Succeeded", "Failed")]
    told, wrong = service.cluster_state(), []
    present = {each["metadata"]["name"]: each for each in api.list_all("/api/v1/nodes")}
    if told.keys() != present.keys():
        wrong.append(f"nodes: {sorted(told.keys() ^ present.keys())[:5]} are known to one side only")
    holders: dict[str, dict[str, Json]] = {name: {} for name in present}
    for each in pods:
        holders.setdefault(each["spec"]["nodeName"], {})[each["metadata"]["uid"]] = each
    for name in told.keys() & present.keys():
        wrong += _node_differences(name, present[name], list(holders[name].values()), told[name])
    return wrong


def unfinished(service: Answering) -> list[str]:
    """Returns metrics that should be 0 once the service gets no more requests, and are not."""
    left = []
    for (name, labels), value in service.metrics().items():
        said = dict(labels)
        pending = name in ("escher_drift_units", "escher_write_back_pending", "escher_bind_barrier_waiting")
        held = name == "escher_ledger_units" and said.get("state") in ("reserved", "assumed")
        if (pending or held) and value:
            left.append(f"{name}{said} = {value:g}")
    return left


def _node_differences(name: str, node: Json, pods: list[Json], told: Json) -> list[str]:
    wrong = []
    allocatable = {key: quantity(text) for key, text in node["status"]["allocatable"].items()}
    capacity = {key: quantity(str(Decimal(str(units)))) for key, units in told["capacity"].items()}
    if {k: v for k, v in capacity.items() if v} != {k: v for k, v in allocatable.items() if v}:
        wrong.append(f"{name}: capacity {told['capacity']}, the node says {node['status']['allocatable']}")
    available = {key: Decimal(str(units)) for key, units in told["available"].items()}
    held: Counter[str] = Counter()
    for each in pods:
        for key, units in requests_of(each).items():
            held[key] += units  # type: ignore[assignment]
    for each in told["holders"]:
        if each["kind"] == SAVING:
            for key, units in each["units"].items():
                held[key] += quantity(str(Decimal(str(units))))  # type: ignore[assignment]
    for key in allocatable.keys() | held.keys():
        free = allocatable.get(key, 0) - held[key]
        if quantity(str(available.get(key, Decimal(0)))) != free:
            wrong.append(f"{name}: {available.get(key)} {key} available, by its pods it is {free}")
    holders = [each for each in told["holders"] if each["kind"] != SAVING]
    if {each["holder"] for each in holders} != {each["metadata"]["uid"] for each in pods}:
        named = [each["pod"] or each["holder"] for each in holders]
        wrong.append(f"{name}: held by {named}, bound are {[each['metadata']['name'] for each in pods]}")
    wrong += [f"{name}: {each['holder']} is {each['kind']}" for each in holders if each["kind"] != "bound"]
    return wrong
