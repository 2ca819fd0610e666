"""Parts: may this member have been evicted because its gang was never whole? (Issue 11, points 2 and 3.)

Only where it is known, not inferred: the pod bears the mark of an attempt, written for it by the Binding itself, and of
that attempt so many members still exist unbound, or had their Binding refused for good, that the quorum cannot have
been bound. That others are absent proves nothing. Reads the history as it is at the moment of the eviction.
"""

from __future__ import annotations

from collections.abc import Container

from loadtests.harm.history import AttemptSeen, History, Seen

_ALL_NAMED = 17
"""In attempts of up to so many members each mark names all."""


def fault(pod: Seen, history: History, refused: Container[str], bound_by_others: Container[str]) -> str:
    """Why it may not; empty if it may. `refused`: UIDs whose Binding was refused for good. `bound_by_others`: UIDs of
    pods whose Binding somebody else than the service wrote."""
    facts = pod.facts
    if pod.was_whole:
        return "it was bound together with the whole quorum of its gang"
    if not facts.node:
        return "it was not bound"
    if facts.attempt is None:
        said = "a mark of an attempt that is not about it" if facts.attempt_text else "no mark of an attempt"
        return f"it bears {said}: nobody can know that it was a part"
    if not pod.marked_by_binding:
        return "its mark was not written with its node"
    if facts.uid in bound_by_others:
        return "its Binding was not the service's"
    if facts.attempt.joins:
        return "its gang ran already when it was bound"
    attempt = history.attempt_of(pod)
    if attempt is None:
        return "nothing is known of its attempt"
    needed, size = attempt.needed, attempt.size
    if attempt.peak >= needed:
        return f"{attempt.peak} of its attempt were bound together, and {needed} had to be"
    proof = [uid for uid in _members(attempt, history) if _known_unbound(uid, history, refused)]
    if size - len(proof) >= needed:
        return (
            f"of its attempt's {size} members {needed} had to be bound, and only {len(proof)} are known not to have "
            f"been; {len(attempt.named)} are named, {attempt.peak} were seen bound together"
        )
    return ""


def _members(attempt: AttemptSeen, history: History) -> set[str]:
    """Those that are known to belong to it: named by a mark; where marks name but a few, also who was there before."""
    gang = history.gangs.get(attempt.gang)
    if gang is None or attempt.size <= _ALL_NAMED:
        return attempt.named
    return attempt.named | {uid for uid, each in gang.members.items() if each.seen_at < attempt.began}


def _known_unbound(uid: str, history: History, refused: Container[str]) -> bool:
    seen = history.pods.get(uid)
    if seen is None:
        return uid in refused
    return seen.waits or (seen.bound_at is None and uid in refused)
