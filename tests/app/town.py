"""A town: a whole cluster with the service in it (`Simulation`), of which each part can fail, and which looks on.

`come_to_rest` is what every failure must end in: each gang bound as a whole or not at all, nothing reserved, the ledger
the cluster's.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from extender.adapters.translation.objects import to_pod
from extender.app.contracts.effects import Decided
from extender.app.cycle.scheduler import Scheduler
from extender.bootstrap import Cluster
from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.ledger.ledger import HoldingKind
from extender.core.names import GangKey
from extender.kube import objects
from extender.kube.client.requests import MERGE_PATCH, refusal
from extender.kube.errors import Unavailable
from extender.kube.names import NodeName, PodUid
from extender.settings.settings import Settings
from kubesim.apiserver.machinery.store import Change
from kubesim.apiserver.machinery.wire import JSON, Answer, Request
from kubesim.apiserver.serving.faults import Fault
from kubesim.kinds import EVENT, JOB, NODE, POD, Json, Kind
from kubesim.scheduler.extender_client import ExtenderClient, ExtenderFailed
from lab.controlplane.nodes import node
from lab.simulation import ADMIN, SERVICE, Simulation
from loadtests.shared.pods import pod
from tests.app.passing import Passing

WHOLE_NODE = 8
"""CPUs."""
HTTP_TIMEOUT = 60.0
LONGEST_BACK_OFF = 10
"""Kubernetes' default, which is less friendly than what we ship."""
LATENCY = 0.02
_INTERNAL = "internal error"
T = TypeVar("T")

_pods = msgspec.json.Decoder(objects.Pod)


class Job:
    """A controller that keeps so many pods there; each new one has a new name. Its spec says how many there are to be:
    a quorum, though some are late in coming."""

    def __init__(self, town: Town, name: str, size: int, cpu: int, quorum: int) -> None:
        self.name, self.size = name, size
        self.made = 0
        self._town, self._cpu, self._quorum = town, cpu, quorum
        self.owner = town.promise(name, max(size, quorum))

    def fill(self) -> None:
        pods = self._town.pods.values()
        present = sum(each.owner is not None and each.owner.name == self.name and not each.deleting for each in pods)
        for _ in range(self.size - present):
            [made] = self._town.gang(self.name, 1, self._cpu, quorum=self._quorum, first=self.made, owner=self.owner)
            self.made += 1
            self._town.create(made)


class Town(Passing):
    """Nodes of 8 CPU. Enter it; time passes in `pass_time` and the like alone."""

    def __init__(
        self,
        nodes: int = 4,
        *,
        watches_late_by: float = 0.0,
        http_timeout: float = HTTP_TIMEOUT,
        watches_open: bool = True,
        **settings: Any,
    ) -> None:
        """`watches_late_by`: seconds by which the service hears late; `watches_open`: whether all of its watches are
        before anything happens, and not only its lists made; `http_timeout`: kube-scheduler's patience with
        it; `settings`: the service's."""
        super().__init__()
        self.stop = 0.1
        """Seconds that the containers of pods take to end that are created from now on."""
        self._http_timeout = http_timeout
        self._watches_open = watches_open
        self.simulation = _Overheard(
            node_objects=[_node(f"n{number}") for number in range(nodes)],
            settings=Settings.model_validate(settings),
            latency=LATENCY,
            scheduler={"podMaxBackoffSeconds": LONGEST_BACK_OFF},
            extender={"httpTimeout": f"{http_timeout:g}s"},
        )
        self.simulation.watches_late_by = watches_late_by
        self.pods: dict[PodUid, Pod] = {}
        self.jobs: list[Job] = []
        self.evicted: set[PodUid] = set()
        self.asked: list[str] = []
        """What the service has asked the API server to change: verb, subresource or resource, name."""
        self._known: set[PodUid] = set()
        self._bound_once: dict[GangKey, set[PodUid]] = defaultdict(set)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.simulation.__aenter__()
        if self._watches_open:
            await asyncio.sleep(1)
        api = self.simulation.cluster.api
        self.store, self.faults = api.store, api.faults
        self.store.subscribe(self._look)
        api.audit.subscribe(self._listen)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await self.simulation.__aexit__(kind, error, where)

    # -- what is there -------------------------------------------------------------------------------------------

    @property
    def scheduler(self) -> Scheduler:
        assert self.simulation.service is not None
        return self.simulation.application.scheduler

    def do(self, decided: Decided[T]) -> T:
        return self.simulation.application.effects.do(decided)

    @property
    def at_barrier(self) -> int:
        return 0 if self.simulation.service is None else len(self.simulation.application.gates)

    @property
    def nodes(self) -> set[str]:
        return {each["metadata"]["name"] for each in self.store.list(NODE)}

    @property
    def refused(self) -> list[tuple[str, str]]:
        """(pod, why) of every bind that failed, as kube-scheduler takes it."""
        return self.simulation.refused

    def bound(self, gang: str = "train") -> dict[str, NodeName]:
        """Node by name of the gang's members that are bound and are to stay."""
        return {
            each.name: each.node
            for each in self.pods.values()
            if isinstance(each.gang, GangAsk) and each.gang.key.name == gang and each.node and not each.deleting
        }

    def pending(self) -> list[Pod]:
        return [each for each in self.pods.values() if each.node is None]

    def told(self) -> dict[str, list[str]]:
        """Which pods have events of ours of each reason, in order of their names."""
        found: dict[str, list[str]] = defaultdict(list)
        for each in sorted(self.notices(), key=lambda each: each["involvedObject"]["name"]):
            found[each["reason"]].append(each["involvedObject"]["name"])
        return dict(found)

    def notices(self) -> list[Json]:
        return [each for each in self.store.list(EVENT) if each.get("reportingInstance") == "escher"]

    def named(self, name: str) -> Pod:
        return next(each for each in self.pods.values() if each.name == name)

    # -- what users and others do ----------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None, *, content_type: str = JSON) -> Json:
        """One request, which takes no time."""
        sent = b"" if body is None else msgspec.json.encode(body)
        request = Request(method, path, headers={"content-type": content_type}, body=sent, user=ADMIN)
        answer = self.simulation.cluster.api.handle(request)
        assert isinstance(answer, Answer)
        if answer.status >= 300:
            raise refusal(answer.status, answer.body)
        found: Json = msgspec.json.decode(answer.body)
        return found

    def gang(
        self,
        name: str,
        size: int,
        cpu: int = WHOLE_NODE,
        *,
        quorum: int | None = None,
        timeout: int = 30,
        first: int = 0,
        owner: Json | None = None,
        **more: Any,
    ) -> list[Json]:
        """Members that somebody may create."""
        quorum = size if quorum is None else quorum
        ask = {"gang": name, "quorum": quorum, "timeout": timeout, **more}
        made = [self.pod(f"{name}-{number}", cpu, **ask) for number in range(first, first + size)]
        for each in made if owner is not None else ():
            each["metadata"]["ownerReferences"] = [owner]
        return made

    def pod(self, name: str, cpu: int = WHOLE_NODE, *, node: str = "", **more: Any) -> Json:
        """One that may be created; `node`: where it is bound already."""
        said = {"escher.dev/stop-seconds": f"{self.stop:g}"}
        made = pod(name, cpu=cpu, grace=60, annotations=said, **more)
        if node:
            made["spec"]["nodeName"] = node
        return made

    def create(self, *pods: Json) -> None:
        for each in pods:
            self.ask("POST", POD.path("default"), each)

    def promise(self, name: str, pods: int) -> Json:
        """A Job that promises so many, and of which others make the pods: a reference to it as their owner."""
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
        spec = {"parallelism": pods, "completions": 1000, "template": template, "managedBy": "escher.dev/town"}
        made = self._made(JOB, {"metadata": {"name": name}, "spec": spec}, "default")
        owner = {"apiVersion": JOB.api_version, "kind": JOB.name, "name": name, "uid": made["metadata"]["uid"]}
        return {**owner, "controller": True}

    def job(self, name: str, size: int, cpu: int = WHOLE_NODE, *, quorum: int | None = None) -> Job:
        made = Job(self, name, size, cpu, size if quorum is None else quorum)
        self.jobs.append(made)
        made.fill()
        return made

    def delete(self, name: str) -> None:
        self.ask("DELETE", POD.path("default", name))

    def bind(self, name: str, node: str) -> None:
        """Somebody else binds it."""
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        self.ask("POST", POD.path("default", name, "binding"), binding)

    def patch(self, kind: Kind, name: str, change: Json, subresource: str = "") -> None:
        path = kind.path("default" if kind.namespaced else "", name, subresource)
        self.ask("PATCH", path, change, content_type=MERGE_PATCH)

    def add_node(self, name: str) -> None:
        self._made(NODE, _node(name))

    def shrink(self, name: str, cpu: str = "4") -> None:
        self.patch(NODE, name, {"status": {"capacity": {"cpu": cpu}, "allocatable": {"cpu": cpu}}}, "status")

    def cordon(self, name: str, cordoned: bool = True) -> None:
        self.patch(NODE, name, {"spec": {"unschedulable": cordoned or None}})

    def taint(self, name: str, tainted: bool = True) -> None:
        self.patch(NODE, name, {"spec": {"taints": [{"key": "closed", "effect": "NoSchedule"}] if tainted else None}})

    def drop_node(self, name: str) -> None:
        """The node is gone; its pods stay until the garbage collector ends them."""
        self.ask("DELETE", NODE.path("", name))

    def _made(self, kind: Kind, body: Json, namespace: str = "") -> Json:
        return self.ask("POST", kind.path(namespace), {"apiVersion": kind.api_version, "kind": kind.name, **body})

    # -- what happens --------------------------------------------------------------------------------------------

    def crash(self, *, losing: bool = False, for_seconds: float = 0.3) -> None:
        """The service is dead, and there again after a while with what the cluster says. `losing`: and what it has
        just sent does not arrive."""
        if self.simulation.service is None:
            return
        self.simulation.kill(losing=losing)
        self._start(self.simulation.restart(for_seconds))

    def restart_scheduler(self, *, after: float = 0.0) -> None:
        """kube-scheduler is dead; another one, with what the cluster says, is there after so many seconds."""
        self._start(self.simulation.cluster.restart_scheduler(0, after))

    def go_away(self) -> None:
        """The service cannot reach the API server; its watches go on."""
        self._away = Fault(Unavailable("connection refused"), user=SERVICE, times=None)
        self.faults.add(self._away)

    def come_back(self, *, relist: bool = False) -> None:
        """`relist`: it cannot take up its watches, and lists again."""
        self.faults.remove(self._away)
        if relist:
            self.simulation.forget_changes()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- what is seen of it --------------------------------------------------------------------------------------

    def _look(self, change: Change) -> None:
        self.simulation.passed += 1
        if change.kind is POD:
            seen = to_pod(_pods.decode(self.store.encoded(change.object)), HTTP_TIMEOUT)
            self._known.add(seen.uid)
            if change.type == "DELETED":
                self.pods.pop(seen.uid, None)
                self._ended(seen)
            else:
                self.pods[seen.uid] = seen
                if isinstance(seen.gang, GangAsk) and seen.node is not None:
                    self._bound_once[seen.gang.key].add(seen.uid)
        self.has_changed()

    def _ended(self, gone: Pod) -> None:
        for job in self.jobs:
            if gone.owner is not None and job.name == gone.owner.name:
                asyncio.get_running_loop().call_later(0.05, job.fill)

    def _listen(self, event: Json) -> None:
        if event["user"]["username"] != SERVICE:
            return
        about = event["objectRef"]
        what = about.get("subresource") or about["resource"]
        self.asked.append(f"{event['verb']} {what} {about.get('name', '')}")
        if what == "eviction" and event["responseStatus"]["code"] < 300 and "dryRun" not in event["requestURI"]:
            self.evicted.update(each.uid for each in self.pods.values() if each.name == about["name"])

    def times(self, what: str) -> int:
        """How many such requests of the service have arrived: `create binding train-1`."""
        return sum(each.startswith(what) for each in self.asked)

    # -- how it must end -----------------------------------------------------------------------------------------

    def _placed(self) -> dict[GangAsk, int]:
        """How many members of each gang are bound and are to stay."""
        counted: dict[GangAsk, int] = defaultdict(int)
        for each in self.pods.values():
            if isinstance(each.gang, GangAsk):
                gone = each.deleting or (each.finished and not each.succeeded)
                counted[each.gang] += each.node is not None and not gone
        return counted

    def _in_doubt(self, ask: GangAsk) -> bool:
        """Whether no attempt of its members that are bound can be shown to have been incomplete."""
        members = [each for each in self.pods.values() if each.gang == ask]
        bound = {each.uid for each in members if each.node is not None and not each.deleting}
        waiting = {each.uid for each in members if each.node is None}
        told = {each["involvedObject"]["uid"] for each in self.notices() if each["reason"] == "GangInDoubt"}
        for uid in bound:
            attempt = self.pods[uid].attempt
            if attempt is not None and attempt.size - len(waiting.intersection(attempt.others)) < attempt.needed:
                return False
        return bool(told & bound)

    async def come_to_rest(self) -> None:
        """Nothing fails any more, and all that was begun has ended: then every promise holds.

        A gang of whose members enough have been bound, and not evicted, has run and may have lost some of them. Where
        nothing proves that it has not, it is left alone, and its members are told.
        """
        await self.pass_time(300)
        assert self.simulation.defects == []
        for ask, placed in self._placed().items():
            has_run = len(self._bound_once[ask.key] - self.evicted) >= ask.quorum
            in_part = 0 < placed < ask.quorum and not has_run
            assert not in_part or self._in_doubt(ask), f"{placed} of {ask.quorum} of {ask.key} are bound"
        held = {
            (PodUid(each.holder), each.node, each.kind)
            for each in self.scheduler.cache.ledger.rows.holdings()
            if each.kind is not HoldingKind.SAVING
        }
        living = [each for each in self.pods.values() if not each.finished]
        facts = {(each.uid, each.node, HoldingKind.BOUND) for each in living if each.node is not None}
        assert held == facts, "the ledger is not the cluster's, or something is reserved"
        assert self.at_barrier == 0
        assert self.scheduler.cache.violations() == []
        cache = self.simulation.cluster.schedulers[0].cache
        assumed = [uid for uid in self._known if cache.is_assumed(uid)]
        assert assumed == [], "kube-scheduler was told of Bindings that were never written"


class _Overheard(Simulation):
    """One in which is noted what kube-scheduler hears of the service, and that something has passed."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.refused: list[tuple[str, str]] = []
        self.defects: list[str] = []
        """What the service's verbs raised, which must be nothing."""
        self.passed = 0
        """How much was sent and answered between the service and the others, or has arrived at the API server."""
        self._patience = float(given["extender"]["httpTimeout"].removesuffix("s"))

    def extender_client(self) -> ExtenderClient:
        return _Overhearing(super().extender_client(), self, self._patience)

    def connection_of_service(self) -> Cluster:
        return _Counting(super().connection_of_service(), self)


class _Overhearing:
    """Implements `ExtenderClient`."""

    def __init__(self, client: ExtenderClient, notes: _Overheard, patience: float) -> None:
        self._client, self._notes, self._patience = client, notes, patience

    async def call(self, verb: str, body: bytes) -> bytes:
        began = asyncio.get_running_loop().time()
        failure = ""
        self._notes.passed += 1
        try:
            answer = await self._client.call(verb, body)
            found = msgspec.json.decode(answer)
            failure = found.get("Error", "") if isinstance(found, dict) else ""
            return answer
        except asyncio.CancelledError:
            if asyncio.get_running_loop().time() - began >= self._patience:
                failure = "context deadline exceeded"
            raise
        except ExtenderFailed as error:
            failure = str(error)
            raise
        finally:
            self._notes.passed += 1
            if failure and verb == "bind":
                self._notes.refused.append((msgspec.json.decode(body)["PodName"], failure))
            if _INTERNAL in failure or "code 500" in failure:
                self._notes.defects.append(failure)


class _Counting:
    """Implements `Cluster` of bootstrap: the service's connection."""

    def __init__(self, inner: Cluster, notes: _Overheard) -> None:
        self._inner, self._notes = inner, notes
        self.keep_warm, self.lines = inner.keep_warm, inner.lines

    async def request(self, method: str, path: str, body: bytes | None = None, **how: Any) -> bytes:
        self._notes.passed += 1
        try:
            return await self._inner.request(method, path, body, **how)
        finally:
            self._notes.passed += 1


def answers(pod: str, *faults: Fault) -> list[Fault]:
    """The same, met by the Bindings of the pod that the service writes, one after the other."""
    return [replace(each, method="POST", path=f"/pods/{pod}/binding$", user=SERVICE) for each in faults]


def _node(name: str) -> Json:
    return node(name, {"cpu": "8", "memory": "32Gi", "pods": "110"})
