"""One gang in pure extended resources: once all ghosts are bound, its members' resources appear.

                  turn            all ghosts bound            members ended, cancelled
      QUEUED -------------> RESERVING -----------------> HELD -------------------------> ENDING --> ENDED
                            ^      |                       |  ^                            ^
            pause is over,  |      | time-out, a ghost     +--+ a ghost is lost:           |
            and a turn      |      v is lost or refused         another takes its place    |
                   BACKING_OFF <-- ROLLING_BACK -------------------------------------------+
                          all ghosts gone            cancelled (from any phase), or no attempt is left

Nothing is exported before HELD, so no member can be bound before all can be. In ENDING the resources are removed first
and the ghosts after them, so no member is let in on room that is no longer held. The ghost of a running member stays
until the member ends. Members are recognised by what they ask for, ghosts by the names that the gang chose.

In HELD a lost ghost is replaced at once. If the replacement is lost, refused or not bound in time, the next follows
after a pause, up to the number of attempts. A resource that vanishes from its node is written again. A member whose
room stays lost is evicted, also in ENDING. That covers a member that kube-scheduler was binding when its resource was
removed. What a crashed application left behind is a gang that begins in ENDING (`departed`). `gang_turns` decides which
gang has its turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from extender.core.cluster import Pod
from extender.esl.base import (
    CapacityConfirmed,
    CapacitySeen,
    CreateGhost,
    DeleteGhost,
    Effect,
    EffectRefused,
    Event,
    EvictMember,
    Ghost,
    News,
    PodGone,
    PodSeen,
    RemoveCapacity,
    Report,
    SetCapacity,
)
from extender.esl.gangs.departed import Leftover
from extender.esl.gangs.gang_keys import NodeKeys
from extender.esl.gangs.gang_members import Members, Place
from extender.esl.gangs.gang_spec import GangSpec
from extender.esl.gangs.gang_state import GhostPhase, Held
from extender.esl.gangs.gang_times import USUAL_TIMES, Times, digest
from extender.esl.gangs.unreserved_members import Uncovered
from extender.kube.names import ResourceKey

__all__ = ["USUAL_TIMES", "Gang", "GhostPhase", "Times"]


class Gang:
    """One gang's life. Every method returns the resulting effects, in order."""

    def __init__(self, spec: GangSpec, times: Times, seed: int, asked_at: float) -> None:
        self.spec = spec
        self.asked_at = asked_at
        self.phase = GhostPhase.QUEUED
        self.attempt = 0
        self.deadline: float | None = None
        """When the phase times out; in QUEUED and BACKING_OFF: from when the gang wants a turn."""
        self._times = times
        self._seed = seed
        self._places = Counter(spec.key(bundle) for bundle in range(spec.size))
        # The token separates applications whose gangs have one name; the numbers separate the ghosts of one gang.
        self._token = spec.run or digest(seed, str(spec.gang)).hex()[:6]
        self._ghosts: dict[str, Held] = {}
        self._made = 0
        self._node_keys = NodeKeys(times)
        self._members = Members(spec.gang.namespace, self._places)
        self._losses: Counter[int] = Counter()
        """How often in a row each bundle's ghost was lost or refused in HELD."""
        self._owed: dict[int, float] = {}
        """When the ghosts of these bundles are to be created again."""
        self._left: Counter[Place] = Counter()
        """Where resources could not be removed, so that their ghosts stay as well."""
        self._uncovered = Uncovered(self._members, times.without_room)
        self._reported = False
        self._why = ""
        self._end = News.ENDED

    @property
    def keys(self) -> Iterator[ResourceKey]:
        """The resources by which its members are recognised."""
        return iter(self._places)

    @property
    def turn(self) -> tuple[int, float, str]:
        """Sort key of waiting gangs: priority, then age."""
        return (-self.spec.priority, self.asked_at, str(self.spec.gang))

    @property
    def waits(self) -> bool:
        return self.phase in (GhostPhase.QUEUED, GhostPhase.BACKING_OFF)

    def wants_a_turn(self, now: float) -> bool:
        return self.waits and (self.deadline is None or self.deadline <= now)

    @property
    def has_its_turn(self) -> bool:
        """Whether some of its ghosts may be bound and others not."""
        return self.phase in (GhostPhase.RESERVING, GhostPhase.ROLLING_BACK)

    @property
    def settled(self) -> bool:
        """Whether it is over, and only its members use what is left."""
        left_to_them = self._node_keys.confirmed and not any(ghost.lost for ghost in self._ghosts.values())
        return self.phase is GhostPhase.ENDED or (self.phase is GhostPhase.ENDING and left_to_them)

    @property
    def due(self) -> float | None:
        """When it is to receive TimePassed."""
        until = (ghost.until for ghost in self._ghosts.values() if ghost.until is not None and not ghost.lost)
        later = [*self._owed.values(), *self._node_keys.due, *self._uncovered.due, *until]
        return min([*later, *([] if self.deadline is None else [self.deadline])], default=None)

    # -- events --------------------------------------------------------------------------------------------------

    def reserve(self, now: float) -> list[Effect]:
        """The gang has its turn: one ghost per bundle is to be created."""
        self.phase, self.attempt = GhostPhase.RESERVING, self.attempt + 1
        self.deadline = now + self._times.reserve_within
        return [self._make_ghost(bundle) for bundle in range(self.spec.size)]

    def hurry(self) -> None:
        """Something has become free: the gang does not wait for the end of its pause."""
        if self.phase is GhostPhase.BACKING_OFF:
            self.deadline = None

    def cancel(self, why: str = "cancelled", news: News = News.ENDED) -> list[Effect]:
        """The gang ends: what no member uses goes now, the rest when those members end."""
        if self.phase in (GhostPhase.ENDING, GhostPhase.ENDED):
            return []
        return self._begin_end(news, why)

    def inherit(self, left: Leftover, now: float) -> list[Effect]:
        """The gang takes over what a dead application's run left behind, and ends."""
        known = (*(key for _, key in left.ghosts), *(key for _, key in left.places), *(key for _, key in left.members))
        self._places = Counter(dict.fromkeys(known, 1))
        self._members = Members(self.spec.gang.namespace, self._places)
        self._uncovered = Uncovered(self._members, self._times.without_room)
        for pod, _ in left.members:
            self._members.see(pod)
        for ghost, key in left.ghosts:
            gone = ghost.finished or ghost.deleting
            self._ghosts[ghost.name] = Held(key, 0, None if gone else ghost.node, bound_at=now)
        self._node_keys = NodeKeys(self._times, left.places)
        self.phase = GhostPhase.ENDING
        return [*self._look_for_uncovered(now), *self._begin_end(News.ENDED, "left behind by an earlier run")]

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case PodSeen(pod):
                ghost = self._ghosts.get(pod.name)
                if ghost is not None:
                    return [*self._ghost_seen(ghost, pod, now), *self._look_for_uncovered(now)]
                return self._members_changed(now) if self._members.see(pod) else []
            case PodGone(_, name):
                if name in self._ghosts:
                    return self._ghost_gone(name, now)
                self._members.gone(name)
                return self._members_changed(now)
            case CapacityConfirmed(node, resource, units):
                return [*self._node_keys.confirm((node, resource), units, now), *self._settle(now)]
            case CapacitySeen(node, resource, units):
                return self._node_keys.see((node, resource), units, now)
            case EffectRefused(effect, why):
                return self._refused(effect, why, now)
            case _:
                return self._time_passed(now)

    # -- ghosts --------------------------------------------------------------------------------------------------

    def _make_ghost(self, bundle: int, until: float | None = None) -> Effect:
        self._made += 1
        spec = self.spec
        name = f"{spec.gang.name}-ghost-{self._token}-{self.attempt}-{self._made}"
        key = spec.key(bundle)
        self._ghosts[name] = Held(key, bundle, until=until)
        more = (spec.bundles[bundle], spec.placement, spec.scheduler, key, spec.run)
        return CreateGhost(Ghost(spec.gang.namespace, name, spec.gang.name, *more))

    def _delete(self, name: str) -> Effect:
        self._ghosts[name].lost = True
        return DeleteGhost(self.spec.gang.namespace, name, self.spec.gang.name)

    def _ghost_seen(self, ghost: Held, pod: Pod, now: float) -> list[Effect]:
        if ghost.lost:
            return []
        if pod.finished or pod.deleting:
            # A kubelet could not admit it, or it was evicted: it holds nothing, or soon will not.
            by = "was preempted" if pod.preempted else "was ended by another component"
            return [self._delete(pod.name), *self._ghost_lost(ghost, f"ghost {pod.name} {by}", now)]
        if pod.node is None or ghost.node is not None:
            return []
        ghost.node, ghost.bound_at, ghost.until = pod.node, now, None
        living = [each for each in self._ghosts.values() if not each.lost]
        if self.phase is GhostPhase.RESERVING and all(each.node is not None for each in living):
            self.phase, self.deadline = GhostPhase.HELD, now + self._times.idle
            return [*self._export(), *self._members_changed(now)]
        return self._export() if self.phase is GhostPhase.HELD else []

    def _ghost_gone(self, name: str, now: float) -> list[Effect]:
        ghost = self._ghosts.pop(name)
        effects = [] if ghost.lost else self._ghost_lost(ghost, f"ghost {name} was deleted by another client", now)
        return [*effects, *self._look_for_uncovered(now), *self._settle(now)]

    def _ghost_lost(self, ghost: Held, why: str, now: float) -> list[Effect]:
        ghost.lost = True
        if self.phase is GhostPhase.RESERVING:
            return self._roll_back(why, now)
        if self.phase is GhostPhase.HELD:
            # Other members may be running: the gang is completed again, not ended.
            return [*self._export(), *self._replace(ghost, why, now)]
        return []

    def _replace(self, lost: Held, why: str, now: float) -> list[Effect]:
        bundle = lost.bundle
        if lost.node is not None and now - lost.bound_at >= self._times.longest_pause:
            self._losses[bundle] = 0
        losses = self._losses[bundle]
        self._losses[bundle] += 1
        if losses == self._times.attempts:
            return self._begin_end(News.FAILED, f"{why}; it was replaced {losses} times without effect")
        if losses == 0:
            return [self._tell(f"{why}; a new ghost replaces it"), self._make_ghost(bundle, self._in_time(now))]
        pause = self._times.pause(losses - 1, self._seed, f"{self._token}#{bundle}#{losses}")
        self._owed[bundle] = now + pause
        return [self._tell(f"{why}; a new ghost follows in {pause:.1f} s")]

    def _in_time(self, now: float) -> float:
        return now + self._times.reserve_within

    # -- members' resources --------------------------------------------------------------------------------------

    def _held_now(self) -> Counter[Place]:
        """How many units of room are held at each place."""
        held = ((ghost.node, ghost.key) for ghost in self._ghosts.values() if ghost.node is not None and not ghost.lost)
        return self._left + Counter(held)

    def _export(self) -> list[Effect]:
        """Every node is to have one unit per bound ghost if the gang holds its room, else none.

        If room is lost before any member is bound, no node has units until all room is held again.
        """
        held = self._held_now()
        offered = self.phase is GhostPhase.HELD and (held.total() == self.spec.size or bool(self._members.in_use()))
        return self._node_keys.want(held if offered else {})

    # -- members -------------------------------------------------------------------------------------------------

    def _members_changed(self, now: float) -> list[Effect]:
        if self.phase is GhostPhase.HELD:
            if self._members:
                self.deadline = None
            elif self._members.all_done:
                # Members can be faster than the news that the last resource is on its node.
                return [*self._report_reserved(), *self._begin_end(News.ENDED, "all members have ended")]
            elif self.deadline is None:
                self.deadline = now + self._times.idle
        return [*self._look_for_uncovered(now), *self._settle(now)]

    def _look_for_uncovered(self, now: float) -> list[Effect]:
        """Starts the grace time of members that run on room which no ghost holds."""
        lost = self.phase is GhostPhase.HELD and self._losses
        if not lost and self.phase is not GhostPhase.ENDING:
            return []
        new = self._uncovered.look(self._held_now(), now)
        return [self._tell(f"{pod.name} runs on capacity that no ghost holds") for pod in new]

    # -- ends ----------------------------------------------------------------------------------------------------

    def _time_passed(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for pod in self._uncovered.overdue(self._held_now(), now):
            effects.append(self._tell(f"{pod.name} is evicted: its capacity was taken"))
            effects.append(EvictMember(pod.namespace, pod.name, pod.uid))
        effects += self._node_keys.amend(now)
        if self.phase is GhostPhase.HELD:
            effects += self._make_good(now)
        if self.deadline is None or now < self.deadline:
            return effects + self._settle(now) if effects else []
        if self.phase is GhostPhase.RESERVING:
            bound = sum(ghost.node is not None for ghost in self._ghosts.values())
            return effects + self._roll_back(f"{bound} of {self.spec.size} ghosts were bound in time", now)
        if self.phase is GhostPhase.HELD:
            failed = f", and {self._members.failed} have failed" if self._members.failed else ""
            return effects + self._begin_end(News.FAILED, f"no member existed for {self._times.idle:g} s{failed}")
        return effects

    def _make_good(self, now: float) -> list[Effect]:
        """Creates replacements that are due, and gives up those not bound in time."""
        effects: list[Effect] = []
        for bundle in [bundle for bundle, due in self._owed.items() if due <= now]:
            del self._owed[bundle]
            effects.append(self._make_ghost(bundle, self._in_time(now)))
        late = [(n, g) for n, g in self._ghosts.items() if g.until is not None and g.until <= now and not g.lost]
        for name, ghost in late:
            if self.phase is GhostPhase.HELD:
                effects.append(self._delete(name))
                effects += self._ghost_lost(ghost, f"ghost {name} was not bound in time", now)
        return effects

    def _refused(self, effect: Effect, why: str, now: float) -> list[Effect]:
        match effect:
            case CreateGhost(ghost):
                # Possibly a quota, which is not permanent.
                lost = self._ghosts.pop(ghost.name, None)
                if lost is None:
                    return []
                told = [] if lost.lost else self._ghost_lost(lost, f"ghost {ghost.name} was refused: {why}", now)
                return [*told, *self._settle(now)]
            case DeleteGhost(_, name, _):
                # The gang can only report it.
                self._ghosts.pop(name, None)
                left = f"ghost {name} is left behind: {why}"
                if self.phase is GhostPhase.HELD:
                    return [self._tell(left)]
                if self.phase is GhostPhase.ROLLING_BACK:
                    # Each further attempt would leave more behind.
                    return self._begin_end(News.FAILED, left)
                self._end, self._why = News.FAILED, left
                return self._settle(now)
            case SetCapacity(node, resource, _) | RemoveCapacity(node, resource):
                return self._capacity_refused(effect, (node, resource), why, now)
            case EvictMember(_, name, _):
                return [self._tell(f"{name} still runs without held capacity: {why}")]
            case _:
                return []

    def _capacity_refused(
        self, effect: SetCapacity | RemoveCapacity, place: Place, why: str, now: float
    ) -> list[Effect]:
        if not self._node_keys.refuse(effect) and self.phase is not GhostPhase.HELD:
            # Reported twice: the awaited write is another by now.
            return []
        if self.phase is GhostPhase.HELD:
            return self._begin_end(News.FAILED, why)
        node, resource = place
        self._end, self._why = News.FAILED, f"{resource} and its ghost may be left behind on {node}: {why}"
        # A member that uses what stays there must find the room held.
        for name in [name for name, ghost in self._ghosts.items() if (ghost.node, ghost.key) == place]:
            del self._ghosts[name]
            self._left[place] += 1
        return self._settle(now)

    def _roll_back(self, why: str, now: float) -> list[Effect]:
        self.phase, self.deadline, self._why = GhostPhase.ROLLING_BACK, None, why
        effects = [self._delete(name) for name, ghost in self._ghosts.items() if not ghost.lost]
        return [*effects, *self._settle(now)]

    def _begin_end(self, news: News, why: str) -> list[Effect]:
        self.phase, self.deadline, self._end, self._why = GhostPhase.ENDING, None, news, why
        self._owed.clear()
        for ghost in self._ghosts.values():
            ghost.until = None
        return [*self._export(), *self._settle_end()]

    def _settle(self, now: float) -> list[Effect]:
        """The effects that are due once nothing is outstanding."""
        if self.phase is GhostPhase.HELD and self._node_keys.confirmed:
            return self._report_reserved()
        if self.phase is GhostPhase.ROLLING_BACK and not self._ghosts:
            if self.attempt == self._times.attempts:
                return self._begin_end(News.FAILED, f"{self._why} (attempt {self.attempt}, the last)")
            self.phase = GhostPhase.BACKING_OFF
            self.deadline = now + self._times.pause(self.attempt - 1, self._seed, f"{self.spec.gang}#{self.attempt}")
            return [Report(self.spec.gang, News.ROLLED_BACK, self._why, self.spec.run)]
        return self._settle_end() if self.phase is GhostPhase.ENDING else []

    def _report_reserved(self) -> list[Effect]:
        first, self._reported = not self._reported, True
        return [Report(self.spec.gang, News.RESERVED, run=self.spec.run)] if first else []

    def _tell(self, what: str) -> Report:
        return Report(self.spec.gang, News.INCOMPLETE, what, self.spec.run)

    def _settle_end(self) -> list[Effect]:
        if not self._node_keys.confirmed:
            return []
        in_use = self._members.in_use()
        effects: list[Effect] = []
        for name, ghost in self._ghosts.items():
            if ghost.lost:
                continue
            place = (ghost.node, ghost.key) if ghost.node is not None else None
            if place is not None and in_use[place] > 0:
                in_use[place] -= 1
            else:
                effects.append(self._delete(name))
        if not self._ghosts and not self._uncovered:
            self.phase = GhostPhase.ENDED
            effects.append(Report(self.spec.gang, self._end, self._why, self.spec.run))
        return effects
