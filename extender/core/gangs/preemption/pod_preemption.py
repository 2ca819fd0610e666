"""Victims of kube-scheduler's preemption: a bound gang keeps its quorum, or leaves as a whole.

Escher offers kube-scheduler nodes with victims. kube-scheduler takes one of them and evicts there, at its own time;
watches show the deletion later still. So an offer counts as taken until its result is known or it is too old.
kube-scheduler chooses the victims.

No pod is offered unless its priority is lower than that of the preempting pod. Members beyond the quorum may go alone.
If fewer than the quorum would stay, the whole gang must go: all its members must be of lower priority, and none
protected. kube-scheduler evicts on one node only. Escher evicts the rest once kube-scheduler has evicted all offered
pods for that pod, as it writes on each. If some nodes need no gang to leave, only these are offered. Else those of one
gang, the least that disruption budgets allow. As a last resort, if a setting allows it, the least despite budgets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from extender.core.cluster import Pod
from extender.core.gangs.preemption.victim_rules import Victims
from extender.core.gangs.state.eviction_orders import EvictRest, Preempted
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.gang_store import GangStore
from extender.core.names import GangKey
from extender.core.safety_switches import Act, SafetySwitches
from extender.kube.names import NodeName, PodUid

OFFER_SECONDS = 10.0
"""Seconds for which an offered victim may still be evicted before Escher sees it."""


@dataclass(slots=True)
class _Offer:
    preemptor: Pod
    victims: frozenset[PodUid]
    whole: Mapping[GangKey, frozenset[PodUid]]
    """Gangs that leave as a whole with the victims, and their members among the victims."""
    until: float
    despite_budgets: bool = False
    """The budgets do not let all of these gangs go."""
    gone: set[PodUid] = field(default_factory=set)


class Evictions:
    """`pods`: all unfinished pods. `switches`: whether Escher may evict the rest of a gang."""

    def __init__(
        self, table: GangStore, victims: Victims, pods: Mapping[PodUid, Pod], switches: SafetySwitches
    ) -> None:
        self._gangs = table
        self._victims = victims
        self._pods = pods
        self._switches = switches
        self._offered: dict[PodUid, float] = {}
        """Members of gangs that may be evicted, until when (monotonic seconds); oldest first."""
        self._offers: deque[_Offer] = deque()
        """Oldest first."""

    # -- offers --------------------------------------------------------------------------------------------------

    def offer(self, pod: Pod, victims: Mapping[NodeName, Sequence[PodUid]], now: float) -> set[NodeName]:
        """Nodes whose victims may go, whichever of the nodes this pod and earlier ones take."""
        self._forget(now)
        lower = {
            node: chosen
            for node, chosen in victims.items()
            if all(uid not in self._pods or self._may_go(self._pods[uid], pod) for uid in chosen)
        }
        members = {node: self._members(chosen) for node, chosen in lower.items()}
        # A victim that is already offered costs nothing more.
        costs = {node: sum(uid not in self._offered for uid in chosen) for node, chosen in members.items()}
        found: set[NodeName] = set()
        for node in sorted(lower, key=lambda node: (costs[node], node)):
            if not self._broken(members[node]):
                found.add(node)
                self._take(members[node], now + OFFER_SECONDS)
                self._offers.append(_Offer(pod, frozenset(lower[node]), {}, now + OFFER_SECONDS))
        return found or self._offer_gangs(pod, lower, members, now)

    def _forget(self, now: float) -> None:
        """Drops offers that are too old."""
        while self._offers and self._offers[0].until <= now:
            self._offers.popleft()
        while self._offered and next(iter(self._offered.values())) <= now:
            del self._offered[next(iter(self._offered))]

    def _take(self, members: Iterable[PodUid], until: float) -> None:
        """Members may be evicted until then. `until` must not fall from call to call."""
        for uid in members:
            self._offered.pop(uid, None)
            self._offered[uid] = until

    def _may_go(self, victim: Pod, preemptor: Pod) -> bool:
        """As for a gang: never pods that come again in place; foreign pods only if allowed."""
        return victim.priority < preemptor.priority and self._victims.may_leave(victim)

    def _offer_gangs(
        self,
        pod: Pod,
        victims: Mapping[NodeName, Sequence[PodUid]],
        members: Mapping[NodeName, set[PodUid]],
        now: float,
    ) -> set[NodeName]:
        """The nodes with the least loss, if whole gangs have to leave."""
        losses: dict[NodeName, frozenset[GangKey]] = {}
        staying: dict[GangKey, frozenset[PodUid] | None] = {}
        """Each gang is looked at once, because it may have thousands of members on many nodes."""
        for node, chosen in members.items():
            broken = self._broken(chosen)
            for gang in broken:
                if gang.key not in staying:
                    staying[gang.key] = self._not_ours_to_evict(gang, pod)
            if all((stay := staying[gang.key]) is not None and stay <= chosen for gang in broken):
                losses[node] = frozenset(gang.key for gang in broken)
        if not losses:
            return set()

        def loss(gangs: frozenset[GangKey]) -> tuple[int, int, list[GangKey]]:
            lost = [self._bound(self._gangs.by_key[key]) for key in gangs]
            lowest = (min(each.priority for each in bound) for bound in lost if bound)
            return (max(lowest, default=0), sum(map(len, lost)), sorted(gangs))

        by_loss = sorted(set(losses.values()), key=loss)
        least = next((gangs for gangs in by_loss if not self._breaks_budgets(gangs, pod)), None)
        despite_budgets = least is None
        if least is None:
            if not self._victims.budgets.known or not self._victims.bounds.despite_budgets:
                return set()
            least = by_loss[0]
        leaving = frozenset(uid for key in least for uid in self._gangs.by_key[key].roster.bound)
        self._take(leaving, now + OFFER_SECONDS)
        found: set[NodeName] = set()
        for node in sorted(node for node, gangs in losses.items() if gangs == least):
            # Beside them, members of other gangs may go while these keep their quorum.
            if self._broken(members[node] - leaving):
                continue
            found.add(node)
            self._take(members[node], now + OFFER_SECONDS)
            whole = {key: frozenset(members[node] & self._gangs.by_key[key].roster.bound) for key in least}
            self._offers.append(_Offer(pod, frozenset(victims[node]), whole, now + OFFER_SECONDS, despite_budgets))
        return found

    def _members(self, chosen: Iterable[PodUid]) -> set[PodUid]:
        """The pods that count for a gang's quorum."""
        return {
            uid
            for uid in chosen
            if (gang := self._gangs.of(uid)) is not None and (uid in gang.roster.bound or uid in gang.barrier.writing)
        }

    def _broken(self, members: set[PodUid]) -> list[Gang]:
        """The gangs that would keep fewer than the quorum without these members."""
        gangs = {gang.key: gang for uid in members if (gang := self._gangs.of(uid)) is not None}
        return [gang for gang in gangs.values() if self._staying(gang, members) < gang.terms.quorum]

    def _staying(self, gang: Gang, without: Collection[PodUid]) -> int:
        """How many count for the quorum without these, earlier offered and leaving members."""
        placed = gang.roster.bound | gang.barrier.writing.keys()
        going = gang.roster.leaving.union(self._victims.going)
        deleting = (uid for uid in gang.barrier.writing if gang.roster.members[uid].deleting)
        # Whole sets are used, because a gang may have thousands of members, and this is asked for each node.
        return len(gang.roster.succeeded) + len(placed.difference(going, deleting, self._offered, without))

    def _not_ours_to_evict(self, gang: Gang, pod: Pod) -> frozenset[PodUid] | None:
        """Members that only kube-scheduler may evict, budgets aside; None: all members stay.

        They stay if the gang is being bound, or has a member that is not of lower priority."""
        if gang.barrier.writing or gang.terms.worth >= pod.priority:
            return None
        rest = self._to_leave(gang, pod)
        held = not self._switches.allows(Act.PREEMPT, pod.namespace) or self._switches.protects(gang.key.namespace)
        return frozenset(each.uid for each in rest if held or not self._victims.may_leave(each))

    def _breaks_budgets(self, keys: Iterable[GangKey], preemptor: Pod) -> bool:
        """Whether the disruption budgets do not let all of these gangs go, or are not known."""
        leaving = [pod for key in keys for pod in self._to_leave(self._gangs.by_key[key], preemptor)]
        budgets = self._victims.budgets
        return not budgets.known or budgets.objection(leaving) is not None

    # -- evictions -----------------------------------------------------------------------------------------------

    def on_event(self, pod: Pod) -> list[Preempted | EvictRest]:
        """Takes in the pod, on which kube-scheduler may have written that it is preempted."""
        if not pod.preempted or not self._offers:
            return []
        found: list[Preempted | EvictRest] = []
        for offer in self._offers:
            if pod.uid not in offer.victims or pod.uid in offer.gone:
                continue
            if not found:
                found.append(Preempted(pod, offer.preemptor))
            offer.gone.add(pod.uid)
            for key, named in offer.whole.items():
                if pod.uid in named and named <= offer.gone and (rest := self._rest_of(key, offer.preemptor, named)):
                    found.append(EvictRest(key, offer.preemptor, rest, len(named), offer.despite_budgets))
                    # Most of them were offered with it. Members bound since then are kept as long.
                    for each in rest:
                        self._offered.setdefault(each.uid, offer.until)
        return found

    def _rest_of(self, key: GangKey, preemptor: Pod, gone: frozenset[PodUid]) -> tuple[Pod, ...]:
        gang = self._gangs.by_key.get(key)
        return () if gang is None else tuple(self._to_leave(gang, preemptor, gone))

    def _to_leave(self, gang: Gang, preemptor: Pod, without: Collection[PodUid] = ()) -> list[Pod]:
        """Its bound members below the preemptor that are not leaving; not those that come again."""
        bound = (pod for pod in self._bound(gang) if pod.uid not in without and pod.priority < preemptor.priority)
        return [pod for pod in bound if not (pod.deleting or self._victims.daemons.comes_again(pod))]

    def _bound(self, gang: Gang) -> list[Pod]:
        return [gang.roster.members[uid] for uid in sorted(gang.roster.bound)]
