"""Measures filter calls for one namespace's pods while a noisy tenant writes in another.

    python -m loadtests.neighbour                                    # the embedded cluster, every action, 20 s each
    python -m loadtests.neighbour --real --pods 3000 --seconds 60 --action policy gang
    python -m loadtests.neighbour --real --two-replicas --seconds 65  # ten minutes; does one of two lose its lease?
    python -m loadtests.neighbour --own-core --most 50                # the tenant and the API server on another core

Namespace `a` has running pods and waiting pods, each waiting pod with its own kind. Its tenant repeats one action from
four connections, as fast as the API server accepts it. Meanwhile another process calls filter for pods of `b`, 50 times
a second. The table shows actions a second, call durations, the service's long turns by step, and its memory afterwards.

The API server and the tenant take more than a core. --own-core keeps them off the core of service and caller: the
calls then show the service, as on a machine that is idle otherwise.

With --most the exit code is 1 if the 99.9th percentile of filter calls exceeds it; with --two-replicas, if the leader
has changed. Machines are shared and noisy: "nothing" is measured first, for comparison.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

from lab.controlplane.api import Api, ApiError
from lab.controlplane.clusters import EmbeddedCluster, LocalCluster, RealCluster
from lab.controlplane.nodes import NodeShape
from loadtests.failover.replicated import Replicated, ReplicatedCluster, ReplicatedEmbeddedCluster
from loadtests.goals.measuring.connection import Connection, request
from loadtests.goals.measuring.cores import shared_out
from loadtests.load.results.samples import usage
from loadtests.shared.ledger import Service
from loadtests.shared.pods import EXTENDER, Json, pod
from loadtests.shared.progress import say

NOISY, QUIET = "a", "b"
_PODS = f"/api/v1/namespaces/{NOISY}/pods"
_OURS = f"/apis/escher.dev/v1alpha1/namespaces/{NOISY}"
_POLICIES, _RESOURCES = f"{_OURS}/escherpolicies", f"{_OURS}/ephemeralresources"
_HOSTNAME = "kubernetes.io/hostname"
_WRITERS, _WAITING, _NODES = 4, 200, 20
_EVERY, _ASKED_FOR = 0.02, 50
_SETTLES = 3.0
_LONG_TURNS = "escher_long_turns_total"
Cores = Collection[int]


@dataclass(frozen=True, slots=True)
class Row:
    """Calls in milliseconds, memory in MiB. `edits`: a second. `turns`: long turns by step."""

    action: str
    edits: float
    calls: int
    median: float
    last_of_1000: float
    longest: float
    turns: dict[str, int]
    memory: float


ACTIONS = ("nothing", "policy", "policies", "resource", "resources", "labels", "gang", "pods", "kinds")
"""What the tenant does: edits one object (singular), or creates and deletes objects (plural)."""


class Tenant:
    """A tenant's actions in its namespace. Each call of an action gets a new number."""

    def __init__(self, api: Api, pods: int, waiting: int) -> None:
        self._api, self._running, self._waiting = api, pods, waiting
        does = (
            lambda number: time.sleep(0.1),
            self._edit_policy,
            self._make_policy,
            self._edit_resource,
            self._make_resource,
            self._edit_labels,
            self._edit_gang,
            self._make_pod,
            self._change_kind,
        )
        self.actions: dict[str, Callable[[int], object]] = dict(zip(ACTIONS, does, strict=True))

    def settle(self) -> None:
        """Creates its pods: some run, and each other pod waits for more CPU than a node has."""
        for namespace in (NOISY, QUIET):
            self._api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        self._api.post(_POLICIES, _policy("flipped", "balance", {"topologyKey": _HOSTNAME}))
        self._api.post(_RESOURCES, _resource("flipped", 1))
        with ThreadPoolExecutor(_WRITERS) as workers:
            list(workers.map(lambda number: self._api.post(_PODS, self._runs(number)), range(self._running)))
            list(workers.map(lambda number: self._api.post(_PODS, self._waits(number)), range(self._waiting)))

    def _runs(self, number: int) -> Json:
        made = pod(f"runs-{number}", EXTENDER, cpu="10m", labels={"app": "web"})
        made["spec"]["nodeName"] = f"node-{number % _NODES}"
        return made

    def _waits(self, number: int) -> Json:
        labels, gang = {"app": f"kind-{number}"}, f"gang-{number % 10}" if number % 2 else None
        return pod(f"waits-{number}", EXTENDER, cpu="5000", gang=gang, quorum=1 if gang else None, labels=labels)

    def _edit_policy(self, number: int) -> None:
        self._api.patch(f"{_POLICIES}/flipped", {"spec": {"parameters": {"maxSkew": 1 + number % 900}}})

    def _make_policy(self, number: int) -> None:
        self._api.post(_POLICIES, _policy(f"made-{number}", "anti-affinity", {}))
        self._api.delete(f"{_POLICIES}/made-{number}")

    def _edit_resource(self, number: int) -> None:
        self._api.patch(f"{_RESOURCES}/flipped", {"spec": _resource("flipped", number % 7)["spec"]})

    def _make_resource(self, number: int) -> None:
        self._api.post(_RESOURCES, _resource(f"made-{number}", 1))
        self._api.delete(f"{_RESOURCES}/made-{number}")

    def _edit_labels(self, number: int) -> None:
        said = {"metadata": {"labels": {"app": f"other-{number}"}}}
        self._api.patch(f"{_PODS}/runs-{number % self._running}", said)

    def _edit_gang(self, number: int) -> None:
        said = {"metadata": {"annotations": {"escher.dev/gang-min-member": str(1 + number % 10)}}}
        self._api.patch(f"{_PODS}/waits-{1 + 2 * (number % (self._waiting // 2))}", said)

    def _make_pod(self, number: int) -> None:
        self._api.post(_PODS, pod(f"made-{number}", EXTENDER, cpu="10m", labels={"app": "web"}))
        self._api.delete(f"{_PODS}/made-{number}", gracePeriodSeconds=0)

    def _change_kind(self, number: int) -> None:
        said = {"metadata": {"labels": {"app": f"kind-{number}"}}}
        self._api.patch(f"{_PODS}/waits-{number % self._waiting}", said)


_HEAD: Json = {"apiVersion": "escher.dev/v1alpha1"}


def _policy(name: str, kind: str, parameters: Json) -> Json:
    spec = {"type": kind, "parameters": parameters, "selector": {}}
    return {**_HEAD, "kind": "EscherPolicy", "metadata": {"name": name}, "spec": spec}


def _resource(name: str, units: int) -> Json:
    spec = {"nodes": {f"node-{node}": units for node in range(_NODES)}}
    return {**_HEAD, "kind": "EphemeralResource", "metadata": {"name": name}, "spec": spec}


def _keep_on(cores: Cores, pid: int) -> None:
    """Keeps all threads of a process, and those that it starts, on these cores."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), cores)


def _ask(url: str, seconds: float, cores: Cores, found: Pipe) -> None:
    """Calls filter for pods of `b` from these cores; sends the end time, then each call's ms."""
    os.sched_setaffinity(0, cores)
    names = [f"node-{number}" for number in range(_NODES)]
    asked = []
    for number in range(_ASKED_FOR):
        made = pod(f"asked-for-{number}", EXTENDER, cpu="10m")
        made["metadata"] |= {"namespace": QUIET, "uid": f"uid-asked-for-{number}"}
        made["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        asked.append(
            request("/scheduler/filter", json.dumps({"Pod": made, "Nodes": None, "NodeNames": names}).encode())
        )
    took: list[float] = []
    with closing(Connection(url)) as connection:
        until = time.time() + seconds
        found.send(until)
        while time.time() < until:
            began = time.perf_counter()
            answer = connection.ask(asked[len(took) % _ASKED_FOR])
            took.append(1000 * (time.perf_counter() - began))
            assert answer.status == 200, answer
            time.sleep(max(0.0, _EVERY - took[-1] / 1000))
    found.send(took)


def measure(cluster: LocalCluster, service: Service, tenant: Tenant, action: str, seconds: float, own: Cores) -> Row:
    """Returns what was measured while the tenant repeated the action for `seconds`."""
    before = _long_turns(service)
    hears, tells = multiprocessing.Pipe(duplex=False)
    asking = multiprocessing.get_context("spawn").Process(target=_ask, args=(_url(cluster), seconds, own, tells))
    asking.start()
    tells.close()
    until = hears.recv()

    def act(writer: int) -> int:
        number = writer
        while time.time() < until:
            try:
                tenant.actions[action](number)
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
            number += _WRITERS
        return number // _WRITERS

    with ThreadPoolExecutor(_WRITERS) as writers:
        edits = sum(writers.map(act, range(_WRITERS)))
    took = sorted(hears.recv())
    asking.join()
    time.sleep(_SETTLES)
    turns = {step: count - before.get(step, 0) for step, count in _long_turns(service).items()}
    at = (took[len(took) // 2], took[-1 - len(took) // 1000], took[-1])
    turns, found = {step: count for step, count in turns.items() if count}, usage(_pid(cluster))
    return Row(action, edits / seconds, len(took), *at, turns, found.resident_mib if found else 0.0)


def _url(cluster: LocalCluster) -> str:
    """Returns the URL of the leading service, without the forwarder in front of it."""
    return f"http://127.0.0.1:{cluster.leader_port()}" if isinstance(cluster, Replicated) else cluster.service_url


def _pid(cluster: LocalCluster) -> int:
    if isinstance(cluster, Replicated):
        return cluster.replica_pids()[cluster.holder()]
    return cluster.pids()["service"]


def _long_turns(service: Service) -> dict[str, int]:
    return {
        dict(labels)["step"]: int(value) for (name, labels), value in service.metrics().items() if name == _LONG_TURNS
    }


def table(rows: Sequence[Row]) -> str:
    lines = ["| action | a second | calls | median, ms | 99.9 %, ms | longest, ms | turns of more than 50 ms | MiB |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for row in rows:
        turns = ", ".join(f"{step} {count}" for step, count in row.turns.items()) or "0"
        times = f"{row.median:.1f} | {row.last_of_1000:.0f} | {row.longest:.0f}"
        lines.append(f"| {row.action} | {row.edits:.0f} | {row.calls} | {times} | {turns} | {row.memory:.0f} |")
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.neighbour", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--real", action="store_true", help="on a real control plane (default: the embedded cluster)")
    parser.add_argument("--two-replicas", action="store_true", help="of the service, with a lease of four seconds")
    parser.add_argument("--pods", type=int, default=1000, help="of the tenant's that run (default: 1000)")
    parser.add_argument(
        "--waiting", type=int, default=_WAITING, help=f"that wait, of a kind each (default: {_WAITING})"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="for each action (default: 20)")
    parser.add_argument("--action", nargs="+", choices=ACTIONS, default=ACTIONS, help="these alone (default: all)")
    parser.add_argument("--own-core", action="store_true", help="for the service and the caller alone")
    parser.add_argument("--most", type=float, help="milliseconds that 99.9 %% of the calls may take at most")
    wanted = parser.parse_args(given)
    if min(wanted.pods, wanted.waiting - 1, wanted.seconds) < 1:
        parser.error("--pods and --seconds must be 1 or more, --waiting 2 or more")
    available = os.sched_getaffinity(0)
    parts = shared_out(available) if wanted.own_core else (available, available)
    if parts is None or (wanted.own_core and wanted.two_replicas):
        parser.error("--own-core needs two cores and one replica")
    own, others = parts
    one, two = (RealCluster, ReplicatedCluster) if wanted.real else (EmbeddedCluster, ReplicatedEmbeddedCluster)
    kind: type[RealCluster] | type[EmbeddedCluster] = two if wanted.two_replicas else one
    rows, shape = list[Row](), NodeShape(cpu="64", pods=1 + wanted.pods)
    with kind.start(nodes=_NODES, node_shape=shape) as cluster, closing(Service(_url(cluster))) as service:
        tenant = Tenant(cluster.admin, wanted.pods, wanted.waiting)
        tenant.settle()
        time.sleep(_SETTLES)
        leader = _pid(cluster)
        for pid in [os.getpid(), *cluster.pids().values()] if wanted.own_core else ():
            _keep_on(own if pid == leader else others, pid)
        for action in wanted.action:
            rows.append(measure(cluster, service, tenant, action, wanted.seconds, own))
            say(f"{action}: {rows[-1].last_of_1000:.0f} ms")
        same = leader == _pid(cluster)
    sys.stdout.write(table(rows) + "\n")
    if not same:
        say("another process leads than before")
    return int(not same or (wanted.most is not None and any(row.last_of_1000 > wanted.most for row in rows)))


if __name__ == "__main__":
    sys.exit(main())
