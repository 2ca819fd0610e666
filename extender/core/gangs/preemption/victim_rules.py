"""Victim rules: which pods may be evicted for a gang, and which leave anyway.

These pods stay, whatever their priority is: pods of DaemonSets and static pods, which come again at once
(`core.daemons`); foreign pods, unless a setting allows it; and for a while pods that could not be evicted. If a new pod
takes the room of an evicted one, all pods of its owner (controller or gang) stay for a doubling time. That spares them
from gangs of the preempting namespace only, because a tenant may have its own pods evicted without effect. If the gang
has to preempt again for that, all pods of the new pod's namespace are spared. Otherwise a tenant whose pods name
another controller each time is chosen each time, and the gang waits for ever. Pods that a disruption budget protects,
counted over all that leave together, leave as a last resort or never: a setting decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from extender.core.budgets import Budgets
from extender.core.cluster import Pod
from extender.core.common.backoff import doubled
from extender.core.daemons import Daemons
from extender.core.gang_ask import GangAsk
from extender.core.gangs.preemption.preemption_limits import (
    BUDGET,
    DAEMONS,
    MADE_AGAIN,
    OTHERS,
    REFUSED,
    SWITCHED_OFF,
    Bounds,
    Unfinished,
)
from extender.core.gangs.preemption.victim_search import Unit, unit_of
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.core.safety_switches import SafetySwitches
from extender.kube.names import PodUid

FIRST_BACK_OFF, LONGEST_BACK_OFF = 60.0, 3600.0
"""Seconds of pause after one preemption without effect, and at most."""
HOUR = 3600.0
GOING_SECONDS = 600.0
"""A pod that has been leaving for longer may not go soon: a finalizer, or a lost node."""
REFUSED_SECONDS = 300.0
"""Seconds for which a unit that could not be evicted is not chosen again."""

_LEFT_ALONE = (Phase.BINDING, Phase.QUARANTINED)
"""Phases of gangs that are no victims."""


@dataclass(frozen=True, slots=True, order=True)
class Tenant:
    """All owners in a namespace: any tenant may name a new controller in each pod, or none."""

    namespace: str


Maker = str | tuple[str, str] | GangKey | Tenant
"""The owner of a pod: its UID, a controller by namespace and UID, a gang, or a whole namespace."""


@dataclass(slots=True)
class Strikes:
    count: int
    until: float
    why: str


@dataclass(eq=False)
class Victims:
    """`ours`: whether a pod's scheduler calls Escher."""

    _table: GangStore
    _switches: SafetySwitches
    budgets: Budgets
    bounds: Bounds
    ours: Callable[[Pod], bool]
    daemons: Daemons
    unfinished: dict[GangKey, Unfinished] = field(default_factory=dict, init=False)
    """Gangs that were evicted only in part, and lack members of their quorum since."""
    changes: int = field(default=0, init=False)
    """Grows whenever other pods may be victims."""
    _bound: dict[PodUid, Unit] = field(default_factory=dict, init=False)
    """Each bound pod that is not leaving, as a unit."""
    going: dict[PodUid, tuple[Pod, float]] = field(default_factory=dict, init=False)
    """Bound pods that are being deleted, and since when."""
    strikes: dict[tuple[str, Maker], Strikes] = field(default_factory=dict, init=False)
    refused: dict[PodUid, float] = field(default_factory=dict, init=False)
    _was_uncertain: bool = field(default=False, init=False)

    # -- facts ---------------------------------------------------------------------------------------------------

    def observe(self, pod: Pod, now: float) -> Sequence[Maker] | None:
        """Takes in a bound, unfinished pod. Returns its owners if it was not bound before."""
        is_new = pod.uid not in self._bound and pod.uid not in self.going
        if is_new or (pod.uid in self.going) != pod.deleting:
            self.changes += 1
        if pod.deleting:
            self._bound.pop(pod.uid, None)
            since = self.going[pod.uid][1] if pod.uid in self.going else now
            self.going[pod.uid] = (pod, since)
            return () if is_new else None
        self._bound[pod.uid] = unit_of((pod,))
        return makers_of(pod) if is_new else None

    def forget(self, uid: PodUid) -> None:
        """The pod is gone, or has finished."""
        self._bound.pop(uid, None)
        self.going.pop(uid, None)
        self.refused.pop(uid, None)

    def strike(self, namespace: str, maker: Maker, now: float, why: str = MADE_AGAIN) -> None:
        """Spares an owner whose new pod took freed room, or whose pods left without effect."""
        known = self.strikes.get((namespace, maker))
        count = known.count + 1 if known is not None else 1
        self.strikes[namespace, maker] = Strikes(count, now + back_off(count), why)

    def refuse(self, unit: Iterable[Pod], now: float) -> None:
        """These could not be evicted."""
        for pod in unit:
            self.refused[pod.uid] = now + REFUSED_SECONDS
        self.changes += 1

    def on_safety_switches(self) -> None:
        """Safety switches changed: drops refusals of a time when kinds could not be read."""
        if self._was_uncertain and not self._switches.uncertain:
            self.refused.clear()
            self.changes += 1
        self._was_uncertain = self._switches.uncertain

    def is_left_in_part(self, victim: GangKey, by: str, left: int, size: int, why: str) -> None:
        """`left` of the gang's members were evicted, and the others cannot be.

        It is not recorded if the gang has its quorum again."""
        gang = self._table.by_key.get(victim)
        if gang is not None and not gang.needed:
            return
        self.unfinished[victim] = Unfinished(by, left, size, why)

    def prune(self, now: float) -> None:
        """Forgets strikes that ended over an hour ago."""
        self.strikes = {struck: each for struck, each in self.strikes.items() if each.until > now - HOUR}

    # -- candidates ----------------------------------------------------------------------------------------------

    def may_leave(self, pod: Pod) -> bool:
        """Whether the bound pod may be evicted for others at all."""
        return not self._protection(pod)

    def _protection(self, pod: Pod) -> str:
        """Why the pod stays for every preemptor; empty: it may leave."""
        if self.daemons.comes_again(pod):
            return DAEMONS
        return "" if self.bounds.others or self.ours(pod) else OTHERS

    def units_below(
        self, namespace: str, claims: int, now: float, protected: dict[str, int]
    ) -> tuple[list[Unit], list[Unit], list[Pod]]:
        """Units that could be evicted for the gang, those as a last resort, and leaving pods.

        All are of lower priority. Protected pods are counted in `protected`.
        """
        budgets, comes_again = self.budgets if self.budgets else None, self.daemons.comes_again
        struck = ((by, maker, strikes) for (by, maker), strikes in self.strikes.items())
        banned = {maker: strikes.why for by, maker, strikes in struck if by == namespace and strikes.until > now}
        refused = {uid for uid, until in self.refused.items() if until > now}
        some_stay = bool(banned or refused or self._switches.labelled or self._switches.uncertain)
        units: list[Unit] = []
        last: list[Unit] = []
        welcome: set[str] = set()
        """Schedulers whose pods may leave."""

        def protection(pod: Pod) -> str:
            if comes_again(pod):
                return DAEMONS
            if pod.scheduler not in welcome:
                if not (self.bounds.others or self.ours(pod)):
                    return OTHERS
                welcome.add(pod.scheduler)
            if self._switches.protects(pod.namespace):
                return SWITCHED_OFF
            if banned and (found := next(filter(banned.__contains__, all_makers_of(pod)), None)) is not None:
                return banned[found]
            return REFUSED if refused and pod.uid in refused else ""

        def take(unit: Unit, why: str) -> None:
            if not why and (budgets is None or budgets.objection(unit.pods) is None):
                units.append(unit)
            elif not why and self.bounds.despite_budgets:
                last.append(replace(unit, breaks_budget=True))
            else:
                protected[why or BUDGET] = protected.get(why or BUDGET, 0) + len(unit.pods)

        in_gangs: set[PodUid] = set()
        for other in self._table.by_key.values():
            members = [pod for uid in other.roster.members if uid in self._bound for pod in self._bound[uid].pods]
            # A DaemonSet's pod with the gang's label stays, and does not protect the others.
            together = [pod for pod in members if not comes_again(pod)]
            in_gangs.update(pod.uid for pod in together)
            if not together or other.phase in _LEFT_ALONE or any(pod.priority >= claims for pod in together):
                continue
            why = next((why for pod in together if (why := protection(pod))), "")
            take(unit_of(together), why)
        for uid, each in self._bound.items():
            if each.priority >= claims or uid in in_gangs:
                continue
            # There may be many thousands, and mostly nothing more must be checked.
            [pod] = each.pods
            known = not some_stay and pod.scheduler in welcome
            why = (DAEMONS if comes_again(pod) else "") if known else protection(pod)
            take(each, why)
        # The pods of a DaemonSet come again where they leave.
        going = [pod for pod, since in self.going.values() if since > now - GOING_SECONDS and not comes_again(pod)]
        return units, last, going

    def makers(self, units: Sequence[Unit]) -> frozenset[Maker]:
        """The owners of these units, or the pod's UID if it has none."""
        return frozenset(maker for unit in units for pod in unit.pods for maker in makers_of(pod) or (pod.uid,))

    def more_from(self, earliest: float, now: float) -> float | None:
        """When more pods may be victims although nothing changes; not before `earliest`."""
        ends = (*(each.until for each in self.strikes.values()), *self.refused.values())
        return min((max(until, earliest) for until in ends if until > now), default=None)


def makers_of(pod: Pod) -> tuple[Maker, ...]:
    """The owners that would create such a pod again: its controller, and its gang."""
    controller = () if pod.owner is None else ((pod.namespace, pod.owner.uid),)
    return (*controller, pod.gang.key) if isinstance(pod.gang, GangAsk) else controller


def all_makers_of(pod: Pod) -> tuple[Maker, ...]:
    """The same, with its whole namespace."""
    return (*makers_of(pod), Tenant(pod.namespace))


def back_off(times: int) -> float:
    return doubled(FIRST_BACK_OFF, times - 1, LONGEST_BACK_OFF)
