"""The gang ESL: any number of gangs, and which of them has its turn to reserve.

AppSpace: each application runs its own ESL and knows no other. A gang always has its turn; time-out and back-off free
two gangs that hold half each. LibSpace: all applications share one ESL. One gang at a time has its ghosts half bound,
by priority, then age. A gang without success steps back. It retries once any gang has ended, or after its pause. The
gangs themselves (`gang_life`) are the same in both.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from extender.core.names import GangKey
from extender.esl.base import (
    CapacityConfirmed,
    CapacitySeen,
    CreateGhost,
    DeleteGhost,
    Effect,
    EffectRefused,
    Event,
    EvictMember,
    News,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    RemoveCapacity,
    SetCapacity,
)
from extender.esl.gangs.departed import Leftover
from extender.esl.gangs.gang_life import USUAL_TIMES, Gang, GhostPhase, Times
from extender.esl.gangs.gang_spec import GangSpec
from extender.kube.names import ResourceKey


class Space(Enum):
    APP = "AppSpace"
    LIB = "LibSpace"


class GangEsl:
    """Implements `base.Esl`; gangs are added with `start`."""

    def __init__(self, space: Space, *, seed: int, times: Times = USUAL_TIMES) -> None:
        """`seed`: gives each application other pauses, the same when repeated."""
        self._space = space
        self._seed = seed
        self._times = times
        self._gangs: dict[GangKey, Gang] = {}
        self._left: dict[tuple[GangKey, str], Gang] = {}
        """What other instances' runs have left behind, by gang and token."""
        self._by_key: dict[ResourceKey, Gang] = {}
        self._by_ghost: dict[tuple[str, str], Gang] = {}
        self._by_member: dict[tuple[str, str], Gang] = {}

    def phase(self, gang: GangKey) -> GhostPhase:
        """The gang's phase; ENDED if it is not known, or no longer."""
        found = self._gangs.get(gang)
        return GhostPhase.ENDED if found is None else found.phase

    def settled(self, gang: GangKey) -> bool:
        """Whether nothing of the gang is left other than what its members still use."""
        found = self._gangs.get(gang)
        return found is None or found.settled

    def start(self, spec: GangSpec, now: float) -> list[Effect]:
        """The gang is wanted. Raises ValueError while another of that name has not ended."""
        if spec.gang in self._gangs:
            raise ValueError(f"gang {spec.gang} has not ended yet; give this one another name")
        gang = self._gangs[spec.gang] = Gang(spec, self._times, self._seed, now)
        self._by_key.update(dict.fromkeys(gang.keys, gang))
        return self._give_turns(now)

    def cancel(self, gang: GangKey, now: float, why: str = "cancelled", news: News = News.ENDED) -> list[Effect]:
        """The gang is not wanted any more; `news` is reported when nothing of it is left."""
        found = self._gangs.get(gang)
        return [] if found is None else self._after(found, found.cancel(why, news), now)

    def inherit(self, left: Leftover, now: float) -> list[Effect]:
        """Removes what a dead instance's run left; what members use goes with them. Idempotent."""
        if (left.gang, left.run) in self._left:
            return []
        gang = Gang(GangSpec(left.gang, (), run=left.run), self._times, self._seed, now)
        self._left[left.gang, left.run] = gang
        effects = gang.inherit(left, now)
        self._by_key.update(dict.fromkeys(gang.keys, gang))
        self._by_ghost.update({(ghost.namespace, ghost.name): gang for ghost, _ in left.ghosts})
        self._by_member.update({(pod.namespace, pod.name): gang for pod, _ in left.members})
        return self._after(gang, effects, now)

    @property
    def inherited(self) -> frozenset[str]:
        """The tokens of other instances' runs that have left something."""
        return frozenset(run for _, run in self._left)

    @property
    def unsettled(self) -> frozenset[str]:
        """The tokens of inherited runs that have left more than their members use."""
        return frozenset(run for (_, run), gang in self._left.items() if not gang.settled)

    def handle(self, event: Event, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for gang in self._concerned(event):
            effects += self._after(gang, gang.handle(event, now), now, turns=False)
        return effects + self._give_turns(now)

    def next_deadline(self) -> float | None:
        busy = self._one_has_its_turn()
        due = (gang.due for gang in self._everything() if not (busy and gang.waits))
        return min((each for each in due if each is not None), default=None)

    def _everything(self) -> list[Gang]:
        return [*self._gangs.values(), *self._left.values()]

    def _concerned(self, event: Event) -> list[Gang]:
        found: Gang | None
        match event:
            case PodSeen(pod):
                found = self._by_ghost.get((pod.namespace, pod.name))
                if found is None:
                    found = next((self._by_key[key] for key in pod.requests if key in self._by_key), None)
                    if found is not None:
                        self._by_member[pod.namespace, pod.name] = found
            case PodGone(namespace, name):
                found = self._by_ghost.pop((namespace, name), None) or self._by_member.pop((namespace, name), None)
            case CapacityConfirmed(_, resource, _) | CapacitySeen(_, resource, _):
                found = self._by_key.get(resource)
            case EffectRefused(SetCapacity(_, resource, _) | RemoveCapacity(_, resource)):
                found = self._by_key.get(resource)
            case EffectRefused(CreateGhost(ghost)):
                found = self._by_ghost.get((ghost.namespace, ghost.name))
            case EffectRefused(DeleteGhost(namespace, name)):
                found = self._by_ghost.get((namespace, name))
            case EffectRefused(EvictMember(namespace, name, _)):
                found = self._by_member.get((namespace, name))
            case EffectRefused() | NodeSeen() | NodeGone():
                found = None
            case _:
                return self._everything()
        return [] if found is None else [found]

    def _after(self, gang: Gang, effects: list[Effect], now: float, *, turns: bool = True) -> list[Effect]:
        """Updates the indexes for the gang's phase; then other gangs may have their turn."""
        for effect in effects:
            if isinstance(effect, CreateGhost):
                self._by_ghost[effect.ghost.namespace, effect.ghost.name] = gang
        if gang.phase is GhostPhase.ENDED:
            if self._gangs.get(gang.spec.gang) is gang:
                del self._gangs[gang.spec.gang]
            else:
                del self._left[gang.spec.gang, gang.spec.run]
            for index in (self._by_key, self._by_ghost, self._by_member):
                _remove(index, gang)
            if self._space is Space.LIB:
                for other in self._gangs.values():
                    other.hurry()
        return effects + (self._give_turns(now) if turns else [])

    def _give_turns(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for gang in sorted((g for g in self._gangs.values() if g.wants_a_turn(now)), key=lambda gang: gang.turn):
            if self._one_has_its_turn():
                break
            effects += self._after(gang, gang.reserve(now), now, turns=False)
        return effects

    def _one_has_its_turn(self) -> bool:
        return self._space is Space.LIB and any(gang.has_its_turn for gang in self._gangs.values())


def _remove(index: dict[Any, Gang], gang: Gang) -> None:
    for key in [key for key, value in index.items() if value is gang]:
        del index[key]
