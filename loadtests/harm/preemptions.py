"""Preemptions: whether a pod might be evicted to make room for a gang or for another pod.

(Issue 11, points 3 and 5.) It judges the victim, the preemptor, how frequent evictions are, and whether they had an
effect. `breakups` judges whether the rest of a gang followed. Time is an argument.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from loadtests.harm import harms
from loadtests.harm.breakups import SERVICE, Breakups
from loadtests.harm.facts import SYSTEM_CRITICAL, Facts
from loadtests.harm.harms import Harm
from loadtests.harm.history import GangSeen, History, Seen
from loadtests.harm.owners import is_static

_FOR = re.compile(r"\bfor (gang|pod) ([a-z0-9-]+/[A-Za-z0-9_.@%-]*[A-Za-z0-9])")
_APART = re.compile(r"\bfor a (gang|pod) of higher priority")
"""The note on a pod of another namespace, which has to name no pod there."""
_ALONE = "evicted for pod "
"""Begins a note: the preemptor is a single pod, and kube-scheduler took no member before."""
_HOUR = 3600.0
_ORDERED_WITHIN = 1.0
"""Seconds from the service's last look at the preemptor to the eviction that it then asks for."""


@dataclass(frozen=True)
class Bounds:
    """What is tolerated. Times in seconds.

    `foreign_victims`: whether pods of other schedulers may be victims. `rounds_an_hour`: how many rounds of evictions
    may begin in an hour for a gang that is not bound by them. `round_gap`: evictions with shorter gaps are one round.
    `back_off`: how long a pod that its owner re-created on the same node is left alone the first time; it doubles up to
    `longest_back_off`. `whole_within`: how soon the rest of a gang must follow the first victim. `placed_within`: how
    soon after its victims are gone a gang must be bound, if nothing else changes. `despite_budgets`: whether a pod may
    be deleted for a higher priority although its budget does not let it go."""

    foreign_victims: bool = False
    rounds_an_hour: int = 8
    round_gap: float = 20.0
    back_off: float = 10.0
    longest_back_off: float = 600.0
    whole_within: float = 180.0
    placed_within: float = 600.0
    despite_budgets: bool = True


USUAL = Bounds()


@dataclass(slots=True)
class _Course:
    """What was done for one preemptor, since it was last bound."""

    began: float = 0.0
    first: str = ""
    """The first victim."""
    rounds: list[float] = field(default_factory=list)
    """When each round began."""
    victims: list[Seen] = field(default_factory=list)
    last: float = 0.0
    taken: dict[str, float] = field(default_factory=dict)
    """By identity: since when pods of it were victims."""
    places: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    """By identity and node: when a pod was a victim there, once for each re-creation."""
    changed: bool = False
    """Whether more than the victims has changed since the last round."""
    ever_changed: bool = False


class Preemptions:
    """Receives each victim, and all changes. `call_at` calls a function at a time."""

    def __init__(
        self,
        history: History,
        bounds: Bounds,
        find: Callable[[Harm], None],
        call_at: Callable[[float, Callable[[], None]], None],
        breakups: Breakups,
    ) -> None:
        self._history = history
        self._bounds = bounds
        self._find = find
        self._call_at = call_at
        self._breakups = breakups
        self._courses: dict[str, _Course] = {}
        self._victims: dict[str, list[Seen]] = defaultdict(list)
        """By gang: the victims for it since its members, or any nodes, last changed."""

    # -- what happens --------------------------------------------------------------------------------------------

    def node_changed(self) -> None:
        for course in self._courses.values():
            course.changed = course.ever_changed = True
        self._victims.clear()

    def binding_refused(self, pod: Seen) -> None:
        """A Binding was refused for good: the plan failed; its victims' room is free for all."""
        self._victims.pop(pod.facts.key if pod.facts.gang is None else pod.facts.gang.key, None)

    def pod_changed(self, pod: Seen, before: Facts | None) -> None:
        """Notes a pod that came, was bound, went or ended: it may change the room, or a gang."""
        if pod.facts.gang is not None and (before is None or pod.gone_at is not None):
            self._victims.pop(pod.facts.gang.key, None)
        if not self._courses:
            return
        facts, uid = pod.facts, pod.facts.uid
        came, bound = before is None, bool(facts.node) and (before is None or not before.node)
        ended = pod.gone_at is not None or (facts.finished and not (before is not None and before.finished))
        of_its_own = (f"pod {facts.key}", "" if facts.gang is None else f"gang {facts.gang.id}")
        for name in list(self._courses):
            course, gang = self._courses[name], self._preemptor(name)
            if gang is None or (gang.quorum is not None and gang.placed >= gang.quorum):
                # It was bound, or does not exist any more.
                del self._courses[name]
            elif bound and name not in of_its_own and self._is_intruder(pod, course, gang):
                # A pod that takes a gang's freed room is no excuse.
                pass
            elif (
                came or pod.gone_at is not None
                if name in of_its_own
                else (bound or ended) and facts.identity not in course.taken and uid not in course.taken
            ):
                course.changed = course.ever_changed = True

    def _is_intruder(self, pod: Seen, course: _Course, gang: GangSeen) -> bool:
        """Whether a pod that may not overtake the gang is bound to a node that a victim has left.

        The freed room belongs to the gang. Pods of other schedulers, and gangs of the same priority, may overtake it.
        """
        facts = pod.facts
        if facts.scheduler not in self._history.schedulers or facts.priority > gang.lowest:
            return False
        if facts.identity in course.taken:
            # It was re-created: its own end will be judged.
            return False
        if facts.gang is not None and facts.priority == gang.lowest:
            return False
        return any(victim.facts.node == facts.node and victim.gone_at is not None for victim in course.victims)

    def evicted(self, pod: Seen, note: str, at: float, *, followed: bool) -> None:
        """Judges a pod that the service evicted; the note names the gang or pod that preempts.

        `followed`: other members of its gang had been taken before, so that it had to go as well."""
        self._breakups.broken_up(pod, at, by=SERVICE)
        said = _FOR.search(note)
        if said is None and not followed and not _APART.search(note):
            self._harm(harms.UNSTATED, pod, at, f"the service evicted it and does not say for whom: {note!r}")
        whom = f"{said[1]} {said[2]}" if said else ""
        for why in self._wrong_victim(pod):
            self._harm(harms.VICTIM, pod, at, f"{why}; {note!r}")
        if said and (said[1] == "gang" or note.startswith(_ALONE)):
            if (gang := self._history.gang_called(said[2]) if said[1] == "gang" else None) is not None:
                whom = f"gang {gang.key}"
            gang = self._preemptor(whom)
            if gang is None and (said[1] == "pod" or self._was_there(said[2], at - _ORDERED_WITHIN)):
                # The preemptor existed when the eviction was ordered, and no longer does: nothing to judge.
                return
            if gang is None:
                self._harm(harms.VICTIM, pod, at, f"it was evicted for {whom}, which has no member")
                return
            # It may be bound by the time at which the reason is known.
            placed_since = any((each.bound_at or 0.0) > at for each in gang.bound.values())
            for why in self._wrong_preemptor(pod, gang, whom, followed=followed or placed_since):
                self._harm(harms.VICTIM, pod, at, why)
            self._on_intruder(pod, gang, at)
            self._on_course(pod, gang, whom, at)
        elif said and said[1] == "pod":
            preemptor = self._history.latest.get(said[2])
            if preemptor is not None and preemptor.facts.priority <= pod.facts.priority:
                higher = f"has priority {preemptor.facts.priority}, and it has {pod.facts.priority}"
                self._harm(harms.VICTIM, pod, at, f"it was evicted for {whom}, which {higher}")

    def _was_there(self, gang: str, at: float) -> bool:
        """Whether a member of the gang with this name left after that."""
        of_gang = (pod for pod in self._history.pods.values() if pod.facts.gang and pod.facts.gang.key == gang)
        return any(pod.gone_at is not None and pod.gone_at > at for pod in of_gang)

    def _preemptor(self, whom: str) -> GangSeen | None:
        """The preemptor as it is now; a pod without a gang is as a gang of one."""
        kind, _, key = whom.partition(" ")
        if kind == "gang":
            return self._history.gangs.get(key)
        pod = self._history.latest.get(key)
        if pod is None or pod.gone_at is not None:
            return None
        members = {pod.facts.uid: pod}
        return GangSeen(key, members, members if pod.lives or pod.facts.finished else {}, quorum=1)

    # -- judgements ----------------------------------------------------------------------------------------------

    def _look_for_success(self, key: str, course: _Course, now: float) -> None:
        """Finds a preemption without effect, some time after the last victim left."""
        if self._courses.get(key) is not course or course.ever_changed:
            return
        within = self._bounds.placed_within
        gone = [pod.gone_at for pod in course.victims if pod.gone_at is not None]
        again = (max(gone) if len(gone) == len(course.victims) else now) + within
        if again > now:
            self._call_at(again, lambda: self._look_for_success(key, course, again))
            return
        why = (
            f"{len(course.victims)} pods were evicted for {key} from then on, which is not bound {within:g} s "
            "after the last of them went, though nothing else has changed"
        )
        self._find(Harm(harms.IN_VAIN, course.first, course.began, why))

    def _wrong_victim(self, pod: Seen) -> list[str]:
        facts, wrong = pod.facts, []
        there = (each.facts for each in self._history.pods.values() if each.lives)
        if self._breakups.is_daemon(facts, there):
            assert facts.owner is not None
            wrong.append(f"it is DaemonSet {facts.owner.name}'s, which makes it anew on the same node")
        if is_static(facts):
            wrong.append("it is the mirror of a static pod, which no eviction ends")
        if not facts.node:
            wrong.append("it was not bound: its eviction makes no room")
        return wrong

    def _wrong_preemptor(self, pod: Seen, gang: GangSeen, whom: str, *, followed: bool) -> list[str]:
        facts, wrong = pod.facts, []
        lowest, waiting = gang.lowest, gang.waiting
        if facts.priority >= lowest:
            what = "it is system-critical" if facts.priority >= SYSTEM_CRITICAL else f"it has priority {facts.priority}"
            wrong.append(f"{what}, and the lowest member of {whom}, for which it was evicted, has {lowest}")
        if not waiting and not followed:
            wrong.append(f"no member of {whom}, for which it was evicted, waits for a place")
        if any(not each.facts.preempts for each in waiting):
            wrong.append(f"a member of {whom} has preemptionPolicy Never, and it was evicted for it")
        return wrong

    def _on_intruder(self, pod: Seen, gang: GangSeen, at: float) -> None:
        """Finds a pod that was bound to a victim's node and then evicted for the same gang."""
        earlier, facts = self._victims[gang.key], pod.facts
        for victim in earlier:
            if victim.facts.node != facts.node or victim.gone_at is None or (pod.bound_at or 0.0) <= victim.gone_at:
                continue
            # A re-created pod is judged by its own end.
            if victim.facts.identity != facts.identity or pod.seen_at < victim.gone_at:
                why = f"it was let into the place that {victim.facts.key} had left for gang {gang.key}, and left too"
                self._harm(harms.IN_VAIN, pod, at, why)
                break
        earlier[:] = [each for each in earlier if each.gone_at is None or each.gone_at > at - _HOUR]
        earlier.append(pod)

    def _on_course(self, pod: Seen, gang: GangSeen, whom: str, at: float) -> None:
        bounds, facts = self._bounds, pod.facts
        if gang.quorum is not None and gang.placed >= gang.quorum:
            return
        course = self._courses.get(whom)
        if course is None:
            course = self._courses[whom] = _Course(began=at, first=facts.key)
            due = at + bounds.placed_within
            self._call_at(due, lambda: self._look_for_success(whom, course, due))
        identity = facts.identity
        before = course.taken.get(identity)
        anew = before is not None and pod.seen_at > before
        if not course.rounds or at - course.last > bounds.round_gap:
            if course.rounds and anew and not course.changed:
                self._harm(
                    harms.IN_VAIN,
                    pod,
                    at,
                    f"{whom} was not bound by the round of evictions that ended {at - course.last:.0f} s ago, "
                    "nothing has changed since, and it was made anew in the place of a victim",
                )
            course.rounds = [each for each in course.rounds if each > at - _HOUR]
            course.rounds.append(at)
            course.changed = False
            if len(course.rounds) > bounds.rounds_an_hour:
                said = f"{len(course.rounds)} rounds of evictions within an hour for {whom}, never bound"
                self._harm(harms.TOO_OFTEN, pod, at, said)
        course.last = at
        course.victims.append(pod)
        self._on_place(pod, course, whom, at)
        course.taken.setdefault(identity, at)
        course.taken[facts.uid] = at

    def _on_place(self, pod: Seen, course: _Course, whom: str, at: float) -> None:
        """Finds a pod, re-created on the same node, that was not left alone for long enough."""
        bounds, times = self._bounds, course.places[pod.facts.identity, pod.facts.node]
        if times and pod.seen_at <= times[-1]:
            # It was there beside the other.
            return
        if times and at - times[-1] > _HOUR:
            times.clear()
        if times:
            wait = min(bounds.back_off * float(2 ** min(len(times) - 1, 16)), bounds.longest_back_off)
            if at - times[-1] < wait:
                self._harm(
                    harms.SAME_AGAIN,
                    pod,
                    at,
                    f"one of {pod.facts.identity} was evicted on node {pod.facts.node} for {whom} "
                    f"{at - times[-1]:.1f} s ago, for the {len(times)}. time, and was to be left alone for {wait:g} s",
                )
        times.append(at)

    def _harm(self, rule: str, pod: Seen, at: float, why: str) -> None:
        self._find(Harm(rule, pod.facts.key, at, why))
