"""The places of gangs on the ledger: a quorum reserved as one, a place taken by a member, moved, handed over.

Knows the ledger and which nodes a pod accepts. Every change is one transaction: it happens whole, or nothing has
happened. Must not know in which phase a gang is, who waits at a barrier, nor why a place is wanted: see `gangs`.

The places of a gang that only intends are holdings of no units: nobody else counts them, its own members do. Units
are claimed by `settle_on` when a member comes to be bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice

from extender.core.aiming import aim
from extender.core.bystanders import Bystanders
from extender.core.cluster import Node, Pod
from extender.core.constrained import Constrained
from extender.core.gang import Gang
from extender.core.kinds import PodKind
from extender.core.ledger import Holder, Holding, Kind, Ledger
from extender.core.names import CPU, MEMORY, NodeName, PodUid, ResourceKey
from extender.core.node_match import accepts
from extender.core.nomination import as_nominated
from extender.core.offers import SAMPLE_FLOOR, Offers
from extender.core.planning import Accepts, Shortfall, Slot, plan
from extender.core.preemption import Choice, Unit, choose
from extender.core.room import Room, templates_of
from extender.core.staying import Staying
from extender.core.units import Vector, add


class Places:
    """`nodes` is the keeper's table of nodes, read here for selectors and taints. `staying`: what no gang waits for."""

    def __init__(
        self, ledger: Ledger, nodes: Mapping[NodeName, Node], staying: Staying, bystanders: Bystanders | None = None
    ) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._staying = staying
        self._constrained = Constrained(ledger, nodes, Bystanders() if bystanders is None else bystanders, staying)
        self._offers = Offers()

    def unbound(self, gang: Gang) -> list[Holding]:
        """The gang's reservations and assumptions."""
        return [held for held in self._ledger.held_for(gang.key) if held.kind is not Kind.BOUND]

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
    ) -> Sequence[Holder] | Shortfall:
        """A place for each member that the quorum still needs, all reserved; or what is short, and nothing changes.

        `first`, if there is one, is placed on one of the nodes sent. Members that do not exist yet are taken to be
        like it. `saved`: what was saved for the gang, or for one behind it, and is given up for the plan. `intends`:
        nothing is reserved, see above. `unheld`: nothing is for members that do not exist yet.
        """
        slots, found = self._look_for(gang, first, sent, saved)
        if isinstance(found, Shortfall):
            return found
        gang.intends, gang.unheld = intends, unheld
        found = as_nominated(slots, found, gang.nominated)
        if unheld:
            slots = [slot if PodUid(slot.holder) in gang.members else replace(slot, units={}) for slot in slots]
        self._commit(self._reservations(gang, slots, found, deadline), releasing=saved)
        return [slot.holder for slot in slots]

    def has_room(self, gang: Gang, first: Pod | None, sent: Sequence[NodeName], releasing: Sequence[Holder]) -> bool:
        """Whether `reserve` would find a place for each."""
        return not isinstance(self._look_for(gang, first, sent, releasing)[1], Shortfall)

    def _look_for(
        self, gang: Gang, first: Pod | None, sent: Sequence[NodeName], releasing: Sequence[Holder]
    ) -> tuple[Sequence[Slot], Mapping[Holder, NodeName] | Shortfall]:
        constrained = self._constrained.concerns(gang)
        if constrained and (hopeless := self._constrained.known_hopeless(gang)) is not None:
            return (), hopeless
        candidates = self._candidates(sent)
        slots = self._slots(gang, _in_order(gang, first), sent if first is not None else None)
        found = self._planned(gang, slots, candidates, releasing, constrained=constrained)
        if isinstance(found, Shortfall) and gang.unplaced_count > gang.needed:
            fewer = self._slots(gang, self._smallest(gang, lambda: Room(self._ledger, releasing)), None)
            retried = self._planned(gang, fewer, candidates, releasing, constrained=constrained)
            if not isinstance(retried, Shortfall):
                return fewer, retried
        if isinstance(found, Shortfall) and first is not None and self._offers.differ(gang, first, sent):
            for own in (self._offers, Offers()):
                apart = self._slots(gang, _in_order(gang, first), sent, own)
                retried = self._planned(gang, apart, candidates, releasing, constrained=constrained)
                if not isinstance(retried, Shortfall):
                    return apart, retried
        return slots, found

    def _planned(
        self,
        gang: Gang,
        slots: Sequence[Slot],
        candidates: Sequence[NodeName],
        releasing: Sequence[Holder],
        *,
        constrained: bool,
    ) -> dict[Holder, NodeName] | Shortfall:
        if constrained:
            return self._constrained.plan(gang, slots, candidates, releasing)
        return plan(self._ledger, slots, candidates, releasing=releasing)

    def company_changed(self, *, alone: bool) -> int:
        """Another number whenever `could_ever_fit` may answer otherwise for who stands where. `alone`: also for gangs
        whose members require something of others."""
        return self._constrained.changes(alone=alone)

    def is_constrained(self, gang: Gang) -> bool:
        """Whether its places depend on which pods stand where."""
        return self._constrained.concerns(gang)

    def hopeless(self, gang: Gang) -> Shortfall | None:
        """Why the gang could be placed nowhere, though nobody were there but who stays; None if it could, or if its
        members require nothing of each other."""
        if not self._constrained.concerns(gang) or gang.missing >= gang.needed:
            return None
        return self._constrained.hopeless(gang, lambda: self._lacks_when_empty(gang))

    def _lacks_when_empty(self, gang: Gang) -> Shortfall | None:
        slots = self._slots(gang, self._smallest_in_empty(gang), None)
        return self._constrained.lacks_when_empty(
            gang, slots, Room.emptied(self._ledger, self._nodes, self._lasting(gang))
        )

    def _reservations(
        self, gang: Gang, slots: Sequence[Slot], nodes: Mapping[Holder, NodeName], until: float
    ) -> list[Holding]:
        return [
            Holding(slot.holder, nodes[slot.holder], _held_now(gang, slot.units), Kind.RESERVATION, gang.key, until)
            for slot in slots
        ]

    def make_good(self, gang: Gang, members: Mapping[PodUid, NodeName]) -> Sequence[PodUid]:
        """What these members ask for is held on those nodes, without a deadline. Or for whom of them there is no room
        any more; then nothing has changed."""
        claims = [
            Holding(Holder(uid), node, gang.members[uid].requests, Kind.ASSUMPTION, gang.key)
            for uid, node in members.items()
        ]
        return [PodUid(claim.holder) for claim, _ in self._ledger.commit(claims).conflicts]

    def cover(self, gang: Gang) -> bool:
        """Each member that the quorum needs, and that has no place of its own, has a vacant one that suits it; or the
        vacant ones are planned anew for them. False where that is not possible, and nothing changes."""
        held = self.unbound(gang)
        vacant = [each for each in held if PodUid(each.holder) not in gang.members]
        lacking = gang.needed - (len(held) - len(vacant))
        own = {each.holder for each in held}
        to_come = [pod for pod in gang.unplaced() if Holder(pod.uid) not in own]
        if lacking <= 0:
            return True
        constrained = self._constrained.concerns(gang)
        left = list(vacant)
        for pod in to_come if not constrained else ():
            suits = next((each for each in left if self._suits(gang, each, pod)), None)
            if suits is not None:
                left.remove(suits)
        if len(vacant) - len(left) >= lacking:
            return True
        releasing = [each.holder for each in vacant]
        for members in (to_come, sorted(to_come, key=_size)):
            slots, _ = self._slots_of(members[:lacking], members[0], None)
            found = self._planned(gang, slots, list(self._nodes), releasing, constrained=constrained)
            if not isinstance(found, Shortfall) and gang.deadline is not None:
                self._commit(self._reservations(gang, slots, found, gang.deadline), releasing=releasing)
                return True
        return False

    def _suits(self, gang: Gang, held: Holding, pod: Pod) -> bool:
        if gang.intends:
            fits = self._ledger.short(held.node, pod.requests) is None
        else:
            fits = all(number <= held.units.get(resource, 0) for resource, number in pod.requests.items())
        node = self._nodes.get(held.node)
        return fits and node is not None and accepts(node, pod)

    # -- room that is saved for a quorum -------------------------------------------------------------------------

    def save(
        self,
        gang: Gang,
        nodes: Sequence[NodeName] | None,
        until: float,
        limit: Mapping[ResourceKey, int] | None = None,
    ) -> float:
        """What is free of a quorum's places is reserved, on the nodes that it should wait for, also where that is
        nothing yet. `nodes`: those to choose from; None for all. `limit`: how much at most; a place that would exceed
        it is left free. How large a part of all is saved now, a part of a place counting by its scarcest resource."""
        nodes = list(self._nodes) if nodes is None else nodes
        slots = self._slots(gang, self._smallest_in_empty(gang), None)
        saved = self.unbound(gang)
        constrained = self._constrained.concerns(gang)
        kept = self._whole(saved, slots) if not constrained else {}
        unused = (name for number in count() if (name := Holder(f"saved:{gang.key}#{number}")) not in kept)
        lacking = [replace(slot, holder=next(unused)) for slot in slots[len(kept) :]]
        others = [held.holder for held in saved if held.holder not in kept]
        if constrained:
            lasting = Room.emptied(self._ledger, self._nodes, self._lasting(gang))
            found = self._constrained.aims(gang, lacking, nodes, others, lasting)
        else:
            found = aim(self._ledger, lacking, nodes, self._lasting(gang), releasing=others, kept=list(kept.values()))
        claims = [
            Holding(holder, node, units, Kind.SAVING, gang.key, until)
            for holder, (node, units) in (found or {}).items()
        ]
        if limit is not None:
            claims = _within(limit, [*(replace(held, until=until) for held in kept.values()), *claims])
            kept = {}
        self._commit(claims, releasing=others)
        for holder in kept:
            self._ledger.keep(holder, until)
        asked = {slot.holder: slot.units for slot in lacking}
        parts = (_part(claim.units, asked.get(claim.holder, slots[0].units)) for claim in claims)
        return (len(kept) + sum(parts)) / max(1, len(slots))

    def _whole(self, saved: Sequence[Holding], slots: Sequence[Slot]) -> dict[Holder, Holding]:
        """Of what is saved, the places that are whole and need not be looked for again. Only where all slots are alike:
        of different ones the larger may need what the smaller has."""
        templates = templates_of(slots)
        if len(templates) != 1:
            return {}
        [template] = templates
        whole = (
            held
            for held in saved
            if held.units == dict(template.need)
            and self._ledger.short(held.node, held.units, (held.holder,)) is None
            and (template.accepts is None or template.accepts(held.node))
        )
        return {held.holder: held for held in islice(whole, len(slots))}

    def victims_for(
        self, gang: Gang, units: Sequence[Unit], going: Sequence[Pod], saved: Sequence[Holder]
    ) -> Choice | None:
        """Whose leaving would make room for the quorum: see `preemption.choose`."""
        slots = self._slots(gang, self._smallest_in_empty(gang), None)
        template = slots[0].units
        lost: dict[NodeName | None, int] = {}
        for unit in units:
            for pod in unit.pods:
                lost[pod.node] = lost.get(pod.node, 0) + len(unit.pods)
        # Where most is free fewest have to leave; and fewest elsewhere, with the gangs that they are of.
        nodes = sorted(self._nodes, key=lambda node: (-self._free_part(node, template), lost.get(node, 0)))
        if not self._constrained.concerns(gang):
            return choose(self._ledger, slots, nodes, units, going, saved)
        gone = [Holder(pod.uid) for pod in going]
        everybody = [*gone, *(Holder(pod.uid) for unit in units for pod in unit.pods)]
        could = self._constrained.plan(gang, slots, nodes, saved, everybody)
        if isinstance(could, Shortfall):
            return None
        # Where the plan has them they are to be: whom the search would keep then leaves only if it is in their way.
        slots = [replace(slot, accepts=frozenset((could[slot.holder],)).__contains__) for slot in slots]
        in_the_way = self._constrained.in_the_way(gang, could, (pod for unit in units for pod in unit.pods))
        must = [unit for unit in units if any(pod.uid in in_the_way for pod in unit.pods)]
        others = [unit for unit in units if unit not in must]
        leaving = [*going, *(pod for unit in must for pod in unit.pods)]
        choice = choose(self._ledger, slots, list(dict.fromkeys(could.values())), others, leaving, saved)
        if choice is None:
            return None
        choice = Choice((*must, *choice.units), choice.places)
        gone += [Holder(pod.uid) for pod in choice.victims]
        surely = self._constrained.plan(gang, slots, nodes, saved, gone)
        return None if isinstance(surely, Shortfall) else choice

    def _free_part(self, node: NodeName, units: Vector) -> float:
        return min((self._ledger.free(node, r) / number for r, number in units.items() if number), default=0.0)

    def is_sample(self, sent: Sequence[NodeName]) -> bool:
        """Whether kube-scheduler may allow the pod other nodes than those it sent."""
        return SAMPLE_FLOOR <= len(sent) < len(self._nodes)

    def would_have(self, node: NodeName, kind: PodKind) -> bool:
        """Whether selectors, taints and cordons let pods of the kind be there."""
        seen = self._nodes.get(node)
        return seen is not None and accepts(seen, kind.like)

    def could_ever_fit(self, gang: Gang) -> bool:
        """Whether the quorum would have room if nothing were held but what stays."""
        if self._constrained.concerns(gang):
            return self.hopeless(gang) is None
        slots = self._slots(gang, self._smallest_in_empty(gang), None)
        return aim(self._ledger, slots, list(self._nodes), self._lasting(gang)) is not None

    def asked(self, gang: Gang) -> list[Vector]:
        """What the places of the quorum ask for."""
        return [slot.units for slot in self._slots(gang, self._smallest_in_empty(gang), None)]

    def _lasting(self, gang: Gang) -> Callable[[NodeName], Vector]:
        """What is on a node for as long as the gang waits: what stays, and its own members that are bound."""
        below = gang.claims if gang.preempts else None
        staying = self._staying
        own: dict[NodeName, list[Vector]] = {}
        for uid in gang.bound:
            pod = gang.members.get(uid)
            if pod is not None and pod.node is not None and uid not in staying and uid not in gang.leaving:
                own.setdefault(pod.node, []).append(pod.requests)
        if not own:
            return lambda node: staying.on(node, below)
        return lambda node: add([staying.on(node, below), *own.get(node, ())])

    # -- how a quorum is asked for -------------------------------------------------------------------------------

    def _smallest_in_empty(self, gang: Gang) -> list[Pod]:
        return self._smallest(gang, lambda: Room.emptied(self._ledger, self._nodes, self._lasting(gang)))

    def _smallest(self, gang: Gang, room_to_ask: Callable[[], Room]) -> list[Pod]:
        """The members to place, smallest first. Where there are more than the quorum needs, those come last that would
        find no room even by themselves: no more of a kind are taken than there is room for."""
        members = sorted(gang.unplaced(), key=_size)
        if len(members) <= gang.needed:
            return members
        room = room_to_ask()
        kinds: list[tuple[Pod, list[int]]] = []
        chosen: list[Pod] = []
        rest: list[Pod] = []
        for pod in members:
            left = next((left for like, left in kinds if _alike(pod, like)), None)
            if left is None:
                left = [self._copies(room, pod, gang.needed)]
                kinds.append((pod, left))
            (chosen if left[0] > 0 else rest).append(pod)
            left[0] -= 1
        return [*chosen, *rest]

    def _copies(self, room: Room, pod: Pod, most: int) -> int:
        """How many pods like this one have room, if no others are placed; not counted beyond `most`."""
        [template] = templates_of([Slot(Holder(pod.uid), pod.requests)] * most)
        found = 0
        for name, node in self._nodes.items():
            if found >= most:
                break
            if whole := room.copies(name, template)[0]:
                found += whole if accepts(node, pod) else 0
        return found

    def _candidates(self, sent: Sequence[NodeName]) -> Sequence[NodeName]:
        """Nodes to plan on: those sent first, then the rest, for a sample need not hold room for everyone."""
        if len(sent) >= len(self._nodes):
            return sent
        offered = frozenset(sent)
        return [*sent, *(name for name in self._nodes if name not in offered)]

    def _slots(
        self,
        gang: Gang,
        members: Sequence[Pod],
        offered: Sequence[NodeName] | None,
        own: Offers | None = None,
    ) -> list[Slot]:
        """One slot for each member still needed. `offered`: the nodes that kube-scheduler sent for the first one.
        `own`: the offers of others, where that one is not taken for theirs."""
        missing = gang.missing
        template = members[0]
        placing = members[: gang.needed - missing]
        if own is None:
            slots, accepting = self._slots_of(placing, template, offered)
        else:
            slots, accepting = self._slots_apart(placing, offered, own)
        return slots + [Slot(_slot_name(gang), template.requests, accepting) for _ in range(missing)]

    def _slots_of(
        self, members: Sequence[Pod], template: Pod, offered: Sequence[NodeName] | None
    ) -> tuple[list[Slot], Accepts]:
        """A slot for each of these, and which nodes pods like the template accept."""
        # A short offer is every node that the scheduler's plugins allow: whoever is alike may go nowhere else.
        offer = frozenset(offered) if offered is not None and len(offered) < SAMPLE_FLOOR else None
        of_template: Accepts = self._acceptance(template) if offer is None else offer.__contains__
        kinds = [(template, of_template)]
        slots: list[Slot] = []
        for pod in members:
            accepting = next((accepting for like, accepting in kinds if _alike(pod, like)), None)
            if accepting is None:
                accepting = self._acceptance(pod)
                kinds.append((pod, accepting))
            slots.append(Slot(Holder(pod.uid), pod.requests, accepting))
        return slots, of_template

    def _slots_apart(
        self, members: Sequence[Pod], offered: Sequence[NodeName] | None, own: Offers
    ) -> tuple[list[Slot], Accepts]:
        """As `_slots_of`, where each may be on the nodes that were offered for itself; where that is not known, on
        those that it accepts."""
        slots, anywhere = self._slots_of(members, members[0], None)
        by_offer: dict[frozenset[NodeName], Accepts] = {}
        for number, pod in enumerate(members):
            offer = frozenset(offered) if number == 0 and offered is not None else own.of(pod)
            if offer is not None:
                slots[number] = replace(slots[number], accepts=by_offer.setdefault(offer, offer.__contains__))
        return slots, anywhere

    def _acceptance(self, pod: Pod) -> Accepts:
        nodes = self._nodes
        return lambda name: name in nodes and accepts(nodes[name], pod)

    # -- a member ------------------------------------------------------------------------------------------------

    def take(self, gang: Gang, pod: Pod, sent: Sequence[NodeName], until: float | None) -> NodeName | None:
        """The node, one of those sent, that the pod now holds its units on; None if there is none, and nothing has
        changed.

        Its own place is kept, or moved; a pod that has none takes over one that is vacant, then any room, then the
        place of a member that has not come for it.
        """
        own = self._ledger.holding(pod.uid)
        if own is not None and own.kind is Kind.BOUND:
            return own.node if own.node in sent else None
        if own is not None:
            return self._claim(gang, pod, own, sent, until)
        slots = [held for held in self.unbound(gang) if held.kind is Kind.RESERVATION]
        vacant = [held for held in slots if PodUid(held.holder) not in gang.members]
        # A slot on a node that was sent first: it needs no move. Named ones last: their own members may still come.
        for slot in sorted(vacant, key=lambda held: held.node not in sent):
            if (node := self._claim(gang, pod, slot, sent, until)) is not None:
                return node
        node = self._with_room(gang, pod, sent)
        if node is not None:
            self._commit([self._assumption(gang, pod, node, until)])
            return node
        for slot in slots:
            if slot not in vacant and (node := self._claim(gang, pod, slot, sent, until)) is not None:
                return node
        return None

    def reseat(self, gang: Gang, pod: Pod, sent: Sequence[NodeName]) -> NodeName | None:
        """The node, one of those sent, that the pod now holds its units on, for members that have not come yet were
        planned anew around it; None if that is not possible, and nothing has changed."""
        self._offers.learn(pod, sent)
        held = self.unbound(gang)
        own = next((each for each in held if PodUid(each.holder) == pod.uid), None)
        if gang.intends or own is None or gang.deadline is None:
            return None
        moving = [each for each in held if each.kind is Kind.RESERVATION and each is not own]
        members = [pod, *(gang.members[uid] for each in moving if (uid := PodUid(each.holder)) in gang.members)]
        vacant = [each for each in moving if PodUid(each.holder) not in gang.members]
        slots, anywhere = self._slots_apart(members, sent, self._offers)
        slots += [Slot(each.holder, each.units, anywhere) for each in vacant]
        releasing = [each.holder for each in (own, *moving)]
        constrained = self._constrained.concerns(gang)
        found = self._planned(gang, slots, self._candidates(sent), releasing, constrained=constrained)
        if isinstance(found, Shortfall):
            return None
        others = self._reservations(gang, slots[1:], found, gang.deadline)
        node = found[Holder(pod.uid)]
        self._commit([self._assumption(gang, pod, node, gang.deadline), *others], releasing=releasing)
        return node

    def _claim(
        self, gang: Gang, pod: Pod, held: Holding, sent: Sequence[NodeName], until: float | None
    ) -> NodeName | None:
        """`held` becomes the pod's own, on its node if that was sent and suffices, else moved to one that was."""
        wanted = [held.node] if held.node in sent else []
        node = self._with_room(gang, pod, (*wanted, *sent), held)
        if node is None:
            return None
        claim = self._assumption(gang, pod, node, until)
        if held != replace(claim, until=held.until):
            self._commit([claim], releasing=(held.holder,))
        return node

    def _assumption(self, gang: Gang, pod: Pod, node: NodeName, until: float | None) -> Holding:
        return Holding(Holder(pod.uid), node, _held_now(gang, pod.requests), Kind.ASSUMPTION, gang.key, until)

    def _with_room(
        self, gang: Gang, pod: Pod, nodes: Iterable[NodeName], instead_of: Holding | None = None
    ) -> NodeName | None:
        """The first of the nodes that has room for the pod, beside what is held and what its gang intends there."""
        giving_up = () if instead_of is None else (instead_of.holder,)
        intended = self._intended(gang, (Holder(pod.uid), *giving_up)) if gang.intends else {}
        if instead_of is not None and PodUid(instead_of.holder) == pod.uid:
            # Its own place is where the plan has it.
            nodes = self._own_first(gang, pod, nodes, instead_of)
        elif self._is_constrained(gang, pod):
            nodes = self._constrained.allowed(gang, pod, nodes, giving_up)
        for node in nodes:
            needed = add([pod.requests, *intended[node]]) if node in intended else pod.requests
            if self._ledger.short(node, needed, giving_up) is None:
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
            member = gang.members.get(PodUid(held.holder))
            if member is not None and not held.units and held.holder not in but:
                found.setdefault(held.node, []).append(member.requests)
        return found

    def settle_on(self, held: Holding, node: NodeName, units: Vector) -> None:
        """The member has come for its place, which is that node, and has room: all that it asks for is held there."""
        claim = replace(held, node=node, units=units, kind=Kind.ASSUMPTION)
        if held != claim:
            self._commit([claim])

    # -- ends ----------------------------------------------------------------------------------------------------

    def hand_over(self, gang: Gang, held: Holding, until: float) -> None:
        """What the member held is a slot for a successor."""
        if self._ledger.short(held.node, held.units, (held.holder,)) is not None:
            # Others have taken the room by facts: there is nothing to hand over.
            self._ledger.release(held.holder)
            return
        slot = Holding(_slot_name(gang), held.node, held.units, Kind.RESERVATION, gang.key, until)
        self._commit([slot], releasing=(held.holder,))

    def keep(self, gang: Gang, deadline: float) -> None:
        """What is reserved and assumed is held until then."""
        for held in self.unbound(gang):
            self._ledger.keep(held.holder, deadline)

    def release_vacant(self, gang: Gang) -> None:
        """Places that no member has are free."""
        for held in self.unbound(gang):
            if PodUid(held.holder) not in gang.members:
                self._ledger.release(held.holder)

    def release(self, gang: Gang) -> None:
        """Nothing is held but what is bound or being written."""
        for held in self.unbound(gang):
            if PodUid(held.holder) not in gang.writing:
                self._ledger.release(held.holder)

    def _commit(self, claims: Sequence[Holding], releasing: Iterable[Holder] = ()) -> None:
        outcome = self._ledger.commit(claims, releasing=releasing)
        if outcome.conflicts:
            raise AssertionError(f"planned and checked, yet refused: {outcome.conflicts}")


def _held_now(gang: Gang, units: Vector) -> Vector:
    """What a place of so many units holds until its member comes to be bound."""
    return {} if gang.intends else units


def _slot_name(gang: Gang) -> Holder:
    gang.slots_made += 1
    return Holder(f"slot:{gang.key}#{gang.slots_made}")


def _in_order(gang: Gang, first: Pod | None) -> list[Pod]:
    """The members to place: `first`, then by age."""
    return sorted(gang.unplaced(), key=lambda pod: first is not None and pod.uid != first.uid)


def _alike(one: Pod, other: Pod) -> bool:
    """Whether the scheduler would allow both on the same nodes, as far as we know."""
    return one is other or (
        one.requests == other.requests
        and one.node_selector == other.node_selector
        and one.affinity == other.affinity
        and one.tolerations == other.tolerations
    )


def _size(pod: Pod) -> tuple[int, int, int]:
    """Orders pods by what they ask for, the most contended first."""
    requests = pod.requests
    return (requests.get(CPU, 0), requests.get(MEMORY, 0), sum(requests.values()))


def _part(held: Vector, asked: Vector) -> float:
    """Of the scarcest resource, 0 to 1."""
    return min((min(1.0, held.get(resource, 0) / units) for resource, units in asked.items() if units), default=1.0)


def _within(limit: Mapping[ResourceKey, int], claims: Iterable[Holding]) -> list[Holding]:
    """The claims, in order, as long as they stay below the limit together; those that do not hold nothing."""
    left = dict(limit)
    found: list[Holding] = []
    for claim in claims:
        if all(units <= left.get(resource, 0) for resource, units in claim.units.items() if units):
            for resource, units in claim.units.items():
                left[resource] = left.get(resource, 0) - units
            found.append(claim)
        else:
            found.append(replace(claim, units={}))
    return found
