"""Month: a cluster, applications, troubles, and four quiet moments a day. Same seed, same month."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kubesim.apiserver.serving.in_process import InProcess
from kubesim.kinds import NAMESPACE, Json
from lab.simulation import SERVICE, Simulation
from loadtests.defects import defects, leaves, told
from loadtests.life.actors.hands import Hands
from loadtests.life.loops import Loops, Spinning, run_in
from loadtests.month.agreement import disagreements
from loadtests.month.applications import LONGEST_PAUSE, NAMESPACES, Applications
from loadtests.month.troubles import LONGEST, Troubles, nodes
from loadtests.shared.turns import Turns, judged

HOUR, DAY = 3600.0, 86_400.0
_TURN = 6 * HOUR
_QUIET = LONGEST + LONGEST_PAUSE + 900.0
"""Seconds at the end of a turn without new troubles: all troubles end, and all applications ask."""
_DAILY = "rotation"
_WEIGHTS = {
    "restart": 4, "restore": 1, "clock": 2, "replacement": 2, "reboot": 2, "wiped": 2, "fight": 2, "watches": 3,
    "deleted": 1, "edited": 1,
}  # fmt: skip
_LAST_TOLD = 8


@dataclass(frozen=True)
class Plan:
    """`pace`: mean seconds from one trouble to the next."""

    seed: int
    days: float = 30.0
    applications: int = 50
    nodes: int = 10
    pace: float = 2400.0


@dataclass
class Day:
    """The service's writes of one day, by `verb resource/subresource`, and the need for them."""

    writes: dict[str, int]
    asked: int
    changing: int
    troubles: int

    @property
    def share(self) -> float:
        """The writes, as a share of the most that is right.

        For each call with a change: its object, its status and some nodes. For each trouble: all objects and nodes, or
        an hour of repairs in a fight."""
        return sum(self.writes.values()) / (4 * self.changing + 150 * self.troubles + 200)


@dataclass
class Result:
    seed: int
    findings: list[str] = field(default_factory=list)
    days: list[Day] = field(default_factory=list)
    troubles: dict[str, int] = field(default_factory=dict)
    quiet_moments: int = 0
    cpu_seconds: float = 0.0
    longest_turn: int = 0
    """The most calls of the service in a turn that took long; 0: none took long."""


class Month:
    def __init__(self, plan: Plan, simulation: Simulation, errors: list[str], result: Result) -> None:
        self._plan = plan
        self._simulation = simulation
        self._errors = errors
        self._result = result
        self._told: list[str] = []
        self._seen: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._troubles_today = 0
        hands = Hands(self._connection("somebody"))
        self.applications = Applications(simulation, plan.applications, plan.seed, hands, self._find)
        self._hands = hands
        self._rng = random.Random(f"{plan.seed} month")

    def _connection(self, who: str) -> InProcess:
        drawn = random.Random(f"{self._plan.seed} connection {who}")
        return InProcess(self._simulation.cluster.api, latency=0.001, rng=drawn, user=who)

    def _find(self, what: str) -> None:
        if what not in self._seen:
            self._seen.add(what)
            self._result.findings.append("\n  ".join([f"{self._when()} {what}; before:", *self._told[-_LAST_TOLD:]]))

    def _when(self) -> str:
        return datetime.fromtimestamp(self._simulation.clock.now(), UTC).strftime("%m-%d %H:%M:%S")

    async def go(self, said: Callable[[str], None]) -> None:
        """Runs all days. `said` is called with a line for each."""
        for namespace in NAMESPACES:
            await self._hands.create(NAMESPACE, {"metadata": {"name": namespace}})
        troubles = Troubles(self._simulation, self.applications, self._hands, self._rng)
        audit = self._simulation.cluster.api.audit
        audit.subscribe(self._count)
        audit.subscribe(Loops(self._find, self._simulation.clock.now).hear)
        speaking = asyncio.ensure_future(self.applications.run())
        try:
            await asyncio.sleep(LONGEST_PAUSE)
            turns = max(1, round(self._plan.days * DAY / _TURN))
            for turn in range(turns):
                await self._be_troubled(troubles, daily=turn % 4 == 0)
                self._look()
                troubles.back_up()
                if turn % 4 == 3 or turn + 1 == turns:
                    self._end_day()
                    said(f"day {turn // 4 + 1}: {sum(self._result.days[-1].writes.values())} writes")
        finally:
            speaking.cancel()
            done = await asyncio.gather(speaking, return_exceptions=True)
            self._errors += [repr(each) for each in done if not isinstance(each, asyncio.CancelledError | None)]

    async def _be_troubled(self, troubles: Troubles, *, daily: bool) -> None:
        loop = asyncio.get_running_loop()
        began, rotated = loop.time(), not daily
        while (waits := self._rng.expovariate(1 / self._plan.pace)) + loop.time() < began + _TURN - _QUIET:
            await asyncio.sleep(waits)
            [what] = self._rng.choices(list(_WEIGHTS), list(_WEIGHTS.values())) if rotated else [_DAILY]
            rotated = True
            self._told.append(f"{self._when()} {what} begins")
            self._told.append(f"{self._when()} {await troubles.by_name[what]()}")
            self._result.troubles[what] = self._result.troubles.get(what, 0) + 1
            self._troubles_today += 1
        await asyncio.sleep(began + _TURN - loop.time())

    def _look(self) -> None:
        """Checks a quiet moment."""
        self._result.quiet_moments += 1
        for error in self._errors:
            self._find(error)
        for each in self._simulation.application.scheduler.cache.violations():
            self._find(f"{each.invariant}: {each.detail}")
        for what in disagreements(self._simulation, self.applications.all):
            self._find(what)

    def _end_day(self) -> None:
        every = self.applications.all
        day = Day(
            dict(self._counts), sum(each.asked for each in every), sum(each.writes for each in every),
            self._troubles_today,
        )  # fmt: skip
        self._result.days.append(day)
        if day.share > 1:
            self._find(f"{day.share:.1f} times as many writes on one day as would be right: {day}")
        self._counts.clear()
        self._troubles_today = 0
        for each in every:
            each.asked = each.writes = 0

    def _count(self, event: Json) -> None:
        if event["user"]["username"] == SERVICE:
            about = event["objectRef"]
            parts = (about["resource"], about.get("subresource", ""))
            self._counts[f"{event['verb']} {'/'.join(filter(None, parts))}"] += 1


async def _live(plan: Plan, result: Result, said: Callable[[str], None]) -> None:
    errors: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: errors.append(told(about)))
    try:
        async with Simulation(seed=plan.seed, node_objects=nodes(plan.nodes)) as simulation:
            with defects(errors):
                await Month(plan, simulation, errors, result).go(said)
    except BaseExceptionGroup as group:
        errors += [repr(each) for each in leaves(group)]
    result.findings += [each for each in errors if not any(each in found for found in result.findings)]


def live(plan: Plan, said: Callable[[str], None] = lambda _: None) -> Result:
    """Runs the month; again, to count calls, if turns took long. `said` takes the progress."""
    began = time.process_time()

    def once(turns: Turns) -> Result:
        result = Result(plan.seed)
        try:
            run_in(turns, _live(plan, result, said))
        except Spinning as error:
            result.findings.append(str(error))
        return result

    result, result.longest_turn, long = judged(once)
    result.findings += long
    result.cpu_seconds = time.process_time() - began
    return result
