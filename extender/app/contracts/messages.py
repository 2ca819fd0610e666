"""Messages: puts states and numbers into sentences for people."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType

from extender.core.affinity.affinity_rules import APART, NEAR, SPREAD, TOO_MANY
from extender.core.budgets import Overlapping, Spent
from extender.core.fit.equivalence import TOO_VARIED
from extender.core.gangs.placement.affinity_packing import TOO_LARGE
from extender.core.gangs.preemption.preemption_limits import (
    BudgetsUnknown,
    Exhausted,
    InVain,
    TooFewVictims,
    Unfinished,
    UnknownAsks,
    WhyNot,
)
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.gang import QUARANTINE, Gang
from extender.core.gangs.state.state_machine import Phase, Standing
from extender.core.gangs.vain import NAMESPACE_TIMES
from extender.core.policies.matched_policy import MatchedPolicy, of_type
from extender.core.policies.policy_types import AntiAffinity, Balance, CoLocation
from extender.kube.names import CPU, MEMORY, ResourceKey

_RULES = {APART: AntiAffinity, NEAR: CoLocation, SPREAD: Balance}
"""Rules of a plan, and the type of policy that makes pods require each."""


def why_gang_waits(gang: Gang, *, saved: bool = False) -> str:
    """Why the gang waits, with numbers, or empty. `saved`: it has a backfill reservation."""
    match gang.phase:
        case Phase.BOUND | Phase.BINDING:
            return ""
        case Phase.QUARANTINED:
            return QUARANTINE
        case Phase.PLANNED:
            here = gang.roster.placed + len(gang.barrier.arrived)
            room = "capacity is reserved"
            if gang.plan.intends:
                room = "there is capacity, reserved as they arrive,"
            elif gang.plan.unheld and gang.missing:
                room = "there is capacity, reserved for those that exist,"
            return f"{room} for all {gang.terms.quorum}; {here} of them are ready to be bound"
    if gang.missing:
        absent, gated = gang.absent, gang.missing - gang.absent
        of_them = f"of the {gang.terms.quorum} members that must be placed together"
        behind = f"{_verb(gated, 'has', 'have')} scheduling gates that are not Escher's"
        lacking = f"{_verb(absent, 'does', 'do')} not exist yet"
        if not gated:
            return f"{absent} {of_them} {lacking}"
        return f"{gated} {of_them} {behind}" + (f", and {absent} {lacking}" if absent else "")
    if gang.wait.shortfall is not None:
        member = next(gang.roster.unplaced(), None)
        short = in_words(gang.wait.shortfall, () if member is None else member.governed)
        if saved:
            return f"it has a backfill reservation for capacity that becomes free: {short}"
        if gang.wait.rounds_lost:
            times = _times(gang.wait.rounds_lost)
            return f"{short}; its backfill reservation had no effect {times}, and other gangs have their turn"
        return short
    return f"{gang.needed} of {gang.terms.quorum} members have no node yet, and were not tried since the last change"


def what_runs(gang: Gang, *, in_doubt: bool = False) -> str:
    """Says what happens to the bound members of a gang below its quorum; empty if none is bound."""
    staying = len(gang.roster.staying())
    if not staying or not gang.needed:
        return ""
    bound = f"{staying} of {gang.terms.quorum} {_verb(staying, 'is', 'are')} bound"
    if gang.standing is Standing.RAN:
        return f"{bound}: the whole gang ran before and lost members; the others keep running"
    if in_doubt:
        return f"{bound}, and Escher does not know whether the whole gang ever ran: it does not evict them"
    return f"{bound}, and the others have {gang.terms.timeout:g} s to be bound; otherwise these are evicted"


def in_words(shortfall: Shortfall, governed: Sequence[MatchedPolicy] = (), *, alone: bool = False) -> str:
    """Says why no plan was found for pods that `governed` matches. `alone`: a pod in no gang."""
    found, one = ("", "it") if alone else (f"{shortfall.placed} of {shortfall.asked} members fit; ", "the next")
    if shortfall.rule in (TOO_LARGE, TOO_MANY, TOO_VARIED):
        return f"{found}{shortfall.rule}"
    if shortfall.rule:
        said = " or ".join(each.name for each, _ in of_type(governed, _RULES.get(shortfall.rule, NoneType)))
        by = f" of policy {said}" if said else ""
        return f"{found}{shortfall.rule}{by} excludes {one} from every node with free capacity"
    if shortfall.cause is None:
        return "no node accepts it" if alone else f"{found}no other node accepts a member"
    cause, free = shortfall.cause, number(shortfall.cause.resource, shortfall.cause.free)
    asks = f"{found}{one} requests {amount(cause.resource, cause.asked)}"
    if not shortfall.others:
        return f"{asks}, and a node has at most {free} free"
    return f"{asks}; some nodes have at most {free} free, others lack {' or '.join(shortfall.others)}"


def in_short(objection: Spent | Overlapping) -> str:
    """Says why pods may not be evicted together."""
    match objection:
        case Spent(budget, asked, allowed):
            return f"disruption budget {budget} allows {allowed} of the {asked} evictions"
        case Overlapping(pod, budgets):
            return f"pod {pod} has {len(budgets)} disruption budgets, so it cannot be evicted: {', '.join(budgets)}"


def why_nobody_leaves(why: WhyNot, now: float) -> tuple[str, str]:
    """Says why no pod is evicted for the first gang in turn, and what would help, if anything."""
    match why:
        case BudgetsUnknown():
            return (
                "no pod is evicted for it: Escher has not read the disruption budgets yet",
                "allow Escher to get, list and watch poddisruptionbudgets",
            )
        case UnknownAsks(asks):
            return (
                f"no pod is evicted for it: it has requirements that Escher cannot plan ({', '.join(asks)})",
                f"to let it preempt, remove: {', '.join(asks)}",
            )
        case Exhausted(preemptions, pods, bounds, of_namespace):
            times, whose = (NAMESPACE_TIMES, "gangs of its namespace") if of_namespace else (1, "it or gangs now gone")
            return (
                f"no pod is evicted for it: within an hour {preemptions} preemptions of {pods} pods had no effect for"
                f" {whose} (limit: {times * bounds.preemptions}, of {times * bounds.pods} pods)",
                "find why it did not run after these, or raise the limits in Escher's settings",
            )
        case InVain(times, until):
            wait = f", at the earliest in {until - now:.0f} s" if until > now else ""
            return (
                f"no pod is evicted for it: it was not bound although victims left {_times(times)}; it"
                f" preempts again after a change{wait}",
                "find what keeps its members from their nodes: `kubectl describe pod` shows kube-scheduler's reasons",
            )
        case TooFewVictims(protected):
            if not protected:
                return "", ""
            said = ", ".join(f"{count} {reason}" for reason, count in sorted(protected.items()))
            return f"pods of lower priority that cannot be evicted for it: {said}", ""


def left_in_part(unfinished: Unfinished) -> tuple[str, str]:
    """Says what happened to a gang that was evicted only in part, and what would help."""
    gone = f"{unfinished.left} of its {unfinished.size} members"
    return (
        f"{gone} were evicted for {unfinished.by}; the others could not be evicted: {unfinished.why}",
        "create the evicted members again, or delete the others",
    )


def _times(times: int) -> str:
    return "once" if times == 1 else f"{times} times"


def amount(resource: ResourceKey, units: int) -> str:
    """`1.5 cpu`, `16 GiB memory`, `3 of escher.dev/team-a.data1`."""
    said = number(resource, units)
    return f"{said} of {resource}" if "/" in resource else f"{said} {resource}"


def number(resource: ResourceKey, units: int) -> str:
    """Returns units as people write them: cores, and bytes in the largest fitting unit."""
    if resource == CPU:
        return f"{units / 1000:g}"
    if resource == MEMORY:
        for suffix, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if abs(units) >= size:
                return f"{round(units / size, 2):g} {suffix}"
    return str(units)


def _verb(count: int, one: str, many: str) -> str:
    return one if count == 1 else many
