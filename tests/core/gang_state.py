"""What of a world of gangs decides how it goes on, and nothing else, so that equal worlds are known for equal.

Moments are told from now; numbers that only grow, and the names of slots, are left out. Fields of `Gang` are taken as
they come: one that is added later decides something until it is said otherwise here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from extender.core.cluster import Pod
from extender.core.gangs.cycle.expected_members import ExpectedMembers
from extender.core.gangs.queue.elastic_members import ElasticMembers
from extender.core.gangs.queue.queue import Queue
from extender.core.gangs.state.gang import Gang
from extender.core.ledger.holdings import HoldingKind
from extender.core.names import GangKey
from extender.kube.names import CPU, NodeName, PodUid
from tests.builders import NOW

if TYPE_CHECKING:
    from tests.core.gang_orders import Rivals

_BLANK = Gang(GangKey("", ""), 0, 0.0, 0.0)
_OF_ITSELF = ("key", "phase", "standing")
_RECORDS = [name for name in Gang.__slots__ if name not in _OF_ITSELF]
_FIELDS = [f"{record}.{name}" for record in _RECORDS for name in getattr(_BLANK, record).__slots__]
_OF_PODS = [name for name in _FIELDS if isinstance(attrgetter(name)(_BLANK), (set, dict))]
_of_pods = attrgetter(*_OF_PODS)
_SPECIAL = {"wait.bypasses", "plan.timed_out", "wait.tried_at", "wait.tried_on"}
_SILENT = {"roster.changes", "roster.asked", "plan.slots_made", "wait.shortfall", "barrier.trial"}
_of_gangs = attrgetter(*_OF_ITSELF, *(name for name in _FIELDS if name not in {*_OF_PODS, *_SPECIAL, *_SILENT}))

LONG_AGO = 100.0
"""What is as many seconds ago could be longer ago: nobody asks."""


def state_of(world: Rivals) -> Hashable:
    """Where members are alike, it makes no difference either which of a gang's is which."""
    scheduler, now = world.scheduler, world.clock.time
    gangs, waiting = scheduler.cache.gangs, scheduler.cache.gangs.waiting
    assert not waiting.to_requeue
    news: dict[PodUid, tuple[Hashable, ...]] = {}
    for each in world.events:
        news[about(each)] = (*news.get(about(each), ()), _looks(each) if isinstance(each, Pod) else "gone")
    living = sorted(gangs.by_key.values(), key=lambda gang: gang.turn)
    order: dict[str, int] = {}
    vacant: list[Hashable] = []
    for gang in living:
        for number, held in enumerate(scheduler.cache.ledger.held_for(gang.key)):
            if PodUid(held.holder) not in world.cast:
                units = held.units.get(CPU, 0)
                vacant.append((gang.key, number, held.node, held.kind, units, _ahead(held.until, now)))
            elif held.kind is HoldingKind.RESERVATION:
                order[held.holder] = number
    pods = [hash((*_outside(world, uid), news.get(uid), *_inside(world, uid), order.get(uid))) for uid in world.cast]
    return (
        tuple(sorted(pods) if world.alike else pods),
        tuple(tuple(_about_gang(world, gang)) for gang in living),
        tuple(vacant),
        tuple((key, _ahead(since, now)) for key, since in waiting.unasked.items()),
        tuple(_surplus(waiting.surplus, now)),
        _of_savings(waiting.queue, now),
        _of_promises(gangs.planning.promises, now),
        frozenset(world.ran),
        frozenset((+world.left).items()),
    )


def _of_savings(turns: Queue, now: float) -> Hashable:
    """What is counted of what is saved, while anything is."""
    savings = turns.saved.savings
    since = None if turns.saved.gang is None else _ahead(savings._progressed_at, now)
    return (
        since,
        savings._best if turns.saved.gang else None,
        savings._over,
        savings.resting,
        savings.seconds_over_at(now),
    )


def _of_promises(promises: ExpectedMembers, now: float) -> Hashable:
    """Plans with members missing, and for how long there is none."""
    opened = [each for plans in promises._open.values() for each in plans.items()]
    plans = ((key, _ahead(plan.since, now), plan.held, plan.gang.phase) for key, plan in opened)
    pauses = ((name, pause.times, _ahead(pause.until, now)) for name, pause in promises._pauses.items())
    return (tuple(plans), tuple(pauses))


def _surplus(surplus: ElasticMembers, now: float) -> Iterator[Hashable]:
    for key, asleep in surplus._asleep.items():
        gang = surplus._table.by_key.get(key)
        made = gang is not None and gang.plan.slots_made != asleep.slots_seen
        yield (key, frozenset(asleep.kinds), made, frozenset(asleep.told_of.items()))
    for uid, awake in surplus._awake.items():
        yield (uid, awake.node, _ahead(awake.until, now))


def about(news: Pod | PodUid) -> PodUid:
    """Whom the watch tells of."""
    return news.uid if isinstance(news, Pod) else news


def _outside(world: Rivals, uid: PodUid) -> tuple[Hashable, ...]:
    """The pod as API server and kube-scheduler have it."""
    return (
        world.cast[uid],
        _looks(world.pods.get(uid)),
        world.assumed.get(uid),
        world.opened.get(uid),
        uid in world.asleep,
        uid in world.evicted,
        uid in world.at_barrier,
        uid in world.placed - world.doomed,
        uid in world.ever_placed - world.doomed and world.cast[uid] not in world.ran,
        uid in world.missed and (world.left["recreate"] > 0 or world.left["late"] > 0),
    )


def _inside(world: Rivals, uid: PodUid) -> Iterator[Hashable]:
    """The pod as the `Scheduler` has it."""
    scheduler = world.scheduler
    held, gang = scheduler.cache.ledger.holding(uid), scheduler.cache.gangs.of(uid)
    yield _looks(scheduler.cache.pods.get(uid))
    yield (uid in scheduler.cache.ended, uid in scheduler._unschedulable)
    yield held and (held.node, held.kind, held.owner, bool(held.units), _ahead(held.until, world.clock.time))
    for among in _of_pods(gang) if gang is not None else ():
        mine = among.get(uid) if isinstance(among, dict) else uid in among
        yield _looks(mine) if isinstance(mine, Pod) else mine
    if gang is not None:
        trial, pod = gang.barrier.trial, gang.roster.members[uid]
        yield trial is not None and (uid in trial.members, uid in trial.refused)
        if pod.attempt is not None:
            latest = trial is not None and pod.attempt.id == trial.id
            named = sum(other in gang.roster.members for other in pod.attempt.others)
            yield (latest, pod.attempt.needed, pod.attempt.size, pod.attempt.joins, named)


def _about_gang(world: Rivals, gang: Gang) -> Iterator[Hashable]:
    gangs, now = world.scheduler.cache.gangs, world.clock.time
    for value in _of_gangs(gang):
        yield _ahead(value, now) if isinstance(value, float) else value
    yield (min(gang.wait.bypasses, world.patience.bypasses), min(gang.plan.timed_out, 8))
    yield _ahead(gangs.quorums.in_part.get(gang.key), now)
    yield _ahead(gangs.quorums.in_doubt.get(gang.key), now)
    trial = gang.barrier.trial
    yield None if trial is None else (trial.needed, len(trial.members), len(trial.refused))
    tried = gang.wait.tried_at == (gangs.ledger.changes.gain_count, gang.roster.changes)
    yield (tried, tried and gang.wait.tried_on)
    turns = gangs.waiting.queue
    yield (gang in turns, gang is turns.saved.gang)


def _looks(pod: Pod | None) -> tuple[NodeName | None, bool, bool, bool, bool] | None:
    return None if pod is None else (pod.node, pod.deleting, pod.finished, pod.at_our_gate, pod.attempt is not None)


def _ahead(when: float | None, now: float) -> float | None:
    """Seconds from now, if it is a moment; a duration is what it is."""
    return when if when is None or when < NOW else max(when - now, -LONG_AGO)
