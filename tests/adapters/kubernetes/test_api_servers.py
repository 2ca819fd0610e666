"""Reflector, writers and definition against an API server: what the fakes of the other tests take for granted.

Each case on the embedded one, and with the mark e2e on a real kube-apiserver.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from extender.adapters.kubernetes.codecs import kinds
from extender.adapters.kubernetes.codecs.store import ApiIntentStore, ApiResourceStore
from extender.adapters.kubernetes.reflectors.reflector import Reflector
from extender.adapters.kubernetes.reflectors.watched_kind import WatchedKind
from extender.adapters.kubernetes.writers.writers import (
    ApiBinder,
    ApiEvictor,
    ApiNodeStatusWriter,
    ApiRecorder,
    ApiWaker,
)
from extender.adapters.translation.objects import WAKE
from extender.app.contracts.kind import Declared, Identity, Replacement, identity
from extender.app.contracts.ports import (
    EphemeralResource,
    EventType,
    Former,
    Intent,
    NodeChoice,
    Notice,
    PodOwner,
    PodRef,
    ResourceChange,
    ResourceStatus,
)
from extender.core.names import EphemeralName
from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, Sources, from_kubeconfig
from extender.kube.client.requests import METADATA_ONLY
from extender.kube.errors import Gone, Occupied, Refused, Terminating, Unavailable
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.settings.settings import OWN_NAMESPACE
from extender.shipped.crds import shipped_definitions
from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION
from kubesim.local import LocalCluster
from lab.controlplane.api import Access, Api, ApiError
from lab.controlplane.clusters import RealCluster
from loadtests.shared import pods
from tests.adapters.kubernetes.manifests import Json, encode
from tests.adapters.kubernetes.scripted_api import RecordingSink
from tests.controlplane.deadline import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.older]

PODS = "/api/v1/namespaces/default/pods"
RESOURCES = "/apis/escher.dev/v1alpha1/namespaces/default/ephemeralresources"
NAME = EphemeralName("default", "data1")


@dataclasses.dataclass
class Place:
    """An API server with three nodes and our definitions, and without the service."""

    admin: Api
    kubeconfig: Path
    restart: Callable[[], None] | None = None
    """Its process is killed and started anew, where that can be done."""


@contextlib.contextmanager
def real() -> Iterator[Place]:
    with RealCluster.start(nodes=3, service=False) as started:

        def restart() -> None:
            started.kill("kube-apiserver")
            started.start_component("kube-apiserver")

        yield Place(started.admin, started.kubeconfig, restart)


@contextlib.contextmanager
def embedded(run: LocalCluster) -> Iterator[Place]:
    with contextlib.closing(Api(Access(run.kubeconfig))) as admin:
        run.empty()
        run.add_nodes(3)
        admin.post("/api/v1/namespaces", {"metadata": {"name": OWN_NAMESPACE}})
        for definition in shipped_definitions():
            admin.post(CUSTOM_RESOURCE_DEFINITION.path(), definition)
        yield Place(admin, run.kubeconfig)
        run.empty()


_REAL = pytest.param("real", marks=[pytest.mark.e2e, pytest.mark.timeout(1200)])
REAL_ONLY = pytest.mark.parametrize("cluster", [_REAL], indirect=True, scope="module")


@pytest.fixture(scope="module", params=["embedded", _REAL])
def cluster(request: pytest.FixtureRequest, state_folder: Path) -> Iterator[Place]:
    with real() if request.param == "real" else embedded(request.getfixturevalue("kubesim_run")) as made:
        yield made


@pytest.fixture
async def connection(cluster: Place) -> AsyncIterator[Connection]:
    async with Connection(await Credentials.load(from_kubeconfig(cluster.kubeconfig))) as made:
        yield made


def create_pod(cluster: Place, name: str) -> PodRef:
    spec = {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]}
    made = cluster.admin.post(PODS, {"metadata": {"name": name}, "spec": spec})
    return PodRef("default", name, PodUid(made["metadata"]["uid"]))


async def until(look: Callable[[], object]) -> None:
    await asyncio.to_thread(eventually, look)


@contextlib.asynccontextmanager
async def following(reflector: Reflector[Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(reflector.run())
    try:
        await reflector.synced.wait()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_pod_is_bound_once_and_never_for_a_namesake(cluster: Place, connection: Connection) -> None:
    binder = ApiBinder(connection)
    pod = create_pod(cluster, "bound")
    namesake = dataclasses.replace(pod, uid=PodUid("another"))
    with pytest.raises(Gone, match="UID in precondition"):
        await binder.bind(namesake, NodeName("node-0"))
    assert await binder.node_of(pod) is None
    await binder.bind(pod, NodeName("node-1"))
    assert await binder.node_of(pod) == "node-1"
    with pytest.raises(Occupied, match="already assigned"):
        await binder.bind(pod, NodeName("node-2"))
    with pytest.raises(Gone):
        await binder.bind(dataclasses.replace(pod, name="nobody"), NodeName("node-0"))


async def test_a_pod_is_woken_and_never_a_namesake(cluster: Place, connection: Connection) -> None:
    pod = create_pod(cluster, "woken")
    await ApiWaker(connection).wake(pod, "t1")
    assert cluster.admin.get(f"{PODS}/woken")["metadata"]["annotations"] == {WAKE: "t1"}
    with pytest.raises(Gone):
        await ApiWaker(connection).wake(dataclasses.replace(pod, uid=PodUid("another")), "t2")
    for _ in range(2):
        await ApiWaker(connection).tidy(pod)
        assert "annotations" not in cluster.admin.get(f"{PODS}/woken")["metadata"]


async def test_our_gate_is_opened_as_often_as_wanted_and_those_of_others_stay(
    cluster: Place, connection: Connection
) -> None:
    gated = pods.pod("gated", "nobody", gated=True)
    gated["spec"]["schedulingGates"].append({"name": "queue.example/quota"})
    made = cluster.admin.post(PODS, gated)
    pod = PodRef("default", "gated", PodUid(made["metadata"]["uid"]))
    with pytest.raises(Gone):
        await ApiWaker(connection).open_gate(dataclasses.replace(pod, uid=PodUid("another")))
    for _ in range(2):
        await ApiWaker(connection).open_gate(pod)
        assert cluster.admin.get(f"{PODS}/gated")["spec"]["schedulingGates"] == [{"name": "queue.example/quota"}]


async def test_a_pod_is_evicted_as_its_budget_allows_and_never_a_namesake(
    cluster: Place, connection: Connection
) -> None:
    pod, evictor = create_pod(cluster, "evicted"), ApiEvictor(connection)
    await ApiBinder(connection).bind(pod, NodeName("node-1"))
    with pytest.raises(Refused):
        await evictor.evict(dataclasses.replace(pod, uid=PodUid("another")))
    await evictor.evict(pod)
    eventually(lambda: "evicted" not in {each["metadata"]["name"] for each in cluster.admin.list_all(PODS)})
    with pytest.raises(Gone):
        await evictor.evict(pod)


async def test_an_event_is_stored_once_for_kubectl_describe(cluster: Place, connection: Connection) -> None:
    pod = create_pod(cluster, "noted")
    for _ in range(2):
        await ApiRecorder(connection).record(Notice(pod, EventType.WARNING, "GangWaits", "ä" * 2000))
    found = cluster.admin.get("/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.uid={pod.uid}")
    assert [each["reason"] for each in found["items"]] == ["GangWaits"]


async def test_node_status_gains_and_loses_resources(cluster: Place, connection: Connection) -> None:
    writer = ApiNodeStatusWriter(connection)
    ours = ResourceKey("escher.dev/default.data1")

    def shown() -> tuple[Any, Any]:
        status = cluster.admin.get("/api/v1/nodes/node-0")["status"]
        return status["capacity"].get(ours), status["allocatable"].get(ours)

    await writer.advertise(NodeName("node-0"), {ours: 3}, [ResourceKey("escher.dev/default.never")])
    assert shown() == ("3", "3")
    await writer.advertise(NodeName("node-0"), {ours: 0}, [])
    assert shown() == (None, None)
    with pytest.raises(Gone):
        await writer.advertise(NodeName("nobody"), {ours: 3}, [])


async def test_answers_to_writes_can_be_spared_spec_and_status(connection: Connection) -> None:
    path = "/api/v1/nodes/node-0/status"
    short = await connection.request(
        "PATCH", path, b'{"status":{}}', content_type="application/merge-patch+json", accept=METADATA_ONLY
    )
    assert json.loads(short)["kind"] == "PartialObjectMetadata"


async def test_ephemeral_resources_are_stored(cluster: Place, connection: Connection) -> None:
    store = ApiResourceStore(connection)
    now = float(int(time.time()))
    tried = await store.create(EphemeralResource(NAME, {NodeName("node-0"): 3}), dry_run=True)
    assert tried.nodes == {"node-0": 3}
    with pytest.raises(Gone):
        await store.get(NAME)
    made = await store.create(EphemeralResource(NAME, {NodeName("node-0"): 3}, expires_at=now + 0.5))
    with pytest.raises(Occupied):
        await store.create(EphemeralResource(NAME, {}))
    assert made.expires_at == now + 0.5
    owner = PodOwner("p1", PodUid("u1"))
    merged = await store.merge(NAME, ResourceChange({NodeName("node-0"): None, NodeName("node-1"): 5}, owner=owner))
    assert (merged.nodes, merged.owner, merged.expires_at) == ({"node-1": 5}, owner, None)
    with pytest.raises(Occupied):
        await store.merge(NAME, ResourceChange({}), if_version=made.resource_version)
    first = await store.set_status(merged, ResourceStatus(True, "Written", "x", {NodeName("node-2"): 1}))
    second = await store.set_status(first, ResourceStatus(True, "Written", "y", {NodeName("node-0"): 2}))
    assert second.chosen == {"node-0": 2}
    assert second.observed_generation == second.generation == 2
    stranger = dataclasses.replace(second, uid="another")
    with pytest.raises(Gone):
        await store.set_status(stranger, ResourceStatus(chosen=None, ready=False, reason="Wrong", message=""))
    assert await store.get(NAME) == second
    with pytest.raises(Occupied):
        await store.delete(NAME, if_version=first.resource_version)
    await store.delete(NAME, if_version=second.resource_version)
    await store.delete(NAME)


async def test_what_finalizers_hold_is_told_by_the_deletion(cluster: Place, connection: Connection) -> None:
    store, name = ApiResourceStore(connection), EphemeralName("default", "held")
    await store.create(EphemeralResource(name, {NodeName("node-0"): 3}))
    cluster.admin.patch(f"{RESOURCES}/held", {"metadata": {"finalizers": ["example.com/keep"]}})
    tried = await store.delete(name, dry_run=True)
    assert tried is not None
    assert tried.finalizers == ("example.com/keep",)
    assert not (await store.get(name)).deleting
    for _ in range(2):
        left = await store.delete(name)
        assert left is not None
        assert (left.deleting, left.finalizers, left.desired()) == (True, ("example.com/keep",), {})
    cluster.admin.patch(f"{RESOURCES}/held", {"metadata": {"finalizers": []}})
    with pytest.raises(Gone):
        await store.delete(name, there=True)


async def test_an_intent_is_stored_and_given_up(connection: Connection) -> None:
    store, name = ApiIntentStore(connection), Identity(OWN_NAMESPACE, "transaction-1")
    was = EphemeralResource(NAME, {NodeName("node-0"): 3}, expires_at=float(int(time.time())) + 0.5, mark="abc")
    chosen = EphemeralResource(
        EphemeralName("other", "b", shared=True),
        {},
        capacity=3,
        choice=NodeChoice(available={ResourceKey("cpu"): 1500}, limit=2),
        owner=PodOwner("worker", PodUid("u")),
    )
    formers = [Former(identity(NAME), was, True), Former(identity(chosen.name), chosen)]
    intent = Intent((*formers, Former(Identity("default", "new"), None)))
    made = await store.create(Declared(name, intent))
    assert (made.spec, made.problem) == (intent, "")
    given_up = dataclasses.replace(intent, given_up=True)
    after = await store.merge(name, Replacement(intent, given_up), if_version=made.resource_version)
    assert (after.spec, after.uid) == (given_up, made.uid)
    with pytest.raises(Occupied):
        await store.merge(name, Replacement(intent, given_up), if_version=made.resource_version)
    with pytest.raises(Occupied):
        await store.delete(name, if_version=made.resource_version)
    assert await store.delete(name, if_version=after.resource_version, there=True) is None


async def test_an_intent_about_thousands_of_nodes_is_stored(connection: Connection) -> None:
    store, name = ApiIntentStore(connection), Identity(OWN_NAMESPACE, "transaction-2")
    nodes = {NodeName(f"node-{number:05}.zone-a.example.com"): number for number in range(5000)}
    objects = [EphemeralResource(EphemeralName("default", f"r{index}"), nodes) for index in range(4)]
    intent = Intent(tuple(Former(identity(each.name), each) for each in objects))
    assert (await store.create(Declared(name, intent))).spec == intent
    await store.delete(name)


async def test_what_an_intent_may_not_say_is_refused_by_its_definition(cluster: Place) -> None:
    path = f"/apis/escher.dev/v1alpha1/namespaces/{OWN_NAMESPACE}/transactionintents"
    head = {"apiVersion": "escher.dev/v1alpha1", "kind": "TransactionIntent", "metadata": {"name": "transaction-3"}}
    for objects in ("a", [{"name": "a"}], [{"namespace": "a", "name": "a"}] * 1001):
        with pytest.raises(ApiError, match="objects"):
            cluster.admin.post(path, {**head, "spec": {"objects": objects}})


async def test_a_namespace_that_ends_takes_nothing_new(cluster: Place, connection: Connection) -> None:
    cluster.admin.post("/api/v1/namespaces", {"metadata": {"name": "ending"}})
    store, kept = ApiResourceStore(connection), EphemeralName("ending", "kept")
    path = "/apis/escher.dev/v1alpha1/namespaces/ending/ephemeralresources/kept"
    await store.create(EphemeralResource(kept, {}))
    cluster.admin.patch(path, {"metadata": {"finalizers": ["example.com/keep"]}})
    cluster.admin.delete("/api/v1/namespaces/ending")
    with pytest.raises(Terminating, match="being terminated"):
        await store.create(EphemeralResource(EphemeralName("ending", "new"), {}))
    cluster.admin.patch(path, {"metadata": {"finalizers": []}})


async def test_a_choice_of_nodes_is_stored_and_nodes_can_be_merged_into_it(connection: Connection) -> None:
    store = ApiResourceStore(connection)
    choice = NodeChoice(available={ResourceKey("cpu"): 1500}, limit=2)
    name = EphemeralName("default", "chosen")
    made = await store.create(EphemeralResource(name, {}, capacity=4, choice=choice))
    assert (made.capacity, made.choice, made.problem) == (4, choice, "")
    merged = await store.merge(name, ResourceChange({NodeName("node-0"): 0}))
    assert (merged.nodes, merged.choice) == ({"node-0": 0}, choice)
    await store.delete(name)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, "write nodes"),
        ({"nodes": {"a": -1}}, "greater than or equal to 0"),
        # Kubernetes 1.35 says integer, 1.36 int64.
        ({"nodes": {"a": 1.5}}, "of type int"),
        ({"nodes": {}, "capacity": 1, "nodeSpec": {}}, "not both"),
        ({"capacity": -1, "nodeSpec": {}}, "greater than or equal to 0"),
        ({"capacity": 1}, "capacity needs nodeSpec"),
        ({"nodeSpec": {}}, "nodeSpec needs capacity"),
        ({"nodes": {}, "numNodes": 3}, "numNodes limits"),
        ({"capacity": 1, "nodeSpec": {}, "numNodes": 0}, "greater than or equal to 1"),
        ({"capacity": 1, "nodeSpec": {"nodeName": "a", "matchLabels": {}}}, "at most 1"),
        ({"capacity": 1, "nodeSpec": {"available": {"cpu": "-2"}}}, "should match"),
        ({"capacity": 1, "nodeSpec": {"available": {"cpu": -2}}}, "greater than or equal to 0"),
        ({"nodes": {}, "ttlSeconds": 0}, "greater than or equal to 1"),
        ({"nodes": {}, "ttlSeconds": 5, "expiresAt": "2027-01-01T00:00:00Z"}, "not both"),
        ({"nodes": {}, "expiresAt": "tomorrow"}, "date-time"),
        ({"nodes": {}, "owner": {"name": "a"}}, "Required"),
        ({"nodes": {}, "owner": {"name": "a", "uid": "b", "kind": "Job"}}, "supported values"),
    ],
)
async def test_the_definition_refuses_what_the_api_refuses(connection: Connection, spec: Json, why: str) -> None:
    body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": "bad"}, "spec": spec}
    with pytest.raises(Refused, match=why):
        await connection.request("POST", f"{RESOURCES}?dryRun=All", encode(body))


@pytest.mark.parametrize(("name", "shared", "accepted"), [
    ("a.b", False, False), ("a" * 61, False, True), ("a" * 62, False, False), ("a" * 63, True, True),
    ("a" * 64, True, False),
])  # fmt: skip
async def test_the_definition_knows_how_long_a_name_may_be(
    connection: Connection, name: str, shared: bool, accepted: bool
) -> None:
    spec = {"nodes": {}, "shared": shared}
    body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": name}, "spec": spec}
    expected = contextlib.nullcontext() if accepted else pytest.raises(Refused, match=r"metadata\.name")
    with expected:
        await connection.request("POST", f"{RESOURCES}?dryRun=All", encode(body))


async def test_a_shared_resource_stays_shared(cluster: Place, connection: Connection) -> None:
    body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": "fixed"}}
    cluster.admin.post(RESOURCES, {**body, "spec": {"nodes": {}}})
    with pytest.raises(Refused, match="shared cannot be changed"):
        await connection.request(
            "PATCH", f"{RESOURCES}/fixed", b'{"spec":{"shared":true}}', content_type="application/merge-patch+json"
        )


@REAL_ONLY
async def test_a_reflector_sees_pages_changes_and_a_restart(cluster: Place, connection: Connection) -> None:
    for number in range(7):
        create_pod(cluster, f"listed-{number}")
    sink: RecordingSink[Any] = RecordingSink()
    reasons: list[str] = []
    reflector = Reflector(
        connection, kinds.pods(5.0), sink, page_size=3, on_relist=lambda kind, reason: reasons.append(reason)
    )
    async with following(reflector):
        assert {f"listed-{number}" for number in range(7)} <= set(sink.items)
        create_pod(cluster, "later")
        await until(lambda: "later" in sink.items)
        cluster.admin.delete(f"{PODS}/later", gracePeriodSeconds=0)
        await until(lambda: "later" not in sink.items)
        assert cluster.restart is not None
        await asyncio.to_thread(cluster.restart)
        create_pod(cluster, "after")
        await asyncio.to_thread(eventually, lambda: "after" in sink.items, within=60)
        there = {each["metadata"]["name"] for each in cluster.admin.list_all(PODS)}
        await until(lambda: set(sink.items) == there)
    assert reasons[0] == "started"


@REAL_ONLY
async def test_a_version_that_is_too_old_is_an_error_in_the_watch(cluster: Place, connection: Connection) -> None:
    kind = kinds.pods(5.0)
    # One that has just begun to run knows nothing of before; another may remember from the first version on.
    assert cluster.restart is not None
    await asyncio.to_thread(cluster.restart)
    async with contextlib.aclosing(connection.lines(f"{kind.path}?watch=1&resourceVersion=1", silence=20)) as lines:
        event = kind.read_event(await anext(lines))
    assert event.type == "ERROR"
    assert json.loads(event.raw)["code"] == 410


async def test_a_reflector_waits_for_a_definition_that_is_not_there_yet(cluster: Place, connection: Connection) -> None:
    paused: list[float] = []
    waiting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        paused.append(seconds)
        waiting.set()
        await asyncio.sleep(0.02)

    kind = WatchedKind("later", "/apis/escher.dev/v1alpha1/laters", dict, lambda item: item)
    reflector = Reflector(connection, kind, RecordingSink[Any](), sleep=sleep)
    task = asyncio.create_task(reflector.run())
    await waiting.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not reflector.synced.is_set()


async def test_with_credentials_that_are_wrong_it_is_unavailable(cluster: Place) -> None:
    async def load(configuration: Any) -> Sources:
        sources = await from_kubeconfig(cluster.kubeconfig)(configuration)
        configuration.api_key["BearerToken"] = "Bearer wrong"
        return sources

    async with Connection(await Credentials.load(load)) as connection:
        with pytest.raises(Unavailable, match="Unauthorized"):
            await connection.request("GET", "/api/v1/nodes")
