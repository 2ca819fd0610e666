"""Parts: whether a member may be evicted because its gang was never whole (issue 11, points 2, 3).

This must be known, not inferred. The Binding itself wrote the pod's mark of an attempt. Enough members of the attempt
still exist unbound, or were refused for good: the quorum cannot have been bound. Absent members prove nothing.
"""

from __future__ import annotations

from collections.abc import Container

from loadtests.harm.history import AttemptSeen, History, Seen

_ALL_NAMED = 17
"""In attempts with up to this many members each mark names all."""


def fault(pod: Seen, history: History, refused: Container[str], bound_by_others: Container[str]) -> str:
    """Why it may not at this moment; empty if it may. `refused`: UIDs of pods refused for good.

    `bound_by_others`: UIDs of pods with a Binding that was not the service's."""
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
    """The members known by marks; in large attempts also those of the gang that existed before."""
    gang = history.gangs.get(attempt.gang)
    if gang is None or attempt.size <= _ALL_NAMED:
        return attempt.named
    return attempt.named | {uid for uid, each in gang.members.items() if each.seen_at < attempt.began}


def _known_unbound(uid: str, history: History, refused: Container[str]) -> bool:
    seen = history.pods.get(uid)
    if seen is None:
        return uid in refused
    return seen.waits or (seen.bound_at is None and uid in refused)
