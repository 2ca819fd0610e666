"""Promises: how many places may be held for members of gangs that do not exist yet.

The first member of a gang that asks is given the whole quorum's room, and those that its controller is about to create
find theirs held: that saves them a second try. But who promises more than comes would have room held for nothing. So

- only what a controller's spec says counts (a Job's parallelism). A pod without a controller that we know promises
  nobody else, and its gang is planned when its quorum exists;
- in one namespace no more than `limit` places are held for those that do not exist;
- a plan that ended with members still missing was in vain: its namespace has none for a time, 5 s at first and twice
  as long each time, up to 5 min; each gang that did become complete takes one doubling back.

Who is turned away for that waits for its members to exist, and loses a few milliseconds by it. Knows controllers'
promises and gangs; must not know nodes, nor how promises are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from extender.core.gang import Gang
from extender.core.gang_phases import Phase
from extender.core.names import GangKey

GATHER_SECONDS = 5.0
"""How long a plan is held for members that do not exist yet: controllers create pods in bursts, not over minutes."""
GATHER_LIMIT = 256
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
_AWAITED_AT_MOST = 4096

ControllerUid = str


@dataclass(frozen=True, slots=True)
class Promise:
    """The controller makes so many pods at a time, and no more."""

    controller: ControllerUid
    pods: int


@dataclass(slots=True)
class _Pause:
    """`until`: when there may be plans again; `times`: how many doublings there have been."""

    until: float
    times: int


class Promises:
    def __init__(self, limit: int = GATHER_LIMIT) -> None:
        self._limit = limit
        self._pods: dict[ControllerUid, int] = {}
        self._awaited: dict[ControllerUid, dict[GangKey, None]] = {}
        """Gangs that were turned away before anything was known of a controller of theirs, oldest first."""
        self._open: dict[str, dict[GangKey, tuple[Gang, float]]] = {}
        """By namespace: gangs that were planned with members missing, and when."""
        self._pauses: dict[str, _Pause] = {}

    # -- what controllers say ------------------------------------------------------------------------------------

    def see(self, controller: ControllerUid, pods: int) -> list[GangKey]:
        """Its spec promises so many pods at a time. The gangs that were turned away for not knowing it."""
        self._pods[controller] = pods
        return list(self._awaited.pop(controller, ()))

    def lose(self, controller: ControllerUid) -> None:
        """It is deleted."""
        self._pods.pop(controller, None)

    def replace(self, promised: Mapping[ControllerUid, int]) -> list[GangKey]:
        """These controllers and no others exist; as `see`."""
        self._pods = dict(promised)
        known = [controller for controller in self._awaited if controller in promised]
        return [key for controller in known for key in self._awaited.pop(controller)]

    def promised(self, gang: Gang) -> int:
        """How many members the gang's controllers have yet to create."""
        living = Counter(pod.owner.uid for pod in gang.members.values() if pod.owner is not None)
        return sum(max(0, self._pods.get(controller, 0) - count) for controller, count in living.items())

    # -- plans with members missing ------------------------------------------------------------------------------

    def allow(self, gang: Gang, now: float) -> bool:
        """Whether places may be held for the gang's members that do not exist yet."""
        namespace = gang.key.namespace
        self._look_back(namespace)
        if self.promised(gang) < gang.absent:
            self._await(gang)
            return False
        pause = self._pauses.get(namespace)
        held = sum(other.missing for other, _ in self._open.get(namespace, {}).values())
        return (pause is None or now >= pause.until) and held + gang.missing <= self._limit

    def begun(self, gang: Gang, now: float) -> None:
        """It has a plan, with members missing."""
        self._open.setdefault(gang.key.namespace, {})[gang.key] = (gang, now)

    def _look_back(self, namespace: str) -> None:
        """What has become of the plans of the namespace."""
        plans = self._open.get(namespace, {})
        for key, (gang, since) in list(plans.items()):
            if gang.phase is Phase.PLANNED and gang.missing:
                continue
            del plans[key]
            # One that has no plan any more, and lacks members, ran out, or its members were deleted.
            self._weigh(namespace, since, in_vain=bool(gang.missing))
        if not plans:
            self._open.pop(namespace, None)

    def _weigh(self, namespace: str, since: float, *, in_vain: bool) -> None:
        pause = self._pauses.setdefault(namespace, _Pause(0.0, 0))
        pause.times = pause.times + 1 if in_vain else pause.times - 1
        if pause.times <= 0:
            del self._pauses[namespace]
        elif in_vain:
            seconds = min(_FIRST_PAUSE * float(2 ** min(pause.times - 1, 16)), _LONGEST_PAUSE)
            pause.until = max(pause.until, since + GATHER_SECONDS + seconds)

    def _await(self, gang: Gang) -> None:
        for controller in {pod.owner.uid: None for pod in gang.members.values() if pod.owner is not None}:
            if controller not in self._pods:
                self._awaited.setdefault(controller, {})[gang.key] = None
        while len(self._awaited) > _AWAITED_AT_MOST:
            del self._awaited[next(iter(self._awaited))]
