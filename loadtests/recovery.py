"""Measures how long the service needs to be usable again after kill -9, on a real control plane.

    python -m loadtests.recovery --nodes 5000 --pods 20000 --gangs 100 --kills 5

Pods are bound on the nodes, gangs wait for room that no node has, and a hundred nodes have ephemeral resources. Each
time the service is killed and started. A client outside takes three times from the start: it answers at all; it is
ready, because everything is listed and its ledger equals the cluster; it has answered a filter call over all nodes.
Then its ledger is compared with the API server, object by object. Machines are shared and noisy: read the order of
magnitude.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from lab.controlplane.clusters import RealCluster
from loadtests.shared.ledger import Service, differences, unfinished
from loadtests.shared.pods import Json, pod
from loadtests.shared.progress import say

NAMESPACE = "default"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_CREATORS = 16
_WITH_RESOURCES = 100
_PATIENCE = 120.0
_MOMENTS = ("answers", "ready", "first filter")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.recovery", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000, help="bound ones (default: 20000)")
    parser.add_argument("--gangs", type=int, default=100, help="gangs of 8 that wait for room (default: 100)")
    parser.add_argument("--kills", type=int, default=5)
    given = parser.parse_args()
    say(f"starting a control plane of {given.nodes} nodes")
    with RealCluster.start(nodes=given.nodes) as cluster:
        _fill(cluster, given.pods, given.gangs)
        times: dict[str, list[float]] = {moment: [] for moment in _MOMENTS}
        wrong: list[str] = []
        for number in range(given.kills):
            for moment, seconds in _kill_and_wait(cluster).items():
                times[moment].append(seconds)
            wrong += _settled(cluster)
            say(f"{number + 1} of {given.kills} kills")
    say("\n")
    what = f"{given.nodes} nodes, {given.pods} bound pods, {given.gangs} gangs of 8 waiting"
    sys.stdout.write(f"{what}, {given.kills} kills\n")
    for moment, each in times.items():
        sys.stdout.write(f"  {moment:<14}{statistics.median(each):6.2f} s   (at most {max(each):.2f})\n")
    same = "  the ledger was the cluster's each time\n"
    sys.stdout.write("".join(f"  wrong afterwards: {each}\n" for each in wrong) or same)
    return 1 if wrong else 0


def _fill(cluster: RealCluster, pods: int, gangs: int) -> None:
    nodes = [each["metadata"]["name"] for each in cluster.admin.list_all("/api/v1/nodes")]
    made: list[Json] = []
    for number in range(pods):
        placed = pod(f"bound-{number}", cpu="100m")
        placed["spec"]["nodeName"] = nodes[number % len(nodes)]
        made.append(placed)
    for number in range(gangs):
        # More than any node has: the gangs wait, and each plan fails.
        made += [pod(f"g{number}-{member}", gang=f"g{number}", quorum=8, cpu="10000") for member in range(8)]
    with ThreadPoolExecutor(_CREATORS) as workers:
        for number, _ in enumerate(workers.map(lambda each: cluster.admin.post(_PODS, each), made), 1):
            if number % 1000 == 0 or number == len(made):
                say(f"{number} of {len(made)} pods created")
    service = Service(cluster.service_url)
    for index, node in enumerate(nodes[:_WITH_RESOURCES]):
        body = {"capacity": 4, "node_spec": node}
        service.call("PUT", f"/v1/namespaces/{NAMESPACE}/resources/data{index}", body)
    service.close()


def _kill_and_wait(cluster: RealCluster) -> dict[str, float]:
    names = [each["metadata"]["name"] for each in cluster.admin.list_all("/api/v1/nodes")]
    call = {"Pod": _as_sent(), "NodeNames": names, "Nodes": None}
    cluster.kill("service")
    began = time.monotonic()
    found: dict[str, float] = {}
    with (
        ThreadPoolExecutor(1) as starter,
        httpx.Client(base_url=cluster.service_url, timeout=10, trust_env=False) as client,
    ):
        started = starter.submit(cluster.start_component, "service")
        while "first filter" not in found:
            since = time.monotonic() - began
            if since > _PATIENCE:
                raise TimeoutError(f"not of use after {since:.0f} s: {found}")
            try:
                ready = client.get("/readyz").status_code == 200
                found.setdefault("answers", time.monotonic() - began)
                if ready:
                    found.setdefault("ready", time.monotonic() - began)
                    answer = client.post("/scheduler/filter", json=call).raise_for_status().json()
                    if len(answer["NodeNames"]) == len(names):
                        found["first filter"] = time.monotonic() - began
            except httpx.TransportError:
                time.sleep(0.01)
        started.result()
    return found


def _as_sent() -> dict[str, Any]:
    probe = pod("probe")
    probe["metadata"] |= {"namespace": NAMESPACE, "uid": "probe"}
    return probe


def _settled(cluster: RealCluster) -> list[str]:
    """Returns the ledger's errors when no change is pending, after 30 s at most."""
    service = Service(cluster.service_url)
    try:
        end = time.monotonic() + 30
        while (wrong := [*differences(cluster.admin, service), *unfinished(service)]) and time.monotonic() < end:
            time.sleep(0.5)
        return wrong
    finally:
        service.close()


if __name__ == "__main__":
    sys.exit(main())
