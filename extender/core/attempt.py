"""Attempt: one opening of a gang's permit barrier, recorded on each pod that was bound in it.

Escher writes the attempt into the Binding's annotations. The API server copies these onto the pod in the same write
that binds it. So Escher still knows after a restart that it bound the pod, with which others, and for which quorum.
Users can write annotations, and copies of pods have them: only an annotation that names the pod's own UID counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from extender.core.names import DOMAIN
from extender.kube.names import PodUid

ATTEMPT = f"{DOMAIN}/attempt"
"""Annotation on pods that Escher bound as members of a gang."""

NAMED = 16
"""How many other members each pod names, so that the cost of a pod does not grow with the gang."""
_LONGEST = 4096
"""Most characters of an annotation that is read; Escher's own have some 700."""
_REMEMBERED = 512
"""Annotations that are cached: all events of a pod have the same one, and most come soon."""

_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Attempt:
    """`size` members could be bound together, and the quorum needed `needed` of them.

    `others`: some of the other members. `at`: seconds since the epoch. `joins`: the gang was already running, and these
    members replaced others that had left it.
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
    """The attempt to record on each of these members, which are bound together.

    `size`: the number of members, if greater than the number given here. Each member names the 16 that follow it in a
    ring. So 16 others name each member that is not bound.
    """
    ring = sorted(members)
    twice = ring + ring
    named = min(NAMED, len(ring) - 1)
    return {
        uid: Attempt(id, needed, max(size, len(ring)), tuple(twice[index + 1 : index + 1 + named]), joins=joins)
        for index, uid in enumerate(ring)
    }


def to_annotation(attempt: Attempt, uid: PodUid) -> str:
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
    """The attempt in which the pod was bound; None if the annotation is absent or not its own."""
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
    """The number; 0 if the value is not a positive integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else 0
