"""Workload for the end-to-end tests: nodes, pods, gangs and Jobs in a namespace of the test's own, and what becomes of
them.

`Arena` belongs to one test. Its nodes carry a label that its pods select, so that tests share a cluster without sharing
room. Time is waited for until something holds (`eventually`), or watched for as long as something must go on to hold
(`stays`).
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from lab.controlplane import nodes as node_objects
from lab.controlplane.api import Api, ApiError
from lab.controlplane.clusters import LocalCluster
from loadtests.shared.ledger import Service, differences, unfinished
from loadtests.shared.observer import Observer
from loadtests.shared.pods import EXTENDER, OURS, PROFILES, Json, pod
from loadtests.shared.sightings import Report
from tests.controlplane.deadline import eventually

GANG_APPROACHES = OURS
"""In the pure approach a gang is an ESL's work and not a pod's annotation: tests/esl and adapters/kubernetes have
that."""
APPROACHES = PROFILES

DOMAIN = "escher.dev"
POOL = "e2e.test/pool"
TO_COME = "escher-to-come"
"""A scheduler that is ours, as the services of these tests are told, and that does not run: its pods are not tried."""
T = TypeVar("T")


def stays(look: Callable[[], T], *, during: float = 1.5, what: str = "it") -> T:
    """`look` answered the same all the time; that answer."""
    first, deadline = look(), time.monotonic() + during
    while time.monotonic() < deadline:
        threading.Event().wait(0.05)
        now = look()
        assert now == first, f"{what} was {first} and became {now}"
    return first


def quiet(look: Callable[[], T], *, during: float = 1.0, within: float = 20.0) -> T:
    """`look` has answered the same for so long; that answer. Fails the test if it never does."""
    last, since, deadline = look(), time.monotonic(), time.monotonic() + within
    while time.monotonic() - since < during:
        assert time.monotonic() < deadline, f"it still changes after {within} s: {last}"
        threading.Event().wait(0.05)
        if (now := look()) != last:
            last, since = now, time.monotonic()
    return last


class Field:
    """A cluster with its service and its witness, for as long as the tests that share it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.api: Api = cluster.admin
        self.service = Service(cluster.service_url)
        self.observer = Observer(cluster.kubeconfig)
        self.measured: list[str] = []
        """What tests measured here, shown at the end of the run."""
        self._count = 0

    def arena(self, name: str) -> Arena:
        self._count += 1
        return Arena(self, f"{name}-{self._count}")

    def differences(self) -> list[str]:
        """Where the ledger is not what the API server says; empty: they are the same."""
        return differences(self.api, self.service)

    def unfinished(self) -> list[str]:
        """What should come to an end when nothing is asked of the service any more, and has not."""
        return unfinished(self.service)

    def assert_sound(self) -> None:
        """The ledger equals the cluster, nothing is left half done, and no invariant was ever violated."""
        seen: list[str] = []

        def sound() -> bool:
            seen[:] = [*self.differences(), *self.unfinished()]
            return not seen

        try:
            eventually(sound, within=15, what="the ledger being the cluster's")
        except AssertionError as error:
            raise AssertionError(f"{error}: {'; '.join(seen[:8])}") from None
        assert self.service.metric("escher_invariant_violations_total") == 0

    def close(self) -> None:
        self.observer.end()
        self.service.close()


class Arena:
    """One test's namespace, nodes and pods."""

    def __init__(self, field: Field, namespace: str) -> None:
        self.field = field
        self.api, self.service, self.observer = field.api, field.service, field.observer
        self.namespace = namespace
        self.pool = {POOL: namespace}
        self.own_nodes: list[str] = []
        self._cluster_wide: list[str] = []
        self.api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
        self.observer.begin()

    # -- nodes

    def nodes(
        self, count: int, taint: str | None = None, *, cpu: str | int = 8, pods: int = 110, **extra: str | int
    ) -> list[str]:
        """So many more nodes of this test's own, and the service has seen them. `taint`: one that keeps pods away."""
        names = self.nodes_unseen(count, taint, cpu=cpu, pods=pods, **extra)
        self.known(names)
        return names

    def nodes_unseen(
        self, count: int, taint: str | None = None, *, cpu: str | int = 8, pods: int = 110, **extra: str | int
    ) -> list[str]:
        """The same, without asking the service, which may be away."""
        offered = {"cpu": str(cpu), "memory": "32Gi", "pods": str(pods)} | {k: str(v) for k, v in extra.items()}
        names = [f"{self.namespace}-n{len(self.own_nodes) + index}" for index in range(count)]
        self.own_nodes += names
        made = [node_objects.node(name, offered, labels=self.pool) for name in names]
        for each in made if taint else ():
            each["spec"] = {"taints": [{"key": taint, "effect": "NoSchedule"}]}
        self.field.cluster.create_nodes(made)
        return names

    def known(self, nodes: Iterable[str]) -> None:
        """The service has seen the nodes."""
        wanted = set(nodes)
        eventually(lambda: wanted <= self.service.cluster_state().keys(), what="the service seeing the nodes")

    def status(self, node: str) -> Json:
        found: Json = self.api.get(f"/api/v1/nodes/{node}")["status"]
        return found

    def says(self, node: str, key: str) -> tuple[str | None, str | None]:
        """The node's capacity and allocatable of a resource."""
        status = self.status(node)
        return status["capacity"].get(key), status["allocatable"].get(key)

    def patch_status(
        self, node: str, capacity: Mapping[str, str | None], allocatable: Mapping[str, str | None]
    ) -> None:
        """Somebody edits the node's status by hand."""
        body = {"status": {"capacity": dict(capacity), "allocatable": dict(allocatable)}}
        self.api.patch(f"/api/v1/nodes/{node}/status", body)

    # -- pods

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def pod(self, name: str, scheduler: str = EXTENDER, **more: Any) -> Json:
        """A pod that goes to this test's nodes, if it has made any."""
        more.setdefault("selector", self.pool if self.own_nodes else {})
        return pod(name, scheduler, **more)

    def gang(
        self, name: str, size: int, scheduler: str = EXTENDER, *, quorum: int | None = None, **more: Any
    ) -> list[Json]:
        """The members `<name>-0` ... of a gang; its quorum is its size unless told otherwise."""
        wanted = size if quorum is None else quorum
        return [self.pod(f"{name}-{index}", scheduler, gang=name, quorum=wanted, **more) for index in range(size)]

    def bring_to_barrier(self, *members: Json, lacking: int = 1) -> list[str]:
        """These members of one gang wait at the barrier, with places held for so many others, who do not exist. Their
        names.

        A gang of bare pods has a plan only once its quorum exists: so the others exist until these have come.
        """
        others = []
        for index in range(lacking):
            other = copy.deepcopy(members[0])
            other["metadata"]["name"] += f"-other-{index}"
            other["spec"]["schedulerName"] = TO_COME
            others.append(other)
        away = self.create(*others)
        names = self.create(*members)
        eventually(lambda: self.at_barrier() == len(names), what=f"{len(names)} at the barrier")
        self.delete(*away)
        return names

    def at_barrier(self) -> float:
        """How many pods wait at the barriers of all gangs."""
        return self.service.metric("escher_bind_barrier_waiting")

    def create(self, *pods: Json) -> list[str]:
        """The pods exist, created eight at a time in this order. Their names."""
        with ThreadPoolExecutor(8) as workers:
            list(workers.map(lambda each: self.api.post(self.pods_path, each), pods))
        return [each["metadata"]["name"] for each in pods]

    def pods(self) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in self.api.list_all(self.pods_path)}

    def bound(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """Node by name of the pods that are bound, of these or of all."""
        wanted = None if names is None else set(names)
        return {
            name: each["spec"]["nodeName"]
            for name, each in self.pods().items()
            if each["spec"].get("nodeName") and (wanted is None or name in wanted)
        }

    def until_bound(self, names: Iterable[str], *, within: float = 20) -> dict[str, str]:
        """Node by name, once all are bound."""
        wanted, found = set(names), dict[str, str]()

        def all_bound() -> bool:
            found.update(self.bound(wanted))
            return found.keys() == wanted

        try:
            eventually(all_bound, within=within)
        except AssertionError:
            raise AssertionError(f"not bound within {within} s: {sorted(wanted - found.keys())}") from None
        return found

    def until_rejected(self, names: Iterable[str], *, within: float = 20) -> dict[str, str]:
        """kube-scheduler says of each pod that it cannot be placed now. Its words, by name."""
        wanted = set(names)

        def said() -> dict[str, str] | None:
            found = {}
            for name, each in self.pods().items():
                for condition in each["status"].get("conditions") or []:
                    if name in wanted and condition["type"] == "PodScheduled" and condition["status"] == "False":
                        found[name] = condition["message"]
            return found if found.keys() == wanted else None

        return eventually(said, within=within, what=f"the rejection of {sorted(wanted)}") or {}

    def phases(self, names: Iterable[str]) -> dict[str, str]:
        found = self.pods()
        return {name: found[name]["status"].get("phase", "") for name in names if name in found}

    def delete(self, *names: str) -> None:
        """The pods are gone."""
        for name in names:
            self.api.delete(f"{self.pods_path}/{name}", gracePeriodSeconds=0)
        eventually(lambda: not set(names) & self.pods().keys(), what=f"the end of {names}")

    def annotate(self, name: str, **annotations: str | None) -> None:
        said = {f"escher.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.api.patch(f"{self.pods_path}/{name}", {"metadata": {"annotations": said}})

    def events(self, reason: str) -> list[Json]:
        """What the service told about this namespace's pods for that reason."""
        found = self.api.list_all(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [each for each in found if each.get("reason") == reason]

    def gang_state(self, name: str) -> Json:
        """Of a gang whose pods exist: the service may not have heard of them yet."""

        def answer() -> Json | None:
            answered = self.service.raw("GET", f"/v1/namespaces/{self.namespace}/gangs/{name}")
            return dict(answered.json()) if answered.status_code == 200 else None

        return eventually(answer, what=f"the service telling of gang {name}") or {}

    # -- ephemeral resources

    def key(self, resource: str) -> str:
        return f"{DOMAIN}/{self.namespace}.{resource}"

    def resource_path(self, resource: str) -> str:
        return f"/v1/namespaces/{self.namespace}/resources/{resource}"

    def set_resource(self, resource: str, capacity: object, node_spec: object = None, **more: object) -> Json:
        body = {"capacity": capacity, "node_spec": node_spec, **more}
        return self.service.call("PUT", self.resource_path(resource), body)

    # -- the whole cluster

    def cluster_wide(self, collection: str, body: Json) -> None:
        """An object without a namespace, removed at the end of the test."""
        self.api.post(collection, body)
        self._cluster_wide.append(f"{collection}/{body['metadata']['name']}")

    # -- the end

    def report(self) -> Report:
        return self.observer.report()

    def assert_witnessed(self) -> Report:
        """No gang was partly bound, no node over-allocated, and the witness saw everything."""
        report = self.report()
        assert report.gaps == 0
        assert not report.partly_bound(), report.partly_bound()
        assert not report.over_allocated(), report.over_allocated()
        return report

    def clear(self) -> None:
        """Nothing of this test is left, in the cluster or in the ledger."""
        jobs = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
        resources = f"/apis/escher.dev/v1alpha1/namespaces/{self.namespace}/ephemeralresources"
        self.api.delete(jobs, propagationPolicy="Background")
        self._delete_all(resources)
        self._delete_all(f"/apis/escher.dev/v1alpha1/namespaces/{self.namespace}/escherpolicies")
        eventually(self._no_pods, what="the end of the test's pods")
        keys = f"{DOMAIN}/{self.namespace}."
        for name in self.own_nodes:
            self._delete_if_there(f"/api/v1/nodes/{name}")
        for path in self._cluster_wide:
            self._delete_if_there(path)

        def forgotten() -> bool:
            told = self.service.cluster_state()
            return not set(self.own_nodes) & told.keys() and not any(
                key.startswith(keys) for each in told.values() for key in each["capacity"]
            )

        eventually(forgotten, what="the service forgetting the test's nodes and resources")
        self._delete_if_there(f"/api/v1/namespaces/{self.namespace}")

    def _no_pods(self) -> bool:
        self.api.delete(self.pods_path, gracePeriodSeconds=0)
        return not self.pods()

    def _delete_all(self, collection: str) -> None:
        try:
            self.api.delete(collection)
        except ApiError as error:
            if error.status != 404:
                raise

    def _delete_if_there(self, path: str) -> None:
        try:
            self.api.delete(path)
        except ApiError as error:
            if error.status != 404:
                raise


def together(calls: Sequence[Callable[[], T]], *, threads: int = 16) -> list[T]:
    """All calls are done, many at the same time; their answers in order."""
    with ThreadPoolExecutor(threads) as workers:
        return list(workers.map(lambda call: call(), calls))


@contextmanager
def away(arena: Arena, *, killed: bool = False) -> Iterator[None]:
    """The service does not run within the block."""
    cluster = arena.field.cluster
    if killed:
        cluster.kill("service")
    else:
        cluster.stop_component("service")
    try:
        yield
    finally:
        cluster.start_component("service")
