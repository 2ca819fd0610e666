"""Expected members: what may be held for a gang while some of its members do not exist yet.

The first member that kube-scheduler asks about need not wait for the others. Escher plans the whole quorum at once, and
members created later find their places there. That saves them a second try. But a gang that promises more members than
come would hold idle room. Therefore:

- Places for members that do not exist are held only if a controller's spec promises them (a Job's parallelism). A pod
  without a known controller promises no other pods. Each member holds its own room only; any pod may take the rest of
  the plan before its members come.
- In one namespace at most `limit` places are held for members that do not exist.
- A gang without held places is planned beside the room that members of other such gangs will need. Otherwise gangs meet
  at barriers while only some fit, are turned back, and are kept away for a second or more. If more than `limit` members
  of other gangs are to come, no such plan is made.
- A plan that ended with members missing was without effect: its namespace gets none for a time. That is 5 s at first,
  doubled each time, at most 5 min; each gang that became complete takes back one doubling.

A pod rejected for that waits until its gang's members exist, and loses a few milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from extender.core.common.backoff import doubled
from extender.core.common.bounded import Bounded
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey

GATHER_SECONDS = 5.0
"""Seconds a plan is held for members that do not exist: controllers create pods in bursts."""
GATHER_LIMIT = 256
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
_REMEMBERED = 4096
"""Number of namespaces whose pauses are kept, the latest; deleted namespaces leave theirs."""

_ControllerUid = str


class Ahead(Enum):
    """How a gang may be planned while some of its members do not exist."""

    NOT = "not before they exist"
    UNHELD = "with places for them that other pods may take"
    HELD = "with places that are held for them"


@dataclass(frozen=True, slots=True)
class Promise:
    """The controller creates at most `pods` pods at a time, in its own namespace.

    `namespace` empty: not known. `gang`: the gang derived from it. `parallel`: how many pods its spec has at a time,
    without regard to ended pods or suspension; 0: none, or not known.
    """

    controller: _ControllerUid
    pods: int
    namespace: str = ""
    gang: GangKey | None = None
    parallel: int = 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """A plan made while members of the gang were missing."""

    gang: Gang
    since: float
    held: bool
    """Whether the places of the missing members are held."""


@dataclass(slots=True)
class _Pause:
    """`until`: when plans are allowed again; `times`: number of doublings so far."""

    until: float
    times: int


class ExpectedMembers:
    def __init__(self, limit: int = GATHER_LIMIT) -> None:
        self._limit = limit
        self._promises: dict[_ControllerUid, Promise] = {}
        self._open: dict[str, dict[GangKey, _Plan]] = {}
        """By namespace."""
        self._pauses: Bounded[str, _Pause] = Bounded(_REMEMBERED)

    # -- controllers ---------------------------------------------------------------------------------------------

    def see(self, promise: Promise) -> None:
        """Stores what the controller's spec promises."""
        self._promises[promise.controller] = promise

    def lose(self, controller: _ControllerUid) -> None:
        self._promises.pop(controller, None)

    def replace(self, promises: Iterable[Promise]) -> None:
        """Exactly these controllers exist."""
        self._promises = {each.controller: each for each in promises}

    def known(self) -> list[Promise]:
        return list(self._promises.values())

    def parallel(self, key: GangKey) -> int | None:
        """Members at a time in the spec of the gang's own controller; None: no limit, or not known.

        A spec of 0 says nothing about a quorum: it pauses the controller, and its pods are deleted.
        """
        promise = self._promises.get(key.uid) if key.derived else None
        return promise.parallel or None if promise is not None and promise.gang == key else None

    def promised(self, gang: Gang) -> int:
        """How many members the gang's controllers have yet to create."""
        living = Counter(pod.owner.uid for pod in gang.roster.members.values() if pod.owner is not None)
        return sum(max(0, self._made_in(gang.key.namespace, uid) - count) for uid, count in living.items())

    def _made_in(self, namespace: str, controller: _ControllerUid) -> int:
        """Number of promised pods at a time.

        A pod may name a controller of another namespace as its owner."""
        promise = self._promises.get(controller)
        return promise.pods if promise is not None and promise.namespace in ("", namespace) else 0

    # -- plans with members missing ------------------------------------------------------------------------------

    def ahead(self, gang: Gang, now: float) -> Ahead:
        """How the gang may be planned now, while some of its members do not exist."""
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
        """Other planned gangs whose missing members hold no places; None: over `limit` are missing."""
        found: list[Gang] = []
        missing = 0
        for plans in self._open.values():
            for plan in plans.values():
                if not plan.held and plan.gang is not but and plan.gang.phase is Phase.PLANNED:
                    found.append(plan.gang)
                    missing += plan.gang.missing
        return found if missing <= self._limit else None

    def begun(self, gang: Gang, now: float, *, held: bool) -> None:
        """The gang has a plan with members missing. `held`: their places are held."""
        self._open.setdefault(gang.key.namespace, {})[gang.key] = _Plan(gang, now, held)

    def open(self, gang: Gang) -> tuple[float, bool] | None:
        """Since when the gang has a plan with members missing, and whether their places are held."""
        plan = self._open.get(gang.key.namespace, {}).get(gang.key)
        return None if plan is None else (plan.since, plan.held)

    def kept(self, gang: Gang) -> bool:
        """All members exist. Returns whether the gang's plan was made with members missing."""
        plan = self._open.get(gang.key.namespace, {}).get(gang.key)
        if plan is not None:
            self._close(gang)
            self._weigh(gang.key.namespace, plan.since, in_vain=False)
        return plan is not None

    def forget(self, gang: Gang) -> None:
        """The gang has ended or is set aside."""
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
        """Finds plans of the namespace that have ended with members missing."""
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
