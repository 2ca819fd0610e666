"""Memory: decisions about gangs that no fact tells, as values, to be restored with the same facts.

A tool that reads a dump uses it to explain why a gang waits. All times are the same, because time does not pass there.
Recent offers of kube-scheduler, and how near a failed plan is to a pause, are left out: they do not decide that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from extender.core.gangs.gangs import Gangs
from extender.core.gangs.preemption.preemption_limits import Unfinished, WhyNot
from extender.core.gangs.preemption.victim_rules import Maker, Strikes
from extender.core.gangs.queue.backfill import IdleAccount
from extender.core.gangs.queue.plan_store import Pauses
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.gang_state import AtBarrier, Plan, Wait
from extender.core.gangs.state.state_machine import Phase, Standing
from extender.core.gangs.vain import Circumstances, History, Order, Spent
from extender.core.names import GangKey
from extender.kube.names import PodUid


@dataclass(frozen=True, slots=True, kw_only=True)
class GangMemory:
    """`queued`: it waits for room. `aside`: it waits for gang places.

    `unasked`: since when no filter call has come for it. `left_alone`: until when its plan is undisturbed."""

    key: GangKey
    phase: Phase
    standing: Standing = Standing.FRESH
    first_seen: float = 0.0
    changes: int = 0
    bound: tuple[PodUid, ...] = ()
    leaving: tuple[PodUid, ...] = ()
    succeeded: tuple[PodUid, ...] = ()
    plan: Plan = field(default_factory=Plan)
    barrier: AtBarrier = field(default_factory=AtBarrier)
    wait: Wait = field(default_factory=Wait)
    queued: bool = False
    aside: bool = False
    surplus: bool = False
    unasked: float | None = None
    left_alone: float | None = None
    pauses: Pauses = field(default_factory=Pauses)
    ahead: tuple[float, bool] | None = None
    """Since when it has a plan with members missing, and whether their places are held."""
    in_part: float | None = None
    in_doubt: float | None = None
    why_nobody_leaves: WhyNot | None = None
    unfinished: Unfinished | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionsMemory:
    """`going`: since when pods leave. `searched`: the last searched gang if unchanged, until when."""

    orders: Mapping[GangKey, Order] = field(default_factory=dict)
    history: Mapping[GangKey, History] = field(default_factory=dict)
    made: Mapping[Maker, GangKey] = field(default_factory=dict)
    spent: tuple[Spent, ...] = ()
    strikes: Mapping[tuple[str, Maker], Strikes] = field(default_factory=dict)
    refused: Mapping[PodUid, float] = field(default_factory=dict)
    going: Mapping[PodUid, float] = field(default_factory=dict)
    searched: tuple[GangKey, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnsMemory:
    """Whose turn it is. `saved_for`: the gang that room is reserved for.

    `giving_way`: namespaces without plans until then; `after_others`: those that have their turn last."""

    saved_for: GangKey | None = None
    savings: IdleAccount = field(default_factory=IdleAccount)
    giving_way: Mapping[str, float] = field(default_factory=dict)
    after_others: Mapping[str, float] = field(default_factory=dict)
    preemptions: PreemptionsMemory = field(default_factory=PreemptionsMemory)


def remembered(gangs: Gangs) -> tuple[list[GangMemory], TurnsMemory]:
    """All state of gangs beside the facts, shared with the gangs. Changes nothing."""
    saved = gangs.waiting.queue.saved
    turns = TurnsMemory(
        saved_for=None if saved.gang is None else saved.gang.key,
        savings=saved.savings.account,
        giving_way=dict(gangs.planning.plans.giving_way),
        after_others=dict(gangs.waiting.queue.after_others),
        preemptions=_preemptions(gangs),
    )
    return [_of(gangs, gang) for gang in gangs.by_key.values()], turns


def _of(gangs: Gangs, gang: Gang) -> GangMemory:
    key, roster, waiting, planning = gang.key, gang.roster, gangs.waiting, gangs.planning
    # If the gang was tried in the present state, `recall` sets the value for that state in the copy.
    tried_now = gang.wait.tried_at is not None and gang.wait.tried_at == planning.state_of(gang)
    return GangMemory(
        key=key,
        phase=gang.phase,
        standing=gang.standing,
        first_seen=roster.first_seen,
        changes=roster.changes,
        bound=tuple(sorted(roster.bound)),
        leaving=tuple(sorted(roster.leaving)),
        succeeded=tuple(sorted(roster.succeeded)),
        plan=gang.plan,
        barrier=gang.barrier,
        wait=replace(gang.wait, tried_at=(0, 0) if tried_now else None, passed_over_at=None),
        queued=gang in waiting.queue,
        aside=key in waiting.quota.aside,
        surplus=gang in waiting.surplus,
        unasked=waiting.unasked.get(key),
        left_alone=planning.plans.left_alone.get(key),
        pauses=planning.plans.pauses(gang),
        ahead=planning.promises.open(gang),
        in_part=gangs.quorums.in_part.get(key),
        in_doubt=gangs.quorums.in_doubt.get(key),
        why_nobody_leaves=waiting.preempting.why_not(gang),
        unfinished=waiting.preempting.victims.unfinished.get(key),
    )


def _preemptions(gangs: Gangs) -> PreemptionsMemory:
    preempting, capacity = gangs.waiting.preempting, gangs.ledger.changes.capacity_count
    victims = preempting.victims

    def told(circumstances: Circumstances | None) -> Circumstances | None:
        """Replaces the capacity count, which differs elsewhere, by whether it is still the same."""
        if circumstances is None:
            return None
        return replace(circumstances, capacity=0 if circumstances.capacity == capacity else -1)

    return PreemptionsMemory(
        orders={k: replace(each, circumstances=told(each.circumstances)) for k, each in preempting.orders.items()},
        history={k: replace(each, circumstances=told(each.circumstances)) for k, each in preempting.history.items()},
        made=dict(preempting.made),
        spent=tuple(each for spent in preempting.vain.spent.values() for each in spent),
        strikes=dict(victims.strikes),
        refused=dict(victims.refused),
        going={uid: since for uid, (_, since) in victims.going.items()},
        searched=preempting.searched,
    )


def _recall_preemptions(gangs: Gangs, memory: PreemptionsMemory) -> None:
    preempting, victims = gangs.waiting.preempting, gangs.waiting.preempting.victims
    known: Iterable[Order | History] = (*memory.orders.values(), *memory.history.values())
    for each in known:
        if each.circumstances is not None and not each.circumstances.capacity:
            each.circumstances = replace(each.circumstances, capacity=gangs.ledger.changes.capacity_count)
    preempting.orders.update(memory.orders)
    preempting.history.update(memory.history)
    preempting.made.update(memory.made)
    for spent in memory.spent:
        preempting.vain.add(spent)
    victims.strikes.update(memory.strikes)
    victims.refused.update(memory.refused)
    for uid in victims.going.keys() & memory.going.keys():
        victims.going[uid] = (victims.going[uid][0], memory.going[uid])
    gang = None if memory.searched is None else gangs.by_key.get(memory.searched[0])
    if gang is not None and memory.searched is not None:
        preempting.resume_search(gang, memory.searched[1])


def recall(gangs: Gangs, memories: Sequence[GangMemory], turns: TurnsMemory) -> None:
    """Restores the state. The facts and the ledger must be there, and no decision made since."""
    gangs.waiting.begin_anew()
    gangs.planning.plans.giving_way.update(turns.giving_way)
    gangs.waiting.queue.after_others.update(turns.after_others)
    for memory in memories:
        if (gang := gangs.by_key.get(memory.key)) is not None:
            _recall(gangs, gang, memory)
    for memory in memories:
        gang = gangs.by_key.get(memory.key)
        if gang is not None and memory.queued:
            gangs.waiting.queue.enter(gang)
    saver = None if turns.saved_for is None else gangs.by_key.get(turns.saved_for)
    gangs.waiting.queue.saved.gang = saver if saver is not None and saver in gangs.waiting.queue else None
    gangs.waiting.queue.saved.savings.resume(turns.savings)
    _recall_preemptions(gangs, turns.preemptions)
    gangs.effects.clear()


def _recall(gangs: Gangs, gang: Gang, memory: GangMemory) -> None:
    roster, waiting, planning, quorums = gang.roster, gangs.waiting, gangs.planning, gangs.quorums
    gang.phase, gang.standing = memory.phase, memory.standing
    gang.plan, gang.barrier, gang.wait = memory.plan, memory.barrier, memory.wait
    roster.first_seen, roster.changes = memory.first_seen, memory.changes
    roster.resume(memory.bound)
    roster.leaving, roster.succeeded = set(memory.leaving), set(memory.succeeded)
    if memory.aside:
        waiting.quota.sets_aside(gang)
    if memory.surplus:
        waiting.surplus.has(gang)
    if memory.unasked is not None:
        waiting.unasked[gang.key] = memory.unasked
    if memory.left_alone is not None:
        planning.plans.left_alone[gang.key] = memory.left_alone
    planning.plans.resume_pauses(gang, memory.pauses)
    if memory.ahead is not None:
        since, held = memory.ahead
        planning.promises.begun(gang, since, held=held)
    for known, until in ((quorums.in_part, memory.in_part), (quorums.in_doubt, memory.in_doubt)):
        known.pop(gang.key, None)
        if until is not None:
            known[gang.key] = until
    if memory.why_nobody_leaves is not None:
        waiting.preempting.resume(gang, memory.why_nobody_leaves)
    if memory.unfinished is not None:
        waiting.preempting.victims.unfinished[gang.key] = memory.unfinished
    if memory.wait.tried_at is not None:
        gang.wait.tried_at = planning.state_of(gang)
