"""Victims of kube-scheduler's preemption: a bound gang keeps its quorum, or leaves as a whole.

kube-scheduler is offered nodes with victims, takes one of them and evicts there, on its own time; the deletion is
seen later still. So an offer counts as taken until it is known or too old. Must not know how victims are chosen: that
is kube-scheduler's.

Nobody is offered whose priority is not lower than the preempting pod's. Members beyond the quorum may go alone. Where
fewer than the quorum would stay, all of the gang must go, if all its members are of lower priority and none of them is
protected. kube-scheduler evicts on one node only; the rest of the gang is evicted by us, once it is seen that
kube-scheduler has evicted, for that pod, all pods that it was offered: it writes so on each. Where some node needs no
gang to leave, only such nodes are offered; else those of one gang, the least that the disruption budgets allow; as a
last resort, where a setting allows that, the least of those whose budgets do not.
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
"""For how long a victim that was offered may still be evicted without our having seen it."""


@dataclass(slots=True)
class _Offer:
    preemptor: Pod
    victims: frozenset[PodUid]
    whole: Mapping[GangKey, frozenset[PodUid]]
    """Gangs that leave as a whole with these, and which of them are their members."""
    until: float
    despite_budgets: bool = False
    """The budgets do not let all of these gangs go."""
    gone: set[PodUid] = field(default_factory=set)


class Evictions:
    """`pods`: all that are not finished. `brake`: whether the rest of a gang may be evicted by us."""

    def __init__(self, table: GangStore, victims: Victims, pods: Mapping[PodUid, Pod], brake: SafetySwitches) -> None:
        self._gangs = table
        self._victims = victims
        self._pods = pods
        self._brake = brake
        self._offered: dict[PodUid, float] = {}
        """Members of gangs that may be evicted, and until when (seconds that only pass); the oldest first."""
        self._offers: deque[_Offer] = deque()
        """The oldest first."""

    # -- offers --------------------------------------------------------------------------------------------------

    def offer(self, pod: Pod, victims: Mapping[NodeName, Sequence[PodUid]], now: float) -> set[NodeName]:
        """The nodes whose victims may go, whichever of them is taken, by this pod and by those that asked before."""
        self._forget(now)
        lower = {
            node: chosen
            for node, chosen in victims.items()
            if all(uid not in self._pods or self._may_go(self._pods[uid], pod) for uid in chosen)
        }
        members = {node: self._members(chosen) for node, chosen in lower.items()}
        # What is offered already costs nothing more.
        costs = {node: sum(uid not in self._offered for uid in chosen) for node, chosen in members.items()}
        found: set[NodeName] = set()
        for node in sorted(lower, key=lambda node: (costs[node], node)):
            if not self._broken(members[node]):
                found.add(node)
                self._take(members[node], now + OFFER_SECONDS)
                self._offers.append(_Offer(pod, frozenset(lower[node]), {}, now + OFFER_SECONDS))
        return found or self._offer_gangs(pod, lower, members, now)

    def _forget(self, now: float) -> None:
        """Offers that are too old."""
        while self._offers and self._offers[0].until <= now:
            self._offers.popleft()
        while self._offered and next(iter(self._offered.values())) <= now:
            del self._offered[next(iter(self._offered))]

    def _take(self, members: Iterable[PodUid], until: float) -> None:
        """They may be evicted until then, which is not before any moment that was said of others."""
        for uid in members:
            self._offered.pop(uid, None)
            self._offered[uid] = until

    def _may_go(self, victim: Pod, preemptor: Pod) -> bool:
        """As for a gang: never one that would come again in the same place, nor another scheduler's unless allowed."""
        return victim.priority < preemptor.priority and self._victims.may_leave(victim)

    def _offer_gangs(
        self,
        pod: Pod,
        victims: Mapping[NodeName, Sequence[PodUid]],
        members: Mapping[NodeName, set[PodUid]],
        now: float,
    ) -> set[NodeName]:
        """The nodes on which the least that is possible is lost, where whole gangs have to leave."""
        losses: dict[NodeName, frozenset[GangKey]] = {}
        staying: dict[GangKey, frozenset[PodUid] | None] = {}
        """Each gang is looked at once, for it may have thousands of members, some on each node."""
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
            # Beside them, members of others that are not broken.
            if self._broken(members[node] - leaving):
                continue
            found.add(node)
            self._take(members[node], now + OFFER_SECONDS)
            whole = {key: frozenset(members[node] & self._gangs.by_key[key].roster.bound) for key in least}
            self._offers.append(_Offer(pod, frozenset(victims[node]), whole, now + OFFER_SECONDS, despite_budgets))
        return found

    def _members(self, chosen: Iterable[PodUid]) -> set[PodUid]:
        """Those of them that count for a gang's quorum."""
        return {
            uid
            for uid in chosen
            if (gang := self._gangs.of(uid)) is not None and (uid in gang.roster.bound or uid in gang.barrier.writing)
        }

    def _broken(self, members: set[PodUid]) -> list[Gang]:
        """The gangs of which fewer than the quorum would stay without these."""
        gangs = {gang.key: gang for uid in members if (gang := self._gangs.of(uid)) is not None}
        return [gang for gang in gangs.values() if self._staying(gang, members) < gang.terms.quorum]

    def _staying(self, gang: Gang, without: Collection[PodUid]) -> int:
        """How many count for the quorum when these, those offered before and those being deleted are gone."""
        placed = gang.roster.bound | gang.barrier.writing.keys()
        going = gang.roster.leaving.union(self._victims.going)
        deleting = (uid for uid in gang.barrier.writing if gang.roster.members[uid].deleting)
        # Set by set, for a gang may have thousands of members, and this is asked for each node.
        return len(gang.roster.succeeded) + len(placed.difference(going, deleting, self._offered, without))

    def _not_ours_to_evict(self, gang: Gang, pod: Pod) -> frozenset[PodUid] | None:
        """Members that leave for the pod only where kube-scheduler evicts them, the budgets left aside; None: the gang
        is being bound, or a member has no lower priority, and all stay."""
        if gang.barrier.writing or gang.terms.worth >= pod.priority:
            return None
        rest = self._to_leave(gang, pod)
        held = not self._brake.allows(Act.PREEMPT, pod.namespace) or self._brake.protects(gang.key.namespace)
        return frozenset(each.uid for each in rest if held or not self._victims.may_leave(each))

    def _breaks_budgets(self, keys: Iterable[GangKey], preemptor: Pod) -> bool:
        """Whether the disruption budgets do not let all of these gangs go, or are not known."""
        leaving = [pod for key in keys for pod in self._to_leave(self._gangs.by_key[key], preemptor)]
        budgets = self._victims.budgets
        return not budgets.known or budgets.objection(leaving) is not None

    # -- what was taken ------------------------------------------------------------------------------------------

    def heed(self, pod: Pod) -> list[Preempted | EvictRest]:
        """The pod looks like this: kube-scheduler may have written on it that it is preempted."""
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
                    # Most of them were offered with it; those that were bound since are forgotten no sooner.
                    for each in rest:
                        self._offered.setdefault(each.uid, offer.until)
        return found

    def _rest_of(self, key: GangKey, preemptor: Pod, gone: frozenset[PodUid]) -> tuple[Pod, ...]:
        gang = self._gangs.by_key.get(key)
        return () if gang is None else tuple(self._to_leave(gang, preemptor, gone))

    def _to_leave(self, gang: Gang, preemptor: Pod, without: Collection[PodUid] = ()) -> list[Pod]:
        """Its bound members that go with it and are not about to; not those that come again, which shield no others,
        nor one of no lower priority, which was bound since."""
        bound = (pod for pod in self._bound(gang) if pod.uid not in without and pod.priority < preemptor.priority)
        return [pod for pod in bound if not (pod.deleting or self._victims.daemons.comes_again(pod))]

    def _bound(self, gang: Gang) -> list[Pod]:
        return [gang.roster.members[uid] for uid in sorted(gang.roster.bound)]
