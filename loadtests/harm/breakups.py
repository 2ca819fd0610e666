"""Break-ups: of a gang some were taken, by the service or by kube-scheduler. Has the rest followed, or is it enough?

(Issue 11, point 5: a gang goes as a whole or not at all.) Who was there from the beginning is enough where it is the
quorum without those who were taken. With members made anew it is enough only where there is nobody left to go for:
where kube-scheduler took all of them, for pods that are all gone themselves. Then to take the rest of a gang that is
whole would be the harm. That is put down as a warning.

Knows who was taken, and for whom kube-scheduler keeps room; must not know whether they might have been: `preemptions`.
Time is an argument.
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
"""Who takes somebody."""


@dataclass(slots=True)
class _Breakup:
    """A gang of which some were taken: who ran then, and who was taken."""

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
    """By UID: for whom kube-scheduler kept the room that it made."""
    unexplained: set[str] = field(default_factory=set)
    """Nodes where it took somebody, and nobody is known for whom."""
    by_service: bool = False
    """Whether the service took somebody."""


class Breakups:
    """`call_at` has something done at a time, and `within` is how long the rest has to follow. `hindered` tells what,
    since a time, has kept the service from taking these pods as well; empty if nothing did."""

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
        """kube-scheduler may say only now for whom it took somebody."""
        node = pod.facts.nominated
        for breakup in self._open.values() if node else ():
            if node in breakup.unexplained:
                breakup.unexplained.discard(node)
                breakup.preemptors[pod.facts.uid] = pod

    def broken_up(self, pod: Seen, at: float, *, by: str) -> None:
        """A pod was taken; if it is a gang's member, the others must go as well, or be enough without it."""
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
        """Whether a DaemonSet makes it anew on its node; `there`: the pods that live."""
        return self.daemon_sets.made(pod, self._history.nodes.get(pod.node), there)

    def is_broken_up(self, pod: Seen) -> bool:
        """Whether others of its gang have been taken lately: then it is to follow."""
        gang = pod.facts.gang
        return gang is not None and gang.id in self._open

    # -- judgement -----------------------------------------------------------------------------------------------

    def _weigh(self, breakup: _Breakup) -> None:
        del self._open[breakup.key]
        there = [pod.facts for pod in self._history.pods.values() if pod.lives]
        # A DaemonSet's pod stays, whatever gang it says it is of.
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
        """Whether it has its quorum with members made anew, and nobody is left of those for whom it lost the others."""
        if breakup.by_service or breakup.unexplained or not breakup.preemptors:
            return False
        if any(pod.leaving_at is None for pod in breakup.preemptors.values()):
            return False
        gang = self._history.gangs.get(breakup.key)
        return gang is not None and gang.quorum is not None and gang.placed >= gang.quorum
