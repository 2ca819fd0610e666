"""Preemption: when pods are evicted for a gang, which pods, how often, and with which result.

Pods are evicted only if the gang then has room for its whole quorum, as far as a plan can tell. So there is none for a
gang with requirements that a plan does not look at. `victim_rules` says which pods may be evicted at all.

A preemption is *ordered* here and carried out elsewhere, one at a time. It is over when the gang is bound. It was
without effect if the gang's plan then timed out, or the gang had to preempt again, or ended. After that the gang gets
none until something has changed (its members, the nodes, owners of possible victims) and a doubling pause has passed;
pods of the same owners are spared meanwhile. `vain` limits the number in an hour.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from extender.core.cluster import Pod
from extender.core.common.bounded import Bounded
from extender.core.gang_ask import GangAsk
from extender.core.gang_of_one import called_in_full, lone_pod
from extender.core.gangs.placement.slots import plannable
from extender.core.gangs.preemption.feasibility import Feasibility
from extender.core.gangs.preemption.preemption_limits import (
    BUDGET,
    TAKEN_IN_VAIN,
    BudgetsUnknown,
    Exhausted,
    InVain,
    TooFewVictims,
    UnknownAsks,
    WhyNot,
)
from extender.core.gangs.preemption.victim_rules import HOUR, Maker, Tenant, Victims, all_makers_of, back_off, makers_of
from extender.core.gangs.preemption.victim_search import Choice, Unit, small_first, within_budgets
from extender.core.gangs.state.eviction_orders import KeepRoomFor, LetRoomGo
from extender.core.gangs.state.gang import EvictFor, Gang
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.vain import Circumstances, History, Order, Spent, Vain
from extender.core.ledger.ledger import Holder, Ledger
from extender.core.names import GangKey
from extender.core.safety_switches import Act, SafetySwitches
from extender.kube.names import NodeName, PodUid

_NOMINATED_REMEMBERED = 16_384
PREEMPTS_EVERY = 10.0
"""Seconds after a search without another one, whatever has changed."""


class Preemption:
    def __init__(
        self, ledger: Ledger, feasibility: Feasibility, table: GangStore, switches: SafetySwitches, victims: Victims
    ) -> None:
        self.victims = victims
        self._ledger = ledger
        self._feasibility = feasibility
        self._table = table
        self._switches = switches
        self.orders: dict[GangKey, Order] = {}
        self.history: dict[GangKey, History] = {}
        self.vain = Vain(table.by_key)
        self.made: dict[Maker, GangKey] = {}
        """Owners of evicted pods, and the gang for which these were evicted."""
        self._nominated: Bounded[PodUid, None] = Bounded(_NOMINATED_REMEMBERED)
        """Pods for which kube-scheduler was last seen to keep room."""
        self._latest: Circumstances | None = None
        self._searched: tuple[GangKey, float, tuple[int, ...]] | None = None
        self._why_not: tuple[GangKey, WhyNot] | None = None
        self._look_again = inf
        self._again_at: float | None = None

    # -- facts ---------------------------------------------------------------------------------------------------

    def on_event(self, pod: Pod, now: float) -> bool:
        """Takes in an unfinished pod; returns whether it is newly bound."""
        if pod.node is None:
            if pod.nominated is not None:
                self._nominated[pod.uid] = None
            elif pod.uid in self._nominated:
                del self._nominated[pod.uid]
                self._keep_room(pod)
            return False
        if pod.uid in self._nominated:
            del self._nominated[pod.uid]
        makers = self.victims.observe(pod, now)
        for maker in () if makers is None else all_makers_of(pod):
            if maker in self.made:
                self._on_made_again(maker, pod, now)
        return makers is not None

    def _keep_room(self, pod: Pod) -> None:
        """kube-scheduler has dropped a nomination, as it does when a pod is rejected again."""
        node = self.nomination_of(pod)
        if node is not None and not pod.deleting:
            self._table.effects.append(KeepRoomFor(pod, node))

    def nomination_of(self, pod: Pod) -> NodeName | None:
        """The node on which kube-scheduler should keep room for the pod."""
        gang = self._table.by_key.get(pod.gang.key) if isinstance(pod.gang, GangAsk) else None
        return None if gang is None else gang.plan.nominated.get(pod.uid)

    def _on_made_again(self, maker: Maker, pod: Pod, now: float) -> None:
        order = self.orders.get(self.made[maker])
        if order is None or pod.uid in order.evicted or pod.node not in order.nodes or maker in order.struck:
            return
        if isinstance(maker, Tenant):
            order.retaken.add(maker)
            return
        order.struck.add(maker)
        self.victims.strike(self.made[maker].namespace, maker, now)

    # -- search --------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When `search` should be called again, if nothing else happens."""
        return self._again_at

    def search(self, gang: Gang | None, saved: Sequence[Holder], now: float) -> Choice | None:
        """The victims for the gang, which is first in turn; None: no preemption now.

        A choice without victims: leaving pods make enough room. `saved`: backfill reservations that it may use."""
        self._again_at = None
        self._give_up_room_but_for(gang)
        if gang is None or not gang.roster.preempts or self._is_evicting():
            return None
        seen = self._seen(gang)
        if seen == self._searched:
            not_before = self._look_again
        else:
            history = self.history.get(gang.key)
            not_before = max(gang.wait.preempts_after, history.not_before if history is not None else 0.0)
        if now < not_before:
            self._again_at = not_before if not_before < inf else None
            return None
        gang.wait.preempts_after = now + PREEMPTS_EVERY
        found = self._search(gang, saved, now)
        self._searched, self._look_again = seen, self._time_helps_at(gang, found, now)
        self._why_not = None if isinstance(found, Choice) else (gang.key, found)
        self._again_at = self._look_again if self._look_again < inf else None
        return found if isinstance(found, Choice) else None

    def _time_helps_at(self, gang: Gang, found: Choice | WhyNot, now: float) -> float:
        """When the same search may have another result, although nothing has changed."""
        if isinstance(found, Exhausted):
            return self.vain.helps_at(gang.key, self._undecided(), now)
        if not isinstance(found, TooFewVictims):
            return inf
        more_from = self.victims.more_from(now + PREEMPTS_EVERY, now)
        return inf if more_from is None else more_from

    def _seen(self, gang: Gang) -> tuple[GangKey, float, tuple[int, ...]]:
        ledger = self._ledger
        counts = (
            gang.roster.changes,
            ledger.changes.gain_count,
            ledger.changes.capacity_count,
            self.victims.changes,
            self.victims.budgets.changes,
            self.victims.daemons.changes,
            self._switches.version,
        )
        return gang.key, gang.roster.first_seen, counts

    def _search(self, gang: Gang, saved: Sequence[Holder], now: float) -> Choice | WhyNot:
        if not self.victims.budgets.known:
            return BudgetsUnknown()
        if asks := gang.roster.unknown_asks:
            return UnknownAsks(asks)
        self._spare_retakers(gang.key, now)
        protected: dict[str, int] = {}
        units, last, going = self.victims.units_below(gang.key.namespace, gang.terms.claims, now, protected)
        history = self.history.setdefault(gang.key, History())
        self._prune(now)
        self._latest = self._circumstances(gang, [*units, *last])
        if history.vain and history.circumstances is not None and self._latest.is_nothing_new(history.circumstances):
            return InVain(history.vain, history.not_before)
        exhausted = self._exhausted(gang, (), now)
        if not (units or last or going or exhausted):
            return TooFewVictims(protected)
        if exhausted:
            # Pods that leave anyway may still be waited for.
            units, last = [], []

        choice, kept = small_first(
            lambda units, last: within_budgets(
                lambda leaving: self._victims_for(gang, leaving, going, saved),
                units,
                last,
                self.victims.budgets,
                as_last_resort=self.victims.bounds.despite_budgets,
            ),
            units,
            last,
            self.vain.left(gang.key, self.victims.bounds, self._undecided(), now),
        )
        if kept:
            protected[BUDGET] = protected.get(BUDGET, 0) + kept
        if choice is not None and not choice.units and not going:
            # There is room already: other pods are not what keeps the gang from it.
            return TooFewVictims(protected)
        if choice is None:
            return exhausted or TooFewVictims(protected)
        sizes = [len(unit.pods) for unit in choice.units]
        return (self._exhausted(gang, sizes, now) if sizes else None) or choice

    def _victims_for(
        self, gang: Gang, units: Sequence[Unit], going: Sequence[Pod], saved: Sequence[Holder]
    ) -> Choice | None:
        alone = bool(lone_pod(gang.key)) and any(pod.governed for pod in gang.roster.unplaced())
        for_policies = self.victims.bounds.for_policies or not alone
        return self._feasibility.victims_for(gang, units, going, saved, for_policies=for_policies)

    def _exhausted(self, gang: Gang, units: Sequence[int], now: float) -> Exhausted | None:
        return self.vain.exhausted(gang.key, units, self.victims.bounds, self._undecided(), now)

    def _undecided(self) -> list[Spent]:
        begun = ((key, order) for key, order in self.orders.items() if order.evicted)
        return [Spent(key, order.began, len(order.evicted)) for key, order in begun]

    def _circumstances(self, gang: Gang, units: Sequence[Unit]) -> Circumstances:
        makers = self.victims.makers(units)
        return Circumstances((gang.roster.first_seen, gang.roster.changes), self._ledger.changes.capacity_count, makers)

    # -- an order ------------------------------------------------------------------------------------------------

    def order(self, gang: Gang, choice: Choice, now: float) -> EvictFor:
        """Orders the eviction of the victims of the choice."""
        self._is_in_vain(gang.key, now)
        self._clear(gang.key)
        self.orders[gang.key] = Order(frozenset(choice.nodes), now, self._latest)
        gang.plan.nominated = {
            PodUid(holder): node for holder, node in choice.places.items() if PodUid(holder) in gang.roster.members
        }
        units = tuple(unit.pods for unit in sorted(choice.units, key=lambda unit: unit.breaks_budget))
        return EvictFor(
            gang.key,
            tuple(gang.roster.unplaced()),
            choice.victims,
            units,
            dict(gang.plan.nominated),
            despite_budgets=choice.breaks_budgets,
        )

    def is_wanted(self, key: GangKey) -> bool:
        """Whether the order is still needed: the gang exists, and has found no room elsewhere."""
        gang, order = self._table.by_key.get(key), self.orders.get(key)
        if gang is None or order is None or not self._switches.allows(Act.PREEMPT, key.namespace):
            return False
        lacks_room = not order.had_room and not gang.holds_a_plan and gang.needed > 0
        return order.evicting and lacks_room and bool(plannable(gang))

    def has_room(self, gang: Gang) -> None:
        """The gang has a plan."""
        if (order := self.orders.get(gang.key)) is not None:
            order.had_room = True

    def reports(self, key: GangKey) -> bool:
        """Whether to tell kube-scheduler now to keep room for the members; true once an order."""
        order = self.orders.get(key)
        if order is None or order.told:
            return False
        order.told = True
        return True

    def evicted(self, key: GangKey, pod: Pod) -> None:
        """The API server has accepted the eviction for that gang."""
        order = self.orders.get(key)
        if order is not None:
            order.evicted[pod.uid] = makers_of(pod)
            self.made |= {maker: key for maker in all_makers_of(pod) if maker != Tenant(key.namespace)}

    def refused(self, key: GangKey, unit: Sequence[Pod], left: int, why: str, now: float) -> None:
        """Only `left` of the unit, a victim of that gang, were evicted; no more can be."""
        self.victims.refuse(unit, now)
        if left and (victim := self._gang_of(unit)) is not None:
            spoken = called_in_full(key, self._table.naming.spoken(key))
            self.victims.is_left_in_part(victim, spoken, left, len(unit), why)

    def done(self, key: GangKey, now: float) -> None:
        """Ends the evictions of that order. An order without any eviction does not count."""
        order = self.orders.get(key)
        if order is None or not order.evicting:
            return
        order.evicting = False
        self.victims.changes += 1
        if not order.evicted:
            self._clear(key)
        elif order.failed and (gang := self._table.by_key.get(key)) is not None and not gang.holds_a_plan:
            self.ran_out(gang, now)

    def has_evicted_for(self, key: GangKey) -> bool:
        """Whether pods are or were evicted for the gang, which is not bound yet."""
        return key in self.orders

    def awaited(self, key: GangKey) -> Sequence[NodeName]:
        """The nodes on which pods leave for the gang, while any is still there. O(its victims)."""
        order = self.orders.get(key)
        if order is None or not (order.evicting or any(self._ledger.holding(Holder(uid)) for uid in order.evicted)):
            return ()
        return sorted(order.nodes)

    def _is_evicting(self) -> bool:
        return any(order.evicting for order in self.orders.values())

    # -- results -------------------------------------------------------------------------------------------------

    def ran_out(self, gang: Gang, now: float) -> None:
        """The gang's plan failed. Evictions for it, if any, were without effect."""
        if (order := self.orders.get(gang.key)) is None:
            return
        if order.evicting:
            order.failed = True
            return
        history = self.history.setdefault(gang.key, History())
        history.vain += 1
        history.not_before = now + back_off(history.vain)
        history.circumstances = order.circumstances
        self._is_in_vain(gang.key, now)
        self._clear(gang.key)

    def _is_in_vain(self, key: GangKey, now: float) -> None:
        """Records that the evictions of that order were without effect."""
        order = self.orders.get(key)
        if order is None or not order.evicted:
            return
        self.vain.add(Spent(key, order.began, len(order.evicted)))
        self._spare_retakers(key, now)
        for maker in dict.fromkeys(maker for makers in order.evicted.values() for maker in makers):
            if maker not in order.struck:
                self.victims.strike(key.namespace, maker, now, TAKEN_IN_VAIN)

    def _spare_retakers(self, key: GangKey, now: float) -> None:
        """The gang still waits: spares namespaces whose new pods took the victims' places."""
        order = self.orders.get(key)
        for tenant in () if order is None else order.take_retakers():
            self.victims.strike(key.namespace, tenant, now)

    def placed(self, gang: Gang) -> None:
        """The gang is bound: evictions for it had an effect."""
        if gang.key in self.orders:
            self._clear(gang.key)
            self.victims.changes += 1
        if (history := self.history.get(gang.key)) is not None:
            history.vain, history.not_before, history.circumstances = 0, 0.0, None
        self.victims.unfinished.pop(gang.key, None)

    def ended(self, gang: Gang) -> None:
        """The gang has ended. Its history is kept for a while."""
        if (order := self.orders.get(gang.key)) is not None:
            self._is_in_vain(gang.key, order.began)
        self._clear(gang.key)
        self.victims.unfinished.pop(gang.key, None)

    def _clear(self, key: GangKey) -> None:
        self._let_room_go(key)
        self.orders.pop(key, None)
        self.made = {maker: other for maker, other in self.made.items() if other != key}

    def _give_up_room_but_for(self, first: Gang | None) -> None:
        """Gangs that lost the victims' room to other pods keep no nomination, unless first in turn."""
        for key in self.orders:
            gang = self._table.by_key.get(key)
            if gang is None or gang is first or gang.holds_a_plan or not gang.plan.nominated or self.awaited(key):
                continue
            self._let_room_go(key)

    def _let_room_go(self, key: GangKey) -> None:
        """Ends the nominations of its members."""
        gang, order = self._table.by_key.get(key), self.orders.get(key)
        if gang is not None and gang.plan.nominated:
            waiting = tuple(pod for pod in gang.roster.unplaced() if pod.uid in gang.plan.nominated)
            gang.plan.nominated = {}
            if waiting and order is not None and order.told:
                self._table.effects.append(LetRoomGo(key, waiting))

    def _prune(self, now: float) -> None:
        for key, history in list(self.history.items()):
            if history.not_before <= now - HOUR and key not in self._table.by_key:
                del self.history[key]
        self.vain.prune(now)
        self.victims.prune(now)

    # -- reports -------------------------------------------------------------------------------------------------

    def why_not(self, gang: Gang) -> WhyNot | None:
        """Why no pod is evicted for the gang, as far as that was checked."""
        if self._why_not is not None and self._why_not[0] == gang.key:
            return self._why_not[1]
        history = self.history.get(gang.key)
        return InVain(history.vain, history.not_before) if history is not None and history.vain else None

    def resume(self, gang: Gang, why_not: WhyNot) -> None:
        """Restores the reason, if nothing has changed since."""
        if isinstance(why_not, InVain):
            self.history.setdefault(gang.key, History(vain=why_not.times, not_before=why_not.until))
        else:
            self._why_not = (gang.key, why_not)

    @property
    def searched(self) -> tuple[GangKey, float] | None:
        """The gang of the last search, if nothing has changed since, and when it is searched again."""
        gang = None if self._searched is None else self._table.by_key.get(self._searched[0])
        return (gang.key, self._look_again) if gang is not None and self._searched == self._seen(gang) else None

    def resume_search(self, gang: Gang, look_again: float) -> None:
        """Restores `searched` for the gang."""
        self._searched, self._look_again = self._seen(gang), look_again

    def _gang_of(self, unit: Sequence[Pod]) -> GangKey | None:
        uids = {pod.uid for pod in unit}
        return next(
            (gang.key for gang in self._table.by_key.values() if not uids.isdisjoint(gang.roster.members)), None
        )
