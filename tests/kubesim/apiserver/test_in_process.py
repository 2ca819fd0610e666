"""In process: what Escher's own adapters do with an API server in the same event loop."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable
from contextlib import aclosing

import pytest

from extender.adapters.kubernetes.codecs.kinds import pods
from extender.adapters.kubernetes.codecs.store import ApiResourceStore
from extender.adapters.kubernetes.reflectors.reflector import Reflector
from extender.adapters.kubernetes.writers.writers import (
    ApiBinder,
    ApiEvictor,
    ApiNodeStatusWriter,
    ApiRecorder,
    ApiWaker,
)
from extender.app.contracts.ports import (
    EphemeralResource,
    EventType,
    MadeChoice,
    NodeChoice,
    Notice,
    PodRef,
    ResourceChange,
    ResourceStatus,
)
from extender.core.cluster import Pod
from extender.core.names import EphemeralName
from extender.kube.client.requests import refusal
from extender.kube.errors import Expired, Gone, Occupied, Refused, Silent, Unavailable
from extender.kube.names import NodeName, PodUid, ResourceKey
from kubesim.apiserver.serving.in_process import InProcess
from tests.kubesim.apiserver.apis import MERGE, NODES, PODS, Api, node, pod

pytestmark = pytest.mark.anyio


class Sink:
    """What is known of pods."""

    def __init__(self) -> None:
        self.known: dict[str, Pod] = {}

    def replace(self, objects: Iterable[Pod]) -> Iterable[None]:
        self.known = {item.name: item for item in objects}
        return ()

    def upsert(self, item: Pod) -> None:
        self.known[item.name] = item

    def remove(self, item: Pod) -> None:
        del self.known[item.name]


def ref(api: Api, name: str = "p") -> PodRef:
    return PodRef("default", name, PodUid(api.get(f"{PODS}/{name}")["metadata"]["uid"]))


async def test_refusals_are_the_same_errors_as_over_http() -> None:
    api = Api()
    requests = InProcess(api.server)
    with pytest.raises(Gone, match='pods "none" not found'):
        await requests.request("GET", f"{PODS}/none")
    await requests.request("POST", PODS, json.dumps(pod()).encode())
    with pytest.raises(Occupied):
        await requests.request("POST", PODS, json.dumps(pod()).encode())
    with pytest.raises(Refused, match="Required value"):
        await requests.request("POST", PODS, json.dumps(pod("q", containers=[])).encode())
    api.store.compact(api.store.version)
    with pytest.raises(Expired):
        await requests.request("GET", f"{PODS}?resourceVersion=1&resourceVersionMatch=Exact")
    assert isinstance(refusal(429, b"{}"), Unavailable)


async def test_a_request_takes_its_time_and_lets_others_have_a_turn() -> None:
    api = Api()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await InProcess(api.server, latency=0.2).request("GET", PODS)
    assert loop.time() - began == pytest.approx(0.2)
    await InProcess(api.server, latency=0.2, rng=random.Random(1)).request("GET", PODS)
    assert 0.3 <= loop.time() - began <= 0.5
    turns: list[int] = []
    loop.call_soon(turns.append, 1)
    await InProcess(api.server).request("GET", PODS)
    assert turns == [1]


async def test_the_token_of_the_server_is_known_to_it() -> None:
    await InProcess(Api("secret").server).request("GET", PODS)


async def test_lines_come_without_their_ends_and_silence_is_an_error() -> None:
    api = Api()
    requests = InProcess(api.server)
    api.ok("POST", PODS, pod())
    async with aclosing(requests.lines(f"{PODS}?watch=1", silence=30)) as lines:
        assert json.loads(await anext(lines))["type"] == "ADDED"
        api.ok("DELETE", f"{PODS}/p")
        line = await anext(lines)
        assert not line.endswith(b"\n")
        await anext(lines)
        with pytest.raises(Silent):
            await anext(lines)
    with pytest.raises(Refused):
        await anext(requests.lines(f"{PODS}?watch=1&fieldSelector=x%3D1", silence=30))


async def test_a_watch_from_a_version_that_lies_ahead_has_no_bookmarks_and_is_silent() -> None:
    """As after a restore: whoever waits there would wait for ever."""
    ahead = f"{PODS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion=1000000"
    with pytest.raises(Silent):
        await anext(InProcess(Api().server).lines(ahead, silence=90))


async def test_a_reflector_follows() -> None:
    api, sink = Api(), Sink()
    for number in range(7):
        api.ok("POST", PODS, pod(f"p{number}"))
    reflector = Reflector(InProcess(api.server), pods(60.0), sink, page_size=3, watch_seconds=30, chance=lambda: 0.0)
    following = asyncio.ensure_future(reflector.run())
    await reflector.synced.wait()
    assert len(sink.known) == 7
    for _ in range(5):
        await asyncio.sleep(25)
        api.ok("DELETE", f"{PODS}/p0")
        api.ok("POST", PODS, pod("p0"))
    api.ok("DELETE", f"{PODS}/p1")
    await asyncio.sleep(1)
    assert sorted(sink.known) == ["p0", "p2", "p3", "p4", "p5", "p6"]
    assert sink.known["p0"].uid == ref(api, "p0").uid
    following.cancel()


async def test_escher_binds_evicts_wakes_and_opens_gates() -> None:
    api = Api()
    requests = InProcess(api.server)
    api.ok("POST", PODS, pod(schedulingGates=[{"name": "escher.dev/gang"}, {"name": "other"}]))
    target = ref(api)
    waker, binder = ApiWaker(requests), ApiBinder(requests)
    await waker.open_gate(target)
    assert api.get(f"{PODS}/p")["spec"]["schedulingGates"] == [{"name": "other"}]
    api.ok("PATCH", f"{PODS}/p", {"spec": {"schedulingGates": None}}, media=MERGE)
    await waker.wake(target, "1")
    assert list(api.get(f"{PODS}/p")["metadata"]["annotations"].values()) == ["1"]
    await waker.tidy(target)
    assert "annotations" not in api.get(f"{PODS}/p")["metadata"]
    namesake = PodRef("default", "p", PodUid("0"))
    for act in (binder.bind(namesake, NodeName("n")), waker.wake(namesake, "1"), waker.open_gate(namesake)):
        with pytest.raises(Gone):
            await act
    await binder.bind(target, NodeName("n"))
    assert await binder.node_of(target) == "n"
    with pytest.raises(Occupied):
        await binder.bind(target, NodeName("m"))
    await ApiEvictor(requests).evict(target)
    assert api.get(f"{PODS}/p")["metadata"]["deletionTimestamp"]


async def test_escher_advertises_and_records() -> None:
    api = Api()
    requests = InProcess(api.server)
    api.ok("POST", NODES, node(cpu="4"))
    one, two = ResourceKey("escher.dev/a.b"), ResourceKey("escher.dev/c")
    version = await ApiNodeStatusWriter(requests).advertise(NodeName("n"), {one: 3, two: 0}, [])
    assert version == api.get(f"{NODES}/n")["metadata"]["resourceVersion"]
    assert api.get(f"{NODES}/n")["status"]["allocatable"] == {"cpu": "4", "escher.dev/a.b": "3"}
    api.ok("POST", PODS, pod())
    recorder = ApiRecorder(requests, now=lambda: 0.0)
    for _ in range(2):
        await recorder.record(Notice(ref(api), EventType.NORMAL, "Waits", "for three"))
    (event,) = api.get("/api/v1/namespaces/default/events")["items"]
    assert event["message"] == "for three"


async def test_escher_keeps_what_nodes_were_chosen_for() -> None:
    api = Api()
    api.install_ephemerals()
    store = ApiResourceStore(InProcess(api.server), now=lambda: 0.0)
    choice = NodeChoice(available={ResourceKey("cpu"): 1500}, limit=1)
    made = MadeChoice(2, choice, (NodeName("n"),))
    by_api = await store.create(EphemeralResource(EphemeralName("default", "a"), nodes={NodeName("n"): 2}, made=made))
    assert by_api.made == made
    changed = await store.merge(by_api.name, ResourceChange({}, expires_at=9.0), mark="k")
    assert changed.made == made
    assert (await store.merge(by_api.name, ResourceChange({}, made=MadeChoice(0, NodeChoice())))).made is None
    people = EphemeralResource(EphemeralName("default", "b"), nodes={}, capacity=2, choice=choice)
    by_kubectl = await store.create(people)
    assert by_kubectl.chosen_for is None
    said = await store.set_status(by_kubectl, ResourceStatus(True, "Set", "", {NodeName("n"): 2}))
    assert said.chosen_for == MadeChoice(2, choice)
    edited = await store.merge(people.name, ResourceChange({}, expires_at=9.0))
    assert (edited.generation, edited.observed_generation, edited.chosen_for) == (2, 1, MadeChoice(2, choice))


async def test_escher_keeps_its_resources() -> None:
    api = Api()
    api.install_ephemerals()
    store = ApiResourceStore(InProcess(api.server), now=lambda: 0.0)
    name = EphemeralName("default", "data")
    made = await store.create(EphemeralResource(name, nodes={NodeName("n"): 2}))
    changed = await store.merge(
        name, ResourceChange({NodeName("m"): 1, NodeName("n"): None}), mark="k", if_version=made.resource_version
    )
    assert (changed.nodes, changed.mark) == ({"m": 1}, "k")
    with pytest.raises(Occupied):
        await store.merge(name, ResourceChange({NodeName("m"): 2}), if_version=made.resource_version)
    ready = await store.set_status(changed, ResourceStatus(True, "Done", "", {NodeName("m"): 1}))
    assert ready.observed_generation == ready.generation == 2
    with pytest.raises(Occupied):
        await store.delete(name, if_version=made.resource_version)
    await store.delete(name, if_version=ready.resource_version)
    with pytest.raises(Gone):
        await store.get(name)
