"""Preemption: finds the node and the victims that make room for a pod, and evicts the victims.

It is the plugin DefaultPreemption with its defaults and its asynchronous executor.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import structlog

from extender.kube.errors import Refused, Unavailable
from extender.kube.names import PodUid
from kubesim.clock import Clock
from kubesim.kinds import Json
from kubesim.scheduler.extender_client import ExtenderFailed
from kubesim.scheduler.extenders import Extender, Victims
from kubesim.scheduler.state.cache import Cache, NodeInfo
from kubesim.scheduler.state.nominator import Nominator
from kubesim.scheduler.state.pod_affinity import requirements, selects
from kubesim.scheduler.state.seen import PodKey, SeenPod
from kubesim.scheduler.state.verdicts import Diagnosis, No
from kubesim.scheduler.writer import DISRUPTED, Writer, gone

_log = structlog.get_logger(__name__)
_BY_SCHEDULER = "PreemptionByScheduler"
_NO_VICTIMS = No("DefaultPreemption", ("No preemption victims found for incoming pod",), True)
_NOT_HELPFUL = No("DefaultPreemption", ("Preemption is not helpful for scheduling",), True)
_LEAST_CANDIDATES = 100

Refusal = Callable[[NodeInfo, Sequence[SeenPod]], No | None]
"""The refusal of a node from which these pods were removed; None: the pod fits."""


class Outcome(NamedTuple):
    """`node`: the new nomination; "": the nomination is cleared; None: it stays."""

    node: str | None
    message: str = ""


class Preemption:
    """`known`: a pod's current state. `budgets`: all budgets. `again`: retries a pod at once."""

    def __init__(
        self,
        cache: Cache,
        nominator: Nominator,
        extenders: Sequence[Extender],
        writer: Writer,
        clock: Clock,
        rng: random.Random,
        known: Callable[[PodKey], SeenPod | None],
        budgets: Callable[[], Sequence[Json]],
    ) -> None:
        self._cache = cache
        self._nominator = nominator
        self._extenders = extenders
        self._writer = writer
        self._clock = clock
        self._rng = rng
        self._known = known
        self._budgets = budgets
        self.again: Callable[[SeenPod], None] = lambda pod: None
        self._busy: dict[PodUid, PodKey | None] = {}
        """Pods whose victims are being deleted, with the last victim once only that is left."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.forgotten: set[PodUid] = set()
        """Pods without a retry after their last victim's deletion.

        That victim was already gone, or still being bound; kube-scheduler 1.36 emits no event for such a deletion. The
        pods wait for another event, or five minutes."""

    def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def is_running(self, uid: PodUid) -> bool:
        """Whether requests to delete the pod's victims are still running."""
        if uid not in self._busy:
            return False
        last = self._busy[uid]
        if last is None:
            return True
        victim = self._known(last)
        return victim is not None and not victim.deleting

    async def preempt(self, pod: SeenPod, diagnosis: Diagnosis, refusal: Refusal) -> Outcome:
        """Tries to preempt for a pod that every node has refused."""
        self.forgotten.discard(pod.uid)
        now = self._known(pod.key)
        if now is None:
            return Outcome(None, f'preemption: pod "{pod.name}" not found')
        if why := self._not_eligible(now, diagnosis):
            return Outcome(None, f"preemption: {why}")
        everywhere = self._cache.all()
        candidates, verdicts = self._candidates(now, diagnosis, refusal)
        if not candidates:
            verdicts.absent = _NOT_HELPFUL
            return Outcome("", f"preemption: {verdicts.message(len(everywhere))}")
        try:
            candidates = await self._ask_extenders(now, candidates)
        except ExtenderFailed as error:
            return Outcome(None, f"preemption: {error}")
        if not candidates:
            return Outcome(None, "preemption: no candidate node for preemption")
        node = self._best(candidates)
        self._evict(now, node, candidates[node])
        return Outcome(node)

    # -- victims -------------------------------------------------------------------------------------------------

    def _not_eligible(self, pod: SeenPod, diagnosis: Diagnosis) -> str:
        if not pod.preempts:
            return "not eligible due to preemptionPolicy=Never."
        if pod.nominated and not diagnosis.of(pod.nominated).unresolvable:
            info = self._cache.get(pod.nominated)
            if info is not None and any(
                other.priority < pod.priority and _being_preempted(other) for other in info.pods.values()
            ):
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    def _candidates(self, pod: SeenPod, diagnosis: Diagnosis, refusal: Refusal) -> tuple[dict[str, Victims], Diagnosis]:
        verdicts = Diagnosis()
        possible = [
            info
            for info in map(
                self._cache.get, (node for node, verdict in diagnosis.nodes.items() if not verdict.unresolvable)
            )
            if info is not None
        ]
        if not possible:
            return {}, verdicts
        budgets = self._budgets()
        enough = min(max(len(possible) // 10, _LEAST_CANDIDATES), len(possible))
        harmless: dict[str, Victims] = {}
        harmful: dict[str, Victims] = {}
        offset = self._rng.randrange(len(possible))
        for info in possible[offset:] + possible[:offset]:
            found = self._victims(pod, info, budgets, refusal)
            if isinstance(found, No):
                verdicts.refuse(info.name, found)
                continue
            (harmful if found.violations else harmless)[info.name] = found
            if harmless and len(harmless) + len(harmful) >= enough:
                break
        return {**harmless, **harmful}, verdicts

    def _victims(self, pod: SeenPod, info: NodeInfo, budgets: Sequence[Json], refusal: Refusal) -> Victims | No:
        """The fewest, least important victims that make the pod fit; or why there are none."""
        possible = [other for other in info.pods.values() if other.priority < pod.priority]
        if not possible:
            return _NO_VICTIMS
        without = info.copy()
        away: dict[PodUid, SeenPod] = {}
        for other in possible:
            without.remove(other.uid)
            away[other.uid] = other
        if (verdict := refusal(without, list(away.values()))) is not None:
            return verdict
        possible.sort(key=self._importance)
        protected, others = _by_budget(possible, budgets)
        violations = 0
        for other in (*protected, *others):
            without.add(other)
            del away[other.uid]
            if refusal(without, list(away.values())) is not None:
                without.remove(other.uid)
                away[other.uid] = other
                violations += other in protected
        if not away:
            return No("", (f'expected at least one victim pod on node "{info.name}"',))
        return Victims(sorted(away.values(), key=self._importance), violations)

    def _importance(self, pod: SeenPod) -> tuple[int, float]:
        return -pod.priority, self._started(pod)

    def _started(self, pod: SeenPod) -> float:
        return self._clock.now() if not pod.start_time else _seconds(pod.start_time)

    async def _ask_extenders(self, pod: SeenPod, candidates: dict[str, Victims]) -> dict[str, Victims]:
        for extender in self._extenders:
            if not extender.config.preempt_verb or not extender.is_interested(pod):
                continue
            try:
                chosen = await extender.preempt(pod, candidates, self._cache.get)
            except ExtenderFailed:
                if extender.config.ignorable:
                    continue
                raise
            for node in [node for node, who in chosen.items() if not who.pods]:
                if not extender.config.ignorable:
                    raise ExtenderFailed(f'expected at least one victim pod on node "{node}"')
                del chosen[node]
            candidates = chosen
            if not candidates:
                break
        return candidates

    def _best(self, candidates: Mapping[str, Victims]) -> str:
        """Fewest violations, then least important victims, smallest sum, fewest, last started."""
        if len(candidates) == 1:
            return next(iter(candidates))

        def harm(node: str) -> tuple[float, ...]:
            pods, violations = candidates[node]
            highest = max(pod.priority for pod in pods)
            first = min(self._started(pod) for pod in pods if pod.priority == highest)
            return violations, pods[0].priority, sum(pod.priority + 2**31 for pod in pods), len(pods), -first

        least = min(map(harm, candidates))
        return self._rng.choice([node for node in candidates if harm(node) == least])

    # -- eviction ------------------------------------------------------------------------------------------------

    def _evict(self, pod: SeenPod, node: str, victims: Victims) -> None:
        """Starts the eviction; it runs in parallel with the scheduling of other pods."""
        staying = [victim for victim in victims.pods if not victim.deleting]
        if not staying:
            return
        self._busy[pod.uid] = None
        task = asyncio.ensure_future(self._carry_out(pod, node, staying))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, pod: SeenPod, node: str, victims: Sequence[SeenPod]) -> None:
        failed = False
        for other in self._nominator.of(node):
            if other.priority < pod.priority and other.nominated:
                try:
                    await self._writer.patch_status(other, None, "")
                except (Unavailable, Refused):
                    failed = True
        try:
            *first, last = victims
            outcomes = await asyncio.gather(
                *(self._preempt(pod, node, victim) for victim in first), return_exceptions=True
            )
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            self._busy[pod.uid] = last.key
            was_there = await self._preempt(pod, node, last)
            now = self._known(last.key)
            if not was_there or (now is not None and now.uid == last.uid and not now.node):
                self.forgotten.add(pod.uid)
        except (Unavailable, Refused) as error:
            _log.warning("preemption has failed", pod=str(pod), node=node, why=str(error))
            failed = True
        finally:
            self._busy.pop(pod.uid, None)
        if failed:
            self.again(pod)

    async def _preempt(self, pod: SeenPod, node: str, victim: SeenPod) -> bool:
        """Evicts the victim; False if it was already gone."""
        why = f"{pod.scheduler}: preempting to accommodate a higher priority pod"
        condition = {"type": DISRUPTED, "status": "True", "reason": _BY_SCHEDULER, "message": why}
        try:
            await self._writer.patch_status(victim, condition, None)
            await self._writer.delete(victim)
        except Refused as error:
            if not gone(error):
                raise
            return False
        note = f"Preempted by pod {pod.uid} on node {node}"
        self._writer.record(victim, "Normal", "Preempted", "Preempting", note, pod.scheduler)
        return True


@lru_cache(maxsize=4096)
def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def _being_preempted(pod: SeenPod) -> bool:
    if not pod.deleting:
        return False
    conditions: Sequence[Json] = (pod.raw.get("status") or {}).get("conditions") or ()
    return any(
        each.get("type") == DISRUPTED and each.get("status") == "True" and each.get("reason") == _BY_SCHEDULER
        for each in conditions
    )


def _by_budget(pods: Sequence[SeenPod], budgets: Sequence[Json]) -> tuple[list[SeenPod], list[SeenPod]]:
    """The pods whose eviction would violate a budget, and the others, each in the given order."""
    left = [(budget.get("status") or {}).get("disruptionsAllowed", 0) for budget in budgets]
    protected: list[SeenPod] = []
    others: list[SeenPod] = []
    for pod in pods:
        violated = False
        for number, budget in enumerate(budgets):
            if _covers(budget, pod):
                left[number] -= 1
                violated = violated or left[number] < 0
        (protected if violated else others).append(pod)
    return protected, others


def _covers(budget: Mapping[str, Any], pod: SeenPod) -> bool:
    if budget["metadata"].get("namespace", "") != pod.namespace or not pod.labels:
        return False
    try:
        wanted = requirements((budget.get("spec") or {}).get("selector") or {})
        disrupted = (budget.get("status") or {}).get("disruptedPods") or {}
        return bool(wanted) and selects(wanted, pod.labels) and pod.name not in disrupted
    except (KeyError, TypeError, AttributeError):
        # Requests with such a budget are refused, but a restored store may hold one.
        _log.exception("a disruption budget cannot be understood", budget=budget["metadata"].get("name"))
        return False
