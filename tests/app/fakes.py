"""An API server in memory that implements the ports: objects and nodes with one counter of versions, and watches whose
events a test may hold back, repeat or lose.

Each call takes `latency` seconds on its way there and as long back; `faults` are met by the next calls, in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from extender.app.contracts.kind import Declared, Identity, Named, Replacement, Standing, identity
from extender.app.contracts.ports import (
    EphemeralResource,
    Intent,
    MadeChoice,
    NodeChoice,
    Notice,
    PodRef,
    ResourceChange,
    ResourceStatus,
    Sink,
)
from extender.core.budgets import Budget
from extender.core.cluster import Node
from extender.kube.errors import Gone, Occupied, Refused, Terminating, Unavailable
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import NOW

OWN = "escher-system"
"""The service's own namespace, as it is named outside of pods."""
StoredIntent = Declared[Intent]


class LoopClock:
    """`ports.Clock`: the event loop's time, which is virtual; `ahead` moves it by hand outside of a loop, `set_by` is
    what somebody has set the time of day by."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.set_by = 0.0

    def now(self) -> float:
        return self.steady() + self.set_by

    def steady(self) -> float:
        try:
            passed = asyncio.get_running_loop().time()
        except RuntimeError:
            passed = 0.0
        return NOW + self.ahead + passed


@dataclass
class Fault:
    """What happens to one call: `error` is raised, before the server hears of it or (`after`) once it is done.

    `of`: how the call begins; others go by. `late`: so many seconds later it is done all the same, and nobody is told.
    `twice`: no error; it arrives twice, and the second answer is given. Where it is `late` as well, the second arrives
    so many seconds after the first, whose answer is given.
    """

    error: Exception
    after: bool = False
    of: str = ""
    late: float = 0.0
    twice: bool = False


@dataclass
class Watch:
    """One kind's events on their way to its sink, in order. `held`: they wait for `deliver`."""

    sink: Sink[Any] | None = None
    held: bool = False
    delay: float = 0.0
    events: deque[tuple[str, Any]] = field(default_factory=deque)

    def add(self, what: str, item: Any) -> None:
        self.events.append((what, item))
        if not self.held:
            try:
                asyncio.get_running_loop().call_later(self.delay, self._arrive)
            except RuntimeError:
                self.deliver()

    def _arrive(self) -> None:
        if not self.held:
            self.deliver(1)

    def deliver(self, count: int | None = None) -> int:
        """The sink has so many more of the events, or all. Answers how many there were."""
        done = 0
        while self.events and (count is None or done < count):
            what, item = self.events.popleft()
            if self.sink is not None:
                (self.sink.remove if what == "DELETED" else self.sink.upsert)(item)
            done += 1
        return done


class ApiServer:
    """The cluster's state. `store`, `writer` and `owners` are its ports."""

    def __init__(self, clock: LoopClock, latency: float = 0.0) -> None:
        self.clock = clock
        self.latency = latency
        self.faults: deque[Fault | None] = deque()
        self.forever: list[Fault] = []
        """What every call of their kind meets."""
        self.calls: list[str] = []
        self.revision = 100
        self.namespaces: set[str] | None = None
        """Those that exist; None: all do."""
        self.terminating: set[str] = set()
        """Those of them that are being deleted."""
        self.objects: dict[tuple[str, str], EphemeralResource] = {}
        self.nodes: dict[NodeName, Node] = {}
        self.intents: dict[Identity, StoredIntent] = {}
        self.resources_watch = Watch()
        self.intents_watch = Watch()
        self.nodes_watch = Watch()
        self.store = Store(self)
        self.intent_store = IntentStore(self)
        self.writer = Writer(self)
        self.owners = Pods(self)
        self.living: set[PodUid] = set()
        """Pods that are there and have not finished."""
        self._late: list[asyncio.Future[None]] = []

    async def call(self, what: str, once_more: Callable[[], Awaitable[object]] | None = None) -> Fault | None:
        """The call has arrived; what will happen to its answer. Raises what happens to it on the way.

        `once_more`: the same call, should it be late.
        """
        self.calls.append(what)
        fault = None
        if self.faults and ((head := self.faults[0]) is None or what.startswith(head.of)):
            fault = self.faults.popleft()
        fault = fault or next((each for each in self.forever if what.startswith(each.of)), None)
        await asyncio.sleep(self.latency)
        if fault is not None and once_more is not None:
            if fault.late:
                self._late.append(asyncio.ensure_future(_later(fault.late, once_more)))
            elif fault.twice:
                with suppress(Refused):
                    await once_more()
            if fault.twice:
                return None
        if fault is not None and not fault.after:
            raise fault.error
        return fault

    async def answer(self, fault: Fault | None) -> None:
        await asyncio.sleep(self.latency)
        if fault is not None:
            raise fault.error

    def next_version(self) -> str:
        self.revision += 1
        return str(self.revision)

    # -- what others do: kubectl, kubelets, administrators -------------------------------------------------------

    def put_node(self, node: Node) -> None:
        node = replace(node, version=self.next_version())
        self.nodes[node.name] = node
        self.nodes_watch.add("MODIFIED", node)

    def drop_node(self, name: NodeName) -> None:
        self.nodes_watch.add("DELETED", self.nodes.pop(name))

    def edit_node(self, name: str, both: Mapping[ResourceKey, int | None], *, allocatable_only: bool = False) -> None:
        """Somebody patches the node's status."""
        node = self.nodes[NodeName(name)]
        capacity, allocatable = dict(node.capacity), dict(node.allocatable)
        for told in (allocatable,) if allocatable_only else (capacity, allocatable):
            for key, units in both.items():
                if units is None:
                    told.pop(key, None)
                else:
                    told[key] = units
        if (capacity, allocatable) != (node.capacity, node.allocatable):
            self.put_node(replace(node, capacity=capacity, allocatable=allocatable))

    def put(self, resource: EphemeralResource) -> EphemeralResource:
        """Somebody creates the object, or changes its spec."""
        where = (resource.name.namespace, resource.name.name)
        known = self.objects.get(where)
        resource = replace(
            resource,
            uid=known.uid if known else f"uid-{self.revision + 1}",
            created=known.created if known else float(int(self.clock.now())),
            generation=known.generation + 1 if known else 1,
            observed_generation=known.observed_generation if known else 0,
            chosen=known.chosen if known else None,
            chosen_for=known.chosen_for if known else None,
            made=resource.made or (known.made if known else None),
            finalizers=resource.finalizers or (known.finalizers if known else ()),
            deleting=resource.deleting or (known.deleting if known else False),
            resource_version=self.next_version(),
        )
        self.objects[where] = resource
        self.resources_watch.add("MODIFIED", resource)
        return resource

    def keep(self, resource: EphemeralResource, *, spec: bool) -> EphemeralResource:
        where = (resource.name.namespace, resource.name.name)
        known = self.objects[where]
        if resource == known:
            return known
        resource = replace(resource, generation=known.generation + spec, resource_version=self.next_version())
        self.objects[where] = resource
        self.resources_watch.add("MODIFIED", resource)
        return resource

    def delete(self, namespace: str, name: str) -> EphemeralResource | None:
        """Somebody deletes it; what is left is held by its finalizers."""
        known = self.objects[namespace, name]
        if known.finalizers:
            return self.keep(replace(known, deleting=True), spec=not known.deleting)
        self.drop(namespace, name)
        return None

    def let_go(self, namespace: str, name: str) -> None:
        """Nothing holds it any more."""
        known = self.keep(replace(self.objects[namespace, name], finalizers=()), spec=False)
        if known.deleting:
            self.drop(namespace, name)

    def terminate(self, namespace: str) -> None:
        """The namespace is being deleted, and everything in it."""
        self.terminating.add(namespace)
        for where in [where for where in self.objects if where[0] == namespace]:
            self.delete(*where)

    def put_intent(self, item: StoredIntent) -> StoredIntent:
        """It is stored, or changed."""
        version = self.next_version()
        stored = replace(item, uid=item.uid or f"uid-{version}", resource_version=version)
        self.intents[item.name] = stored
        self.intents_watch.add("MODIFIED", stored)
        return stored

    def drop_intent(self, name: Identity) -> None:
        self.intents_watch.add("DELETED", replace(self.intents.pop(name), resource_version=self.next_version()))

    def drop(self, namespace: str, name: str) -> None:
        known = self.objects.pop((namespace, name))
        self.resources_watch.add("DELETED", replace(known, resource_version=self.next_version()))


class Store:
    """`ports.ResourceStore`."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.statuses: list[tuple[str, bool, str, str]] = []
        """(object, ready, reason, message) of every set_status."""

    def _known(self, name: Named, version: str | None = None) -> EphemeralResource:
        known = self._server.objects.get((name.namespace, name.name))
        if known is None:
            raise Gone(404, f"{name} not found")
        if version is not None and known.resource_version != version:
            raise Occupied(409, f"{name} is at {known.resource_version}, not {version}")
        return known

    async def get(self, name: Named) -> EphemeralResource:
        fault = await self._server.call(f"get {name}")
        known = self._known(name)
        await self._server.answer(fault)
        return known

    async def create(self, item: EphemeralResource, *, dry_run: bool = False) -> EphemeralResource:
        name = item.name
        fault = await self._server.call(f"create {name}", lambda: self.create(item))
        if self._server.namespaces is not None and name.namespace not in self._server.namespaces:
            raise Gone(404, f"namespaces {name.namespace!r} not found")
        if name.namespace in self._server.terminating:
            raise Terminating(403, f"unable to create new content in namespace {name.namespace}")
        if (name.namespace, name.name) in self._server.objects:
            raise Occupied(409, f"{name} exists already")
        stored = item if dry_run else self._server.put(replace(item, chosen=None))
        await self._server.answer(fault)
        return stored

    async def merge(
        self,
        name: Named,
        change: ResourceChange,
        *,
        mark: str = "",
        if_version: str | None = None,
        dry_run: bool = False,
    ) -> EphemeralResource:
        def once_more() -> Awaitable[object]:
            return self.merge(name, change, mark=mark, if_version=if_version)

        fault = await self._server.call(f"merge {name}", once_more)
        known = self._known(name, if_version)
        merged = {node: units for node, units in {**known.nodes, **change.nodes}.items() if units is not None}
        stored = replace(known, nodes=merged, owner=change.owner, expires_at=change.expires_at, mark=mark or known.mark)
        if change.exports is not None:
            stored = replace(stored, exports=change.exports)
        if change.made is not None:
            stored = replace(stored, made=change.made if change.made.nodes else None)
        if not dry_run:
            stored = self._server.keep(stored, spec=True)
        await self._server.answer(fault)
        return stored

    async def annotate(self, name: Named, *, mark: str = "", if_version: str | None = None) -> EphemeralResource:
        fault = await self._server.call(f"annotate {name}")
        known = self._known(name, if_version)
        stored = self._server.keep(replace(known, mark=mark or known.mark), spec=False)
        await self._server.answer(fault)
        return stored

    async def delete(
        self, name: Named, *, if_version: str | None = None, dry_run: bool = False, there: bool = False
    ) -> EphemeralResource | None:
        fault = await self._server.call(f"delete {name}", lambda: self.delete(name, if_version=if_version))
        left = None
        if there:
            self._known(name)
        if (name.namespace, name.name) in self._server.objects:
            known = self._known(name, if_version)
            left = replace(known, deleting=True) if known.finalizers else None
            if not dry_run:
                left = self._server.delete(name.namespace, name.name)
        await self._server.answer(fault)
        return left

    async def set_status(self, item: EphemeralResource, status: ResourceStatus) -> EphemeralResource:
        fault = await self._server.call(f"status {item.name}")
        known = self._known(item.name)
        if known.uid != item.uid:
            raise Gone(409, f"{item.name} has another UID")
        self.statuses.append((str(item.name), status.ready, status.reason, status.message))
        for_what = None
        if status.chosen and item.choice is not None and item.capacity is not None:
            for_what = MadeChoice(item.capacity, item.choice)
        said = replace(known, chosen=status.chosen, chosen_for=for_what, said_unready=not status.ready)
        said = replace(said, observed_generation=item.generation)
        stored = self._server.keep(said, spec=False)
        await self._server.answer(fault)
        return stored


class IntentStore:
    """`ports.IntentStore`. `refuse`: what every creation meets, as where the kind or its namespace is not there."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.refuse: Refused | None = None

    def _known(self, name: Named, version: str | None = None) -> StoredIntent:
        known = self._server.intents.get(identity(name))
        if known is None:
            raise Gone(404, f"{name} not found")
        if version is not None and known.resource_version != version:
            raise Occupied(409, f"{name} is at {known.resource_version}, not {version}")
        return known

    async def get(self, name: Named) -> StoredIntent:
        fault = await self._server.call(f"get {name}")
        known = self._known(name)
        await self._server.answer(fault)
        return known

    async def create(self, item: StoredIntent, *, dry_run: bool = False) -> StoredIntent:
        fault = await self._server.call(f"create {item.name}", lambda: self.create(item))
        if self.refuse is not None:
            raise self.refuse
        if item.name in self._server.intents:
            raise Occupied(409, f"{item.name} exists already")
        stored = self._server.put_intent(item)
        await self._server.answer(fault)
        return stored

    async def merge(
        self,
        name: Named,
        change: Replacement[Intent],
        *,
        mark: str = "",
        if_version: str | None = None,
        dry_run: bool = False,
    ) -> StoredIntent:
        fault = await self._server.call(
            f"merge {name}", lambda: self.merge(name, change, mark=mark, if_version=if_version)
        )
        stored = self._server.put_intent(replace(self._known(name, if_version), spec=change.after))
        await self._server.answer(fault)
        return stored

    async def annotate(self, name: Named, *, mark: str = "", if_version: str | None = None) -> StoredIntent:
        raise NotImplementedError

    async def delete(
        self, name: Named, *, if_version: str | None = None, dry_run: bool = False, there: bool = False
    ) -> StoredIntent | None:
        fault = await self._server.call(f"delete {name}", lambda: self.delete(name, if_version=if_version))
        if there or identity(name) in self._server.intents:
            self._known(name, if_version)
            self._server.drop_intent(identity(name))
        await self._server.answer(fault)
        return None

    async def set_status(self, item: StoredIntent, status: Standing[Intent]) -> StoredIntent:
        raise NotImplementedError


class Writer:
    """`ports.NodeStatusWriter`. `under_way` and `most` count the calls that overlap."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.written: list[tuple[str, dict[ResourceKey, int | None]]] = []
        self.under_way = 0
        self.most = 0
        self.refuse: Refused | None = None
        self.managed_by: list[str] = []

    async def managers(self, node: NodeName, resources: Iterable[ResourceKey]) -> Sequence[str]:
        await self._server.answer(await self._server.call(f"managers {node}"))
        return self.managed_by

    async def advertise(self, node: NodeName, desired: Mapping[ResourceKey, int], absent: Iterable[ResourceKey]) -> str:
        patch: dict[ResourceKey, int | None] = {**dict.fromkeys(absent), **desired}
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            fault = await self._server.call(f"advertise {node}")
            if self.refuse is not None:
                raise self.refuse
            if node not in self._server.nodes:
                raise Gone(404, f"nodes {node!r} not found")
            self.written.append((node, patch))
            self._server.edit_node(node, patch)
            version = self._server.nodes[node].version
            await self._server.answer(fault)
            return version
        finally:
            self.under_way -= 1


class Pods:
    """`ports.LivePods`."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def lives(self, pod: PodRef) -> bool:
        fault = await self._server.call(f"owner {pod}")
        found = pod.uid in self._server.living
        await self._server.answer(fault)
        return found


def unavailable(retry_after: float | None = None, *, after: bool = False, of: str = "", late: float = 0.0) -> Fault:
    return Fault(Unavailable("connection refused", retry_after), after, of, late)


def twice(of: str, *, late: float = 0.0) -> Fault:
    return Fault(AssertionError("not raised"), of=of, late=late, twice=True)


async def _later(seconds: float, call: Callable[[], Awaitable[object]]) -> None:
    await asyncio.sleep(seconds)
    with suppress(Refused):
        await call()


def every_node(limit: int | None = None) -> NodeChoice:
    return NodeChoice(available={}, limit=limit)


def on_node(name: str) -> NodeChoice:
    return NodeChoice(node=NodeName(name))


class PodApi:
    """`ports.Binder`, `Evictor`, `Disruptions`, `LivePods`, `Nominator`, `Waker`, `Tidier` and `Recorder`: an API
    server's pods, as far as these go.

    Each call takes `latency` seconds. `faults` are met by the next calls that begin with `of`, in order; one that is
    met `after` is done all the same.
    """

    def __init__(self, latency: float = 0.01) -> None:
        self.latency = latency
        self.faults: list[Fault] = []
        self.bound: dict[PodUid, NodeName] = {}
        self.said: dict[PodUid, dict[str, str]] = {}
        """The annotations of each pod's Binding."""
        self.gone: set[PodUid] = set()
        self.calls: list[tuple[float, str]] = []
        """(Seconds of the loop at its begin, the call): `bind`, `where`, `evict`, `wake`, `open`, `tell`; and whom."""
        self.notices: list[Notice] = []
        self.guards: list[Budget] = []

    def times(self, what: str) -> list[float]:
        """When such calls began, in seconds of the loop."""
        return [when for when, call in self.calls if call == what]

    async def bind(self, pod: PodRef, node: NodeName, annotations: Mapping[str, str]) -> None:
        fault = await self._begin(f"bind {pod.name}")
        if pod.uid in self.gone:
            raise Gone(404, f"pods {pod.name!r} not found")
        if pod.uid in self.bound:
            raise Occupied(409, f"pod {pod.name} is already assigned to node {self.bound[pod.uid]!r}")
        self.bound[pod.uid] = node
        self.said[pod.uid] = dict(annotations)
        if fault is not None:
            raise fault.error

    async def node_of(self, pod: PodRef) -> NodeName | None:
        await self._begin(f"where {pod.name}")
        return self.bound.get(pod.uid)

    async def evict(self, pod: PodRef, *, dry_run: bool = False) -> None:
        await self._begin(f"try to evict {pod.name}" if dry_run else f"evict {pod.name}")

    async def preempt(self, pod: PodRef, why: str, *, dry_run: bool = False) -> None:
        await self._begin(f"try to delete {pod.name}" if dry_run else f"delete {pod.name}")

    async def lives(self, pod: PodRef) -> bool:
        await self._begin(f"ask about {pod.name}")
        return pod.uid not in self.gone

    async def budgets(self, namespace: str) -> Sequence[Budget]:
        await self._begin(f"budgets {namespace}")
        return [each for each in self.guards if each.namespace == namespace]

    async def nominate(self, pod: PodRef, node: NodeName | None) -> None:
        await self._begin(f"nominate {pod.name} {node}")

    async def wake(self, pod: PodRef, token: str) -> None:
        await self._begin(f"wake {pod.name}")

    async def void_attempt(self, pod: PodRef) -> None:
        await self._begin(f"void {pod.name}")

    async def open_gate(self, pod: PodRef) -> None:
        await self._begin(f"open {pod.name}")

    async def tidy(self, pod: PodRef) -> None:
        await self._begin(f"tidy {pod.name}")

    async def record(self, notice: Notice) -> None:
        await self._begin(f"tell {notice.pod.name}")
        self.notices.append(notice)

    async def _begin(self, call: str) -> Fault | None:
        self.calls.append((asyncio.get_running_loop().time(), call))
        fault = next((each for each in self.faults if call.startswith(each.of)), None)
        if fault is not None:
            self.faults.remove(fault)
        await asyncio.sleep(self.latency)
        if fault is not None and not fault.after:
            raise fault.error
        return fault
