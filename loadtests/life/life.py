"""Life: one cluster, what people run on it, what happens to it, and the checks meanwhile.

The same seed is the same life. At the end the disturbances cease: what is finite ends, what could run runs, and after
everything is deleted the ledger holds nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kubesim.apiserver.machinery.store import ADDED, Change
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.kinds import NAMESPACE, POD, PRIORITY_CLASS
from lab.controlplane.nodes import NodeShape
from lab.simulation import Simulation
from loadtests.defects import defects, leaves, told
from loadtests.harm.embedded import attach
from loadtests.life.actors.crews import Crews
from loadtests.life.actors.foreign import ForeignScheduler
from loadtests.life.actors.hands import Hands
from loadtests.life.happenings import END_WORK, INSTALL_GROUPS, NEW_WORKS, POLICY, WEIGHTS, Happenings
from loadtests.life.hoards import Hoards
from loadtests.life.loops import Loops, Spinning, run_in
from loadtests.life.rest import that_could_run
from loadtests.life.scene import Scene
from loadtests.life.works import PRIORITIES, QUOTAS, Works
from loadtests.shared.reading import node_of
from loadtests.shared.turns import LONG_TURN, Turns, judged

HARM, CRASH, VIOLATION, HOARD, LOOP, REST = "harm", "crash", "violation", "hoard", "loop", "rest"
KINDS = (HARM, CRASH, VIOLATION, HOARD, LOOP, REST, LONG_TURN)
_MINUTE, _HOUR = 60.0, 3600.0
_MOST_PODS = 90
_READY_WITHIN = 30.0
_REST_WITHIN = 4 * _HOUR
_TIDY_WITHIN = 900.0
_LAST_TOLD = 12


@dataclass(frozen=True)
class Plan:
    """`pace`: mean seconds between happenings, with which runs scale. `without`: those left out."""

    seed: int
    weeks: float = 2.0
    pace: float = 1200.0
    nodes: int = 12
    without: frozenset[str] = frozenset()
    stop_at_first: bool = True


@dataclass
class Finding:
    kind: str
    when: str
    what: str
    before: list[str]
    """What had happened last, the latest at the end."""


@dataclass
class Result:
    seed: int
    findings: list[Finding] = field(default_factory=list)
    happenings: dict[str, int] = field(default_factory=dict)
    pods_created: int = 0
    pods_bound: int = 0
    evictions: int = 0
    lives: int = 1
    writes: int = 0
    largest_share_saved: float = 0.0
    cpu_seconds: float = 0.0
    longest_turn: int = 0
    """The most calls of the service in a turn that took long; 0: none took long."""
    virtual_days: float = 0.0
    digest: str = ""
    """A digest of all writes: two lives with the same digest are the same."""

    def find(self, kind: str, when: str, what: str, before: list[str]) -> None:
        self.findings.append(Finding(kind, when, what, before))

    @property
    def is_clean(self) -> bool:
        return not self.findings


class _Enough(Exception):
    """Something was found, and the first finding is enough."""


class Life:
    """`errors`: receives what the service logs as errors, and what it dies of."""

    def __init__(self, plan: Plan, simulation: Simulation, errors: list[str], result: Result) -> None:
        self._plan = plan
        self._errors = errors
        self._simulation = simulation
        self._store = simulation.cluster.api.store
        self.result = result
        self.told: list[str] = []
        self._counts: Counter[str] = Counter()
        self._digest = hashlib.sha256()
        self._seen: set[tuple[str, str]] = set()
        self._witness = attach(simulation)
        self._hoards = Hoards(lambda what: self.find(HOARD, what))
        self._spins = asyncio.Event()
        simulation.cluster.api.audit.subscribe(Loops(self._spin, simulation.clock.now).hear)
        self._not_ready_since: float | None = None
        crews = Crews(
            self._connection("system:serviceaccount:kube-system:crews"), self._store, simulation.clock, quotas=QUOTAS
        )
        user, kubelet = Hands(self._connection("somebody")), Hands(self._connection("system:nodes"))
        other = Hands(self._connection("coscheduling"))
        foreign = ForeignScheduler(
            self._connection("coscheduling"), self._store, simulation.clock, hands=other, rng=self._drawn("foreign")
        )
        self._controllers = (crews, foreign)
        governed = None if POLICY in plan.without else self._drawn("governed")
        self._works = Works(self._drawn("works"), plan.pace, crews, user, governed)
        drawn = self._drawn("happenings")
        scene = Scene(simulation, self._works, crews, user, kubelet, drawn, plan.pace, self._is_killed)
        self._happenings = Happenings(scene)
        self._user = user

    def _drawn(self, part: str) -> random.Random:
        return random.Random(f"{self._plan.seed} life {part}")

    def _connection(self, who: str) -> InProcess:
        return InProcess(self._simulation.cluster.api, latency=0.001, rng=self._drawn(f"connection {who}"), user=who)

    def _is_killed(self) -> None:
        self._witness.interrupted(self._simulation.clock.now())

    # -- what is found -------------------------------------------------------------------------------------------

    def find(self, kind: str, what: str) -> None:
        if (kind, what) in self._seen:
            return
        self._seen.add((kind, what))
        self.result.find(kind, self._when(), what, self.told[-_LAST_TOLD:])

    def _spin(self, what: str) -> None:
        self.find(LOOP, what)
        self._spins.set()

    async def _sleep(self, seconds: float) -> None:
        """Lets time pass. Raises _Enough at once if a loop keeps virtual time from passing."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._spins.wait()
                raise _Enough

    def _when(self) -> str:
        return datetime.fromtimestamp(self._simulation.clock.now(), UTC).strftime("%d %H:%M:%S")

    def _tell(self, what: str) -> None:
        self.told.append(f"{self._when()} {what}")

    def _look(self) -> None:
        for harm in self._witness.violations():
            self.find(HARM, str(harm))
        for error in self._errors:
            self.find(CRASH, error)
        now = self._simulation.clock.now()
        if self._simulation.service is not None and self._simulation.application.ready():
            self._not_ready_since = None
            scheduler = self._simulation.application.scheduler
            for each in scheduler.cache.violations():
                self.find(VIOLATION, f"{each.invariant}: {each.detail}")
            self._hoards.look(scheduler, now)
        elif self._simulation.service is None:
            self._not_ready_since = None
        elif self._not_ready_since is None:
            self._not_ready_since = now
        elif now - self._not_ready_since > _READY_WITHIN:
            self.find(CRASH, "the service is not ready half a minute after its start")
        if self.result.findings and self._plan.stop_at_first:
            raise _Enough

    # -- how it goes ---------------------------------------------------------------------------------------------

    async def go(self) -> None:
        """The whole life, from the first happening to the last check."""
        self._store.subscribe(self._count)
        running = [asyncio.ensure_future(each.run()) for each in self._controllers]
        try:
            await self._settle_in()
            await self._be_disturbed()
            await self._come_to_rest()
            await self._be_tidied()
        except _Enough:
            pass
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self._sum_up()

    def _count(self, change: Change) -> None:
        self._digest.update(f"{change.type} {change.kind} {change.key} {change.version}".encode())
        if change.kind is POD:
            self.result.pods_created += change.type == ADDED
            if change.before is not None:
                self.result.pods_bound += bool(node_of(change.object)) and not node_of(change.before)

    def _sum_up(self) -> None:
        result = self.result
        result.happenings = dict(self._counts)
        result.evictions = self._witness.evictions
        result.largest_share_saved = self._hoards.largest_share
        result.writes, result.digest = self._store.version, self._digest.hexdigest()
        result.lives = self._simulation.lives

    async def _settle_in(self) -> None:
        for name, (value, policy) in PRIORITIES.items():
            body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
            await self._user.create(PRIORITY_CLASS, body)
        for namespace in ("team-a", "team-b"):
            await self._user.create(NAMESPACE, {"metadata": {"name": namespace}})
        await self._works.settle_in()
        if INSTALL_GROUPS not in self._plan.without and self._drawn("groups").random() < 0.5:
            self._tell(await self._happenings.begin(INSTALL_GROUPS))
        await self._sleep(_MINUTE)

    async def _be_disturbed(self) -> None:
        rng, plan, loop = self._drawn("order"), self._plan, asyncio.get_running_loop()
        weights = {each: weight for each, weight in WEIGHTS.items() if each not in plan.without}
        end, look_at = loop.time() + plan.weeks * 7 * 24 * _HOUR, loop.time() + _MINUTE
        while True:
            happens_at = loop.time() + rng.expovariate(1 / plan.pace)
            while look_at < min(happens_at, end):
                await self._sleep(look_at - loop.time())
                self._look()
                look_at += _MINUTE
            if happens_at >= end:
                return
            await self._sleep(max(0.0, happens_at - loop.time()))
            [what] = rng.choices(list(weights), list(weights.values()))
            if what in NEW_WORKS and len(self._store.list(POD)) > _MOST_PODS:
                what = END_WORK
            self._counts[what] += 1
            self._tell(await self._happenings.begin(what))

    async def _come_to_rest(self) -> None:
        """Waits until finite works have ended and no pod that could run is pending."""
        self._tell("nothing disturbs any more")
        await self._happenings.end()
        longest = 60 * self._plan.pace
        deadline = asyncio.get_running_loop().time() + longest + _REST_WITHIN
        quiet = 0
        while quiet < 2:
            for _ in range(10):
                await self._sleep(_MINUTE)
                self._look()
            left = that_could_run(self._store, groups_installed=self._works.groups_installed)
            quiet = 0 if left else quiet + 1
            if left and asyncio.get_running_loop().time() > deadline:
                for each in left:
                    self.find(REST, f"{each}, and is pending")
                self._look()
                return

    async def _be_tidied(self) -> None:
        await self._happenings.tidy()
        for pod in self._store.list(POD):
            await self._user.delete(POD, pod)
        deadline = asyncio.get_running_loop().time() + _TIDY_WITHIN
        while len(self._store.list(POD)) and asyncio.get_running_loop().time() < deadline:
            await self._sleep(_MINUTE)
            for pod in self._store.list(POD):
                await self._user.delete(POD, pod)
        if len(self._store.list(POD)):
            self.find(REST, f"{len(self._store.list(POD))} pods do not go")
            return
        await self._sleep(_MINUTE)
        self._witness.finish(self._simulation.clock.now())
        self._look()
        for held in self._simulation.application.scheduler.cache.ledger.rows.holdings():
            self.find(REST, f"nobody is there any more, and the ledger has {held}")
        self._look()


async def _live(plan: Plan, result: Result) -> None:
    simulation = Simulation(seed=plan.seed, nodes=plan.nodes, node_shape=NodeShape())
    life: Life | None = None
    errors: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: errors.append(told(about)))
    try:
        async with simulation:
            life = Life(plan, simulation, errors, result)
            with defects(errors):
                await life.go()
    except BaseExceptionGroup as group:
        errors += [repr(each) for each in leaves(group)]
    assert life is not None, errors
    for error in errors:
        life.find(CRASH, error)
    result.virtual_days = asyncio.get_running_loop().time() / (24 * _HOUR)


def live(plan: Plan) -> Result:
    """Lives the life; a second time, to count calls, if turns of the event loop took long."""
    began = time.process_time()

    def once(turns: Turns) -> Result:
        result = Result(plan.seed)
        try:
            run_in(turns, _live(plan, result))
        except Spinning as error:
            result.find(LOOP, "", str(error), [])
        return result

    result, result.longest_turn, long = judged(once)
    for what in long:
        result.find(LONG_TURN, "", what, [])
    result.cpu_seconds = time.process_time() - began
    return result
