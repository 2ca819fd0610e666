"""An API server, a played scheduler on it and a played extender; builders for nodes and pods.

Tests make nodes and pods through the API, and change them straight in the store; the scheduler goes through the API.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from extender.kube.client.requests import JSON, TIMEOUT
from extender.kube.names import PodUid
from kubesim.apiserver.machinery.store import Change
from kubesim.apiserver.serving.api import Answer, ApiServer, Request
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.clock import Clock
from kubesim.kinds import EVENTS, NODE, POD, PRIORITY_CLASS, Json, Kind
from kubesim.scheduler import CallableExtender, Scheduler, SchedulerConfig

EXTENDER: Json = {
    "urlPrefix": "http://escher/scheduler",
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "bindVerb": "bind",
    "preemptVerb": "preempt",
    "weight": 1,
    "nodeCacheCapable": True,
    "httpTimeout": "5s",
}

Said = Callable[[Json], Any]


class Recorded(InProcess):
    """`writes`: what was asked, in order. `refuse`: method, end of a path, and what is raised instead, once each."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.writes: list[tuple[str, str, Json]] = []
        self.refuse: list[tuple[str, str, Exception]] = []

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        within: float = TIMEOUT,
    ) -> bytes:
        self.writes.append((method, path, msgspec.json.decode(body) if body else {}))
        for each in self.refuse:
            if each[0] == method and path.endswith(each[1]):
                self.refuse.remove(each)
                raise each[2]
        return await super().request(method, path, body, content_type=content_type, accept=accept, within=within)


class PlayedExtender:
    """Passes every node and binds by itself, unless `answers` has something else for a verb. `calls`: verb and body."""

    def __init__(self, world: World) -> None:
        self.calls: list[tuple[str, Json]] = []
        self.answers: dict[str, Said] = {}
        self._world = world

    async def answer(self, verb: str, body: bytes) -> bytes:
        arguments = msgspec.json.decode(body)
        self.calls.append((verb, arguments))
        said = self.answers[verb](arguments) if verb in self.answers else await self._usual(verb, arguments)
        if isinstance(said, Awaitable):
            said = await said
        return said if isinstance(said, bytes) else msgspec.json.encode(said)

    async def bind(self, arguments: Json) -> Json:
        path = POD.path(arguments["PodNamespace"], arguments["PodName"], "binding")
        await self._world.api.request("POST", path, msgspec.json.encode(_binding(arguments)))
        return {"Error": ""}

    async def _usual(self, verb: str, arguments: Json) -> Any:
        if verb == "filter":
            return {"NodeNames": arguments["NodeNames"], "FailedNodes": {}, "Error": ""}
        if verb == "bind":
            return await self.bind(arguments)
        return [] if verb == "prioritize" else {"NodeNameToMetaVictims": arguments["NodeNameToMetaVictims"]}

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.calls]

    def filtered(self) -> list[str]:
        """The pods of the filter calls, in order."""
        return [body["Pod"]["metadata"]["name"] for verb, body in self.calls if verb == "filter"]


def _binding(arguments: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": arguments["PodName"], "uid": arguments["PodUID"]},
        "target": {"kind": "Node", "name": arguments["Node"]},
    }


def rejecting(why: str = "no room") -> Said:
    return lambda call: {"NodeNames": [], "FailedNodes": dict.fromkeys(call["NodeNames"], why), "Error": ""}


class World:
    def __init__(self, *, seed: int = 1) -> None:
        self.clock = Clock()
        self.server = server = ApiServer(self.clock, random.Random(seed))
        self.store = server.store
        self.api = Recorded(server)
        self.lingering = False
        """Pods that are deleted stay until somebody removes them; else they are gone soon, as by a kubelet."""
        self.store.subscribe(self._end_pods)
        self.extender = PlayedExtender(self)
        self.scheduler: Scheduler
        self._seed = seed

    @asynccontextmanager
    async def running(self, config: Json | None = None, *, extenders: bool = False) -> AsyncIterator[Scheduler]:
        document = {"kind": "KubeSchedulerConfiguration", **(config or {})}
        if extenders:
            document.setdefault("extenders", [EXTENDER])
        client = CallableExtender(self.extender.answer, "http://escher/scheduler")
        rng = random.Random(self._seed)
        self.scheduler = Scheduler(SchedulerConfig.read(document), self.api, self.store, self.clock, rng, client)
        task = asyncio.ensure_future(self.scheduler.run())
        try:
            await asyncio.sleep(0.002)
            yield self.scheduler
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _end_pods(self, change: Change) -> None:
        metadata = change.object["metadata"]
        if change.kind is POD and change.type == "MODIFIED" and "deletionTimestamp" in metadata and not self.lingering:
            asyncio.get_running_loop().call_later(0.05, self._end_pod, metadata["name"])

    def _end_pod(self, name: str) -> None:
        if self.store.get(POD, "default", name) is not None:
            self.delete_pod(name)

    # -- what is there -------------------------------------------------------------------------------------------

    def add_node(self, name: str, *, cpu: str = "4", memory: str = "16Gi", pods: str = "110", **more: Any) -> None:
        self.create(NODE, node(name, cpu=cpu, memory=memory, pods=pods, **more))

    def add_nodes(self, count: int, **more: Any) -> None:
        for number in range(1, count + 1):
            self.add_node(f"n{number}", **more)

    def add_pod(self, name: str, cpu: str = "1", *, priority: int = 0, **more: Any) -> None:
        if priority:
            more["priorityClassName"] = f"class-{priority}"
            if self.store.get(PRIORITY_CLASS, "", f"class-{priority}") is None:
                self.create(PRIORITY_CLASS, {"metadata": {"name": f"class-{priority}"}, "value": priority})
            if more.pop("preemptionPolicy", "") == "Never":
                more["priorityClassName"] += "-never"
                never = {
                    "metadata": {"name": more["priorityClassName"]},
                    "value": priority,
                    "preemptionPolicy": "Never",
                }
                self.create(PRIORITY_CLASS, never)
        self.create(POD, pod(name, cpu, **more))

    def create(self, kind: Kind, body: Json) -> None:
        content = msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.name, **body})
        request = Request("POST", kind.path("default"), {}, {"content-type": JSON, "accept": JSON}, content)
        answer = self.server.handle(request)
        assert isinstance(answer, Answer)
        assert answer.status == 201, answer.body

    def uid(self, name: str) -> PodUid:
        return PodUid(self.pod(name)["metadata"]["uid"])

    def change_pod(self, name: str, **parts: Json) -> None:
        self.store.replace(POD, merged(self.pod(name), parts))

    def change_node(self, name: str, **parts: Json) -> None:
        found = self.store.get(NODE, "", name)
        assert found is not None
        self.store.replace(NODE, merged(found, parts))

    def delete_pod(self, name: str) -> None:
        self.store.remove(POD, "default", name)

    def pod(self, name: str) -> Json:
        found = self.store.get(POD, "default", name)
        assert found is not None, f"there is no pod {name}"
        return found

    # -- what has become of it -----------------------------------------------------------------------------------

    def node_of(self, name: str) -> str | None:
        node: str | None = self.pod(name)["spec"].get("nodeName")
        return node

    def condition(self, name: str) -> Json:
        conditions = self.pod(name).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "PodScheduled"), {})

    def events(self, reason: str) -> list[str]:
        return [each["message"] for each in self.store.list(EVENTS) if each["reason"] == reason]

    async def until(self, true: Callable[[], Any], *, within: float = 30.0) -> None:
        """Returns as soon as it is true; looked at every millisecond."""
        async with asyncio.timeout(within):
            while not true():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def until_bound(self, *names: str, within: float = 30.0) -> None:
        await self.until(lambda: all(self.node_of(name) for name in names), within=within)

    async def until_rejected(self, name: str, within: float = 30.0) -> str:
        """The message of its condition."""
        await self.until(lambda: self.condition(name).get("status") == "False", within=within)
        message: str = self.condition(name)["message"]
        return message


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    pods: str = "110",
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    there = {"cpu": cpu, "memory": memory, "pods": pods, **(resources or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": there, "capacity": there},
    }


def pod(
    name: str,
    cpu: str = "1",
    *,
    labels: Mapping[str, str] | None = None,
    resources: Mapping[str, str] | None = None,
    scheduler: str = "default-scheduler",
    on: str = "",
    **spec: Any,
) -> Json:
    asked = {"cpu": cpu, **(resources or {})} if cpu else dict(resources or {})
    container = {"name": "main", "image": "x", "resources": {"requests": asked, "limits": dict(resources or {})}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": dict(labels or {}),
        },
        "spec": {"schedulerName": scheduler, "containers": [container], **({"nodeName": on} if on else {}), **spec},
    }


def merged(old: Json, new: Mapping[str, Any]) -> Json:
    """As by a JSON merge patch."""
    result = dict(old)
    for key, value in new.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key) or {}, value) if isinstance(value, Mapping) else value
    return result
