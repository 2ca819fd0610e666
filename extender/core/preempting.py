"""Preempting: when others are made to leave for a gang, who of them, how often; and what became of it.

Others leave only where the gang then has room for its whole quorum, as far as a plan can tell: never for a gang that
asks for what a plan does not look at. These stay whatever their priority is: pods of DaemonSets and static pods, which
come again at once; pods of schedulers that are not ours, but where that is allowed; whoever a disruption budget
protects, counted over all that leave together; and, for a while that doubles, all pods of a maker (a controller, or a
gang by its name) one of whose new pods took the room that an earlier one had left.

A preemption is *ordered* here and carried out elsewhere, one at a time. It is over when the gang is bound; it was in
vain when the gang's plan then ran out. After that there is none for this gang until something has changed (its
members, the nodes, whose pods could leave) and a while, which doubles, has passed. Bounds per gang and hour hold
whatever happens. They are kept by the gang's name, for an hour beyond its end: to come again under the same name is no
new start.

Knows gangs, budgets and the search (`preemption`). Must not know how a pod is evicted, nor whose turn it is: `waiting`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from extender.core.back_off import doubled
from extender.core.brake import Act, Brake
from extender.core.budgets import Budgets
from extender.core.cluster import Pod
from extender.core.gang import EvictFor, Gang, GangEffect
from extender.core.gang_ask import GangAsk
from extender.core.gang_phases import Phase
from extender.core.ledger import Holder, Ledger
from extender.core.names import GangKey, NodeName, PodUid
from extender.core.orders import KeepRoomFor, LetRoomGo
from extender.core.places import Places
from extender.core.preemption import Choice, Unit, unit_of
from extender.core.restraint import (
    BRAKED,
    BUDGET,
    DAEMONS,
    DEFAULT_BOUNDS,
    MADE_AGAIN,
    OTHERS,
    REFUSED,
    BudgetsUnknown,
    Exhausted,
    InVain,
    NobodySuffices,
    Unfinished,
    UnknownAsks,
    WhyNot,
)

PREEMPTS_EVERY = 10.0
"""For how many seconds after a search there is no other, whatever has changed."""
FIRST_BACK_OFF, LONGEST_BACK_OFF = 60.0, 3600.0
"""Seconds, after what was in vain once, and after it was many times."""
HOUR = 3600.0
GOING_SECONDS = 600.0
"""Who has been leaving for longer is not counted on to be gone soon: a finalizer, a node that is lost."""
REFUSED_SECONDS = 300.0
"""For how long a unit that could not be evicted is not chosen again."""

_STAYS = frozenset({"DaemonSet", "Node"})
"""Kinds of owners whose pods come again on the same node: a kubelet's static pods are owned by their Node."""


_LEFT_ALONE = (Phase.BINDING, Phase.QUARANTINED)
"""Phases of gangs that are no victims."""


def unknown_asks(gang: Gang) -> tuple[str, ...]:
    """What members that wait require and a plan does not look at; each once."""
    return tuple(dict.fromkeys(ask for pod in gang.unplaced() for ask in pod.unknown_asks))


Maker = str | GangKey


@dataclass(frozen=True, slots=True)
class _Circumstances:
    """What a preemption depends on. Not who exactly could leave, but whose pods: those that left come again."""

    members: tuple[float, int]
    capacity: int
    makers: frozenset[Maker]

    def is_nothing_new(self, earlier: _Circumstances) -> bool:
        return (self.members, self.capacity) == (earlier.members, earlier.capacity) and self.makers <= earlier.makers


@dataclass(slots=True)
class _Order:
    """A preemption that is under way or waits for its gang to be bound."""

    nodes: frozenset[NodeName]
    began: float
    circumstances: _Circumstances | None
    evicting: bool = True
    told: bool = False
    """Whether kube-scheduler was told to keep room for the gang's members."""
    evicted: set[PodUid] = field(default_factory=set)
    struck: set[Maker] = field(default_factory=set)


@dataclass(slots=True)
class _History:
    orders: deque[tuple[float, int]] = field(default_factory=deque)
    """When, and how many pods were evicted."""
    vain: int = 0
    not_before: float = 0.0
    circumstances: _Circumstances | None = None
    """Of the last one that was in vain."""


@dataclass(slots=True)
class _Strikes:
    count: int
    until: float


@dataclass(frozen=True, slots=True)
class _Bound:
    """A pod that is bound and stays so far; what of it need not be worked out at each search."""

    pod: Pod
    makers: tuple[Maker, ...]
    alone: Unit
    protection: str


class Preempting:
    """`gangs`: the table of all; `effects` takes what should be done: both are of `gangs.Gangs`.

    `ours`: whether a pod's scheduler is ours. `budgets_known`: whether the disruption budgets have been listed.
    """

    def __init__(
        self, ledger: Ledger, places: Places, gangs: Mapping[GangKey, Gang], effects: list[GangEffect], brake: Brake
    ) -> None:
        self.budgets = Budgets()
        self.budgets_known = True
        self.bounds = DEFAULT_BOUNDS
        self.ours: Callable[[Pod], bool] = lambda pod: True
        self.unfinished: dict[GangKey, Unfinished] = {}
        """Gangs that were evicted in part, and could not be to the end."""
        self._ledger = ledger
        self._places = places
        self._gangs = gangs
        self._effects = effects
        self._brake = brake
        self._facts = 0
        self._orders: dict[GangKey, _Order] = {}
        self._history: dict[GangKey, _History] = {}
        self._strikes: dict[Maker, _Strikes] = {}
        self._refused: dict[PodUid, float] = {}
        self._made: dict[Maker, GangKey] = {}
        """Makers of pods that were evicted, and for whom."""
        self._bound: dict[PodUid, _Bound] = {}
        self._going: dict[PodUid, tuple[Pod, float]] = {}
        """Bound pods that are being deleted, and since when."""
        self._latest: _Circumstances | None = None
        self._searched: tuple[object, ...] | None = None
        self._why_not: tuple[GangKey, WhyNot] | None = None
        self._look_again = inf
        self._again_at: float | None = None

    # -- facts ---------------------------------------------------------------------------------------------------

    def heed(self, known: Pod | None, pod: Pod, now: float) -> None:
        """The pod is not finished; it was known like that, and looks like this."""
        if pod.node is None:
            if known is not None and known.nominated is not None and pod.nominated is None:
                self._keep_room(pod)
            return
        # Not as it was known: the keeper has it as bound already when we have written its Binding.
        is_new = pod.uid not in self._bound and pod.uid not in self._going
        if is_new or known is None or known.deleting != pod.deleting:
            self._facts += 1
        if pod.deleting:
            self._bound.pop(pod.uid, None)
            since = self._going[pod.uid][1] if pod.uid in self._going else now
            self._going[pod.uid] = (pod, since)
        else:
            makers = _makers(pod)
            self._bound[pod.uid] = _Bound(pod, makers, unit_of((pod,)), DAEMONS if _comes_again(pod) else "")
            if self._made and is_new:
                for maker in makers:
                    if maker in self._made:
                        self._heed_made_again(maker, pod, now)

    def _keep_room(self, pod: Pod) -> None:
        """kube-scheduler has dropped a nomination, as it does when a pod is turned away again."""
        node = self.nomination_of(pod)
        if node is not None and not pod.deleting:
            self._effects.append(KeepRoomFor(pod, node))

    def nomination_of(self, pod: Pod) -> NodeName | None:
        """The node that kube-scheduler is to keep room for the pod on."""
        gang = self._gangs.get(pod.gang.key) if isinstance(pod.gang, GangAsk) else None
        return None if gang is None else gang.nominated.get(pod.uid)

    def _protection(self, pod: Pod) -> str:
        """Why the pod stays, whoever asks; empty: it may leave."""
        return DAEMONS if _comes_again(pod) else "" if self.bounds.others or self.ours(pod) else OTHERS

    def _heed_made_again(self, maker: Maker, pod: Pod, now: float) -> None:
        order = self._orders.get(self._made[maker])
        if order is None or pod.uid in order.evicted or pod.node not in order.nodes or maker in order.struck:
            return
        order.struck.add(maker)
        count = self._strikes[maker].count + 1 if maker in self._strikes else 1
        self._strikes[maker] = _Strikes(count, now + _back_off(count))

    def forget(self, uid: PodUid) -> None:
        """The pod is gone, or has finished."""
        self._bound.pop(uid, None)
        self._going.pop(uid, None)
        self._refused.pop(uid, None)

    # -- whether, and who ----------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When `search` should be called again, if nothing else happens."""
        return self._again_at

    def search(self, gang: Gang | None, saved: Sequence[Holder], now: float) -> Choice | None:
        """Who is to leave for the gang, which is first in turn; nobody, where it has room once those are gone that
        leave anyway; None: there is no preemption now. `saved`: what it may use."""
        self._again_at = None
        if gang is None or not gang.preempts or self._is_evicting():
            return None
        seen = (gang.key, gang.first_seen, *self._seen_of(gang))
        if seen == self._searched:
            not_before = self._look_again
        else:
            history = self._history.get(gang.key)
            not_before = max(gang.preempts_after, history.not_before if history is not None else 0.0)
        if now < not_before:
            self._again_at = not_before if not_before < inf else None
            return None
        gang.preempts_after = now + PREEMPTS_EVERY
        found = self._search(gang, saved, now)
        self._searched, self._look_again = seen, self._time_helps_at(gang, found, now)
        self._why_not = None if isinstance(found, Choice) else (gang.key, found)
        self._again_at = self._look_again if self._look_again < inf else None
        return found if isinstance(found, Choice) else None

    def _time_helps_at(self, gang: Gang, found: Choice | WhyNot, now: float) -> float:
        """When the same search may find something else, though nothing has changed."""
        if isinstance(found, Exhausted):
            return self._history[gang.key].orders[0][0] + HOUR if self._history[gang.key].orders else inf
        if not isinstance(found, NobodySuffices):
            return inf
        ends = (*(each.until for each in self._strikes.values()), *self._refused.values())
        return min((max(until, now + PREEMPTS_EVERY) for until in ends if until > now), default=inf)

    def _seen_of(self, gang: Gang) -> tuple[int, ...]:
        ledger = self._ledger
        return (
            gang.changes,
            ledger.gain_count,
            ledger.capacity_count,
            self._facts,
            self.budgets.changes,
            self._brake.version,
        )

    def _search(self, gang: Gang, saved: Sequence[Holder], now: float) -> Choice | WhyNot:
        if not self.budgets_known:
            return BudgetsUnknown()
        if asks := unknown_asks(gang):
            return UnknownAsks(asks)
        protected: dict[str, int] = {}
        units, going = self._units_below(gang, now, protected)
        history = self._history.setdefault(gang.key, _History())
        self._prune(now)
        self._latest = self._circumstances(gang, units)
        if history.vain and history.circumstances is not None and self._latest.is_nothing_new(history.circumstances):
            return InVain(history.vain, history.not_before)
        evicted = sum(count for _, count in history.orders)
        if len(history.orders) >= self.bounds.preemptions:
            # Whoever leaves anyway may still be waited for.
            units = []
        choice = self._places.victims_for(gang, units, going, saved)
        if choice is not None and self.budgets.objection(choice.victims) is not None:
            allowed = self._within_budgets(choice, units)
            protected[BUDGET] = protected.get(BUDGET, 0) + sum(map(_size, units)) - sum(map(_size, allowed))
            choice = self._places.victims_for(gang, allowed, going, saved)
        if choice is not None and not choice.units and not going:
            # There is room as it is: what keeps the gang from it is not that others are there.
            return NobodySuffices(protected)
        if choice is None:
            if len(history.orders) >= self.bounds.preemptions:
                return Exhausted(len(history.orders), evicted, self.bounds)
            return NobodySuffices(protected)
        if choice.units and evicted + len(choice.victims) > self.bounds.pods:
            return Exhausted(len(history.orders), evicted, self.bounds)
        return choice

    def _circumstances(self, gang: Gang, units: Sequence[Unit]) -> _Circumstances:
        makers = {maker for unit in units for pod in unit.pods for maker in self._bound[pod.uid].makers or (pod.uid,)}
        return _Circumstances((gang.first_seen, gang.changes), self._ledger.capacity_count, frozenset(makers))

    def _units_below(self, gang: Gang, now: float, protected: dict[str, int]) -> tuple[list[Unit], list[Pod]]:
        """Who could be evicted, and who is about to go anyway. Counts those who are protected."""
        claims, guarded = gang.claims, bool(self.budgets)
        banned = {maker for maker, strikes in self._strikes.items() if strikes.until > now}
        refused = {uid for uid, until in self._refused.items() if until > now}
        some_stay = bool(banned or refused or self._brake.labelled)
        units: list[Unit] = []
        welcome: set[str] = set()
        """Schedulers whose pods may leave."""

        def protection(each: _Bound) -> str:
            if each.pod.scheduler not in welcome:
                if not (self.bounds.others or self.ours(each.pod)):
                    return OTHERS
                welcome.add(each.pod.scheduler)
            if self._brake.protects(each.pod.namespace):
                return BRAKED
            if banned and not banned.isdisjoint(each.makers):
                return MADE_AGAIN
            return REFUSED if refused and each.pod.uid in refused else ""

        in_gangs: set[PodUid] = set()
        for other in self._gangs.values():
            staying = [self._bound[uid] for uid in other.members if uid in self._bound]
            in_gangs.update(each.pod.uid for each in staying)
            if not staying or other.phase in _LEFT_ALONE or any(each.pod.priority >= claims for each in staying):
                continue
            together = [each.pod for each in staying]
            why = next((why for each in staying if (why := each.protection or protection(each))), "")
            if not why and guarded and self.budgets.objection(together) is not None:
                why = BUDGET
            if why:
                protected[why] = protected.get(why, 0) + len(together)
            else:
                units.append(unit_of(together))
        for uid, each in self._bound.items():
            if each.pod.priority >= claims or uid in in_gangs:
                continue
            why = each.protection
            if not why and (some_stay or each.pod.scheduler not in welcome):
                why = protection(each)
            if not why and guarded and self.budgets.objection((each.pod,)) is not None:
                why = BUDGET
            if why:
                protected[why] = protected.get(why, 0) + 1
            else:
                units.append(each.alone)
        # The pods of a DaemonSet come again where they leave.
        going = [pod for pod, since in self._going.values() if since > now - GOING_SECONDS and not _comes_again(pod)]
        return units, going

    def _within_budgets(self, choice: Choice, units: Sequence[Unit]) -> list[Unit]:
        """Units that may all leave together: of those chosen as many as the budgets allow, then of the others."""
        chosen = {unit.pods[0].uid for unit in choice.units}
        rest = (unit for unit in units if unit.pods[0].uid not in chosen)
        spending = self.budgets.spending()
        return [unit for unit in (*choice.units, *rest) if spending.add(unit.pods)]

    def may_leave(self, pod: Pod) -> bool:
        """Whether the pod, which is bound, is of those that may be evicted for others at all."""
        return not self._protection(pod)

    # -- an order ------------------------------------------------------------------------------------------------

    def order(self, gang: Gang, choice: Choice, now: float) -> EvictFor:
        """The victims of the choice are to be evicted, from now on."""
        self._clear(gang.key)
        self._orders[gang.key] = _Order(frozenset(choice.nodes), now, self._latest)
        gang.nominated = {
            PodUid(holder): node for holder, node in choice.places.items() if PodUid(holder) in gang.members
        }
        units = tuple(unit.pods for unit in choice.units)
        return EvictFor(gang.key, tuple(gang.unplaced()), choice.victims, units, dict(gang.nominated))

    def is_wanted(self, key: GangKey) -> bool:
        """Whether the order is to be gone on with: the gang is there, and has found no room elsewhere meanwhile."""
        gang, order = self._gangs.get(key), self._orders.get(key)
        if gang is None or order is None or not self._brake.allows(Act.PREEMPT, key.namespace):
            return False
        return order.evicting and not gang.holds_a_plan and gang.needed > 0

    def tells(self, key: GangKey) -> bool:
        """kube-scheduler is told, as the order says, to keep room for the gang's members. Whether that is to be done:
        it is once."""
        order = self._orders.get(key)
        if order is None or order.told:
            return False
        order.told = True
        return True

    def evicted(self, key: GangKey, pod: Pod) -> None:
        """The API server has taken the eviction for that gang."""
        order = self._orders.get(key)
        if order is not None:
            order.evicted.add(pod.uid)
            for maker in _makers(pod):
                self._made[maker] = key

    def refused(self, key: GangKey, unit: Sequence[Pod], left: int, why: str, now: float) -> None:
        """`left` of the unit, which was to leave for that gang, have, and no more can be made to."""
        for pod in unit:
            self._refused[pod.uid] = now + REFUSED_SECONDS
        self._facts += 1
        if left and (victim := self._gang_of(unit)) is not None:
            self.is_left_in_part(victim, f"gang {key}", left, len(unit), why)

    def is_left_in_part(self, victim: GangKey, by: str, left: int, size: int, why: str) -> None:
        """`left` of that gang's members were evicted, and the others, which were to be, are not."""
        self.unfinished[victim] = Unfinished(by, left, size, why)

    def done(self, key: GangKey, now: float) -> None:
        """Nobody else is evicted for that order. Where nobody was, it does not count."""
        order = self._orders.get(key)
        if order is None or not order.evicting:
            return
        order.evicting = False
        self._facts += 1
        if order.evicted:
            self._history.setdefault(key, _History()).orders.append((order.began, len(order.evicted)))
        else:
            self._clear(key)

    def _is_evicting(self) -> bool:
        return any(order.evicting for order in self._orders.values())

    # -- what became of it ---------------------------------------------------------------------------------------

    def ran_out(self, gang: Gang, now: float) -> None:
        """The gang's plan has come to nothing. If others had been evicted for it, that was in vain."""
        order = self._orders.get(gang.key)
        if order is None or order.evicting:
            return
        history = self._history.setdefault(gang.key, _History())
        history.vain += 1
        history.not_before = now + _back_off(history.vain)
        history.circumstances = order.circumstances
        self._clear(gang.key)

    def placed(self, gang: Gang) -> None:
        """The gang is bound."""
        if gang.key in self._orders:
            self._clear(gang.key)
        if (history := self._history.get(gang.key)) is not None:
            history.vain, history.not_before, history.circumstances = 0, 0.0, None
        self.unfinished.pop(gang.key, None)

    def ended(self, gang: Gang) -> None:
        """The gang is no more. Its history is kept for a while."""
        self._clear(gang.key)
        self.unfinished.pop(gang.key, None)

    def _clear(self, key: GangKey) -> None:
        order = self._orders.pop(key, None)
        gang = self._gangs.get(key)
        if gang is not None and gang.nominated:
            told = order is not None and order.told
            waiting = tuple(pod for pod in gang.unplaced() if pod.uid in gang.nominated)
            gang.nominated = {}
            if waiting and told:
                self._effects.append(LetRoomGo(key, waiting))
        self._made = {maker: other for maker, other in self._made.items() if other != key}

    def _prune(self, now: float) -> None:
        for key, history in list(self._history.items()):
            while history.orders and history.orders[0][0] <= now - HOUR:
                history.orders.popleft()
            if not history.orders and history.not_before <= now - HOUR and key not in self._gangs:
                del self._history[key]
        self._strikes = {maker: each for maker, each in self._strikes.items() if each.until > now - HOUR}

    # -- what there is to tell -----------------------------------------------------------------------------------

    def why_not(self, gang: Gang) -> WhyNot | None:
        """Why nobody is evicted for the gang, as far as that was looked at."""
        if self._why_not is not None and self._why_not[0] == gang.key:
            return self._why_not[1]
        history = self._history.get(gang.key)
        return InVain(history.vain, history.not_before) if history is not None and history.vain else None

    def _gang_of(self, unit: Sequence[Pod]) -> GangKey | None:
        uids = {pod.uid for pod in unit}
        return next((gang.key for gang in self._gangs.values() if not uids.isdisjoint(gang.members)), None)


def _comes_again(pod: Pod) -> bool:
    """Whether it is made anew on the same node as soon as it is gone."""
    return pod.mirror or (pod.owner is not None and pod.owner.kind in _STAYS)


def _makers(pod: Pod) -> tuple[Maker, ...]:
    """Who makes such a pod anew when it is gone: its controller; and whoever makes its gang's members."""
    controller = () if pod.owner is None else (pod.owner.uid,)
    return (*controller, pod.gang.key) if isinstance(pod.gang, GangAsk) else controller


def _back_off(times: int) -> float:
    return doubled(FIRST_BACK_OFF, times - 1, LONGEST_BACK_OFF)


def _size(unit: Unit) -> int:
    return len(unit.pods)
