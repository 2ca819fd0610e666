"""Wording: states and numbers in sentences for people. Must not decide anything."""

from __future__ import annotations

from extender.core.gang import QUARANTINE, Gang
from extender.core.gang_phases import Phase, Standing
from extender.core.names import CPU, MEMORY, ResourceKey
from extender.core.planning import Shortfall


def why_gang_waits(gang: Gang, *, saved: bool = False) -> str:
    """Why the gang is not placed, with numbers; empty if it waits for nothing. `saved`: room is saved for it."""
    match gang.phase:
        case Phase.BOUND | Phase.BINDING:
            return ""
        case Phase.QUARANTINED:
            return QUARANTINE
        case Phase.PLANNED:
            here = gang.placed + len(gang.arrived)
            room = "there is room, claimed as they come," if gang.intends else "room is held"
            return f"{room} for all {gang.quorum}; {here} of them are ready to be bound"
    if gang.missing:
        absent, gated = gang.absent, gang.missing - gang.absent
        of_them = f"of the {gang.quorum} members that must be placed together"
        behind = f"{_have(gated)} scheduling gates that are not Escher's"
        if not gated:
            return f"{absent} {of_them} {_do(absent)} not exist yet"
        return f"{gated} {of_them} {behind}" + (f", and {absent} {_do(absent)} not exist yet" if absent else "")
    if gang.shortfall is not None:
        short = in_words(gang.shortfall)
        return f"it is its turn, and what comes free is saved for it: {short}" if saved else short
    return f"{gang.needed} of {gang.quorum} members have no place yet, and have not been tried since the last change"


def what_runs(gang: Gang, *, in_doubt: bool = False) -> str:
    """Of a gang that has fewer bound than its quorum: what becomes of those who are; empty if none is."""
    staying = len(gang.staying())
    if not staying or not gang.needed:
        return ""
    bound = f"{staying} of {gang.quorum} {_do_is(staying)} bound"
    if gang.standing is Standing.RAN:
        return f"{bound}: it has run as a whole and has lost members; who is left runs on"
    if in_doubt:
        return f"{bound}, and nothing tells whether it ever ran as a whole: they are left alone"
    return f"{bound}, and the others have {gang.timeout:g} s to follow; if they do not, these are evicted"


def in_words(shortfall: Shortfall) -> str:
    """Why a plan was not found."""
    found = f"room for {shortfall.placed} of {shortfall.asked} members"
    if shortfall.rule:
        return f"{found}; {shortfall.rule} keeps the next from every node that has room"
    if shortfall.cause is None:
        return f"{found}; no other node may take one"
    cause = shortfall.cause
    return (
        f"{found}; the next asks for {amount(cause.resource, cause.asked)},"
        f" and a node has at most {number(cause.resource, cause.free)} free"
    )


def amount(resource: ResourceKey, units: int) -> str:
    """`1.5 cpu`, `16 GiB memory`, `3 of escher.dev/team-a.data1`."""
    said = number(resource, units)
    return f"{said} of {resource}" if "/" in resource else f"{said} {resource}"


def number(resource: ResourceKey, units: int) -> str:
    """Units as people write them: cores, and bytes in the largest unit that leaves no long fraction."""
    if resource == CPU:
        return f"{units / 1000:g}"
    if resource == MEMORY:
        for suffix, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if abs(units) >= size:
                return f"{round(units / size, 2):g} {suffix}"
    return str(units)


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _do_is(count: int) -> str:
    return "is" if count == 1 else "are"


def _do(count: int) -> str:
    return "does" if count == 1 else "do"
