"""Placement: the places of gangs on the ledger: reserve, claim, move, pass on, release.

Every change is one transaction: it happens whole or not at all. `gangs` decides why a place is needed, `preemption`
which pod is nominated, `feasibility` what could fit ever.

The places of a gang that only intends are holdings without units: only its own members count them. `settle_on` claims
the units when a member arrives in bind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from extender.core.cluster import Pod
from extender.core.fit.fit import NOTHING, lacking
from extender.core.gangs.placement.affinity_planner import Constrained
from extender.core.gangs.placement.slots import Offers, Slots, plannable, size_of, slot_name, too_varied
from extender.core.gangs.state.bin_packing import Shortfall, Slot, plan
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.quota import PlaceQuota
from extender.core.gangs.state.trial_snapshot import Room
from extender.core.ledger.ledger import Holder, Holding, HoldingKind, Ledger
from extender.core.ledger.units import add
from extender.kube.names import NodeName, PodUid
from extender.kube.node_match import accepts
from extender.kube.quantities import Vector


@dataclass(eq=False)
class Places:
    """`offers`: nodes offered to members. `quota`: how many places a namespace may have."""

    _ledger: Ledger
    _slots: Slots
    _constrained: Constrained
    _offers: Offers
    _quota: PlaceQuota

    def unbound(self, gang: Gang) -> list[Holding]:
        """The gang's reservations and assumptions."""
        return [held for held in self._ledger.held_for(gang.key) if held.kind is not HoldingKind.BOUND]

    def has_unbound(self, gang: Gang) -> bool:
        """Whether it has any. Cheaper than `unbound`, because each member may ask."""
        return self._ledger.first_held_for(gang.key, HoldingKind.BOUND) is not None

    def are_allowed(self, gang: Gang) -> bool:
        """Whether the gang's members may still be where the plan has them, room aside."""
        return not self.is_constrained(gang) or self._constrained.is_allowed(gang, self.unbound(gang))

    # -- a quorum ------------------------------------------------------------------------------------------------

    def reserve(
        self,
        gang: Gang,
        first: Pod | None,
        sent: Sequence[NodeName],
        deadline: float,
        saved: Sequence[Holder] = (),
        *,
        intends: bool = False,
        unheld: bool = False,
        beside: Sequence[Gang] = (),
    ) -> Sequence[Holder] | Shortfall:
        """Reserves a place for each member that the quorum still needs; or returns what is short.

        If it fails, nothing changes. `first` is placed on one of the nodes sent; members that do not exist yet are
        taken to be like it. `saved`: backfill reservations for the gang, or for one behind it, given up for the plan.
        `intends`: nothing is reserved, see above. `unheld`: nothing is held for members that do not exist yet.
        `beside`: other gangs that must also have room: each of their members may need a place that holds no units yet.
        """
        slots, found = self._look_for(gang, first, sent, saved)
        if beside and not isinstance(found, Shortfall):
            found = self._beside(gang, slots, found, sent, beside)
        if isinstance(found, Shortfall):
            return found
        gang.plan.intends, gang.plan.unheld = intends, unheld
        found = as_nominated(slots, found, gang.plan.nominated)
        if unheld:
            slots = [slot if PodUid(slot.holder) in gang.roster.members else replace(slot, units={}) for slot in slots]
        commit(self._ledger, _reservations(gang, slots, found, deadline), releasing=saved)
        return [slot.holder for slot in slots]

    def has_room(self, gang: Gang, first: Pod | None, sent: Sequence[NodeName], releasing: Sequence[Holder]) -> bool:
        """Whether `reserve` would find a place for each member."""
        return not isinstance(self._look_for(gang, first, sent, releasing)[1], Shortfall)

    def _beside(
        self,
        gang: Gang,
        slots: Sequence[Slot],
        found: Mapping[Holder, NodeName],
        sent: Sequence[NodeName],
        others: Sequence[Gang],
    ) -> Mapping[Holder, NodeName] | Shortfall:
        """A plan that leaves a place to each member for which these others hold nothing yet.

        Their requirements on each other are ignored. A gang with required or preferred nodes keeps its plan."""
        theirs: list[Slot] = []
        for other in others:
            theirs += self._slots.more(other, other.needed - sum(1 for held in self.unbound(other) if held.units))
        candidates = self._slots.candidates(sent)
        together = plan(self._ledger, [*slots, *theirs], candidates)
        if isinstance(together, Shortfall):
            return together
        if self.is_constrained(gang) or self._slots.best_first(gang, candidates) is not None:
            return found
        return {slot.holder: together[slot.holder] for slot in slots}

    def _look_for(
        self, gang: Gang, first: Pod | None, sent: Sequence[NodeName], releasing: Sequence[Holder]
    ) -> tuple[Sequence[Slot], Mapping[Holder, NodeName] | Shortfall]:
        if self.is_constrained(gang) and (hopeless := self._constrained.known_hopeless(gang)) is not None:
            return (), hopeless
        if not (members := plannable(gang, first)):
            return (), too_varied(gang)
        candidates = self._slots.candidates(sent)
        slots = self._slots.of_quorum(gang, members, sent if first is not None else None)
        found = self.plan(gang, slots, candidates, releasing)
        more = isinstance(found, Shortfall) and gang.roster.unplaced_count > gang.needed
        if more and (smallest := self._slots.smallest(gang, lambda: Room(self._ledger, releasing))):
            fewer = self._slots.of_quorum(gang, smallest, None)
            retried = self.plan(gang, fewer, candidates, releasing)
            if not isinstance(retried, Shortfall):
                return fewer, retried
        if isinstance(found, Shortfall) and first is not None and self._may_be_elsewhere(gang, first, sent):
            for own in (self._offers, Offers()):
                apart = self._slots.of_quorum(gang, members, sent, own)
                retried = self.plan(gang, apart, candidates, releasing)
                if not isinstance(retried, Shortfall):
                    return apart, retried
        return slots, found

    def _may_be_elsewhere(self, gang: Gang, first: Pod, sent: Sequence[NodeName]) -> bool:
        """Whether others may use other nodes than those sent for the first. Stores that offer."""
        # Policies may have left only few of the nodes that kube-scheduler sent: these are not all that it allows.
        return self._offers.differ(gang, first, sent) or (
            bool(first.governed) and self._slots.judged(first) is not None
        )

    def plan(
        self, gang: Gang, slots: Sequence[Slot], candidates: Sequence[NodeName], releasing: Sequence[Holder]
    ) -> dict[Holder, NodeName] | Shortfall:
        """A node for each of the slots, by the requirements of the gang's members; nothing changes."""
        best_first = self._slots.best_first(gang, candidates)
        if self.is_constrained(gang):
            return self._constrained.plan(gang, slots, best_first or candidates, releasing)
        if best_first is not None:
            return plan(self._ledger, slots, best_first, releasing=releasing, filling=True)
        return plan(self._ledger, slots, candidates, releasing=releasing)

    @property
    def work(self) -> int:
        """Steps of work that plans of constrained gangs have taken."""
        return self._constrained.work

    def is_constrained(self, gang: Gang) -> bool:
        """Whether its places depend on which pods are on which nodes."""
        return self._constrained.concerns(gang)

    def make_good(self, gang: Gang, members: Mapping[PodUid, NodeName]) -> Sequence[PodUid]:
        """Holds these members' requests without deadline, or returns the members without room.

        In the second case nothing changes."""
        claims = [
            Holding(Holder(uid), node, gang.roster.members[uid].requests, HoldingKind.ASSUMPTION, gang.key)
            for uid, node in members.items()
        ]
        return [PodUid(claim.holder) for claim, _ in self._ledger.commit(claims).conflicts]

    def cover(self, gang: Gang) -> bool:
        """Whether each needed member has a place or a suitable vacant one, if need be replanned.

        If that is not possible, nothing changes."""
        held = self.unbound(gang)
        vacant = [each for each in held if PodUid(each.holder) not in gang.roster.members]
        lacking = gang.needed - (len(held) - len(vacant))
        own = {each.holder for each in held}
        to_come = [pod for pod in gang.roster.unplaced() if Holder(pod.uid) not in own]
        if lacking <= 0:
            return True
        left = list(vacant)
        for pod in to_come if not self.is_constrained(gang) else ():
            suits = next((each for each in left if self._suits(gang, each, pod)), None)
            if suits is not None:
                left.remove(suits)
        if len(vacant) - len(left) >= lacking:
            return True
        releasing = [each.holder for each in vacant]
        # The former nodes come first: other gangs may be planned beside those.
        candidates = list(dict.fromkeys((*(each.node for each in vacant), *self._slots.nodes)))
        for members in (to_come, sorted(to_come, key=size_of)):
            slots, _ = self._slots.of_members(members[:lacking], members[0], None)
            found = self.plan(gang, slots, candidates, releasing)
            if not isinstance(found, Shortfall) and gang.plan.deadline is not None:
                commit(self._ledger, _reservations(gang, slots, found, gang.plan.deadline), releasing=releasing)
                return True
        return False

    def _suits(self, gang: Gang, held: Holding, pod: Pod) -> bool:
        if gang.plan.intends:
            fits = self._ledger.rows.short(held.node, pod.requests) is None
        else:
            fits = lacking(held.units, NOTHING, pod.requests.items()) is None
        node = self._slots.nodes.get(held.node)
        return fits and node is not None and accepts(node, pod)

    def may_settle_on(self, gang: Gang, held: Holding, node: NodeName) -> bool:
        """Whether the member in bind may use that node instead of its planned one, room aside.

        Other plans and policies may have changed since the node was offered."""
        pod = gang.roster.members[PodUid(held.holder)]
        if node == held.node:
            return True
        if (judged := self._slots.judged(pod)) is not None and not judged(node):
            return False
        return not self._is_constrained(gang, pod) or any(self._constrained.allowed(gang, pod, [node], (held.holder,)))

    def settle_on(self, held: Holding, node: NodeName, units: Vector) -> None:
        """Holds all units of the member on that node, which has room: it has arrived in bind."""
        claim = replace(held, node=node, units=units, kind=HoldingKind.ASSUMPTION)
        if held != claim:
            commit(self._ledger, [claim])

    # -- a member takes its place --------------------------------------------------------------------------------

    def take(self, gang: Gang, pod: Pod, sent: Sequence[NodeName], until: float | None) -> NodeName | None:
        """The node, one of those sent, on which the pod now holds its units; None if there is none.

        If there is none, nothing changes. The pod keeps or moves its own place. A pod without one takes a vacant place,
        then any room, then the place of a member that has not come for it.
        """
        own = self._ledger.holding(pod.uid)
        if own is not None and own.kind is HoldingKind.BOUND:
            return own.node if own.node in sent else None
        if own is not None:
            return self._claim(gang, pod, own, sent, until)
        if (node := self._claim_first(gang, pod, self._vacant(gang, sent), sent, until)) is not None:
            return node
        node = self._with_room(gang, pod, sent) if self._quota.over_by_one(gang) is None else None
        if node is not None:
            commit(self._ledger, [self._assumption(gang, pod, node, until)])
            return node
        named = (held for held in self._reserved(gang) if PodUid(held.holder) in gang.roster.members)
        return self._claim_first(gang, pod, named, sent, until)

    def exchange(self, gang: Gang, pod: Pod, sent: Sequence[NodeName], until: float | None) -> NodeName | None:
        """As `take`, for a pod that may not have its own place: it takes a vacant one instead."""
        own = self._unbound_of(pod)
        if own is None:
            return None
        return self._claim_first(gang, pod, self._vacant(gang, sent), sent, until, leaving=own)

    def make_way(self, gang: Gang, pod: Pod) -> None:
        """Releases a place that the pod may not have, if facts took room that members there need."""
        own = self._unbound_of(pod)
        if own is None or self._is_backed(own):
            return
        if any(held.node == own.node and held.holder != own.holder for held in self.unbound(gang)):
            self._ledger.release(own.holder)

    def _unbound_of(self, pod: Pod) -> Holding | None:
        """The pod's own place, if it is not bound."""
        held = self._ledger.holding(pod.uid)
        return None if held is None or held.kind is HoldingKind.BOUND else held

    def _reserved(self, gang: Gang) -> list[Holding]:
        return [held for held in self.unbound(gang) if held.kind is HoldingKind.RESERVATION]

    def _vacant(self, gang: Gang, sent: Sequence[NodeName]) -> list[Holding]:
        """Places without a member; those on a node sent come first, because they need no move."""
        vacant = [held for held in self._reserved(gang) if PodUid(held.holder) not in gang.roster.members]
        there = frozenset(sent if vacant else ())
        return sorted(vacant, key=lambda held: held.node not in there)

    def reseat(self, gang: Gang, pod: Pod, sent: Sequence[NodeName]) -> NodeName | None:
        """The node, one of those sent, that the pod holds after a new plan for later members.

        None if that is not possible; then nothing has changed."""
        self._offers.note_offer(pod, sent)
        held = self.unbound(gang)
        own = next((each for each in held if PodUid(each.holder) == pod.uid), None)
        if gang.plan.intends or own is None or gang.plan.deadline is None:
            return None
        moving = [each for each in held if each.kind is HoldingKind.RESERVATION and each is not own]
        members = [
            pod,
            *(gang.roster.members[uid] for each in moving if (uid := PodUid(each.holder)) in gang.roster.members),
        ]
        vacant = [each for each in moving if PodUid(each.holder) not in gang.roster.members]
        slots, anywhere = self._slots.of_members_apart(members, sent, self._offers)
        slots += [Slot(each.holder, each.units, anywhere) for each in vacant]
        releasing = [each.holder for each in (own, *moving)]
        found = self.plan(gang, slots, self._slots.candidates(sent), releasing)
        if isinstance(found, Shortfall):
            return None
        others = _reservations(gang, slots[1:], found, gang.plan.deadline)
        node = found[Holder(pod.uid)]
        commit(self._ledger, [self._assumption(gang, pod, node, gang.plan.deadline), *others], releasing=releasing)
        return node

    def _claim_first(
        self,
        gang: Gang,
        pod: Pod,
        places: Iterable[Holding],
        sent: Sequence[NodeName],
        until: float | None,
        *,
        leaving: Holding | None = None,
    ) -> NodeName | None:
        """As `_claim`, with the first suitable place."""
        claimed = (self._claim(gang, pod, each, sent, until, leaving=leaving) for each in places)
        return next((node for node in claimed if node is not None), None)

    def _claim(
        self,
        gang: Gang,
        pod: Pod,
        held: Holding,
        sent: Sequence[NodeName],
        until: float | None,
        *,
        leaving: Holding | None = None,
    ) -> NodeName | None:
        """`held` becomes the pod's own, on its node if possible, else moved to one that was sent.

        The place that it is `leaving` becomes a slot for another member, if facts have not taken that room."""
        wanted = [held.node] if held.node in sent else []
        node = self._with_room(gang, pod, (*wanted, *sent), held, leaving)
        if node is None:
            return None
        claims = [self._assumption(gang, pod, node, until)]
        if leaving is not None and node != leaving.node and self._is_backed(leaving):
            claims.append(_as_slot(gang, leaving, held.until))
        if held != replace(claims[0], until=held.until):
            commit(self._ledger, claims, releasing=(held.holder,))
        return node

    def _is_backed(self, held: Holding) -> bool:
        """Whether there is room for it beside the facts."""
        return self._ledger.rows.short(held.node, held.units, (held.holder,)) is None

    def _assumption(self, gang: Gang, pod: Pod, node: NodeName, until: float | None) -> Holding:
        return Holding(Holder(pod.uid), node, _held_now(gang, pod.requests), HoldingKind.ASSUMPTION, gang.key, until)

    def _with_room(
        self,
        gang: Gang,
        pod: Pod,
        nodes: Iterable[NodeName],
        instead_of: Holding | None = None,
        leaving: Holding | None = None,
    ) -> NodeName | None:
        """The first node with room for the pod, beside what is held and what its gang intends."""
        giving_up = [held.holder for held in (instead_of, leaving) if held is not None]
        intended = self._intended(gang, (Holder(pod.uid), *giving_up)) if gang.plan.intends else {}
        if instead_of is not None and PodUid(instead_of.holder) == pod.uid:
            # Its own place is where the plan has it.
            nodes = self._own_first(gang, pod, nodes, instead_of)
        elif self._is_constrained(gang, pod):
            left = [leaving.node] if leaving is not None and self._is_backed(leaving) else []
            nodes = self._constrained.allowed(gang, pod, nodes, giving_up, left)
        for node in nodes:
            needed = add([pod.requests, *intended[node]]) if node in intended else pod.requests
            if self._ledger.rows.short(node, needed, giving_up) is None:
                return node
        return None

    def _is_constrained(self, gang: Gang, pod: Pod) -> bool:
        return pod.constraints is not None or self._constrained.concerns(gang)

    def _own_first(self, gang: Gang, pod: Pod, nodes: Iterable[NodeName], own: Holding) -> Iterator[NodeName]:
        others: list[NodeName] = []
        for node in nodes:
            if node == own.node:
                yield node
            else:
                others.append(node)
        if others and self._is_constrained(gang, pod):
            yield from self._constrained.allowed(gang, pod, others, (own.holder,))
        else:
            yield from others

    def _intended(self, gang: Gang, but: Sequence[Holder]) -> dict[NodeName, list[Vector]]:
        """Requests of members that a gang which only intends has planned, by node."""
        found: dict[NodeName, list[Vector]] = {}
        for held in self.unbound(gang):
            member = gang.roster.members.get(PodUid(held.holder))
            if member is not None and not held.units and held.holder not in but:
                found.setdefault(held.node, []).append(member.requests)
        return found

    # -- release -------------------------------------------------------------------------------------------------

    def hand_over(self, gang: Gang, held: Holding, until: float) -> None:
        """Makes the member's holding a slot for a successor, if facts have not taken that room."""
        if self._is_backed(held):
            commit(self._ledger, [_as_slot(gang, held, until)], releasing=(held.holder,))
        else:
            self._ledger.release(held.holder)

    def keep(self, gang: Gang, deadline: float) -> None:
        """Sets the deadline of all reservations and assumptions."""
        for held in self.unbound(gang):
            self._ledger.keep(held.holder, deadline)

    def release_vacant(self, gang: Gang) -> None:
        """Releases places without a member."""
        for held in self.unbound(gang):
            if PodUid(held.holder) not in gang.roster.members:
                self._ledger.release(held.holder)

    def forget_member(self, uid: PodUid) -> None:
        """The member is deleted: forgets its offer."""
        self._offers.forget(uid)

    def forget(self, gang: Gang) -> None:
        self._constrained.forget(gang.key)

    def release(self, gang: Gang) -> None:
        """Releases all that is neither bound nor being written."""
        for held in self.unbound(gang):
            if PodUid(held.holder) not in gang.barrier.writing:
                self._ledger.release(held.holder)


def _reservations(gang: Gang, slots: Sequence[Slot], nodes: Mapping[Holder, NodeName], until: float) -> list[Holding]:
    """The holdings of the slots on their planned nodes."""
    return [
        Holding(slot.holder, nodes[slot.holder], _held_now(gang, slot.units), HoldingKind.RESERVATION, gang.key, until)
        for slot in slots
    ]


def _as_slot(gang: Gang, held: Holding, until: float | None) -> Holding:
    """The holding as a place without a member."""
    return Holding(slot_name(gang), held.node, held.units, HoldingKind.RESERVATION, gang.key, until)


def _held_now(gang: Gang, units: Vector) -> Vector:
    """What a place of these units holds until its member arrives in bind."""
    return {} if gang.plan.intends else units


def commit(ledger: Ledger, claims: Sequence[Holding], releasing: Iterable[Holder] = ()) -> None:
    """Commits claims planned on the ledger as it is. Raises AssertionError on a conflict."""
    outcome = ledger.commit(claims, releasing=releasing)
    if outcome.conflicts:
        raise AssertionError(f"the ledger refused checked claims: {outcome.conflicts}")


def as_nominated(
    slots: Sequence[Slot], nodes: Mapping[Holder, NodeName], nominated: Mapping[PodUid, NodeName]
) -> Mapping[Holder, NodeName]:
    """The same plan, with equal slots exchanged so that as many as possible are on nominated nodes."""
    if not nominated:
        return nodes
    found = dict(nodes)
    alike: dict[tuple[frozenset[tuple[str, int]], object], list[Holder]] = {}
    for slot in slots:
        alike.setdefault((frozenset(slot.units.items()), slot.accepts), []).append(slot.holder)
    for holders in alike.values():
        wanted = {holder: node for holder in holders if (node := nominated.get(PodUid(holder))) is not None}
        for holder, node in wanted.items():
            if found[holder] == node:
                continue
            # The other slot must not be on its own nominated node.
            other = next((each for each in holders if found[each] == node and wanted.get(each) != node), None)
            if other is not None:
                found[holder], found[other] = node, found[holder]
    return found
