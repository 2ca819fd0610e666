"""Elastic members: wakes rejected members beyond the quorum of a gang with a plan.

The filter rejected them because there was no room beside the quorum. One member is woken for each place, oldest first;
the others wait until more room comes free.

A place is room on a node that gained some, if the pod's selectors and the node's taints allow it; room reserved for
others is not free. A place of the gang's own that no member has counts too. For a new member all nodes are looked at. A
woken member keeps its place for as long as kube-scheduler may need to come for it; then the next member gets it. If the
filter rejects a woken member again, its like would fare no better, and is not woken before that node gains room again.
Escher's gate is opened for all members at once, and once for each: an autoscaler, say, does not see gated pods.

It reads the ledger and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from extender.core.cluster import Pod
from extender.core.fit.equivalence import EquivalenceClass, equivalence_of
from extender.core.gangs.placement.fit_counts import Copies
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.trial_snapshot import Room
from extender.core.ledger.ledger import Holder, Holding, HoldingKind, Ledger
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid

COMES_WITHIN = 15.0
"""Seconds from a wake to the filter call: kube-scheduler's back-off is at most 10 seconds."""


@dataclass(frozen=True, slots=True)
class _Awake:
    gang: GangKey
    kind: EquivalenceClass
    node: NodeName
    until: float
    held: Holding | None
    """What it held when it was woken. Facts may have taken that room."""


@dataclass(slots=True)
class _Asleep:
    """State of one gang's rejected members."""

    kinds: dict[PodUid, EquivalenceClass] = field(default_factory=dict)
    """Kinds of the members that all nodes were looked at for."""
    followed: dict[EquivalenceClass, None] = field(default_factory=dict)
    slots_seen: int = 0
    told_of: dict[PodUid, NodeName] = field(default_factory=dict)
    """Members woken for a place that the plan has for them by name, with its node."""


@dataclass(slots=True)
class _Found:
    """Results of wakes of one gang's members. `refused`: kinds by node, since its last gain.

    `offered`: places of the gang without a member at the last look."""

    refused: dict[NodeName, set[EquivalenceClass]] = field(default_factory=dict)
    offered: set[Holder] = field(default_factory=set)


@dataclass(eq=False)
class ElasticMembers:
    """`copies`: how often a kind fits into free room; `accepts`: whether a node allows it.

    `may_add`: whether the gang may have one more place."""

    _ledger: Ledger
    _table: GangStore
    _copies: Copies[EquivalenceClass]
    _accepts: Callable[[NodeName, EquivalenceClass], bool]
    _may_add: Callable[[Gang], bool] = lambda gang: True
    has_news: bool = field(default=False, init=False)
    """Whether a member was rejected since the last `to_wake`."""
    _asleep: dict[GangKey, _Asleep] = field(default_factory=dict, init=False)
    _awake: dict[PodUid, _Awake] = field(default_factory=dict, init=False)
    """Members woken for a place that they have not come for yet."""
    _found: dict[GangKey, _Found] = field(default_factory=dict, init=False)
    """For gangs with a plan, also without waiting members: refused places are not offered again."""

    def __contains__(self, gang: Gang) -> bool:
        return gang.key in self._asleep

    def has(self, gang: Gang) -> None:
        """The gang holds a plan, and members beyond it were rejected."""
        self.has_news = True
        if gang.key not in self._asleep:
            self._asleep[gang.key] = _Asleep()

    def found_no_place(self, gang: Gang, pod: Pod) -> None:
        """The member was rejected on all nodes that it may use: only changed nodes matter to it."""
        self._note(self._asleep[gang.key], pod)

    def passed(self, uid: PodUid) -> None:
        """The filter accepted the member. If it kept its own place, the next one gets the other."""
        awake = self._awake.get(uid)
        if awake is not None and awake.held is not None and self._ledger.holding(uid) == awake.held:
            self._awake[uid] = replace(awake, until=-inf)
            self.has_news = True

    def look_again(self) -> None:
        """Looks at all nodes again for every member."""
        self.has_news = True
        for asleep in self._asleep.values():
            asleep.kinds.clear()
            asleep.told_of.clear()
        self._found.clear()

    def planned_anew(self, gang: Gang) -> None:
        """Forgets the results of earlier wakes, because the gang has a new plan."""
        self._forget(gang.key)
        self._found.pop(gang.key, None)
        for uid in [uid for uid, awake in self._awake.items() if awake.gang == gang.key]:
            del self._awake[uid]

    def _forget(self, key: GangKey) -> None:
        asleep = self._asleep.pop(key, None)
        for kind in asleep.followed if asleep is not None else ():
            self._copies.leave(kind)

    def _nobody_sleeps(self, key: GangKey) -> None:
        """Forgets the gang except wakes for places by name: kube-scheduler may not offer the node."""
        told_of = {
            uid: node
            for uid, node in self._asleep[key].told_of.items()
            if (own := self._ledger.holding(uid)) is not None and own.node == node and own.kind is not HoldingKind.BOUND
        }
        self._forget(key)
        if told_of:
            self._asleep[key] = _Asleep(told_of=told_of)

    def next_deadline(self) -> float | None:
        """When the first woken member should have come for its place."""
        return next(iter(self._awake.values())).until if self._awake else None

    def overdue(self, now: float) -> bool:
        due = self.next_deadline()
        return due is not None and due <= now

    # -- wakes ---------------------------------------------------------------------------------------------------

    def to_wake(self, gains: Collection[NodeName], now: float) -> list[tuple[Gang, PodUid]]:
        """Members that have a place now, given nodes with gains since the last call.

        They count as woken. `copies` must be up to date."""
        self.has_news = False
        again = self._places_not_taken(now)
        self._on_gains(gains)
        found: list[tuple[Gang, PodUid]] = []
        for key in list(self._asleep):
            self._table.handled = key
            gang = self._table.by_key.get(key)
            if gang is None or not gang.holds_a_plan:
                self._forget(key)
            elif not gang.wait.rejected:
                # Members on their way may be rejected again.
                if all(awake.gang != key for awake in self._awake.values()):
                    self._nobody_sleeps(key)
            elif gains or again or self._is_news(gang):
                found += [(gang, uid) for uid in sorted(gang.wait.rejected) if gang.roster.members[uid].at_our_gate]
                own = self._back_in_its_place(gang, gains)
                found += [(gang, uid) for uid in own]
                found += self._of_gang(gang, gains, again, now, own)
        return found

    def _on_gains(self, gains: Collection[NodeName]) -> None:
        """Forgets refusals by nodes that gained room, and results of gangs without a plan."""
        for key, of_gang in list(self._found.items()):
            gang = self._table.by_key.get(key)
            if gang is None or not gang.holds_a_plan:
                del self._found[key]
            for node in gains if of_gang.refused else ():
                of_gang.refused.pop(node, None)

    def _back_in_its_place(self, gang: Gang, gains: Collection[NodeName]) -> list[PodUid]:
        """Rejected members that have a place: facts had taken its room, which may now be free."""
        found: list[PodUid] = []
        for uid in sorted(gang.wait.rejected) if gains else ():
            own, pod = self._ledger.holding(uid), gang.roster.members[uid]
            if own is None or own.node not in gains or pod.at_our_gate:
                continue
            if self._ledger.rows.short(own.node, pod.requests, (uid,)) is None:
                found.append(uid)
        return found

    def _places_not_taken(self, now: float) -> dict[NodeName, None]:
        """Nodes of places that woken members did not take."""
        found: dict[NodeName, None] = {}
        for uid, awake in list(self._awake.items()):
            gang = self._table.by_key.get(awake.gang)
            turned_away = gang is not None and uid in gang.wait.rejected
            waits = gang is not None and uid in gang.roster.members and self._ledger.holding(uid) == awake.held
            if waits and not turned_away and now < awake.until:
                continue
            del self._awake[uid]
            found[awake.node] = None
            if turned_away:
                of_gang = self._found.setdefault(awake.gang, _Found())
                of_gang.refused.setdefault(awake.node, set()).add(awake.kind)
        return found

    def _is_news(self, gang: Gang) -> bool:
        asleep = self._asleep[gang.key]
        return gang.plan.slots_made != asleep.slots_seen or not asleep.kinds.keys() >= gang.wait.rejected

    def _of_gang(
        self,
        gang: Gang,
        gains: Collection[NodeName],
        again: Collection[NodeName],
        now: float,
        woken: Collection[PodUid],
    ) -> Iterator[tuple[Gang, PodUid]]:
        """`woken`: members that are woken anyway."""
        asleep = self._asleep[gang.key]
        fresh = self._look_at(gang, asleep)
        vacant = self._vacant(gang) if again or gang.plan.slots_made != asleep.slots_seen else {}
        asleep.slots_seen = gang.plan.slots_made
        if not (vacant or self._may_add(gang)):
            return
        refused = self._refused(gang, vacant)
        news = dict.fromkeys((*vacant.values(), *gains, *again))
        suited = {kind: self._suited(kind, news, vacant, refused) for kind in asleep.followed}
        if not any(suited.values()) and not any(self._copies.total(asleep.kinds[uid]) for uid in fresh):
            return
        room = Room(self._ledger, vacant)
        for awake in self._awake.values():
            room.take(awake.node, awake.kind.need)
        everywhere: dict[EquivalenceClass, list[NodeName]] = {}
        for pod in gang.roster.unplaced():
            if pod.uid not in gang.wait.rejected or pod.at_our_gate or pod.uid in woken:
                continue
            kind = asleep.kinds[pod.uid]
            nodes = suited[kind]
            if pod.uid in fresh:
                if kind not in everywhere:
                    far = self._copies.with_room(kind) if self._copies.total(kind) else ()
                    open_to_it = [node for node in far if kind not in refused.get(node, ())]
                    everywhere[kind] = [*reversed(open_to_it), *nodes]
                nodes = everywhere[kind]
            # The last node is tried first. A full node is not looked at again.
            while nodes and room.lacking(nodes[-1], tuple(kind.need)) is not None:
                nodes.pop()
            if nodes:
                room.take(nodes[-1], kind.need)
                held = self._ledger.holding(pod.uid)
                self._awake[pod.uid] = _Awake(gang.key, kind, nodes[-1], now + COMES_WITHIN, held)
                yield gang, pod.uid

    def _look_at(self, gang: Gang, asleep: _Asleep) -> set[PodUid]:
        """Members for which all nodes must be looked at."""
        fresh = {
            uid for uid in gang.wait.rejected if uid not in asleep.kinds and not gang.roster.members[uid].at_our_gate
        }
        if fresh:
            for uid in [uid for uid in asleep.kinds if uid not in gang.roster.members]:
                del asleep.kinds[uid]
                asleep.told_of.pop(uid, None)
        for uid in sorted(fresh):
            self._note(asleep, gang.roster.members[uid])
        return fresh

    def _note(self, asleep: _Asleep, pod: Pod) -> None:
        kind = asleep.kinds[pod.uid] = equivalence_of(pod)
        if kind not in asleep.followed:
            self._copies.follow(kind)
            asleep.followed[kind] = None

    def _refused(
        self, gang: Gang, vacant: Mapping[Holder, NodeName]
    ) -> Mapping[NodeName, Collection[EquivalenceClass]]:
        """By node, kinds not to wake for it again. A new place of the gang is offered to all."""
        found = self._found.get(gang.key)
        if found is None and not vacant:
            return {}
        found = self._found.setdefault(gang.key, _Found())
        for node in (node for holder, node in vacant.items() if holder not in found.offered):
            found.refused.pop(node, None)
        if vacant:
            found.offered = set(vacant)
        return found.refused

    def _suited(
        self,
        kind: EquivalenceClass,
        news: Iterable[NodeName],
        vacant: Mapping[Holder, NodeName],
        refused: Mapping[NodeName, Collection[EquivalenceClass]],
    ) -> list[NodeName]:
        """The changed nodes that may have room for one of the kind, in reverse order."""
        own = set(vacant.values())
        found = [
            node
            for node in news
            if (self._copies.on(node, kind) or (node in own and self._accepts(node, kind)))
            and kind not in refused.get(node, ())
        ]
        return found[::-1]

    def _vacant(self, gang: Gang) -> dict[Holder, NodeName]:
        """The gang's places without a member."""
        return {
            held.holder: held.node
            for held in self._ledger.held_for(gang.key)
            if held.kind is HoldingKind.RESERVATION and PodUid(held.holder) not in gang.roster.members
        }

    def with_own_place(self, gang: Gang) -> list[PodUid]:
        """Rejected members with a place by name since, not woken for it yet; they count as woken."""
        asleep = self._asleep.get(gang.key)
        if asleep is None:
            return []
        held = {uid: own.node for uid in gang.wait.rejected if (own := self._ledger.holding(uid)) is not None}
        found = [uid for uid in sorted(held) if asleep.told_of.get(uid) != held[uid]]
        asleep.told_of |= {uid: held[uid] for uid in found}
        return found
