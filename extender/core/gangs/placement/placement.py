"""The places of gangs on the ledger: a quorum reserved as one, claimed or moved by its members, handed over, given up.

Knows the ledger and which nodes a pod accepts. Every change is one transaction: it happens whole, or nothing has
happened. Must not know in which phase a gang is, who waits at a barrier, why a place is wanted (see `gangs`), nor why a
pod was nominated (`preemption`). What could be is in `feasibility`.

The places of a gang that only intends are holdings of no units: nobody else counts them, its own members do. Units
are claimed by `settle_on` when a member comes to be bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from extender.core.cluster import Pod
from extender.core.fit import NOTHING, lacking
from extender.core.gangs.placement.affinity_planner import Constrained
from extender.core.gangs.placement.slots import Offers, Slots, in_order, size_of, slot_name
from extender.core.gangs.state.bin_packing import Shortfall, Slot, plan
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.quota import PlaceQuota
from extender.core.gangs.state.trial_snapshot import Room
from extender.core.ledger import Holder, Holding, HoldingKind, Ledger
from extender.core.units import add
from extender.kube.names import NodeName, PodUid
from extender.kube.node_match import accepts
from extender.kube.quantities import Vector


@dataclass(eq=False)
class Places:
    """`offers`: what kube-scheduler has offered members. `quota`: how many places a namespace may have."""

    _ledger: Ledger
    _slots: Slots
    _constrained: Constrained
    _offers: Offers
    _quota: PlaceQuota

    def unbound(self, gang: Gang) -> list[Holding]:
        """The gang's reservations and assumptions."""
        return [held for held in self._ledger.held_for(gang.key) if held.kind is not HoldingKind.BOUND]

    def has_unbound(self, gang: Gang) -> bool:
        """Whether it has any. Each of its members may ask."""
        return self._ledger.first_held_for(gang.key, HoldingKind.BOUND) is not None

    def are_allowed(self, gang: Gang) -> bool:
        """Whether the gang's reservations and assumptions, of one with a plan, are where its members may be as things
        are now, room aside."""
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
        """A place for each member that the quorum still needs, all reserved; or what is short, and nothing changes.

        `first`, if there is one, is placed on one of the nodes sent. Members that do not exist yet are taken to be
        like it. `saved`: what was saved for the gang, or for one behind it, and is given up for the plan. `intends`:
        nothing is reserved, see above. `unheld`: nothing is for members that do not exist yet. `beside`: others that
        there is to be room for as well, of whom each member may need a place that nothing is held on yet.
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
        """Whether `reserve` would find a place for each."""
        return not isinstance(self._look_for(gang, first, sent, releasing)[1], Shortfall)

    def _beside(
        self,
        gang: Gang,
        slots: Sequence[Slot],
        found: Mapping[Holder, NodeName],
        sent: Sequence[NodeName],
        others: Sequence[Gang],
    ) -> Mapping[Holder, NodeName] | Shortfall:
        """The plan for the slots, or another, that leaves a place to each for whom these others hold nothing yet; what
        they require of each other aside. A gang that requires or prefers some nodes is not moved for that."""
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
        candidates = self._slots.candidates(sent)
        slots = self._slots.of_quorum(gang, in_order(gang, first), sent if first is not None else None)
        found = self.plan(gang, slots, candidates, releasing)
        if isinstance(found, Shortfall) and gang.roster.unplaced_count > gang.needed:
            fewer = self._slots.of_quorum(gang, self._slots.smallest(gang, lambda: Room(self._ledger, releasing)), None)
            retried = self.plan(gang, fewer, candidates, releasing)
            if not isinstance(retried, Shortfall):
                return fewer, retried
        if isinstance(found, Shortfall) and first is not None and self._may_be_elsewhere(gang, first, sent):
            for own in (self._offers, Offers()):
                apart = self._slots.of_quorum(gang, in_order(gang, first), sent, own)
                retried = self.plan(gang, apart, candidates, releasing)
                if not isinstance(retried, Shortfall):
                    return apart, retried
        return slots, found

    def _may_be_elsewhere(self, gang: Gang, first: Pod, sent: Sequence[NodeName]) -> bool:
        """Whether others of the gang may be on other nodes than those sent for the first member. The offer is
        remembered: only of one for which no plan was found."""
        # Of what kube-scheduler has sent, policies may have left few: that is not every node that it allows.
        return self._offers.differ(gang, first, sent) or (
            bool(first.governed) and self._slots.judged(first) is not None
        )

    def plan(
        self, gang: Gang, slots: Sequence[Slot], candidates: Sequence[NodeName], releasing: Sequence[Holder]
    ) -> dict[Holder, NodeName] | Shortfall:
        """A node for each of the slots, by what the gang's members require; nothing changes."""
        best_first = self._slots.best_first(gang, candidates)
        if self.is_constrained(gang):
            return self._constrained.plan(gang, slots, best_first or candidates, releasing)
        if best_first is not None:
            return plan(self._ledger, slots, best_first, releasing=releasing, filling=True)
        return plan(self._ledger, slots, candidates, releasing=releasing)

    @property
    def work(self) -> int:
        """Steps of work that plans of gangs took that depend on which pods stand where."""
        return self._constrained.work

    def is_constrained(self, gang: Gang) -> bool:
        """Whether its places depend on which pods stand where."""
        return self._constrained.concerns(gang)

    def make_good(self, gang: Gang, members: Mapping[PodUid, NodeName]) -> Sequence[PodUid]:
        """What these members ask for is held on those nodes, without a deadline. Or for whom of them there is no room
        any more; then nothing has changed."""
        claims = [
            Holding(Holder(uid), node, gang.roster.members[uid].requests, HoldingKind.ASSUMPTION, gang.key)
            for uid, node in members.items()
        ]
        return [PodUid(claim.holder) for claim, _ in self._ledger.commit(claims).conflicts]

    def cover(self, gang: Gang) -> bool:
        """Each member that the quorum needs, and that has no place of its own, has a vacant one that suits it; or the
        vacant ones are planned anew for them. False where that is not possible, and nothing changes."""
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
        # Where the plan had them, if it may be: others may be planned for beside that.
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
        """Whether the member that has come for its place may be on that node instead, where the plan has another for
        it; room aside. Who else is planned where, and what policies say, may have changed since it was offered."""
        pod = gang.roster.members[PodUid(held.holder)]
        if node == held.node:
            return True
        if (judged := self._slots.judged(pod)) is not None and not judged(node):
            return False
        return not self._is_constrained(gang, pod) or any(self._constrained.allowed(gang, pod, [node], (held.holder,)))

    def settle_on(self, held: Holding, node: NodeName, units: Vector) -> None:
        """The member has come for its place, which is that node, and has room: all that it asks for is held there."""
        claim = replace(held, node=node, units=units, kind=HoldingKind.ASSUMPTION)
        if held != claim:
            commit(self._ledger, [claim])

    # -- a member takes its place --------------------------------------------------------------------------------

    def take(self, gang: Gang, pod: Pod, sent: Sequence[NodeName], until: float | None) -> NodeName | None:
        """The node, one of those sent, that the pod now holds its units on; None if there is none, and nothing has
        changed.

        Its own place is kept, or moved; a pod that has none takes over one that is vacant, then any room, then the
        place of a member that has not come for it.
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
        """As `take`, for a pod that may not have its own place: it leaves that for one that is vacant."""
        own = self._unbound_of(pod)
        if own is None:
            return None
        return self._claim_first(gang, pod, self._vacant(gang, sent), sent, until, leaving=own)

    def make_way(self, gang: Gang, pod: Pod) -> None:
        """The pod may not have its own place. If others have taken that room by facts, and what is left of it others of
        its gang could have but for this one, it has no place."""
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
        """Its places that are nobody's; those on a node that was sent first, which need no move."""
        vacant = [held for held in self._reserved(gang) if PodUid(held.holder) not in gang.roster.members]
        there = frozenset(sent if vacant else ())
        return sorted(vacant, key=lambda held: held.node not in there)

    def reseat(self, gang: Gang, pod: Pod, sent: Sequence[NodeName]) -> NodeName | None:
        """The node, one of those sent, that the pod now holds its units on, for members that have not come yet were
        planned anew around it; None if that is not possible, and nothing has changed."""
        self._offers.learn(pod, sent)
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
        """As `_claim`, of the first of the places that will do."""
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
        """`held` becomes the pod's own, on its node if that was sent and suffices, else moved to one that was. What it
        is `leaving` for that is a slot for another, if others have not taken that room by facts."""
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
        """The first of the nodes that has room for the pod, beside what is held and what its gang intends there."""
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
        """By node, what members of a gang that only intends are to have there."""
        found: dict[NodeName, list[Vector]] = {}
        for held in self.unbound(gang):
            member = gang.roster.members.get(PodUid(held.holder))
            if member is not None and not held.units and held.holder not in but:
                found.setdefault(held.node, []).append(member.requests)
        return found

    # -- ends ----------------------------------------------------------------------------------------------------

    def hand_over(self, gang: Gang, held: Holding, until: float) -> None:
        """What the member held is a slot for a successor, if others have not taken that room by facts."""
        if self._is_backed(held):
            commit(self._ledger, [_as_slot(gang, held, until)], releasing=(held.holder,))
        else:
            self._ledger.release(held.holder)

    def keep(self, gang: Gang, deadline: float) -> None:
        """What is reserved and assumed is held until then."""
        for held in self.unbound(gang):
            self._ledger.keep(held.holder, deadline)

    def release_vacant(self, gang: Gang) -> None:
        """Places that no member has are free."""
        for held in self.unbound(gang):
            if PodUid(held.holder) not in gang.roster.members:
                self._ledger.release(held.holder)

    def forget_member(self, uid: PodUid) -> None:
        """It is gone: so is what it was offered."""
        self._offers.forget(uid)

    def forget(self, gang: Gang) -> None:
        """It is no more."""
        self._constrained.forget(gang.key)

    def release(self, gang: Gang) -> None:
        """Nothing is held but what is bound or being written."""
        for held in self.unbound(gang):
            if PodUid(held.holder) not in gang.barrier.writing:
                self._ledger.release(held.holder)


def _reservations(gang: Gang, slots: Sequence[Slot], nodes: Mapping[Holder, NodeName], until: float) -> list[Holding]:
    """What the slots hold where the plan has them."""
    return [
        Holding(slot.holder, nodes[slot.holder], _held_now(gang, slot.units), HoldingKind.RESERVATION, gang.key, until)
        for slot in slots
    ]


def _as_slot(gang: Gang, held: Holding, until: float | None) -> Holding:
    """What is held, as a place that is nobody's."""
    return Holding(slot_name(gang), held.node, held.units, HoldingKind.RESERVATION, gang.key, until)


def _held_now(gang: Gang, units: Vector) -> Vector:
    """What a place of so many units holds until its member comes to be bound."""
    return {} if gang.plan.intends else units


def commit(ledger: Ledger, claims: Sequence[Holding], releasing: Iterable[Holder] = ()) -> None:
    """The claims hold, as was planned on the ledger as it is."""
    outcome = ledger.commit(claims, releasing=releasing)
    if outcome.conflicts:
        raise AssertionError(f"planned and checked, yet refused: {outcome.conflicts}")


def as_nominated(
    slots: Sequence[Slot], nodes: Mapping[Holder, NodeName], nominated: Mapping[PodUid, NodeName]
) -> Mapping[Holder, NodeName]:
    """The same plan, where slots that are alike have changed places so that as many as can be are as nominated."""
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
            # With whom it changes places must not be there as nominated itself.
            other = next((each for each in holders if found[each] == node and wanted.get(each) != node), None)
            if other is not None:
                found[holder], found[other] = node, found[holder]
    return found
