"""Break-ups: if a gang lost some members, did the rest follow, or is the rest enough?

The service or kube-scheduler took the members. By issue 11, point 5, a gang goes as a whole or not at all. The members
that were there at the beginning are enough if they are the quorum without the taken ones. Re-created members are enough
only if kube-scheduler took all of them, for pods that are all gone themselves. To take the rest of such a gang, which
is whole again, would be the harm; the witness records a warning.

`preemptions` judges whether the members might have been taken. Time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from loadtests.harm import harms
from loadtests.harm.budgets import Budgets
from loadtests.harm.facts import Facts
from loadtests.harm.harms import Harm
from loadtests.harm.history import History, Seen
from loadtests.harm.owners import DaemonSets

SERVICE, KUBE_SCHEDULER = "the service", "kube-scheduler"
"""Who takes pods."""


@dataclass(slots=True)
class _Breakup:
    """A gang that lost members: which ran then, and which were taken."""

    key: str
    quorum: int | None
    done: int
    began: float
    first: str
    by: str
    objection: str = ""
    """Why budgets did not let all of them go from the beginning."""
    together: dict[str, Seen] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    preemptors: dict[str, Seen] = field(default_factory=dict)
    """By UID: the pods for which kube-scheduler kept the room that it made."""
    unexplained: set[str] = field(default_factory=set)
    """Nodes where kube-scheduler took a pod, and no nominated pod is known yet."""
    by_service: bool = False
    """Whether the service took a member."""


class Breakups:
    """`call_at` calls a function at a time. `within`: seconds within which the rest has to follow.

    `hindered`: what kept the service since a time from taking these pods as well; empty if nothing did."""

    def __init__(
        self,
        history: History,
        within: float,
        find: Callable[[Harm], None],
        call_at: Callable[[float, Callable[[], None]], None],
        hindered: Callable[[float, Sequence[Seen]], str],
    ) -> None:
        self.budgets = Budgets()
        self.daemon_sets = DaemonSets()
        self._history = history
        self._within = within
        self._find = find
        self._call_at = call_at
        self._hindered = hindered
        self._open: dict[str, _Breakup] = {}

    # -- what happens --------------------------------------------------------------------------------------------

    def pod_changed(self, pod: Seen) -> None:
        """Notes the preemptor, if kube-scheduler nominates it only after it took members."""
        node = pod.facts.nominated
        for breakup in self._open.values() if node else ():
            if node in breakup.unexplained:
                breakup.unexplained.discard(node)
                breakup.preemptors[pod.facts.uid] = pod

    def broken_up(self, pod: Seen, at: float, *, by: str) -> None:
        """Notes that a pod was taken; the rest of its gang must follow, or be enough."""
        facts = pod.facts
        if facts.gang is None or facts.scheduler not in self._history.schedulers or not facts.node or pod.had_ended:
            return
        key = facts.gang.id
        breakup = self._open.get(key)
        if breakup is None:
            breakup = self._open[key] = self._begun(key, pod, at, by)
        breakup.together[facts.uid] = pod
        breakup.taken.add(facts.uid)
        if by == SERVICE:
            breakup.by_service = True
            return
        nominated = {uid: each for uid, each in self._history.pods.items() if each.facts.nominated == facts.node}
        breakup.preemptors.update(nominated)
        if not nominated:
            breakup.unexplained.add(facts.node)

    def _begun(self, key: str, pod: Seen, at: float, by: str) -> _Breakup:
        assert pod.facts.gang is not None
        breakup = _Breakup(key, pod.facts.gang.quorum, 0, at, pod.facts.key, by)
        gang = self._history.gangs.get(key)
        if gang is not None:
            breakup.quorum, breakup.done = gang.quorum, gang.placed - len(gang.bound)
            breakup.together.update(gang.bound)
        self._call_at(at + self._within, lambda: self._weigh(breakup))
        together = {**breakup.together, pod.facts.uid: pod}.values()
        breakup.objection = self.budgets.objection([each.facts for each in together], at)
        return breakup

    def is_daemon(self, pod: Facts, there: Iterable[Facts]) -> bool:
        """Whether a DaemonSet re-creates it on its node; `there`: the pods that live."""
        return self.daemon_sets.made(pod, self._history.nodes.get(pod.node), there)

    def is_broken_up(self, pod: Seen) -> bool:
        """Whether other members of its gang were taken lately, so that it has to follow."""
        gang = pod.facts.gang
        return gang is not None and gang.id in self._open

    # -- judgement -----------------------------------------------------------------------------------------------

    def _weigh(self, breakup: _Breakup) -> None:
        del self._open[breakup.key]
        there = [pod.facts for pod in self._history.pods.values() if pod.lives]
        # A DaemonSet's pod stays, whatever gang its labels name.
        left = [pod for pod in breakup.together.values() if pod.lives and not self.is_daemon(pod.facts, there)]
        if not left or (breakup.quorum is not None and len(left) + breakup.done >= breakup.quorum):
            return
        names = ", ".join(sorted(pod.facts.key for pod in left)[:4])
        why = (
            f"{breakup.by} took {len(breakup.taken)} of {len(breakup.together)} members that ran, {breakup.first} "
            f"first; {self._within:g} s later {len(left)} of quorum {breakup.quorum} still run: {names}"
        )
        hindered = self._hindered(breakup.began, left)
        if breakup.objection:
            rule, why = harms.HALF, f"{why}; {breakup.objection} from the beginning"
        elif hindered:
            rule, why = harms.HALF_LEFT, f"{why}; {hindered}"
        else:
            rule = harms.WHOLE_AGAIN if self._is_whole_again(breakup) else harms.HALF
        self._find(Harm(rule, f"gang {breakup.key}", breakup.began, why))

    def _is_whole_again(self, breakup: _Breakup) -> bool:
        """Whether re-created members complete its quorum, and all preemptors are gone."""
        if breakup.by_service or breakup.unexplained or not breakup.preemptors:
            return False
        if any(pod.leaving_at is None for pod in breakup.preemptors.values()):
            return False
        gang = self._history.gangs.get(breakup.key)
        return gang is not None and gang.quorum is not None and gang.placed >= gang.quorum
