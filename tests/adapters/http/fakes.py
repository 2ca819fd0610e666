"""Fakes behind the HTTP adapter: verbs and management that note every call, and a real server on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx
import uvicorn
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from extender.adapters.http.server.asgi import Service, create_app
from extender.adapters.policy_models import in_force
from extender.app.contracts.api import (
    GangState,
    Management,
    NodeState,
    Outcome,
    QuotaState,
    ResourceState,
    SafetySwitchesState,
    SetResource,
    Transact,
)
from extender.app.contracts.errors import NotFound
from extender.app.contracts.explanation import Explanation
from extender.app.contracts.extender_api import Verbs, Verdict, Victims
from extender.app.contracts.kind import Identity
from extender.app.contracts.policy_state import Answer, PolicyState
from extender.app.contracts.ports import PodRef
from extender.app.contracts.simulation_request import SimulationRequest, SimulationResult
from extender.app.observability.decision_stream import DecisionStream
from extender.core.cluster import Pod
from extender.core.names import EphemeralName, GangKey
from extender.core.policies.policy_types import PolicySpec
from extender.core.safety_switches import FREE
from extender.core.tenancy.isolation import Counted
from extender.esl.base import PodRequirement
from extender.esl.runtime.policy_esl import Task
from extender.kube.names import NodeName, ResourceKey


class NotedVerbs:
    """Every node passes with score 1, every bind succeeds. `calls` has each call; `fail` is raised instead."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.verdict: Verdict | None = None
        self.fail: Exception | None = None
        self.gate: asyncio.Event | None = None
        """Binds wait for it, as at a gang's barrier."""
        self.bound: list[PodRef] = []

    def filter(self, pod: Pod, nodes: Sequence[NodeName], *, alone: bool = False) -> Verdict:
        self._note("filter alone" if alone else "filter", pod, nodes)
        return self.verdict or Verdict(tuple(nodes))

    def prioritize(self, pod: Pod, nodes: Sequence[NodeName]) -> Mapping[NodeName, int]:
        self._note("prioritize", pod, nodes)
        return dict.fromkeys(nodes, 1)

    async def bind(self, pod: PodRef, node: NodeName) -> str:
        self._note("bind", pod, node)
        if self.gate is not None:
            await self.gate.wait()
        self.bound.append(pod)
        return ""

    def preempt(self, pod: Pod, victims: Mapping[NodeName, Victims]) -> Mapping[NodeName, Victims]:
        self._note("preempt", pod, victims)
        return victims

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        if self.fail is not None:
            raise self.fail


class _AtTheEpoch:
    def now(self) -> float:
        return 0.0

    def steady(self) -> float:
        return 0.0


class NotedManagement:
    """Answers what it was told to, or raises `fail`; `asked` has every request."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.fail: Exception | None = None
        self.resources: dict[EphemeralName, ResourceState] = {}
        self.left: dict[EphemeralName, ResourceState] = {}
        """What deletions leave behind."""
        self.policies: dict[Identity, PolicyState] = {}
        self.policies_left: dict[Identity, PolicyState] = {}
        """What deletions leave behind."""
        self.nodes: list[NodeState] = []
        self.outcome = Outcome()
        self.gang_states: list[GangState] = []
        self.explanation: Explanation | None = None
        self.everywhere: bool | None = None
        """Whether the last explanation may name what is in other namespaces."""
        self.supposition = SimulationResult(fits=True)
        self.dumped = gzip.compress(b'{"kind":"escher-state-dump"}\n')
        self.announcements = DecisionStream(_AtTheEpoch())
        nothing: dict[Counted, tuple[int, int | None]] = dict.fromkeys(Counted, (0, None))
        self.quota_state = QuotaState(namespace="", counted=nothing, waiting={})
        self.held = SafetySwitchesState(everywhere=FREE, namespaces={}, unclear={}, labels_are_read=True)

    async def set_resource(self, request: SetResource) -> ResourceState:
        self._note(request)
        node = request.choice.node if request.choice else request.caller_node
        nodes = {node or NodeName("n1"): request.capacity} if request.capacity else {}
        return ResourceState(
            name=request.name, key=request.name.key(), nodes=nodes, version="7" if nodes else "", owner=request.owner
        )

    async def get_resource(self, name: EphemeralName) -> ResourceState:
        self._note(name)
        if name not in self.resources:
            raise NotFound("name", str(name), f"there is no resource {name}")
        return self.resources[name]

    async def list_resources(self, namespace: str) -> Sequence[ResourceState]:
        self._note(namespace)
        return [state for name, state in self.resources.items() if name.namespace == namespace]

    async def delete_resource(
        self, name: EphemeralName, *, if_version: str | None = None, dry_run: bool = False
    ) -> ResourceState | None:
        self._note((name, if_version, dry_run))
        return self.left.get(name)

    def cluster_state(
        self,
        *,
        namespace: str | None = None,
        node: NodeName | None = None,
        resource: ResourceKey | None = None,
        after: str | None = None,
    ) -> Iterator[NodeState]:
        self._note((namespace, node, resource))
        ordered = sorted(self.nodes, key=lambda state: state.node)
        return (state for state in ordered if after is None or state.node > after)

    async def transact(self, request: Transact) -> Outcome:
        self._note(request)
        return self.outcome

    def gangs(self, namespace: str, *, after: str | None = None) -> Iterator[GangState]:
        self._note(namespace)
        ordered = sorted(self.gang_states, key=lambda state: state.key)
        return (state for state in ordered if after is None or state.key.name > after)

    def gang(self, key: GangKey) -> GangState:
        self._note(key)
        for state in self.gang_states:
            if state.key == key:
                return state
        raise NotFound("name", str(key), f"there is no gang {key}")

    def list_policies(self, namespace: str) -> Sequence[PolicyState]:
        self._note(namespace)
        return [state for name, state in self.policies.items() if name.namespace == namespace]

    def get_policy(self, name: Identity) -> PolicyState:
        self._note(name)
        if name not in self.policies:
            raise NotFound("name", str(name), f"there is no policy {name}")
        return self.policies[name]

    async def change_policy(
        self,
        name: Identity,
        becomes: Callable[[PolicySpec | None], PolicySpec],
        *,
        if_version: str | None = None,
        dry_run: bool = False,
    ) -> PolicyState:
        before = self.policies.get(name)
        spec = becomes(None if before is None else before.spec)
        self._note((name, spec, if_version, dry_run))
        return replace(self.judge_policy(name, spec), version="7")

    async def delete_policy(
        self, name: Identity, *, if_version: str | None = None, dry_run: bool = False
    ) -> PolicyState | None:
        self._note((name, if_version, dry_run))
        return self.policies_left.get(name)

    def judge_policy(self, name: Identity, spec: PolicySpec) -> PolicyState:
        self._note((name, spec))
        return PolicyState(
            name=name, spec=spec, version="", ready=True, reason="InForce", message="good", in_force=in_force(spec)
        )

    async def ask_policy(self, name: Identity, task: Task, *, dry_run: bool = False) -> Answer:
        self._note((name, task, dry_run))
        said = PodRequirement({"escher.dev/team.slots--unit": "1"}, {"esl.escher.dev/slots": task.name})
        return Answer(name=name, type="queue", task=task.name, requirement=said, effects=["done"])

    def state(self) -> SafetySwitchesState:
        self._note("safety_switches")
        return self.held

    def quota(self, namespace: str) -> QuotaState:
        self._note(namespace)
        return replace(self.quota_state, namespace=namespace)

    async def simulate(self, request: SimulationRequest) -> SimulationResult:
        self._note(request)
        return self.supposition

    async def dump(self) -> bytes:
        self._note("dump")
        return self.dumped

    def by_noun(self) -> Management:
        return Management(
            resources=self,
            transactions=self,
            state=self,
            gangs=self,
            explain=NotedExplain(self),
            safety_switches=self,
            quota=self,
            policies=self,
            asks=self,
            events=self.announcements,
            what_if=self,
            dump=self,
        )

    def explained(self, whom: Any) -> Explanation:
        self._note(whom)
        if self.explanation is None:
            raise NotFound("name", str(whom), "nothing is known of it")
        return self.explanation

    def _note(self, request: Any) -> None:
        self.asked.append(request)
        if self.fail is not None:
            raise self.fail


class NotedExplain:
    def __init__(self, noted: NotedManagement) -> None:
        self._noted = noted

    async def pod(self, namespace: str, name: str, *, everywhere: bool = True) -> Explanation:
        self._noted.everywhere = everywhere
        return self._noted.explained((namespace, name))

    async def gang(self, key: GangKey, *, everywhere: bool = True) -> Explanation:
        self._noted.everywhere = everywhere
        return self._noted.explained(key)


class Ready:
    """Whether the first full sync is over: it is, unless told otherwise."""

    def __init__(self) -> None:
        self.now = True

    def __call__(self) -> bool:
        return self.now


def service(
    verbs: Verbs | None = None,
    management: NotedManagement | Management | None = None,
    *,
    ready: Ready | None = None,
    registry: CollectorRegistry | None = None,
    **settings: Any,
) -> Service:
    return create_app(
        verbs or NotedVerbs(),
        management if isinstance(management, Management) else (management or NotedManagement()).by_noun(),
        ready=ready or Ready(),
        registry=registry or CollectorRegistry(),
        **settings,
    )


def in_process(app: ASGIApp) -> httpx.AsyncClient:
    """A client that calls the app without a socket."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://escher.test")


def listening(port: int = 0) -> socket.socket:
    """A socket that listens on loopback, at a free port unless told which."""
    # asyncio switches Nagle's algorithm off only on sockets that name their protocol. With it every answer, written as
    # head and body, waits 40 ms for the caller's acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


@contextlib.asynccontextmanager
async def on_loopback(app: ASGIApp) -> AsyncIterator[int]:
    """The port on which a real uvicorn serves the app while the block lasts."""
    listener = listening()
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=5))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


def pod_json(name: str = "p", **changes: Any) -> dict[str, Any]:
    """A pod that asks for one CPU, as kube-scheduler would send it; `changes` replace metadata, spec or status."""
    pod: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending"},
    }
    return pod | changes


def asking(resources: Mapping[str, str], **metadata: Any) -> dict[str, Any]:
    """A pod whose one container requests these resources."""
    pod = pod_json(spec={"containers": [{"name": "main", "resources": {"requests": dict(resources)}}]})
    pod["metadata"] |= metadata
    return pod


def filter_body(pod: Mapping[str, Any] | None = None, names: Sequence[str] = ("n1", "n2")) -> dict[str, Any]:
    return {"Pod": pod or pod_json(), "Nodes": None, "NodeNames": list(names)}


def bind_body(**changes: str) -> dict[str, str]:
    return {"PodName": "p", "PodNamespace": "team-a", "PodUID": "uid-p", "Node": "n1"} | changes
