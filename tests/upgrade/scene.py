"""What there is in the cluster when the version changes: gangs in each phase, resources and policies of each kind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from extender.shipped.crds import documents
from lab.controlplane import nodes
from lab.controlplane.api import Api, ApiError
from lab.controlplane.clusters import RealCluster
from loadtests.shared.ledger import Service
from loadtests.shared.pods import EXTENDER, LEDGER, Json, pod
from tests.controlplane.deadline import eventually

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "upgrade.md").read_text()
NAMESPACE = "team"
TO_COME = "escher-to-come"
"""A scheduler that is ours, as the service is told, and that does not run: its pods are not tried."""
SETTINGS = f"scheduler_names: [{EXTENDER}, {LEDGER}, {TO_COME}]\n"
DATA: dict[str, Any] = {f"escher.dev/{NAMESPACE}.data": 1}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
RESOURCES = f"/apis/escher.dev/v1alpha1/namespaces/{NAMESPACE}/ephemeralresources"
POLICIES = f"/apis/escher.dev/v1alpha1/namespaces/{NAMESPACE}/escherpolicies"
KINDS = ("ephemeralresources.escher.dev", "escherpolicies.escher.dev")
OFFERED = {"cpu": "8", "memory": "32Gi", "pods": "110"}
COLLECTIONS = ("/api/v1/nodes", PODS, RESOURCES, POLICIES)

RUNS = ("runs-0", "runs-1", "runs-2", "holder", "web-0", "web-1")
GATED, REJECTED, AT_BARRIER = 8, 7, 2
"""How many members: of the gang behind our gate, of that which kube-scheduler has turned away, at a barrier."""


def started() -> RealCluster:
    """A cluster without nodes and service, in which every pod is sent to the extender, whichever version that is."""
    return RealCluster.start(service=False, marks=False, audit=True)


def define(api: Api, files: Iterable[Path], *, queues: bool) -> None:
    """The definitions are those of the files, and in force. `queues`: whether they have policies of the type queue."""
    for file in files:
        [definition] = documents(file)
        path = f"{DEFINITIONS}/{definition['metadata']['name']}"
        there = api.get(path)
        api.put(path, {**there, "spec": definition["spec"]})
    eventually(lambda: takes_queues(api) is queues, what="the definitions in force")


def takes_queues(api: Api) -> bool | None:
    """Whether the definition in force has policies of the type queue, which the former one lacks; None: the API server
    is just changing it."""
    try:
        api.post(POLICIES, policy("tried", "queue", parameters={"capacity": 2}), dryRun="All")
    except ApiError as error:
        if error.status == 503:
            return None
        if error.status != 422:
            raise
        return False
    return True


def policy(name: str, kind: str, **spec: Any) -> Json:
    said = {"type": kind, **spec}
    return {"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": name}, "spec": said}


def resource(name: str, **spec: Any) -> Json:
    manifest = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": name}}
    return {**manifest, "spec": spec}


def gang(name: str, size: int, scheduler: str = EXTENDER, **more: Any) -> list[Json]:
    """Its members; the quorum is all of them."""
    return [pod(f"{name}-{index}", scheduler, gang=name, quorum=size, **more) for index in range(size)]


def furnish(api: Api, service: Service) -> None:
    """All of it is there, as the service that runs has it; the last two are at their barrier."""
    for number in range(6):
        labels = {"disk": "ssd" if number < 3 else "hdd"}
        api.post("/api/v1/nodes", nodes.node(f"node-{number}", OFFERED, labels=labels))
    eventually(lambda: len(service.cluster_state()) == 6, what="the service seeing the nodes")

    service.call("PUT", f"/v1/namespaces/{NAMESPACE}/resources/data", {"capacity": 4, "node_spec": "node-0"})
    api.post(RESOURCES, resource("licence", capacity=2, nodeSpec={"matchLabels": {"disk": "ssd"}}, shared=True))
    api.post(RESOURCES, resource("ends", nodes={"node-1": 3}, expiresAt="2099-01-31T12:00:00Z"))
    api.post(RESOURCES, resource("astray", nodes={"node-99": 1}))
    api.post(POLICIES, policy("apart", "anti-affinity", selector={"matchLabels": {"app": "web"}}))
    api.post(POLICIES, policy("fast", "objective", parameters={"label": "disk"}))
    eventually(lambda: len(standings(api, RESOURCES)) == 4, what="the resources' conditions")
    eventually(lambda: len(standings(api, POLICIES)) == 2, what="the policies' conditions")

    # First, for there is but one node where it can be.
    create(api, pod("holder", **DATA))
    until_bound(api, ["holder"])
    create(api, *gang("runs", 3, cpu=4))
    create(api, *(pod(f"web-{number}", labels={"app": "web"}, cpu="100m") for number in range(2)))
    until_bound(api, RUNS)
    create(api, *gang("gated", GATED, cpu=8, gated=True))
    create(api, *gang("rejected", REJECTED, LEDGER, cpu=8))
    for name in ("gated", "rejected"):
        until_waiting(service, name)
    third = pod("late-2", TO_COME, gang="late", quorum=3)
    create(api, *gang("late", 3)[:AT_BARRIER], third)
    eventually(lambda: service.metric("escher_bind_barrier_waiting") == AT_BARRIER, what="two at their barrier")


def create(api: Api, *pods: Json) -> None:
    for each in pods:
        api.post(PODS, each)


def until_bound(api: Api, names: Iterable[str], *, within: float = 30) -> None:
    wanted = set(names)
    eventually(lambda: wanted <= placed(api).keys(), within=within, what=f"{sorted(wanted)} bound")


def until_running(api: Api, names: Iterable[str]) -> None:
    def running() -> set[str]:
        return {each["metadata"]["name"] for each in api.list_all(PODS) if each["status"].get("phase") == "Running"}

    eventually(lambda: set(names) <= running(), what=f"{sorted(names)} running")


def members(name: str, size: int) -> list[str]:
    return [f"{name}-{index}" for index in range(size)]


def add_nodes(api: Api, count: int, name: str = "more") -> None:
    """So many more, each of which one member fills."""
    for number in range(count):
        api.post("/api/v1/nodes", nodes.node(f"{name}-{number}", OFFERED))


def apply(cluster: RealCluster, command: str) -> None:
    """What docs/upgrade.md says to type has been typed, and has succeeded."""
    assert f"`{command}`" in PAGE, f"{command} is not in docs/upgrade.md"
    words = [str(Path(sys.executable).with_name("kubectl")), "--kubeconfig", str(cluster.kubeconfig)]
    ended = subprocess.run(
        [*words, *command.split()[1:]], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr


def phase(service: Service, name: str) -> str:
    return str(service.raw("GET", f"/v1/namespaces/{NAMESPACE}/gangs/{name}").json().get("phase"))


def until_waiting(service: Service, name: str) -> None:
    eventually(lambda: phase(service, name) == "waiting", what=f"the gang {name} waiting")


def placed(api: Api) -> dict[str, str]:
    """Node by name, of the pods that are bound."""
    found = {each["metadata"]["name"]: each["spec"].get("nodeName") for each in api.list_all(PODS)}
    return {name: node for name, node in found.items() if node}


def identities(api: Api) -> dict[str, str]:
    """UID by name, of all pods: nobody has been evicted, or made anew, whose UID stays."""
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in api.list_all(PODS)}


def standings(api: Api, collection: str) -> dict[str, tuple[str, str]]:
    """Status and reason of the condition Ready, by name, of those that have one."""
    found = {}
    for each in api.list_all(collection):
        for condition in each.get("status", {}).get("conditions", ()):
            if condition["type"] == "Ready":
                found[each["metadata"]["name"]] = (condition["status"], condition["reason"])
    return found


def specs(api: Api, collection: str) -> dict[str, Json]:
    """What was asked for, by name."""
    return {each["metadata"]["name"]: each["spec"] for each in api.list_all(collection)}


def units(api: Api) -> dict[str, dict[str, str]]:
    """What each node has of ours."""
    found = {each["metadata"]["name"]: each["status"]["allocatable"] for each in api.list_all("/api/v1/nodes")}
    return {
        name: {key: value for key, value in status.items() if key.startswith("escher.dev/")}
        for name, status in found.items()
    }
