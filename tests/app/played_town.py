"""A town that is played: the service between an API server and a kube-scheduler of a few lines each, which can fail.

`town` is the same on the embedded cluster, and the better one for a single story. This one is for `test_crashes`, which
strikes at every round of the event loop, some thousand lives: one takes 10 ms here, and ten times as long there.

`come_to_rest` is what every failure must end in: each gang bound as a whole or not at all, nothing reserved, the ledger
the cluster's.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from extender.app.contracts.effects import Decided
from extender.app.contracts.extender_api import Verdict
from extender.app.contracts.ports import PodRef
from extender.app.cycle.event_handlers import Facts
from extender.app.cycle.scheduler import Scheduler
from extender.app.observability.flight_recorder import FlightRecorder
from extender.core.cluster import Node, Owner, Pod
from extender.core.gang_ask import GangAsk
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.ledger.ledger import HoldingKind
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from tests.app.fakes import LoopClock
from tests.app.kube_scheduler import KubeScheduler
from tests.app.passing import Passing
from tests.app.pod_server import Follower, Line, PodServer
from tests.app.wired import Wired
from tests.builders import Amounts, node, pod

WHOLE_NODE = {"cpu": 8000}
HTTP_TIMEOUT = 60.0
T = TypeVar("T")


class Service(Wired):
    """One life of the service, wired as bootstrap does it."""

    def __init__(self, server: PodServer, defects: list[Exception], *, delay: float, http_timeout: float) -> None:
        self._defects = defects
        self._line = Line(server)
        self._died: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.flight_recorder = FlightRecorder(server.clock)
        super().__init__(Scheduler(server.clock), self._line, self.flight_recorder, write_within=http_timeout * 0.5)
        nodes = Facts(Node, self.scheduler, self, self.flight_recorder)
        self.follower = Follower(server, nodes, Facts(Pod, self.scheduler, self, self.flight_recorder), delay=delay)
        self.follower.list()

    def filter(self, pod: Pod, nodes: Sequence[NodeName], *, alone: bool = False) -> Verdict:
        try:
            return self.scheduling.filter(pod, nodes)
        except Exception as error:
            self._defects.append(error)
            return Verdict(error="internal error")

    async def bind(self, pod: PodRef, node: NodeName) -> str:
        """It goes on when its caller leaves."""
        call = asyncio.ensure_future(self.scheduling.bind(pod, node))
        either: set[asyncio.Future[Any]] = {call, self._died}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._died.done():
            raise ConnectionError("connection reset")
        return call.result()

    def crash(self, *, losing: bool) -> None:
        """kill -9: nothing of it is heard of any more. What its tasks still do reaches nobody."""
        self._died.set_result(None)
        self._line.cut(losing=losing)
        self.follower.end()
        self._end = asyncio.ensure_future(self.effects.close())


class NoService:
    """Nobody listens at the address."""

    def filter(self, pod: Pod, nodes: Sequence[NodeName], *, alone: bool = False) -> Verdict:
        raise ConnectionError("connection refused")

    async def bind(self, pod: PodRef, node: NodeName) -> str:
        raise ConnectionError("connection refused")


@dataclass
class Job:
    """A controller that keeps so many pods there; each new one has a new name and a new UID."""

    town: Town
    name: str
    size: int
    asks: Amounts
    quorum: int
    made: int = 0

    def fill(self) -> None:
        present = sum(each.owner == self.owner and not each.deleting for each in self.town.server.pods.values())
        for _ in range(self.size - present):
            [made] = self.town.gang(self.name, 1, self.asks, quorum=self.quorum, first=self.made)
            self.made += 1
            self.town.server.create(replace(made, owner=self.owner))

    def promise_to(self, scheduler: Scheduler) -> None:
        """Its spec says how many pods there are to be: a quorum, though some are late in coming."""
        scheduler.observe(Promise(self.owner.uid, max(self.size, self.quorum)))

    @property
    def owner(self) -> Owner:
        return Owner("Job", self.name, f"uid-job-{self.name}")


class Town(Passing):
    """Nodes of 8 CPU; the service and kube-scheduler run. Time passes in `pass_time` alone."""

    def __init__(self, nodes: int = 4, *, delay: float = 0.0, http_timeout: float = HTTP_TIMEOUT) -> None:
        super().__init__()
        self.clock = LoopClock()
        self.server = PodServer(self.clock)
        self._delay, self._http_timeout = delay, http_timeout
        for number in range(nodes):
            self.server.put_node(node(f"n{number}"))
        self.defects: list[Exception] = []
        """What the service's verbs raised, which must be nothing."""
        self.jobs: list[Job] = []
        self.service: Service | None = self._new_service()
        self.kube_scheduler = self._new_scheduler()
        self.lives = 1
        self.server.ended.append(self._pod_ended)
        self.server.witnesses.append(self._look)
        self._bound_once: dict[GangKey, set[PodUid]] = defaultdict(set)

    def _new_service(self) -> Service:
        made = Service(self.server, self.defects, delay=self._delay, http_timeout=self._http_timeout)
        for job in self.jobs:
            job.promise_to(made.scheduler)
        return made

    def _new_scheduler(self) -> KubeScheduler:
        return KubeScheduler(self.server, lambda: self.service or NoService(), http_timeout=self._http_timeout)

    # -- what is there -------------------------------------------------------------------------------------------

    def gang(
        self,
        name: str,
        size: int,
        asks: Amounts = WHOLE_NODE,
        *,
        quorum: int | None = None,
        timeout: float = 30.0,
        first: int = 0,
    ) -> list[Pod]:
        """Members that somebody may create."""
        ask = GangAsk(GangKey("default", name), size if quorum is None else quorum, timeout)
        return [pod(f"{name}-{first + index}", asks, gang=ask) for index in range(size)]

    def promised(self, members: Sequence[Pod]) -> list[Pod]:
        """The same, as some Job's that promises so many, and that makes no others."""
        owner = Owner("Job", "promised", "uid-job-promised")
        self.do(self.scheduler.observe(Promise(owner.uid, len(members))))
        return [replace(each, owner=owner) for each in members]

    def job(self, name: str, size: int, asks: Amounts = WHOLE_NODE, *, quorum: int | None = None) -> Job:
        made = Job(self, name, size, asks, size if quorum is None else quorum)
        self.jobs.append(made)
        if self.service is not None:
            made.promise_to(self.service.scheduler)
        made.fill()
        return made

    def _pod_ended(self, gone: Pod) -> None:
        for job in self.jobs:
            if job.owner == gone.owner:
                asyncio.get_running_loop().call_later(0.05, job.fill)

    @property
    def scheduler(self) -> Scheduler:
        assert self.service is not None
        return self.service.scheduler

    def do(self, decided: Decided[T]) -> T:
        assert self.service is not None
        return self.service.do(decided)

    @property
    def at_barrier(self) -> int:
        return 0 if self.service is None else len(self.service.gates)

    def bound(self, gang: str = "train") -> dict[str, NodeName]:
        """Node by name of the gang's members that are bound and are to stay."""
        return {
            each.name: each.node
            for each in self.server.pods.values()
            if isinstance(each.gang, GangAsk) and each.gang.key.name == gang and each.node and not each.deleting
        }

    def told(self) -> dict[str, list[str]]:
        """Which pods have events of each reason, in order of their names."""
        found: dict[str, list[str]] = defaultdict(list)
        for each in sorted(self.server.notices, key=lambda each: each.pod.name):
            found[each.reason].append(each.pod.name)
        return dict(found)

    def named(self, name: str) -> Pod:
        return next(each for each in self.server.pods.values() if each.name == name)

    # -- what happens --------------------------------------------------------------------------------------------

    def crash(self, *, losing: bool = False, for_seconds: float = 0.3) -> None:
        """The service is dead, and there again after a while with what the cluster says. `losing`: as `Line.cut`."""
        if self.service is None:
            return
        self.service.crash(losing=losing)
        self.service = None
        asyncio.get_running_loop().call_later(for_seconds, self._revive)

    def _revive(self) -> None:
        self.service = self._new_service()
        self.lives += 1

    def restart_scheduler(self, *, after: float = 0.0) -> None:
        """kube-scheduler is dead; another one, with what the cluster says, is there after so many seconds."""

        def begin() -> None:
            self.kube_scheduler = self._new_scheduler()

        self.kube_scheduler.end()
        asyncio.get_running_loop().call_later(after, begin)

    # -- how it must end -----------------------------------------------------------------------------------------

    def _look(self) -> None:
        self.has_changed()
        for each in self.server.pods.values():
            if isinstance(each.gang, GangAsk) and each.node is not None:
                self._bound_once[each.gang.key].add(each.uid)

    def _placed(self) -> dict[GangAsk, int]:
        """How many members of each gang are bound and are to stay."""
        counted: dict[GangAsk, int] = defaultdict(int)
        for each in self.server.pods.values():
            if isinstance(each.gang, GangAsk):
                gone = each.deleting or (each.finished and not each.succeeded)
                counted[each.gang] += each.node is not None and not gone
        return counted

    def _in_doubt(self, ask: GangAsk) -> bool:
        """Whether no attempt of its members that are bound can be shown to have been incomplete."""
        members = [each for each in self.server.pods.values() if each.gang == ask]
        bound = {each.uid for each in members if each.node is not None and not each.deleting}
        waiting = {each.uid for each in members if each.node is None}
        told = {each.pod.uid for each in self.server.notices if each.reason == "GangInDoubt"}
        for uid in bound:
            attempt = self.server.pods[uid].attempt
            if attempt is not None and attempt.size - len(waiting.intersection(attempt.others)) < attempt.needed:
                return False
        return bool(told & bound)

    async def come_to_rest(self) -> None:
        """Nothing fails any more, and all that was begun has ended: then every promise holds.

        A gang of whose members enough have been bound, and not evicted, has run and may have lost some of them. Where
        nothing proves that it has not, it is left alone, and its members are told.
        """
        await self.pass_time(300)
        assert self.service is not None
        assert self.defects == []
        for ask, placed in self._placed().items():
            has_run = len(self._bound_once[ask.key] - self.server.evicted) >= ask.quorum
            in_part = 0 < placed < ask.quorum and not has_run
            assert not in_part or self._in_doubt(ask), f"{placed} of {ask.quorum} of {ask.key} are bound"
        held = {
            (PodUid(each.holder), each.node, each.kind)
            for each in self.scheduler.cache.ledger.rows.holdings()
            if each.kind is not HoldingKind.SAVING
        }
        living = [each for each in self.server.pods.values() if not each.finished]
        facts = {(each.uid, each.node, HoldingKind.BOUND) for each in living if each.node is not None}
        assert held == facts, "the ledger is not the cluster's, or something is reserved"
        assert self.at_barrier == 0
        assert self.scheduler.cache.violations() == []
        assert self.kube_scheduler.assumed == {}, "kube-scheduler was told of Bindings that were never written"
