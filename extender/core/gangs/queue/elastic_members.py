"""Surplus: members of a gang that holds a plan, which were turned away because there was no room beside its quorum.

One is woken for each place that there is for them, the oldest first; the others sleep on until more comes free.

A place is room on a node that has gained some, if the pod's selectors and the node's taints allow it, what is reserved
for others not counted as free; or one of the gang's own places that nobody has taken. All nodes are looked at for one
that was never looked at before. Who was woken has its place for as long as kube-scheduler may need to come for it; a
place that it did not take is the next one's then. If our filter turned it away again, those that are alike would fare
no better, and sleep on until that node gains room again. Our gate is opened for all at once, and once for
each: nobody else, an autoscaler say, sees who is behind it.

Reads the ledger and changes nothing. Must not know why a gang has a plan, nor how anybody is woken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from extender.core.cluster import Pod
from extender.core.equivalence import EquivalenceClass, equivalence_of
from extender.core.gangs.placement.fit_counts import Copies
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.trial_snapshot import Room
from extender.core.ledger import Holder, Holding, HoldingKind, Ledger
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid

COMES_WITHIN = 15.0
"""Seconds from a wake to the filter call: kube-scheduler's back-off is ten at most."""


@dataclass(frozen=True, slots=True)
class _Awake:
    gang: GangKey
    kind: EquivalenceClass
    node: NodeName
    until: float
    held: Holding | None
    """What it held when it was woken, which may have been taken by facts."""


@dataclass(slots=True)
class _Asleep:
    """What is known of one gang's members that were turned away."""

    kinds: dict[PodUid, EquivalenceClass] = field(default_factory=dict)
    """Of those that all nodes were looked at for."""
    followed: dict[EquivalenceClass, None] = field(default_factory=dict)
    slots_seen: int = 0
    told_of: dict[PodUid, NodeName] = field(default_factory=dict)
    """Who was woken for a place that the plan has for it by name, and where that is."""


@dataclass(slots=True)
class _Found:
    """What has become of the places that one gang's members were woken for, since it was planned. `refused`: by node,
    of which kinds one came, and was turned away, since the node gained room last. `offered`: the gang's own places that
    nobody had when it was looked last."""

    refused: dict[NodeName, set[EquivalenceClass]] = field(default_factory=dict)
    offered: set[Holder] = field(default_factory=set)


@dataclass(eq=False)
class ElasticMembers:
    """`copies`: how often pods of a kind fit into what is free; `accepts`: whether the node would have them.
    `may_add`: whether the gang may have one place more."""

    _ledger: Ledger
    _table: GangStore
    _copies: Copies[EquivalenceClass]
    _accepts: Callable[[NodeName, EquivalenceClass], bool]
    _may_add: Callable[[Gang], bool] = lambda gang: True
    has_news: bool = field(default=False, init=False)
    """Whether somebody was turned away since `to_wake` was asked last."""
    _asleep: dict[GangKey, _Asleep] = field(default_factory=dict, init=False)
    _awake: dict[PodUid, _Awake] = field(default_factory=dict, init=False)
    """Who was woken for a place, and has not come for it yet."""
    _found: dict[GangKey, _Found] = field(default_factory=dict, init=False)
    """Of gangs that hold a plan, also while nobody of them sleeps: what one was refused is not offered to it again for
    that."""

    def __contains__(self, gang: Gang) -> bool:
        return gang.key in self._asleep

    def has(self, gang: Gang) -> None:
        """It holds a plan, and members beyond it were turned away."""
        self.has_news = True
        if gang.key not in self._asleep:
            self._asleep[gang.key] = _Asleep()

    def found_no_place(self, gang: Gang, pod: Pod) -> None:
        """The member was turned away on all nodes that kube-scheduler allows it: none but what changes is of interest
        to it."""
        self._note(self._asleep[gang.key], pod)

    def passed(self, uid: PodUid) -> None:
        """Filter has let the member pass. If it has kept its own place, the one that it was woken for is the next's."""
        awake = self._awake.get(uid)
        if awake is not None and awake.held is not None and self._ledger.holding(uid) == awake.held:
            self._awake[uid] = replace(awake, until=-inf)
            self.has_news = True

    def look_again(self) -> None:
        """All nodes are to be looked at for everybody."""
        self.has_news = True
        for asleep in self._asleep.values():
            asleep.kinds.clear()
            asleep.told_of.clear()
        self._found.clear()

    def planned_anew(self, gang: Gang) -> None:
        """What was found out about its members is of the past."""
        self._forget(gang.key)
        self._found.pop(gang.key, None)
        for uid in [uid for uid, awake in self._awake.items() if awake.gang == gang.key]:
            del self._awake[uid]

    def _forget(self, key: GangKey) -> None:
        asleep = self._asleep.pop(key, None)
        for kind in asleep.followed if asleep is not None else ():
            self._copies.leave(kind)

    def _nobody_sleeps(self, key: GangKey) -> None:
        """Who is turned away again beside the same place, which it was woken for, is not woken for that once more:
        kube-scheduler may not offer the node."""
        told_of = {
            uid: node
            for uid, node in self._asleep[key].told_of.items()
            if (own := self._ledger.holding(uid)) is not None and own.node == node and own.kind is not HoldingKind.BOUND
        }
        self._forget(key)
        if told_of:
            self._asleep[key] = _Asleep(told_of=told_of)

    def next_deadline(self) -> float | None:
        """When somebody who was woken has not come for its place."""
        return next(iter(self._awake.values())).until if self._awake else None

    def overdue(self, now: float) -> bool:
        due = self.next_deadline()
        return due is not None and due <= now

    # -- who is woken --------------------------------------------------------------------------------------------

    def to_wake(self, gains: Collection[NodeName], now: float) -> list[tuple[Gang, PodUid]]:
        """Who has a place now, given nodes that gained room since the last call: they count as woken. `copies` are as
        of now."""
        self.has_news = False
        again = self._places_not_taken(now)
        self._heed_gains(gains)
        found: list[tuple[Gang, PodUid]] = []
        for key in list(self._asleep):
            self._table.handled = key
            gang = self._table.by_key.get(key)
            if gang is None or not gang.holds_a_plan:
                self._forget(key)
            elif not gang.wait.rejected:
                # Those who are on their way may sleep again.
                if all(awake.gang != key for awake in self._awake.values()):
                    self._nobody_sleeps(key)
            elif gains or again or self._is_news(gang):
                found += [(gang, uid) for uid in sorted(gang.wait.rejected) if gang.roster.members[uid].at_our_gate]
                own = self._back_in_its_place(gang, gains)
                found += [(gang, uid) for uid in own]
                found += self._of_gang(gang, gains, again, now, own)
        return found

    def _heed_gains(self, gains: Collection[NodeName]) -> None:
        """What a node refused before it gained room says nothing any more; nor does what a gang without a plan met."""
        for key, of_gang in list(self._found.items()):
            gang = self._table.by_key.get(key)
            if gang is None or not gang.holds_a_plan:
                del self._found[key]
            for node in gains if of_gang.refused else ():
                of_gang.refused.pop(node, None)

    def _back_in_its_place(self, gang: Gang, gains: Collection[NodeName]) -> list[PodUid]:
        """Who was turned away though it has a place, for others had taken that by facts, and may have it now."""
        found: list[PodUid] = []
        for uid in sorted(gang.wait.rejected) if gains else ():
            own, pod = self._ledger.holding(uid), gang.roster.members[uid]
            if own is None or own.node not in gains or pod.at_our_gate:
                continue
            if self._ledger.rows.short(own.node, pod.requests, (uid,)) is None:
                found.append(uid)
        return found

    def _places_not_taken(self, now: float) -> dict[NodeName, None]:
        """Nodes on which those have not come for their place that were woken for it."""
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
        """`woken`: who is anyway."""
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
            # From the end: a node that is full by now is not looked at again.
            while nodes and room.lacking(nodes[-1], tuple(kind.need)) is not None:
                nodes.pop()
            if nodes:
                room.take(nodes[-1], kind.need)
                held = self._ledger.holding(pod.uid)
                self._awake[pod.uid] = _Awake(gang.key, kind, nodes[-1], now + COMES_WITHIN, held)
                yield gang, pod.uid

    def _look_at(self, gang: Gang, asleep: _Asleep) -> set[PodUid]:
        """Those that all nodes are to be looked at for."""
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
        """By node, the kinds that are not woken for it again. A new place of the gang is offered to all."""
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
        """Of the nodes that there is news of those that may have room for one of the kind, the first of them last."""
        own = set(vacant.values())
        found = [
            node
            for node in news
            if (self._copies.on(node, kind) or (node in own and self._accepts(node, kind)))
            and kind not in refused.get(node, ())
        ]
        return found[::-1]

    def _vacant(self, gang: Gang) -> dict[Holder, NodeName]:
        """The gang's places that no member has."""
        return {
            held.holder: held.node
            for held in self._ledger.held_for(gang.key)
            if held.kind is HoldingKind.RESERVATION and PodUid(held.holder) not in gang.roster.members
        }

    def with_own_place(self, gang: Gang) -> list[PodUid]:
        """Who was turned away and has a place by name since, and was not woken for that yet. They count as woken."""
        asleep = self._asleep.get(gang.key)
        if asleep is None:
            return []
        held = {uid: own.node for uid in gang.wait.rejected if (own := self._ledger.holding(uid)) is not None}
        found = [uid for uid in sorted(held) if asleep.told_of.get(uid) != held[uid]]
        asleep.told_of |= {uid: held[uid] for uid in found}
        return found
