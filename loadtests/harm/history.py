"""History: pods, gangs and attempts as the watches have shown them, and their permanent facts.

Permanent is which members of a gang, or of an attempt, were ever bound together, and how each pod came to its node.
Each event updates the history, at a cost that does not grow with the past. It does not judge.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from loadtests.harm.facts import Facts, read
from loadtests.shared.reading import Attempt, Json, group_key


@dataclass(slots=True, eq=False)
class Seen:
    """A pod, from its first sighting until some time after its last."""

    facts: Facts
    seen_at: float
    """When it was seen first."""
    bound_at: float | None = None
    marked_by_binding: bool = False
    """Its attempt came with its node in one write, or it was bound before its first sighting."""
    was_whole: bool = False
    """It was bound while its gang's quorum was bound."""
    leaving_at: float | None = None
    """When it began to go: it is deleted, or was asked to go."""
    gone_at: float | None = None
    had_ended: bool = False
    """Whether it had succeeded or failed before it began to go."""
    healthy: bool = False
    """Whether it was Running and Ready when it began to go, or is."""
    left_by: str = ""
    """The user who asked first for its end; empty while unknown."""
    refused: bool = False
    """Its Binding was refused for good, and it was never bound."""

    @property
    def lives(self) -> bool:
        """It is bound, and is neither leaving nor finished."""
        return bool(self.facts.node) and self.leaving_at is None and not self.facts.finished

    @property
    def waits(self) -> bool:
        """It exists and is not bound."""
        return not self.facts.node and self.leaving_at is None and not self.facts.finished


@dataclass(slots=True, eq=False)
class GangSeen:
    """A gang while a member of it exists. `key`: its `reading.Gang.id`."""

    key: str
    members: dict[str, Seen] = field(default_factory=dict)
    bound: dict[str, Seen] = field(default_factory=dict)
    """The members that live."""
    fresh: dict[str, Seen] = field(default_factory=dict)
    """Those in `bound` that were never bound together with a whole quorum."""
    done: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """UIDs of members that succeeded before they were asked to go, by their controller's UID."""
    quorum: int | None = None
    partly_since: float | None = None
    """Since when some members are bound, while the quorum never was."""

    @property
    def placed(self) -> int:
        """The members that count for the quorum: living, or succeeded for the same controllers."""
        owners = {_owner(pod) for pod in self.members.values() if not pod.facts.finished} if self.done else ()
        return len(self.bound) + sum(len(self.done[owner]) for owner in owners if owner in self.done)

    @property
    def waiting(self) -> list[Seen]:
        return [pod for pod in self.members.values() if pod.waits]

    @property
    def lowest(self) -> int:
        """The lowest priority of its unfinished members."""
        living = [pod.facts.priority for pod in self.members.values() if not pod.facts.finished]
        return min(living, default=0)


@dataclass(slots=True, eq=False)
class AttemptSeen:
    """An attempt to bind members of a gang together, according to the marks on bound members."""

    gang: str
    began: float
    """When the first pod with its mark was bound."""
    needed: int
    size: int
    named: set[str] = field(default_factory=set)
    there: set[str] = field(default_factory=set)
    """UIDs of its members that exist."""
    bound: set[str] = field(default_factory=set)
    peak: int = 0
    """The most members of it that were ever bound at one time."""


def _owner(pod: Seen) -> str:
    return "" if pod.facts.owner is None else pod.facts.owner.uid


class History:
    """`schedulers`: the service's. `forget_after`: seconds for which an ended pod is remembered."""

    def __init__(self, schedulers: frozenset[str], forget_after: float) -> None:
        self.schedulers = schedulers
        self.pods: dict[str, Seen] = {}
        self.latest: dict[str, Seen] = {}
        """By namespace and name: the last pod with that name, even if it is gone."""
        self.gangs: dict[str, GangSeen] = {}
        self.attempts: dict[tuple[str, str], AttemptSeen] = {}
        self.nodes: dict[str, Json] = {}
        self.lost_nodes: dict[str, float] = {}
        self._groups: dict[str, int] = {}
        self._forget_after = forget_after
        self._gone: dict[str, float] = {}

    # -- pods ----------------------------------------------------------------------------------------------------

    def see_pod(self, obj: Json, at: float) -> tuple[Seen, Facts | None]:
        """The pod as it is remembered now, and what was known of it before."""
        facts = read(obj)
        seen = self.pods.get(facts.uid)
        before = None if seen is None else seen.facts
        if seen is None:
            seen = self.pods[facts.uid] = Seen(facts, at)
            self.latest[facts.key] = seen
        self._take(seen, before, facts, at)
        return seen, before

    def lose_pod(self, obj: Json, at: float) -> tuple[Seen, Facts | None]:
        """Notes that the pod is gone; `obj` is its last state."""
        seen, before = self.see_pod(obj, at)
        if seen.leaving_at is None:
            seen.leaving_at = at
        seen.gone_at = at
        gang = self.gang_of(seen)
        if gang is not None:
            self._leave(gang, seen, at)
        self._end_in_attempt(seen)
        self._gone[seen.facts.uid] = at
        self._forget(at)
        return seen, before

    def _take(self, seen: Seen, before: Facts | None, facts: Facts, at: float) -> None:
        if facts.node and (before is None or not before.node):
            seen.bound_at = at
            seen.refused = False
            # A mark that came before the node was not written by the Binding.
            unmarked = before is None or before.attempt_text != facts.attempt_text
            seen.marked_by_binding = facts.attempt is not None and unmarked
        if before is not None and before.gang != facts.gang:
            former = self.gang_of(seen)
            if former is not None:
                self._leave(former, seen, at)
        if facts.deleting:
            if seen.leaving_at is None:
                seen.leaving_at = at
                if before is not None:
                    seen.healthy, seen.had_ended = before.healthy, before.finished
        elif seen.leaving_at is None:
            seen.healthy, seen.had_ended = facts.healthy, facts.finished
        seen.facts = facts
        if facts.gang is not None and facts.scheduler in self.schedulers:
            self._join(facts.gang.id, seen, at)
        if facts.attempt is not None:
            self._note_attempt(seen, facts.attempt, at)

    def gang_of(self, seen: Seen) -> GangSeen | None:
        """The gang of a pod that the service has to place."""
        gang = seen.facts.gang
        if gang is None or seen.facts.scheduler not in self.schedulers:
            return None
        return self.gangs.get(gang.id)

    def gang_called(self, name: str) -> GangSeen | None:
        """The gang that the service means by a name; gangs with waiting members come first."""
        key, _, of_group = name.partition("@")
        uid = of_group.partition("@")[2]
        found = [
            each for each in self.gangs.values() if each.key.partition("@")[0] == key and f"@{uid}" in f"{each.key}@"
        ]
        return max(found, key=lambda each: len(each.waiting), default=None)

    def _join(self, key: str, seen: Seen, at: float) -> None:
        gang = self.gangs.get(key)
        if gang is None:
            gang = self.gangs[key] = GangSeen(key)
        uid = seen.facts.uid
        known = gang.members.get(uid)
        gang.members[uid] = seen
        if known is None or self._quorum_of(seen) != gang.quorum:
            self._reckon(gang)
        if seen.lives:
            if uid not in gang.bound:
                gang.bound[uid] = seen
                if not seen.was_whole:
                    gang.fresh[uid] = seen
        else:
            gang.bound.pop(uid, None)
            gang.fresh.pop(uid, None)
            if seen.facts.phase == "Succeeded" and seen.leaving_at is None:
                gang.done[_owner(seen)].add(uid)
        self._on_event(gang, at)

    def _leave(self, gang: GangSeen, seen: Seen, at: float) -> None:
        uid = seen.facts.uid
        for each in (gang.members, gang.bound, gang.fresh):
            each.pop(uid, None)
        if not gang.members:
            self.gangs.pop(gang.key, None)
            return
        if self._quorum_of(seen) == gang.quorum:
            self._reckon(gang)
        self._on_event(gang, at)

    def _reckon(self, gang: GangSeen) -> None:
        """Sets its quorum to the largest one that a member asks for."""
        asked = [self._quorum_of(pod) for pod in gang.members.values() if not pod.facts.finished]
        gang.quorum = max((each for each in asked if each is not None), default=gang.quorum)

    def _quorum_of(self, seen: Seen) -> int | None:
        gang = seen.facts.gang
        if gang is None:
            return None
        return self._groups.get(gang.key) if gang.quorum is None else gang.quorum

    def _on_event(self, gang: GangSeen, at: float) -> None:
        """Notes whether its quorum is bound at this moment."""
        if gang.quorum is not None and gang.fresh and gang.placed >= gang.quorum:
            for pod in gang.fresh.values():
                pod.was_whole = True
            gang.fresh.clear()
        if not gang.fresh or len(gang.fresh) < len(gang.bound) or gang.quorum is None:
            gang.partly_since = None
        elif gang.partly_since is None:
            gang.partly_since = at

    # -- attempts ------------------------------------------------------------------------------------------------

    def attempt_of(self, seen: Seen) -> AttemptSeen | None:
        said = seen.facts.attempt
        return None if said is None else self.attempts.get((seen.facts.namespace, said.id))

    def _note_attempt(self, seen: Seen, said: Attempt, at: float) -> None:
        uid, key = seen.facts.uid, (seen.facts.namespace, said.id)
        attempt = self.attempts.get(key)
        if attempt is None:
            gang = seen.facts.gang
            attempt = AttemptSeen("" if gang is None else gang.id, at, said.needed, said.size)
            self.attempts[key] = attempt
        # A later mark may name more members.
        attempt.needed, attempt.size = min(attempt.needed, said.needed), max(attempt.size, said.size)
        attempt.there.add(uid)
        attempt.named.update(said.named)
        if seen.lives:
            attempt.bound.add(uid)
            attempt.peak = max(attempt.peak, len(attempt.bound))
        else:
            attempt.bound.discard(uid)

    def _end_in_attempt(self, seen: Seen) -> None:
        attempt = self.attempt_of(seen)
        if attempt is None or seen.facts.attempt is None:
            return
        attempt.bound.discard(seen.facts.uid)
        attempt.there.discard(seen.facts.uid)

    # -- others --------------------------------------------------------------------------------------------------

    def see_group(self, obj: Json, at: float, *, gone: bool) -> None:
        key = group_key(obj)
        if gone:
            self._groups.pop(key, None)
        else:
            self._groups[key] = int((obj.get("spec") or {}).get("minMember") or 1)
        gang = self.gangs.get(key)
        if gang is not None:
            gang.quorum = self._groups.get(key)
            self._on_event(gang, at)

    def see_node(self, obj: Json, at: float, *, gone: bool) -> bool:
        """Whether the node has changed in a way that may make room."""
        name = obj["metadata"]["name"]
        before = self.nodes.get(name)
        if gone:
            self.nodes.pop(name, None)
            self.lost_nodes[name] = at
            return before is not None
        status, spec = obj.get("status") or {}, obj.get("spec") or {}
        now: Json = {
            "labels": obj["metadata"].get("labels") or {},
            "taints": spec.get("taints") or [],
            "unschedulable": bool(spec.get("unschedulable")),
            "allocatable": status.get("allocatable") or {},
        }
        self.nodes[name] = now
        return now != before

    def _forget(self, at: float) -> None:
        while self._gone:
            uid = next(iter(self._gone))
            if self._gone[uid] > at - self._forget_after:
                return
            del self._gone[uid]
            seen = self.pods.pop(uid)
            if self.latest.get(seen.facts.key) is seen:
                del self.latest[seen.facts.key]
            attempt = self.attempt_of(seen)
            if attempt is not None and seen.facts.attempt is not None and not attempt.there:
                del self.attempts[seen.facts.namespace, seen.facts.attempt.id]
