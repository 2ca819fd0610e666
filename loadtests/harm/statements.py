"""Statements: the service's Events about evicted pods, and about gangs that are bound in part.

An eviction waits for its Event, which says whether it is judged as a part of a gang or as a victim. Time is what the
events say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loadtests.harm import harms
from loadtests.harm.harms import Harm
from loadtests.harm.history import History, Seen
from loadtests.harm.preemptions import Bounds, Preemptions

PART_REASON, VICTIM_REASON, IN_PART_REASONS = "GangEvicted", "Preempted", ("GangInPart", "GangInDoubt")
"""Reasons of Events: for an evicted part; in the reason for a victim; for a gang in part."""
PAST_BUDGETS = "despite disruption budget"
"""In the note about a pod that left although its budget did not let it go."""
SHORTLY = 3.0
_STATED_WITHIN = 150.0
"""The service tries to write an Event for two minutes, because the API server may be away."""
_CLOSE = 5.0
_MOST = 100_000
"""The most pods with remembered statements."""

Found = Callable[[Harm], None]
CallAt = Callable[[float, Callable[[], None]], None]


@dataclass(frozen=True)
class Statement:
    """What the service said about a pod in an Event."""

    at: float
    reason: str
    note: str


@dataclass
class Eviction:
    pod: Seen
    at: float
    not_a_part: str
    """Why it may not have been evicted as a part; empty if it may."""
    followed: bool
    """Other members of its gang had been taken."""
    past_budgets: bool = False
    """It was deleted because a budget was in the way: only for a higher priority, and said so."""
    judged: bool = False


class Statements:
    """`interruptions`: when the service was killed."""

    def __init__(
        self,
        history: History,
        bounds: Bounds,
        preemptions: Preemptions,
        interruptions: Sequence[float],
        found: Found,
        call_at: CallAt,
    ) -> None:
        self._history = history
        self._bounds = bounds
        self._preemptions = preemptions
        self._interruptions = interruptions
        self._found = found
        self._call_at = call_at
        self._said: dict[str, list[Statement]] = {}
        """By UID."""
        self._waiting: dict[str, list[Eviction]] = {}
        """By UID: evictions with an unknown reason."""

    def evicted(self, eviction: Eviction) -> None:
        """Judges an eviction by its Event, which comes a little earlier or later."""
        uid, at = eviction.pod.facts.uid, eviction.at
        close = [each for each in self._said.get(uid, ()) if abs(each.at - at) <= _CLOSE]
        if close:
            self._judge(eviction, close[-1])
            return
        self._waiting.setdefault(uid, []).append(eviction)
        # Events are not repeated: an older one may have meant this eviction as well.
        self._call_at(at + _CLOSE, lambda: self._judge_by_older(eviction))
        self._call_at(at + _STATED_WITHIN, lambda: self._judge_unstated(eviction))

    def said(self, uid: str, statement: Statement) -> None:
        """Judges the pod's waiting evictions by this statement."""
        self._said.setdefault(uid, []).append(statement)
        if len(self._said) > _MOST:
            del self._said[next(iter(self._said))]
        for eviction in self._waiting.pop(uid, ()):
            self._judge(eviction, statement)

    def finish(self, at: float) -> None:
        """Judges the evictions that still wait, unless they are too recent."""
        for held in list(self._waiting.values()):
            for eviction in held:
                if at - eviction.at > _CLOSE:
                    self._judge_unstated(eviction)
        self._waiting.clear()

    def _judge_by_older(self, eviction: Eviction) -> None:
        said = self._said.get(eviction.pod.facts.uid)
        if said and not eviction.judged:
            self._judge(eviction, said[-1])

    def _judge(self, eviction: Eviction, statement: Statement) -> None:
        if eviction.judged:
            return
        eviction.judged = True
        pod, at = eviction.pod, eviction.at
        as_part = statement.reason == PART_REASON
        if eviction.past_budgets and (as_part or PAST_BUDGETS not in statement.note):
            why = f"the service deleted it, and does not say that its budget was broken: {statement.note!r}"
            self._found(Harm(harms.DELETED, pod.facts.key, at, why))
        if pod.facts.scheduler not in self._history.schedulers and (as_part or not self._bounds.foreign_victims):
            why = f"it is {pod.facts.scheduler}'s, and the service evicted it: {statement.note!r}"
            self._found(Harm(harms.FOREIGN, pod.facts.key, at, why))
        if as_part:
            if eviction.not_a_part and pod.facts.scheduler in self._history.schedulers:
                self._found(Harm(harms.PART, pod.facts.key, at, eviction.not_a_part))
        else:
            self._preemptions.evicted(pod, statement.note, at, followed=eviction.followed)

    def _judge_unstated(self, eviction: Eviction) -> None:
        if eviction.judged:
            return
        eviction.judged = True
        pod, at = eviction.pod, eviction.at
        self._waiting.pop(pod.facts.uid, None)
        if eviction.past_budgets and not self._was_interrupted(at):
            why = "the service deleted it and wrote no Event that says why"
            self._found(Harm(harms.DELETED, pod.facts.key, at, why))
        if not eviction.not_a_part:
            # It was allowed, with or without an Event.
            return
        if eviction.followed:
            self._preemptions.evicted(pod, "", at, followed=True)
            return
        why = "the service evicted it and wrote no Event that says why"
        if self._was_interrupted(at):
            self._found(Harm(harms.INTERRUPTED, pod.facts.key, at, why))
            return
        why = f"{why}; as a part it was not to be evicted: {eviction.not_a_part}"
        self._found(Harm(harms.UNSTATED, pod.facts.key, at, why))

    def _was_interrupted(self, at: float) -> bool:
        return any(-SHORTLY < each - at < _STATED_WITHIN for each in self._interruptions)


class PartsTold:
    """A gang may be bound in part for `seconds` without an Event."""

    def __init__(self, history: History, seconds: float, found: Found, call_at: CallAt) -> None:
        self._history = history
        self._seconds = seconds
        self._found = found
        self._call_at = call_at
        self._since: dict[str, float] = {}
        """By gang: since when it has been in part, if a later look is planned."""
        self._said: dict[str, float] = {}

    def on_event(self, pod: Seen, at: float) -> None:
        """Plans a look if the pod's gang has just become a part."""
        gang = self._history.gang_of(pod)
        if gang is None or gang.partly_since != at or self._since.get(gang.key) == at:
            return
        key, since = gang.key, at
        self._since[key] = since

        def look() -> None:
            if self._since.get(key) == since:
                del self._since[key]
            now = self._history.gangs.get(key)
            if now is None or now.partly_since != since or self._said.get(key, 0.0) >= since:
                return
            why = (
                f"{len(now.bound)} of quorum {now.quorum} are bound since {self._seconds:g} s, "
                f"and no Event {IN_PART_REASONS[0]} says so"
            )
            self._found(Harm(harms.IN_PART, f"gang {key}", since, why))

        self._call_at(at + self._seconds, look)

    def said(self, uid: str, at: float) -> None:
        """Notes an Event that says so, on that pod."""
        seen = self._history.pods.get(uid)
        if seen is not None and seen.facts.gang is not None:
            self._said[seen.facts.gang.id] = at
