"""An attempt: one opening of a gang's barrier, as each pod that was bound in it tells.

We write it into the Binding's annotations, and the API server copies these onto the pod in the same write that binds
it. So after a restart, or a year, it is still known that we bound a pod, with whom, and how many of them the quorum
needed. Users can write annotations, and copies of pods carry them: only what names the pod's own UID counts. Must not
know what follows from it: see `gangs`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from extender.core.names import DOMAIN
from extender.kube.names import PodUid

ATTEMPT = f"{DOMAIN}/attempt"
"""Annotation on pods that we bound as members of a gang."""

NAMED = 16
"""So many others each pod names: a large gang then costs no more than a small one, a pod."""
_LONGEST = 4096
"""Characters of an annotation that is read at all; ours have some 700."""
_REMEMBERED = 512
"""Annotations that are not read again: a pod tells the same with all of its events, most of which come soon."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Attempt:
    """`size` members could be bound together, and the quorum needed `needed` of them.

    `others`: some of them beside the pod that bears this. `at`: when, in seconds since the epoch. `joins`: their gang
    ran already, and these came in the place of others that had left it.
    """

    id: str
    needed: int
    size: int
    others: tuple[PodUid, ...] = ()
    at: float = 0.0
    joins: bool = False


def attempts_for(
    id: str, members: Sequence[PodUid], *, needed: int, joins: bool = False, size: int = 0
) -> dict[PodUid, Attempt]:
    """What each of these members, who are bound together, is to say. `size`: how many there are, if more than these.

    Each names those that follow it, the first after the last: whoever is not bound is named by all of the 16 before it.
    """
    ring = sorted(members)
    twice = ring + ring
    named = min(NAMED, len(ring) - 1)
    return {
        uid: Attempt(id, needed, max(size, len(ring)), tuple(twice[index + 1 : index + 1 + named]), joins=joins)
        for index, uid in enumerate(ring)
    }


def to_annotation(attempt: Attempt, uid: PodUid) -> str:
    """The annotation's value on the pod with that UID."""
    said: dict[str, object] = {
        "pod": uid,
        "attempt": attempt.id,
        "needed": attempt.needed,
        "size": attempt.size,
        "with": attempt.others,
        "at": round(attempt.at, 3),
    }
    if attempt.joins:
        said["joins"] = True
    return _encode(said)


def read_attempt(annotations: Mapping[str, str], uid: PodUid) -> Attempt | None:
    """The attempt that the pod with that UID was bound in; None if it does not say, or what it says is not its own."""
    text = annotations.get(ATTEMPT)
    return None if text is None or len(text) > _LONGEST else _read(text, uid)


@lru_cache(maxsize=_REMEMBERED)
def _read(text: str, uid: PodUid) -> Attempt | None:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.get("pod") != uid:
        return None
    id, others, at = (said.get(key) for key in ("attempt", "with", "at"))
    needed, size = _count(said.get("needed")), _count(said.get("size"))
    if not (isinstance(id, str) and id and needed and size and isinstance(others, list)):
        return None
    if needed > size or len(others) >= size or not all(isinstance(each, str) for each in others):
        return None
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < 1e12:
        return None
    return Attempt(id, needed, size, tuple(map(PodUid, others)), float(at), said.get("joins") is not None)


def _count(value: object) -> int:
    """0 where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else 0
