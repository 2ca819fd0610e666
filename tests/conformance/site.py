"""`Site`: where a case runs, the embedded or the real control plane, and the verbs that cases are written in.

A case sees the API server (over HTTP), the service and the kubeconfig, and must not see which of the two it is. Its
namespace, its nodes and its cluster-wide objects are its own and are gone afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from extender.core.policies.policy_types import HOSTNAME
from lab.controlplane import nodes as node_objects
from lab.controlplane.api import Api, ApiError
from loadtests.shared.ledger import Service
from loadtests.shared.pods import EXTENDER, LEDGER, PROFILES, PURE, Json, pod
from tests.conformance.place import Place
from tests.controlplane.deadline import eventually
from tests.e2e.workload import quiet, stays

__all__ = ["EXTENDER", "LEDGER", "NOBODY", "PROFILES", "PURE", "TO_COME", "Json", "Site", "condition", "names"]

NOBODY = "nobody"
TO_COME = "to-come"
"""A scheduler that is ours, by the service's settings, and does not run."""
"""A scheduler that does not exist: its pods are left alone."""
POOL = "conformance.test/pool"

T = TypeVar("T")


@dataclass(frozen=True)
class Site:
    """One case's part of a control plane."""

    place: Place
    namespace: str
    _nodes: list[str]
    _cluster_wide: list[str]

    @property
    def api(self) -> Api:
        return self.place.api

    @property
    def service(self) -> Service:
        return self.place.service

    @property
    def kubeconfig(self) -> Path:
        return self.place.kubeconfig

    # -- addresses

    def at(self, plural: str, name: str = "", *, group: str = "", sub: str = "") -> str:
        """The path of objects in this namespace: all, one, or one's subresource. `group`: such as `batch/v1`."""
        root = f"/apis/{group}" if group else "/api/v1"
        return "/".join(part for part in (root, "namespaces", self.namespace, plural, name, sub) if part)

    def pods_at(self, name: str = "", sub: str = "") -> str:
        return self.at("pods", name, sub=sub)

    def maps_at(self, name: str = "") -> str:
        return self.at("configmaps", name)

    def jobs_at(self, name: str = "") -> str:
        return self.at("jobs", name, group="batch/v1")

    def resources_at(self, name: str = "", sub: str = "") -> str:
        return self.at("ephemeralresources", name, group="escher.dev/v1alpha1", sub=sub)

    # -- requests that show more than an answer's body

    def raw(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json", **query: str | int
    ) -> httpx.Response:
        """The answer, whatever its status. A body of bytes is sent as it is."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type}
        return self.place.http.request(method, path, content=content, params=query, headers=headers)

    def refusal(self, call: Callable[[], object], status: int, reason: str) -> str:
        """`call` is refused with this status and reason; the message."""
        with pytest.raises(ApiError) as caught:
            call()
        assert (caught.value.status, caught.value.reason) == (status, reason), caught.value
        return caught.value.message

    @contextmanager
    def watch(self, path: str, **query: str | int) -> Iterator[Iterator[Json]]:
        """The events of a watch as they come. It ends by itself after some time, so that no case waits for ever."""
        params = {"watch": "1", "timeoutSeconds": 20, **query}
        with self.place.http.stream("GET", path, params=params, timeout=40) as answer:
            if answer.is_error:
                said = json.loads(answer.read())
                raise ApiError(answer.status_code, said.get("reason", ""), said.get("message", ""))
            lines: Generator[Json, None, None] = (json.loads(line) for line in answer.iter_lines())
            with closing(lines):
                yield lines

    def watched(self, path: str, until: str, **query: str | int) -> list[tuple[str, str]]:
        """Types and names of a watch's events, up to the first about the object `until`, which is left out."""
        found: list[tuple[str, str]] = []
        with self.watch(path, **query) as events:
            for event in events:
                assert event["type"] != "ERROR", event
                if event["object"]["metadata"].get("name") == until:
                    return found
                found.append((event["type"], event["object"]["metadata"]["name"]))
        raise AssertionError(f"the watch ended before it told of {until}: {found}")

    # -- nodes

    def nodes(
        self,
        count: int,
        *,
        cpu: str | int = 8,
        pods: int = 110,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Json] = (),
        **extra: str | int,
    ) -> list[str]:
        """So many more nodes of this case's own; its pods go to them and nowhere else."""
        offered = {"cpu": str(cpu), "memory": "32Gi", "pods": str(pods)} | {k: str(v) for k, v in extra.items()}
        made = [f"{self.namespace}-n{len(self._nodes) + index}" for index in range(count)]
        self._nodes.extend(made)
        objects = [node_objects.node(name, offered, labels={**self.pool, **(labels or {})}) for name in made]
        for each in objects:
            each["spec"] = {"taints": list(taints)}
            self.api.post("/api/v1/nodes", each)
        wanted = set(made)
        eventually(lambda: wanted <= self.service.cluster_state().keys(), what="the service seeing the nodes")
        return made

    def node(self, **more: Any) -> str:
        [made] = self.nodes(1, **more)
        return made

    @property
    def pool(self) -> dict[str, str]:
        return {POOL: self.namespace}

    def node_at(self, name: str, sub: str = "") -> str:
        return f"/api/v1/nodes/{name}" + (f"/{sub}" if sub else "")

    def patch_node(self, name: str, **fields: Any) -> Json:
        """A merge patch of the node; `status` goes to its subresource."""
        sub = "status" if "status" in fields else ""
        return self.api.patch(self.node_at(name, sub), fields)

    def cordon(self, node: str) -> None:
        """No pod may come to the node, and kube-scheduler knows: nodes and pods reach it by different watches."""
        self.patch_node(node, spec={"unschedulable": True})

        def known() -> bool:
            [probe] = self.create(self.pod(f"probe-{len(self.pods())}", PURE, selector={HOSTNAME: node}))
            eventually(lambda: condition(self.read(probe)), what=f"a word of kube-scheduler about {probe}")
            bound = probe in self.bound()
            self.delete(probe)
            return not bound

        eventually(known, what=f"kube-scheduler heeding the cordon of {node}")

    def offer(self, node: str, **amounts: str | None) -> None:
        """The node's capacity and allocatable say so from now on."""
        self.patch_node(node, status={"capacity": amounts, "allocatable": amounts})

    def offers(self, node: str, key: str) -> tuple[str | None, str | None]:
        """The node's capacity and allocatable of a resource."""
        status = self.api.get(self.node_at(node))["status"]
        return status["capacity"].get(key), status["allocatable"].get(key)

    # -- pods

    def pod(self, name: str, scheduler: str = EXTENDER, **more: Any) -> Json:
        """A pod for this case's nodes, if it has made any."""
        more.setdefault("selector", self.pool if self._nodes else {})
        return pod(name, scheduler, **more)

    def gang(self, name: str, size: int, scheduler: str = EXTENDER, **more: Any) -> list[Json]:
        more.setdefault("quorum", size)
        return [self.pod(f"{name}-{index}", scheduler, gang=name, **more) for index in range(size)]

    def create(self, *pods: Json) -> list[str]:
        """The pods exist, made one after the other. Their names."""
        return [self.api.post(self.pods_at(), each)["metadata"]["name"] for each in pods]

    def put(self, name: str, scheduler: str = EXTENDER, **more: Any) -> Json:
        """A pod that is made and bound. What it is then."""
        self.until_bound(self.create(self.pod(name, scheduler, **more)))
        return self.read(name)

    def read(self, name: str) -> Json:
        return self.api.get(self.pods_at(name))

    def pods(self) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in self.api.list_all(self.pods_at())}

    def bound(self, wanted: Iterable[str] | None = None) -> dict[str, str]:
        """Node by name of the pods that are bound, of these or of all."""
        found = {name: each["spec"].get("nodeName") for name, each in self.pods().items()}
        chosen = found.keys() if wanted is None else set(wanted)
        return {name: node for name, node in found.items() if node and name in chosen}

    def until_bound(self, wanted: Iterable[str], *, within: float = 20) -> dict[str, str]:
        names = set(wanted)
        try:
            eventually(lambda: self.bound(names).keys() == names, within=within)
        except AssertionError:
            conditions = {name: condition(each) for name, each in self.pods().items() if name in names}
            raise AssertionError(f"not all bound within {within} s: {conditions}") from None
        return self.bound(names)

    def until_rejected(self, *wanted: str, within: float = 20) -> str:
        """kube-scheduler says that these cannot be placed now. What it says of the first."""

        def said() -> bool:
            return all(condition(self.read(name)).get("reason") == "Unschedulable" for name in wanted)

        eventually(said, within=within, what=f"the rejection of {wanted}")
        return str(condition(self.read(wanted[0]))["message"])

    def until_phase(self, name: str, phase: str) -> Json:
        eventually(lambda: self.read(name)["status"].get("phase") == phase, what=f"{name} becoming {phase}")
        return self.read(name)

    def bind(self, name: str, node: str, **metadata: Any) -> Json:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, **metadata},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        return self.api.post(self.pods_at(name, "binding"), body)

    def delete(self, *wanted: str) -> None:
        """The pods are gone."""
        for name in wanted:
            self.api.delete(self.pods_at(name), gracePeriodSeconds=0)
        eventually(lambda: not set(wanted) & self.pods().keys(), what=f"the end of {wanted}")

    def annotate(self, path: str, **annotations: str | None) -> Json:
        return self.api.patch(path, {"metadata": {"annotations": annotations}})

    def settles(self, look: Callable[[], T], *, during: float = 0.6, what: str = "it") -> T:
        """`look` answers the same for a while: that what it would show does not happen."""
        return stays(look, during=during, what=what)

    def calms(self, look: Callable[[], T], *, during: float = 0.8) -> T:
        """What `look` answers once it has answered the same for a while: nothing goes on for ever."""
        return quiet(look, during=during)

    def events(self, reason: str, name: str = "") -> list[Json]:
        """What was told of this namespace's objects for that reason."""
        found = self.api.list_all(self.at("events", group="events.k8s.io/v1"))
        return [each for each in found if each["reason"] == reason and name in ("", each["regarding"]["name"])]

    def until_told(self, reason: str, name: str = "") -> Json:
        return eventually(lambda: self.events(reason, name), what=f"the event {reason}")[0]

    # -- other objects

    def config_map(self, name: str, data: Mapping[str, str] | None = None, **metadata: Any) -> Json:
        return self.api.post(self.maps_at(), {"metadata": {"name": name, **metadata}, "data": dict(data or {})})

    def cluster_wide(self, collection: str, body: Json) -> Json:
        """An object without a namespace, removed after the case."""
        made = self.api.post(collection, body)
        self._cluster_wide.append(f"{collection}/{made['metadata']['name']}")
        return made

    def priority(self, value: int, **more: Any) -> str:
        """A priority class of this value."""
        name = f"{self.namespace}-p{value}"
        self.cluster_wide(
            "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value, **more}
        )
        tried = pod("tried", NOBODY, priority_class=name)
        # Admission hears of a class a moment after it has been made.
        eventually(lambda: self.raw("POST", self.pods_at(), tried, dryRun="All").status_code == 201, what="the class")
        return name

    # -- ephemeral resources

    def key(self, resource: str) -> str:
        return f"escher.dev/{self.namespace}.{resource}"

    def set_resource(self, resource: str, capacity: int, node_spec: object = None, **more: object) -> Json:
        path = f"/v1/namespaces/{self.namespace}/resources/{resource}"
        return self.service.call("PUT", path, {"capacity": capacity, "node_spec": node_spec, **more})

    # -- what the service counts

    def metric(self, name: str, **labels: str) -> int:
        """The sum of the samples of that name with these labels. Read by hand: cases ask many times a second."""
        text = self.service.raw("GET", "/metrics").text
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        samples = (line.rpartition(" ") for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{")))
        return int(sum(float(value) for head, _, value in samples if all(each in head for each in wanted)))

    def calls(self, verb: str) -> int:
        """How often kube-scheduler has called."""
        return self.metric("escher_extender_duration_seconds_count", verb=verb)

    def filter_calls(self) -> int:
        return self.calls("filter")

    # -- the end

    def clear(self) -> None:
        """Nothing of this case takes room any more, and its namespace is on its way out."""
        self.api.delete(self.jobs_at(), propagationPolicy="Background")
        self.api.delete(self.resources_at())
        eventually(self._without_pods, what="the end of the case's pods")
        for path in [*map(self.node_at, self._nodes), *self._cluster_wide]:
            self._delete_if_there(path)
        self._delete_if_there(f"/api/v1/namespaces/{self.namespace}")

    def _without_pods(self) -> bool:
        found = self.pods()
        for name, each in found.items():
            if each["metadata"].get("finalizers"):
                with suppress(ApiError):
                    self.api.patch(self.pods_at(name), {"metadata": {"finalizers": None}})
        if found:
            self.api.delete(self.pods_at(), gracePeriodSeconds=0)
        return not found

    def _delete_if_there(self, path: str) -> None:
        try:
            self.api.delete(path)
        except ApiError as error:
            if error.status != 404:
                raise


def condition(obj: Json, kind: str = "PodScheduled") -> Json:
    """The object's condition of that type; empty if it has none."""
    for each in obj.get("status", {}).get("conditions") or []:
        if each["type"] == kind:
            return dict(each)
    return {}


def names(items: Iterable[Json]) -> list[str]:
    return [each["metadata"]["name"] for each in items]
