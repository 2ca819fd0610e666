"""One gang in pure extended resources: ghosts hold what it needs; once all are bound, its members' resources appear.

                  turn            all ghosts bound            members ended, cancelled
      QUEUED -------------> RESERVING -----------------> HELD -------------------------> ENDING --> ENDED
                            ^      |                       |  ^                            ^
            pause is over,  |      | time-out, a ghost     +--+ a ghost is lost:           |
            and a turn      |      v is lost or refused         another takes its place    |
                   BACKING_OFF <-- ROLLING_BACK -------------------------------------------+
                          all ghosts gone            cancelled (from any phase), or no attempt is left

Nothing is exported before HELD, so no member can be bound before all can be. In ENDING the resources go first, and
only then ghosts, so that no member is let in on room that is no longer held; the ghost of a member that still runs
stays until it has ended. Members are told by what they ask for; the ghosts by their names, which we chose.

Knows no other gang: whose turn it is, `gang_turns` decides. A member that kube-scheduler was already binding when its
resource was removed is bound without one: a gap that only the scheduler could close.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from extender.core.back_off import doubled
from extender.core.cluster import Pod
from extender.core.names import NodeName, PodUid, ResourceKey
from extender.esl.base import (
    CapacityConfirmed,
    CreateGhost,
    DeleteGhost,
    Effect,
    EffectRefused,
    Event,
    Ghost,
    News,
    PodGone,
    PodSeen,
    RemoveCapacity,
    Report,
    SetCapacity,
)
from extender.esl.gang_spec import GangSpec

Place = tuple[NodeName, ResourceKey]


class Phase(Enum):
    QUEUED = "queued"
    RESERVING = "reserving"
    HELD = "held"
    ROLLING_BACK = "rolling back"
    BACKING_OFF = "backing off"
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds, and how often."""

    reserve_within: float = 10.0
    """How long ghosts may wait for each other. Shorter wastes attempts, longer keeps others from what is half held."""
    first_pause: float = 1.0
    longest_pause: float = 60.0
    attempts: int | None = None
    """After so many the gang has failed; None: never."""
    idle: float = 60.0
    """How long a gang may hold its room without a living member: none has come, or all have gone before their time."""


USUAL_TIMES = Times()


@dataclass(slots=True)
class _Held:
    """A ghost that may exist. `lost`: it holds nothing any more, or is about to go."""

    bundle: int
    node: NodeName | None = None
    lost: bool = False


class Gang:
    """One gang's life. Every method answers the effects of what it was told, in order."""

    def __init__(self, spec: GangSpec, times: Times, seed: int, asked_at: float) -> None:
        self.spec = spec
        self.asked_at = asked_at
        self.phase = Phase.QUEUED
        self.attempt = 0
        self.deadline: float | None = None
        """When the phase ends by itself; in QUEUED and BACKING_OFF: from when on a turn is wanted."""
        self._times = times
        self._seed = seed
        self._keys = dict.fromkeys(spec.key(bundle) for bundle in range(spec.size))
        self._places = Counter(spec.key(bundle) for bundle in range(spec.size))
        self._token = _digest(seed, str(spec.gang)).hex()[:6]
        self._ghosts: dict[str, _Held] = {}
        self._made = 0
        self._exported: Counter[Place] = Counter()
        self._unconfirmed: dict[Place, int] = {}
        self._members: dict[PodUid, Pod] = {}
        self._served: dict[ResourceKey, set[PodUid]] = {key: set() for key in self._keys}
        self._reported = False
        self._why = ""
        self._end = News.ENDED

    @property
    def keys(self) -> Iterator[ResourceKey]:
        """The resources by which its members are told."""
        return iter(self._keys)

    @property
    def turn(self) -> tuple[int, float, str]:
        """Sorts those that wait: priority, then age."""
        return (-self.spec.priority, self.asked_at, str(self.spec.gang))

    def wants_a_turn(self, now: float) -> bool:
        waits = self.phase in (Phase.QUEUED, Phase.BACKING_OFF)
        return waits and (self.deadline is None or self.deadline <= now)

    @property
    def has_its_turn(self) -> bool:
        """Whether ghosts of it may be half bound."""
        return self.phase in (Phase.RESERVING, Phase.ROLLING_BACK)

    @property
    def settled(self) -> bool:
        """Whether it is over, and what is left of it is in use by its members."""
        left_to_them = not self._unconfirmed and not any(ghost.lost for ghost in self._ghosts.values())
        return self.phase is Phase.ENDED or (self.phase is Phase.ENDING and left_to_them)

    # -- what it is told -----------------------------------------------------------------------------------------

    def reserve(self, now: float) -> list[Effect]:
        """It is its turn: one ghost per bundle is to be made."""
        self.phase, self.attempt = Phase.RESERVING, self.attempt + 1
        self.deadline = now + self._times.reserve_within
        return [self._make_ghost(bundle) for bundle in range(self.spec.size)]

    def hurry(self) -> None:
        """Something has become free: it need not wait out its pause."""
        if self.phase is Phase.BACKING_OFF:
            self.deadline = None

    def cancel(self, why: str = "cancelled") -> list[Effect]:
        """It ends: what is not in use by a member goes now, the rest when those members end."""
        if self.phase in (Phase.ENDING, Phase.ENDED):
            return []
        return self._begin_end(News.ENDED, why)

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case PodSeen(pod):
                ghost = self._ghosts.get(pod.name)
                return self._ghost_seen(ghost, pod, now) if ghost is not None else self._member_seen(pod, now)
            case PodGone(_, name):
                if name in self._ghosts:
                    return self._ghost_gone(name, now)
                for uid in [uid for uid, pod in self._members.items() if pod.name == name]:
                    del self._members[uid]
                return self._members_changed(now)
            case CapacityConfirmed(node, resource, units):
                if self._unconfirmed.get((node, resource)) == units:
                    del self._unconfirmed[node, resource]
                return self._settle(now)
            case EffectRefused(effect, why):
                return self._refused(effect, why, now)
            case _:
                return self._time_passed(now)

    # -- ghosts --------------------------------------------------------------------------------------------------

    def _make_ghost(self, bundle: int) -> Effect:
        self._made += 1
        spec = self.spec
        # The token tells apart two who ask for gangs of one name; the numbers, the ghosts of one.
        name = f"{spec.gang.name}-ghost-{self._token}-{self.attempt}-{self._made}"
        self._ghosts[name] = _Held(bundle)
        return CreateGhost(Ghost(spec.gang.namespace, name, spec.gang.name, spec.bundles[bundle], spec.placement))

    def _delete(self, name: str) -> Effect:
        self._ghosts[name].lost = True
        return DeleteGhost(self.spec.gang.namespace, name, self.spec.gang.name)

    def _ghost_seen(self, ghost: _Held, pod: Pod, now: float) -> list[Effect]:
        if ghost.lost:
            return []
        if pod.finished or pod.deleting:
            # A kubelet that could not admit it, an eviction: it holds nothing, or will not for long.
            return [self._delete(pod.name), *self._ghost_lost(ghost, f"ghost {pod.name} was ended by others", now)]
        if pod.node is None or ghost.node is not None:
            return []
        ghost.node = pod.node
        living = [each for each in self._ghosts.values() if not each.lost]
        if self.phase is Phase.RESERVING and all(each.node is not None for each in living):
            self.phase, self.deadline = Phase.HELD, now + self._times.idle
            return [*self._export(), *self._members_changed(now)]
        return self._export() if self.phase is Phase.HELD else []

    def _ghost_gone(self, name: str, now: float) -> list[Effect]:
        ghost = self._ghosts.pop(name)
        effects = [] if ghost.lost else self._ghost_lost(ghost, f"ghost {name} was deleted by others", now)
        return effects + self._settle(now)

    def _ghost_lost(self, ghost: _Held, why: str, now: float) -> list[Effect]:
        ghost.lost = True
        if self.phase is Phase.RESERVING:
            return self._roll_back(why, now)
        if self.phase is Phase.HELD:
            # The others' members may be running: the gang is made whole, not ended.
            return [*self._export(), self._make_ghost(ghost.bundle)]
        return []

    # -- members' resources --------------------------------------------------------------------------------------

    def _export(self) -> list[Effect]:
        """Every node is to have one unit per bound ghost on it if the gang holds its room, else none."""
        wanted: Counter[Place] = Counter()
        if self.phase is Phase.HELD:
            for ghost in self._ghosts.values():
                if ghost.node is not None and not ghost.lost:
                    wanted[ghost.node, self.spec.key(ghost.bundle)] += 1
        effects: list[Effect] = []
        for place in dict.fromkeys([*self._exported, *wanted]):
            if (units := wanted[place]) != self._exported[place]:
                self._unconfirmed[place] = units
                effects.append(SetCapacity(*place, units) if units else RemoveCapacity(*place))
        self._exported = wanted
        return effects

    # -- members -------------------------------------------------------------------------------------------------

    def _member_seen(self, pod: Pod, now: float) -> list[Effect]:
        wanted = [key for key in self._keys if key in pod.requests]
        if not wanted or pod.namespace != self.spec.gang.namespace:
            return []
        if pod.node is not None:
            for key in wanted:
                self._served[key].add(pod.uid)
        if pod.finished:
            self._members.pop(pod.uid, None)
        else:
            self._members[pod.uid] = pod
        return self._members_changed(now)

    def _members_changed(self, now: float) -> list[Effect]:
        if self.phase is Phase.HELD:
            if self._members:
                self.deadline = None
            elif all(len(self._served[key]) >= places for key, places in self._places.items()):
                # Members can be faster than the news that the last resource is on its node.
                return [*self._report_reserved(), *self._begin_end(News.ENDED, "all members have ended")]
            elif self.deadline is None:
                self.deadline = now + self._times.idle
        return self._settle(now)

    # -- ends ----------------------------------------------------------------------------------------------------

    def _time_passed(self, now: float) -> list[Effect]:
        if self.deadline is None or now < self.deadline:
            return []
        if self.phase is Phase.RESERVING:
            bound = sum(ghost.node is not None for ghost in self._ghosts.values())
            return self._roll_back(f"{bound} of {self.spec.size} ghosts were bound in time", now)
        if self.phase is Phase.HELD:
            return self._begin_end(News.FAILED, f"no member lived for {self._times.idle:g} s")
        return []

    def _refused(self, effect: Effect, why: str, now: float) -> list[Effect]:
        match effect:
            case CreateGhost(ghost):
                # A quota, perhaps: it is not for ever.
                lost = self._ghosts.pop(ghost.name, None)
                return [] if lost is None else [*self._ghost_lost(lost, why, now), *self._settle(now)]
            case DeleteGhost(_, name, _):
                # Nothing more can be done about it, other than to say so.
                self._end, self._why = News.FAILED, f"ghost {name} is left behind: {why}"
                self._ghosts.pop(name, None)
                return self._settle(now)
            case SetCapacity(node, resource, _) | RemoveCapacity(node, resource):
                if self._unconfirmed.get((node, resource)) == (effect.units if isinstance(effect, SetCapacity) else 0):
                    del self._unconfirmed[node, resource]
                elif self.phase is not Phase.HELD:
                    # Told twice: what is waited for by now is something else.
                    return []
                if self.phase is Phase.HELD:
                    return self._begin_end(News.FAILED, why)
                self._end, self._why = News.FAILED, f"{resource} may be left behind on {node}: {why}"
                return self._settle(now)
            case _:
                return []

    def _roll_back(self, why: str, now: float) -> list[Effect]:
        self.phase, self.deadline, self._why = Phase.ROLLING_BACK, None, why
        effects = [self._delete(name) for name, ghost in self._ghosts.items() if not ghost.lost]
        return [*effects, *self._settle(now)]

    def _begin_end(self, news: News, why: str) -> list[Effect]:
        self.phase, self.deadline, self._end, self._why = Phase.ENDING, None, news, why
        return [*self._export(), *self._settle_end()]

    def _settle(self, now: float) -> list[Effect]:
        """What is due because nothing of it is outstanding any more."""
        if self.phase is Phase.HELD and not self._unconfirmed:
            return self._report_reserved()
        if self.phase is Phase.ROLLING_BACK and not self._ghosts:
            if self.attempt == self._times.attempts:
                return self._begin_end(News.FAILED, self._why)
            self.phase, self.deadline = Phase.BACKING_OFF, now + self._pause()
            return [Report(self.spec.gang, News.ROLLED_BACK, self._why)]
        return self._settle_end() if self.phase is Phase.ENDING else []

    def _report_reserved(self) -> list[Effect]:
        first, self._reported = not self._reported, True
        return [Report(self.spec.gang, News.RESERVED)] if first else []

    def _settle_end(self) -> list[Effect]:
        if self._unconfirmed:
            return []
        in_use: Counter[Place] = Counter()
        for pod in self._members.values():
            if pod.node is not None:
                in_use.update((pod.node, key) for key in self._keys if key in pod.requests)
        effects: list[Effect] = []
        for name, ghost in self._ghosts.items():
            if ghost.lost:
                continue
            place = (ghost.node, self.spec.key(ghost.bundle)) if ghost.node is not None else None
            if place is not None and in_use[place] > 0:
                in_use[place] -= 1
            else:
                effects.append(self._delete(name))
        if not self._ghosts:
            self.phase = Phase.ENDED
            effects.append(Report(self.spec.gang, self._end, self._why))
        return effects

    def _pause(self) -> float:
        """Exponential, times 0.5 to 1.5, the same for the same seed: two that collided come back apart."""
        longest = doubled(self._times.first_pause, self.attempt - 1, self._times.longest_pause)
        chance = int.from_bytes(_digest(self._seed, f"{self.spec.gang}#{self.attempt}"), "big") / 2**64
        return longest * (0.5 + chance)


def _digest(seed: int, text: str) -> bytes:
    return hashlib.blake2b(f"{seed}/{text}".encode(), digest_size=8).digest()
