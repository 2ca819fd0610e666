"""Promises: what may be held for a gang while members of it do not exist yet.

The first member of a gang that asks need not wait for the others: a plan for the whole quorum is made at once, and who
is created meanwhile finds its place there. That saves them a second try. But who promises more than comes would have
room held for nothing. So

- places are held for members that do not exist only as far as a controller's spec promises them (a Job's parallelism).
  A pod without a controller that we know promises nobody else: each member holds its own room and no other's, and what
  the plan has for the rest anybody may take before they come;
- in one namespace no more than `limit` places are held for those that do not exist;
- where none are held, a gang is planned for beside those that others are to come to: whose members meet at barriers
  though there is room for some of the gangs alone are turned back there, and kept away for a second and more. Where
  more than `limit` are to come to others, none is;
- a plan that ended with members still missing was in vain: its namespace has none for a time, 5 s at first and twice
  as long each time, up to 5 min; each gang that did become complete takes one doubling back.

Who is turned away for that waits for its members to exist, and loses a few milliseconds by it. Knows controllers'
promises and gangs; must not know nodes, nor how promises are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from extender.core.backoff import doubled
from extender.core.bounded import Bounded
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey

GATHER_SECONDS = 5.0
"""How long a plan is held for members that do not exist yet: controllers create pods in bursts, not over minutes."""
GATHER_LIMIT = 256
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
_REMEMBERED = 4096
"""Namespaces whose pauses are remembered, the last ones: namespaces go, and take no pause with them."""

_ControllerUid = str


class Ahead(Enum):
    """How a gang may be planned while members of it do not exist."""

    NOT = "not before they exist"
    UNHELD = "with places for them that nobody is kept from"
    HELD = "with places that are held for them"


@dataclass(frozen=True, slots=True)
class Promise:
    """The controller makes so many pods at a time, and no more, in its own namespace.

    `namespace` empty: it is not known. `gang`: the gang that is derived from it. `parallel`: how many pods its spec has
    at a time, whatever has ended or is suspended; 0: none, or it is not known.
    """

    controller: _ControllerUid
    pods: int
    namespace: str = ""
    gang: GangKey | None = None
    parallel: int = 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """One that was made for the gang with members missing."""

    gang: Gang
    since: float
    held: bool
    """Whether their places are held."""


@dataclass(slots=True)
class _Pause:
    """`until`: when there may be plans again; `times`: how many doublings there have been."""

    until: float
    times: int


class ExpectedMembers:
    def __init__(self, limit: int = GATHER_LIMIT) -> None:
        self._limit = limit
        self._promises: dict[_ControllerUid, Promise] = {}
        self._open: dict[str, dict[GangKey, _Plan]] = {}
        """By namespace."""
        self._pauses: Bounded[str, _Pause] = Bounded(_REMEMBERED)

    # -- what controllers say ------------------------------------------------------------------------------------

    def see(self, promise: Promise) -> None:
        """The controller's spec promises this."""
        self._promises[promise.controller] = promise

    def lose(self, controller: _ControllerUid) -> None:
        """It is deleted."""
        self._promises.pop(controller, None)

    def replace(self, promises: Iterable[Promise]) -> None:
        """These controllers and no others exist."""
        self._promises = {each.controller: each for each in promises}

    def known(self) -> list[Promise]:
        return list(self._promises.values())

    def parallel(self, key: GangKey) -> int | None:
        """How many members the spec of the gang's own controller has at a time; None: any number, or not known.

        A spec that has none says nothing of a quorum: that pauses the controller, and its pods go.
        """
        promise = self._promises.get(key.uid) if key.derived else None
        return promise.parallel or None if promise is not None and promise.gang == key else None

    def promised(self, gang: Gang) -> int:
        """How many members the gang's controllers have yet to create."""
        living = Counter(pod.owner.uid for pod in gang.roster.members.values() if pod.owner is not None)
        return sum(max(0, self._made_in(gang.key.namespace, uid) - count) for uid, count in living.items())

    def _made_in(self, namespace: str, controller: _ControllerUid) -> int:
        """How many pods at a time it promises there: a pod may name the controller of another namespace as its own."""
        promise = self._promises.get(controller)
        return promise.pods if promise is not None and promise.namespace in ("", namespace) else 0

    # -- plans with members missing ------------------------------------------------------------------------------

    def ahead(self, gang: Gang, now: float) -> Ahead:
        """How the gang may be planned now, while members of it do not exist."""
        namespace = gang.key.namespace
        self._look_back(namespace)
        pause = self._pauses.get(namespace)
        if pause is not None and now < pause.until:
            return Ahead.NOT
        if self.promised(gang) < gang.absent:
            return Ahead.UNHELD
        held = sum(plan.gang.missing for plan in self._open.get(namespace, {}).values() if plan.held)
        return Ahead.HELD if held + gang.missing <= self._limit else Ahead.UNHELD

    def unheld(self, but: Gang) -> list[Gang] | None:
        """Other gangs with a plan whose missing members have places that nobody is kept from; None: these are too
        many."""
        found: list[Gang] = []
        missing = 0
        for plans in self._open.values():
            for plan in plans.values():
                if not plan.held and plan.gang is not but and plan.gang.phase is Phase.PLANNED:
                    found.append(plan.gang)
                    missing += plan.gang.missing
        return found if missing <= self._limit else None

    def begun(self, gang: Gang, now: float, *, held: bool) -> None:
        """It has a plan, with members missing. `held`: so are their places."""
        self._open.setdefault(gang.key.namespace, {})[gang.key] = _Plan(gang, now, held)

    def open(self, gang: Gang) -> tuple[float, bool] | None:
        """Since when the gang has a plan with members missing, and whether their places are held; None: it has none."""
        plan = self._open.get(gang.key.namespace, {}).get(gang.key)
        return None if plan is None else (plan.since, plan.held)

    def kept(self, gang: Gang) -> bool:
        """All its members exist. Whether they do so for the first time since it has its plan."""
        plan = self._open.get(gang.key.namespace, {}).get(gang.key)
        if plan is not None:
            self._close(gang)
            self._weigh(gang.key.namespace, plan.since, in_vain=False)
        return plan is not None

    def forget(self, gang: Gang) -> None:
        """It is no more, or is set aside."""
        namespace = gang.key.namespace
        plan = self._open.get(namespace, {}).get(gang.key)
        if plan is not None and plan.gang is gang:
            self._close(gang)
            self._weigh(namespace, plan.since, in_vain=True)

    def _close(self, gang: Gang) -> None:
        plans = self._open[gang.key.namespace]
        del plans[gang.key]
        if not plans:
            del self._open[gang.key.namespace]

    def _look_back(self, namespace: str) -> None:
        """Which plans of the namespace have ended with members missing."""
        plans = self._open.get(namespace, {})
        for key, plan in list(plans.items()):
            if plan.gang.phase is not Phase.PLANNED:
                del plans[key]
                self._weigh(namespace, plan.since, in_vain=True)
        if not plans:
            self._open.pop(namespace, None)

    def _weigh(self, namespace: str, since: float, *, in_vain: bool) -> None:
        pause = self._pauses[namespace] = self._pauses.get(namespace) or _Pause(0.0, 0)
        pause.times = pause.times + 1 if in_vain else pause.times - 1
        if pause.times <= 0:
            del self._pauses[namespace]
        elif in_vain:
            seconds = doubled(_FIRST_PAUSE, pause.times - 1, _LONGEST_PAUSE)
            pause.until = max(pause.until, since + GATHER_SECONDS + seconds)
