"""Rest: what is left after the load, by the API server's objects and the service's own answers.

Every check returns findings in words; no findings mean that it holds. It imports nothing that decides.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from lab.controlplane.api import ApiError
from lab.controlplane.clusters import RealCluster
from loadtests.chaos.crowd import UNIT
from loadtests.chaos.load import NAMESPACE, PODS, Workload
from loadtests.chaos.offers import Offered
from loadtests.shared.ledger import Service, differences, saved, unfinished
from loadtests.shared.reading import GANG, OURS, quantity
from loadtests.shared.room import partly_bound, saved_in_vain, waiting_though_there_is_room

Json = dict[str, Any]
Findings = dict[str, list[str]]

IN_PART = "gangs in part"
RESERVED = "reservations left over"
LOST = "pods lost"
FORGOTTEN = "pods without a place though there is room"
DIFFERS = "the ledger is not the cluster"
OWNERLESS = "resources that no one owns"
RESOURCES_LOST = "resources lost"
OVER = "nodes over-allocated"
INVARIANTS = "invariants violated"
HARM = "harm done by the service"
LOG = "errors in the service's log"
OTHERS = "other trouble"
CHECKS = (IN_PART, RESERVED, LOST, FORGOTTEN, DIFFERS, OWNERLESS, RESOURCES_LOST, OVER, INVARIANTS, HARM, LOG, OTHERS)

_LOOK_EVERY = 1.0
_ERROR = re.compile(r"level='(?:error|critical)'| (?:ERROR|CRITICAL) \S+: |^Traceback ")
_CONNECTION = re.compile(
    r"Connect|connection|Unavailable|cannot be reached|Disconnected|TimeoutError|timed out|Cancelled", re.IGNORECASE
)
RESOURCES = "/apis/escher.dev/v1alpha1/ephemeralresources"


class Rest:
    """Looks at a cluster whose load has ended."""

    def __init__(self, cluster: RealCluster, service: Service, load: Workload, offers: Offered) -> None:
        self._cluster = cluster
        self._api = cluster.admin
        self._service = service
        self._load = load
        self._offers = offers

    def look(self) -> Findings:
        """What is wrong now; some of it may only need time."""
        pods, nodes = self._api.list_all(PODS), self._api.list_all("/api/v1/nodes")
        ownerless, lost = resources_amiss(nodes, self._api.list_all(RESOURCES), self._offers.expected)
        keeps = saved(self._service)
        violated = self._service.metric("escher_invariant_violations_total")
        return {
            IN_PART: partly_bound(self._not_broken_up(pods)),
            RESERVED: [*unfinished(self._service), *self._gangs_without_pods(pods), *saved_in_vain(pods, keeps)],
            LOST: self._lost(pods),
            FORGOTTEN: [*waiting_though_there_is_room(nodes, pods, keeps), *self._running(pods)],
            DIFFERS: differences(self._api, self._service),
            OWNERLESS: ownerless,
            RESOURCES_LOST: lost,
            INVARIANTS: [f"escher_invariant_violations_total is {violated:g}"] if violated else [],
        }

    def log_errors(self) -> list[str]:
        """The service's log lines with errors, other than failed connections."""
        return errors_in(self._cluster.log("service"))

    def evidence(self, findings: Findings) -> list[str]:
        """The service's answers about the gangs that the findings name."""
        said = " ".join(line for name in (IN_PART, FORGOTTEN, DIFFERS) for line in findings.get(name, []))
        told = []
        for gang in sorted(set(re.findall(r"\b(?:s\d+-)?g\d+\b", said)))[:5]:
            for path in (gang, f"{gang}/explain"):
                answer = self._service.raw("GET", f"/v1/namespaces/{NAMESPACE}/gangs/{path}")
                told.append(f"GET gangs/{path}: {answer.status_code} {answer.text}")
        return told

    def _not_broken_up(self, pods: list[Json]) -> list[Json]:
        broken_up = {unit.name for unit in list(self._load.units.values()) if unit.broken_up}
        return [each for each in pods if (each["metadata"].get("labels") or {}).get(UNIT) not in broken_up]

    def _lost(self, pods: list[Json]) -> list[str]:
        present = {each["metadata"]["name"] for each in pods}
        wanted = {each["metadata"]["name"] for unit in list(self._load.units.values()) for each in unit.pods}
        found = [f"{name} is gone" for name in sorted(wanted - present)]
        found += [f"{name} is there though it was deleted" for name in sorted(present - wanted)]
        return found + [f"{name} was taken away without a word" for name in self._load.vanished]

    def _running(self, pods: list[Json]) -> list[str]:
        """Pods that are bound and will end: the cluster is not at rest yet."""
        units = list(self._load.units.values())
        lasting = {each["metadata"]["name"] for unit in units if unit.lasting for each in unit.pods}
        return [
            f"{each['metadata']['name']} has not ended"
            for each in pods
            if each["spec"].get("nodeName")
            and each["metadata"]["name"] not in lasting
            and (each.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def _gangs_without_pods(self, pods: list[Json]) -> list[str]:
        gangs = {(each["metadata"].get("labels") or {}).get(GANG) for each in pods}
        told = self._service.call("GET", f"/v1/namespaces/{NAMESPACE}/gangs?limit=5000")["items"]
        return [f"gang {each['name']} has no pods and is {each['phase']}" for each in told if each["name"] not in gangs]


def settled(
    look: Callable[[], Findings],
    *,
    stuck_after: float,
    say: Callable[[str], None] = lambda text: None,
    every: float = _LOOK_EVERY,
) -> Findings:
    """What is wrong after `stuck_after` seconds without change; returns early when all is well.

    It looks every `every` seconds."""
    before: object = None
    since = time.monotonic()
    while True:
        try:
            findings = look()
        except (ApiError, AssertionError, httpx.TransportError) as error:
            findings = {OTHERS: [f"no answer: {error}"]}
        if not any(findings.values()):
            return findings
        if findings != before:
            before, since = findings, time.monotonic()
        waited = time.monotonic() - since
        if waited > stuck_after:
            return findings
        left = {name: len(found) for name, found in findings.items() if found}
        say(f"settling: {', '.join(f'{count} {name}' for name, count in left.items())}")
        threading.Event().wait(every)


def resources_amiss(
    nodes: list[Json], objects: list[Json], expected: Mapping[str, Mapping[str, int]]
) -> tuple[list[str], list[str]]:
    """Resources, and keys in node status, without an owner; resources unlike the request."""
    ownerless, lost = [], []
    there = {each["metadata"]["name"]: dict(each["spec"].get("nodes") or {}) for each in objects}
    ownerless += [
        f"{each['metadata']['name']} is there since {each['metadata'].get('creationTimestamp')}: {each['spec']}"
        for each in objects
        if each["metadata"]["name"] not in expected
    ]
    for name, units in expected.items():
        if there.get(name) != dict(units):
            lost.append(f"{name} was set to {dict(units)}, the object says {there.get(name)}")
    for node in nodes:
        name, status = node["metadata"]["name"], node["status"]
        said = {key for part in ("capacity", "allocatable") for key in status[part] if key.startswith(OURS)}
        meant = {f"{OURS}{NAMESPACE}.{each}": units[name] for each, units in expected.items() if name in units}
        ownerless += [f"{name} says {key}" for key in sorted(said - meant.keys())]
        for key, number in meant.items():
            found = [status[part].get(key) for part in ("capacity", "allocatable")]
            if any(each is None or quantity(each) != number for each in found):
                lost.append(f"{name} should have {number} {key}, and says {found}")
    return ownerless, lost


def errors_in(log: str) -> list[str]:
    return [line for line in log.splitlines() if _ERROR.search(line) and not _CONNECTION.search(line)]
