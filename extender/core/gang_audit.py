"""What must hold of gangs at any moment: for tests after every step, and now and then at run time.

Reads everything and changes nothing. Must not repair: what is violated is a defect, and is to be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from extender.core.audit import Violation
from extender.core.gang import Gang
from extender.core.gang_phases import Phase
from extender.core.gangs import Gangs
from extender.core.ledger import Holding, Kind
from extender.core.names import PodUid


def violations(gangs: Gangs, of_others: Callable[[Holding], bool]) -> list[Violation]:
    """Every invariant of gangs that does not hold now. O(gangs and what is held for them).

    `of_others`: which holdings have an owner that is no gang.
    """
    found = [violation for gang in gangs.by_key.values() for violation in _of_gang(gangs, gang)]
    found += gangs.waiting.violations()
    for held in gangs.ledger.holdings():
        if held.kind is Kind.BOUND or held.owner is None or of_others(held):
            continue
        if held.owner not in gangs.by_key:
            found.append(Violation("gang_owner", f"{held.holder} is held for {held.owner}, which is no more"))
    return found


def _of_gang(gangs: Gangs, gang: Gang) -> Iterator[Violation]:
    unbound = (held for held in gangs.ledger.held_for(gang.key) if held.kind is not Kind.BOUND)
    idle = [held for held in unbound if PodUid(held.holder) not in gang.writing]
    if gangs.waiting.turns.saver is gang:
        if gang.phase is not Phase.WAITING or any(held.kind is not Kind.SAVING for held in idle):
            yield Violation("gang_saved_for", f"room is saved for {gang.key}, which is {gang.phase} and holds {idle}")
    elif gang.phase in (Phase.WAITING, Phase.GATHERING) and (idle or gang.arrived):
        yield Violation("gang_waits_with_nothing", f"{gang.key} waits, holds {idle}, at its barrier {gang.arrived}")
    if gang.phase is Phase.PLANNED and not all(held.until == gang.deadline for held in idle):
        yield Violation("gang_deadline", f"{gang.key} ends at {gang.deadline} and holds {idle}")
    for uid, node in gang.arrived.items():
        own = gangs.ledger.holding(uid)
        if own is None or (own.node, own.kind) != (node, Kind.ASSUMPTION) or uid in gang.writing:
            yield Violation("gang_barrier", f"{uid} is at the barrier of {gang.key} for {node} and holds {own}")
    if not gang.members:
        yield Violation("gang_members", f"{gang.key} has no members")
    if (gang.phase is Phase.BINDING) != bool(gang.writing) and gang.phase is not Phase.QUARANTINED:
        yield Violation("gang_writing", f"{gang.key} is {gang.phase} and writes {gang.writing}")
    if not gang.leaving <= gang.bound <= gang.members.keys():
        yield Violation(
            "gang_bound", f"{gang.key}: {gang.leaving} leave of {gang.bound} that are bound, of {len(gang.members)}"
        )
    if gang.phase is not Phase.QUARANTINED and gang.part() is not None and gang.key not in gangs.in_part:
        yield Violation("gang_in_part", f"{gang.key} is bound in part, and nothing will end that")
