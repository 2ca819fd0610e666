"""Audit: what must hold of gangs at any moment, for tests after every step and at run time.

It reads everything and changes nothing. It does not repair: a violation is a defect, and must be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from extender.core.gangs.cycle.quorum import part_of
from extender.core.gangs.gangs import Gangs
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.audit import Violation
from extender.core.ledger.ledger import Holding, HoldingKind
from extender.kube.names import PodUid


def violations(gangs: Gangs, of_others: Callable[[Holding], bool]) -> list[Violation]:
    """Every invariant of gangs that does not hold now. O(gangs and what is held for them).

    `of_others`: which holdings have an owner that is no gang.
    """
    found = [violation for gang in gangs.by_key.values() for violation in _of_gang(gangs, gang)]
    found += gangs.waiting.violations()
    found += gangs.kept_places.violations()
    for held in gangs.ledger.rows.holdings():
        if held.kind is HoldingKind.BOUND or held.owner is None or of_others(held):
            continue
        if held.owner not in gangs.by_key:
            found.append(Violation("gang_owner", f"{held.holder} is held for {held.owner}, which no longer exists"))
    return found


def _of_gang(gangs: Gangs, gang: Gang) -> Iterator[Violation]:
    unbound = (held for held in gangs.ledger.held_for(gang.key) if held.kind is not HoldingKind.BOUND)
    idle = [held for held in unbound if PodUid(held.holder) not in gang.barrier.writing]
    if gangs.waiting.queue.saved.gang is gang:
        if gang.phase is not Phase.WAITING or any(held.kind is not HoldingKind.SAVING for held in idle):
            yield Violation("gang_saved_for", f"the backfill reservation is for {gang.key}: {gang.phase}, holds {idle}")
    elif gang.phase in (Phase.WAITING, Phase.GATHERING) and (idle or gang.barrier.arrived):
        yield Violation(
            "gang_waits_with_nothing", f"{gang.key} waits, holds {idle}, at its barrier {gang.barrier.arrived}"
        )
    if gang.phase is Phase.PLANNED and not all(held.until == gang.plan.deadline for held in idle):
        yield Violation("gang_deadline", f"{gang.key} has deadline {gang.plan.deadline} but holds {idle}")
    for uid, node in gang.barrier.arrived.items():
        own = gangs.ledger.holding(uid)
        if own is None or (own.node, own.kind) != (node, HoldingKind.ASSUMPTION) or uid in gang.barrier.writing:
            yield Violation("gang_barrier", f"{uid} is at the barrier of {gang.key} for {node} but holds {own}")
    if not gang.roster.members:
        yield Violation("gang_members", f"{gang.key} has no members")
    if (gang.phase is Phase.BINDING) != bool(gang.barrier.writing) and gang.phase is not Phase.QUARANTINED:
        yield Violation("gang_writing", f"{gang.key} is {gang.phase} and writes {gang.barrier.writing}")
    roster = gang.roster
    if not roster.leaving <= roster.bound <= roster.members.keys():
        said = f"{roster.leaving} leave, {roster.bound} are bound, of {len(roster.members)}"
        yield Violation("gang_bound", f"{gang.key}: {said}")
    if gang.phase is not Phase.QUARANTINED and part_of(gang) is not None and gang.key not in gangs.quorums.in_part:
        yield Violation("gang_in_part", f"{gang.key} is bound in part, and no deadline ends that")
