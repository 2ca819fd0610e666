"""Run: carries out a plan, with checks after each step, at rest, after a restart, and at the end.

The same plan is the same run: `Result.digest` shows it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from extender.adapters.kubernetes.reflectors import reflector
from extender.app.cycle import pod_events as population
from extender.app.cycle.requeue import Requeue
from kubesim.apiserver.machinery.store import Change
from kubesim.kinds import POD
from loadtests.defects import defects, leaves, told
from loadtests.fault_simulation.actors.noise import Noise
from loadtests.fault_simulation.actors.restoring import Restoring
from loadtests.fault_simulation.actors.steps import Steps
from loadtests.fault_simulation.actors.striking import Striking
from loadtests.fault_simulation.actors.working import Working
from loadtests.fault_simulation.history import History
from loadtests.fault_simulation.outcome import LEFT, Ran, amiss, states
from loadtests.fault_simulation.plan import Fault, Plan
from loadtests.fault_simulation.rounds import LookedAtLoop
from loadtests.fault_simulation.stage import SERVICES, Stage, stage_of
from loadtests.harm.embedded import attach
from loadtests.life.loops import Loops, Spinning
from loadtests.life.policies import POLICY
from loadtests.life.seeing import name
from loadtests.month.agreement import ephemeral_resources
from loadtests.shared.reading import node_of
from loadtests.shared.slow_twin import settle_and_compare
from loadtests.shared.turns import LONG_TURN, Turns

HARM, CRASH, LOOP, RESTART, UNANSWERED = "harm", "crash", "loop", "restart", "unanswered"
TRANSACTION = "transaction"
_LOOK_EVERY = 15.0
_REST_WITHIN = 200.0
"""Seconds after the last fault within which all must be at rest.

Less than kube-scheduler's five minutes, after which it tries all waiting pods again and would hide a missing wake."""
_DECIDED_WITHIN = 45.0
"""Seconds within which a gang in part may be completed, and a margin."""
_TIDY_WITHIN = 600.0
_READY_WITHIN = 60.0
_LATER = "a transaction is not completely rolled back"
"""The service says this if the API server is away for longer than a call lasts.

It takes the intent back later, or its next life does. The final objects show whether that was done."""


@dataclass(frozen=True)
class Finding:
    kind: str
    when: float
    """Seconds from the beginning."""
    what: str


@dataclass
class Result:
    plan: Plan
    findings: list[Finding] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """The kinds of the faults that struck."""
    looks: int = 0
    """Rounds of the event loop with work of the service; the invariants are checked after each."""
    bound: int = 0
    evicted: int = 0
    restored: int = 0
    """Objects that restores of etcd have changed."""
    lives: int = 0
    longest_turn: int = 0
    """The most calls of the service in one turn of the event loop; 0: no turn took long."""
    virtual_seconds: float = 0.0
    cpu_seconds: float = 0.0
    digest: str = ""

    def find(self, kind: str, when: float, what: str) -> None:
        if all((each.kind, each.what) != (kind, what) for each in self.findings):
            self.findings.append(Finding(kind, round(when, 3), what))

    @property
    def is_clean(self) -> bool:
        return not self.findings


class _Enough(Exception):
    """Something was found; later findings would be its consequences."""


class Run:
    """`errors`: receives what the service logs as errors, and what it dies of."""

    def __init__(self, plan: Plan, stage: Stage, errors: list[str], result: Result) -> None:
        self._plan = plan
        self._stage = stage
        self._errors = errors
        self._result = result
        self._store = stage.cluster.api.store
        self._resources = ephemeral_resources(stage)
        self._restoring = Restoring(stage)
        self._steps = Steps(stage, self._resources, self._find, self._restoring)
        self._witness = attach(stage, services=SERVICES)
        self._restoring.listeners.append(self._is_restored)
        self._evicted = 0
        self._working = Working(stage, plan.seed)
        self._noise = Noise(stage, plan.seed, self._resources)
        ours = (self._resources, POLICY)
        self._striking = Striking(stage, plan.seed, ours, self._is_killed, self._restore, self._noise)
        self._history = History(stage)
        self._ran = Ran()
        self._store.subscribe(self._note)
        self._store.subscribe(self._ran.note)
        stage.cluster.api.audit.subscribe(Loops(lambda what: self._find(LOOP, what), stage.clock.now).hear)

    def _find(self, kind: str, what: str) -> None:
        self._result.find(kind, asyncio.get_running_loop().time(), what)

    def _is_killed(self) -> None:
        self._witness.interrupted(self._stage.clock.now())

    async def _restore(self, fault: Fault) -> None:
        """Restores etcd; people ask at once, and again when the service must know of it."""
        await self._restoring.restore(fault)
        await self._working.ask_again()
        await self._restoring.mended()
        await self._working.ask_again()
        await self._noise.sweep()

    def _is_restored(self) -> None:
        """Records the witness's findings, and replaces it: a new one cannot know the past."""
        self._evicted += self._witness.evictions
        self._errors += map(str, self._witness.violations())
        earlier, self._witness = self._witness, attach(self._stage, services=SERVICES)
        self._witness.follow(earlier)
        self._is_killed()

    def _note(self, change: Change) -> None:
        if change.kind is POD and node_of(change.object):
            self._result.bound += change.before is None or not node_of(change.before)

    # -- how it goes ---------------------------------------------------------------------------------------------

    async def go(self) -> None:
        """Carries out the whole plan, or stops at the first finding."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LookedAtLoop)
        loop.look = self._steps.look
        try:
            going = [
                *(self._working.work(each) for each in self._plan.works),
                *(self._striking.strike(each) for each in self._plan.faults),
            ]
            asking = [asyncio.ensure_future(each) for each in going]
            try:
                await self._pass(self._plan.ends)
                await self._come_to_rest(asking)
                await self._be_restarted()
                await self._be_emptied()
            finally:
                for each in asking:
                    each.cancel()
                done = await asyncio.gather(*asking, return_exceptions=True)
                self._errors += [repr(each) for each in done if isinstance(each, Exception)]
        except _Enough:
            pass
        finally:
            loop.look = lambda: None
            self._sum_up()

    def _sum_up(self) -> None:
        result = self._result
        result.faults, result.evicted = self._striking.done, self._evicted + self._witness.evictions
        result.restored = self._restoring.changed
        result.digest = self._history.digest()
        result.lives = self._stage.lives

    def _look(self) -> None:
        for harm in self._witness.violations():
            self._find(HARM, str(harm))
        for error in self._errors:
            self._find(CRASH, error)
        if self._result.findings:
            raise _Enough

    async def _pass(self, seconds: float) -> None:
        """Lets time pass, and stops at a finding."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0:
            await asyncio.sleep(min(left, _LOOK_EVERY))
            self._look()

    async def _come_to_rest(self, asking: Sequence[asyncio.Future[None]]) -> None:
        """Waits until each request was answered and all is as it must be, in two looks in a row."""
        deadline = asyncio.get_running_loop().time() + _REST_WITHIN
        quiet = 0
        while quiet < 2:
            await self._pass(_LOOK_EVERY)
            unanswered = sum(not each.done() for each in asking)
            found = await self._amiss()
            quiet = 0 if unanswered or any(found.values()) else quiet + 1
            if not quiet and asyncio.get_running_loop().time() > deadline:
                self._tell(found)
                if unanswered:
                    self._find(UNANSWERED, f"{unanswered} never ended; last answers: {self._working.last_answers}")
                self._look()

    async def _amiss(self) -> dict[str, list[str]]:
        life = self._stage.leading
        if life is None:
            return {CRASH: ["no service decides"]}
        lost = any(each.kind in ("lose-node", "restore") for each in self._plan.faults)
        told_nodes = {} if lost else self._working.told
        wishes = list(self._working.wishes.values())
        unclear = self._restoring.gangs
        transactions, restored = self._working.transactions, any(each.kind == "restore" for each in self._plan.faults)
        found = await amiss(
            self._store,
            life,
            self._resources,
            self._plan.works,
            wishes,
            told_nodes,
            unclear,
            transactions.names,
            frozenset().union(*(each.preemption.forgotten for each in self._stage.cluster.schedulers)),
            self._ran.uids,
        )
        return {**found, TRANSACTION: transactions.amiss(restored=restored)}

    def _tell(self, found: dict[str, list[str]]) -> None:
        for kind, said in found.items():
            for each in said:
                self._find(kind, each)

    async def _be_restarted(self) -> None:
        """Restarts the service; the new life must have the same knowledge as the old one."""
        life = self._stage.leading
        assert life is not None
        before, version = await states(life), self._store.version
        self._is_killed()
        self._stage.back_after = 1.0
        self._stage.kill_leading(losing=False)
        await self._until(lambda: self._stage.leading is not None, _READY_WITHIN, "no service decides after a restart")
        life = self._stage.leading
        assert life is not None
        after = await states(life)
        for node in sorted(before.keys() | after.keys()) if self._store.version == version else ():
            for key, was in before.get(node, {}).items():
                now = after.get(node, {}).get(key)
                # None: the available units cannot be compared, because some are in a backfill reservation.
                if was != now and was is not None and now is not None:
                    self._find(RESTART, f"{node} had {key} {was}, and has {now} after a restart")
        await self._pass(_DECIDED_WITHIN)
        await self._come_to_rest(())

    async def _be_emptied(self) -> None:
        """Takes all back; then the ledger must hold nothing."""
        await asyncio.wait_for(self._working.take_all_back(), _READY_WITHIN)
        deadline = asyncio.get_running_loop().time() + _TIDY_WITHIN
        while True:
            await self._pass(_LOOK_EVERY)
            left = await self._left()
            if not left:
                return
            if asyncio.get_running_loop().time() > deadline:
                self._tell({LEFT: left})
                self._look()

    async def _left(self) -> list[str]:
        life = self._stage.leading
        if life is None:
            return ["no service decides"]
        scheduler = life.application.scheduler
        return [
            *(f"pod {name(each)}" for each in self._store.list(POD)),
            *(f"object {name(each)}" for each in self._store.list(self._resources)),
            *(f"the ledger has {each}" for each in scheduler.cache.ledger.rows.holdings()),
            *(f"gang {each}" for each in scheduler.cache.gangs.by_key),
            *(each for found in (await self._amiss()).values() for each in found),
        ]

    async def _until(self, holds: Callable[[], bool], within: float, what: str) -> None:
        deadline = asyncio.get_running_loop().time() + within
        while not holds():
            await asyncio.sleep(0.1)
            if asyncio.get_running_loop().time() > deadline:
                self._find(CRASH, what)
                self._look()


async def _carry_out(plan: Plan, result: Result) -> None:
    errors: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: errors.append(told(about)))
    try:
        with defects(errors, but=(_LATER,)):
            async with stage_of(plan) as stage:
                await Run(plan, stage, errors, result).go()
    except BaseExceptionGroup as group:
        errors += [repr(each) for each in leaves(group)]
    for error in errors:
        if all(each.what != error for each in result.findings):
            result.findings.append(Finding(CRASH, round(asyncio.get_running_loop().time(), 3), error))


@contextmanager
def _by_few(plan: Plan) -> Iterator[None]:
    """Cuts lists, and events of waiting PodGroups, into slices of two, as a run has few objects.

    A watch handles four events at once, not 32. The service also stops after 5 ms, which virtual time does not show."""
    # With every second plan, what the service leaves out between two passes is done, and must find nothing.
    settle = settle_and_compare if plan.seed % 2 else Requeue.settle_if_changed
    small = patch.object(population, "SLICE", 2), patch.object(reflector, "_SLICE", 4)
    with small[0], small[1], patch.object(Requeue, "settle_if_changed", settle):
        yield


def run(plan: Plan) -> Result:
    """Carries out a plan; a second time, to count calls, if turns of the event loop took long."""
    began = time.process_time()
    result, suspects = _run(plan)
    if suspects:
        again, _ = _run(plan, suspects)
        result.longest_turn = again.longest_turn
        if result.is_clean and again.is_clean and again.digest != result.digest:
            result.find(CRASH, 0.0, "the same plan had another history when it was carried out once more")
        for each in again.findings:
            result.find(each.kind, each.when, each.what)
    result.cpu_seconds = time.process_time() - began
    return result


def _run(plan: Plan, counting: Collection[int] | None = None) -> tuple[Result, list[int]]:
    """The result, and the numbers of the turns that took long."""
    result = Result(plan)
    with _by_few(plan), asyncio.Runner(loop_factory=LookedAtLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, LookedAtLoop)
        loop.turns = Turns(lambda what: result.find(LONG_TURN, loop.time(), what), counting)
        try:
            runner.run(_carry_out(plan, result))
        except Spinning as error:
            result.find(LOOP, loop.time(), str(error))
        result.looks, result.virtual_seconds = loop.looks, round(loop.time(), 3)
        result.longest_turn = loop.turns.most
    return result, loop.turns.suspects
