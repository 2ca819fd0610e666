"""Prospects: what could be for a gang that has no plan: with what stays alone, with what is saved, or without victims.

Reads the ledger; what is saved is one transaction. Must not know whose turn it is (`queue`), nor who may be a victim
(`preemption`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count, islice

from extender.core.cluster import Pod
from extender.core.fit import NOTHING, asked_of, part
from extender.core.gangs.placement.affinity_planner import Constrained, Surroundings
from extender.core.gangs.placement.placement import Places, commit
from extender.core.gangs.placement.slots import Slots
from extender.core.gangs.preemption.victim_search import Choice, Unit, choose, choose_for_one, loss
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.trial_snapshot import Candidates, Promised, Room, Slot, Staying, templates_of
from extender.core.ledger import Holder, Holding, HoldingKind, Ledger
from extender.core.units import add_to
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.quantities import Vector

_COMPARED = 16
"""So many nodes are compared for a single place among others; each costs a plan."""
_ROUNDS = 16
"""So often a place is looked for where nobody is in the way but by what they hold."""


@dataclass(eq=False)
class Feasibility:
    _ledger: Ledger
    _places: Places
    _slots: Slots
    _constrained: Constrained

    # -- if nothing were held but what stays ----------------------------------------------------------------------

    def could_ever_fit(self, gang: Gang) -> bool:
        """Whether the quorum would have room if nothing were held but what stays."""
        if self._constrained.concerns(gang):
            return self.hopeless(gang) is None
        slots = self._slots.in_empty(gang)
        return aim(self._ledger, slots, list(self._slots.nodes), self._slots.lasting(gang)) is not None

    def asked(self, gang: Gang) -> Iterator[Vector]:
        """What the places of the quorum ask for; worked out once somebody looks."""
        yield from (slot.units for slot in self._slots.in_empty(gang))

    def hopeless(self, gang: Gang) -> Shortfall | None:
        """Why the gang could be placed nowhere, though nobody were there but who stays; None if it could, or if its
        members require nothing of each other."""
        if not self._constrained.concerns(gang) or gang.missing >= gang.needed:
            return None
        return self._constrained.hopeless(gang, lambda: self._lacks_when_empty(gang))

    def _lacks_when_empty(self, gang: Gang) -> Shortfall | None:
        return self._constrained.lacks_when_empty(gang, self._slots.in_empty(gang), self._slots.emptied(gang))

    def company_changed(self, *, alone: bool) -> int:
        """Another number whenever `could_ever_fit` may answer otherwise for who stands where. `alone`: also for gangs
        whose members require something of others."""
        return self._constrained.changes(alone=alone)

    # -- room that is saved ---------------------------------------------------------------------------------------

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
        nodes = list(self._slots.nodes if nodes is None else nodes)
        promised = self._constrained.promised(gang)
        slots = self._slots.in_empty(gang)
        saved = self._places.unbound(gang)
        constrained = self._constrained.concerns(gang)
        kept = self._whole(saved, slots) if not constrained else {}
        unused = (name for number in count() if (name := Holder(f"saved:{gang.key.id}#{number}")) not in kept)
        # Where it matters which member a place is for, it is named after it: see `affinity_planner.like`.
        named = set(map(Holder, gang.roster.members)) if constrained else set()
        lacking = [
            replace(slot, holder=Holder(f"saved:{gang.key.id}#{slot.holder}") if slot.holder in named else next(unused))
            for slot in slots[len(kept) :]
        ]
        others = [held.holder for held in saved if held.holder not in kept]
        if constrained:
            found = self._constrained.aims(gang, lacking, nodes, others, self._slots.emptied(gang), promised)
        else:
            found = aim(
                self._ledger,
                lacking,
                nodes,
                self._slots.lasting(gang),
                releasing=others,
                kept=list(kept.values()),
                promised=promised,
            )
        claims = [
            Holding(holder, node, units, HoldingKind.SAVING, gang.key, until)
            for holder, (node, units) in (found or {}).items()
        ]
        if limit is not None:
            claims = _within(limit, [*(replace(held, until=until) for held in kept.values()), *claims])
            kept = {}
        before = {held.holder: replace(held, until=until) for held in saved}
        if before == {claim.holder: claim for claim in claims} | {each: before[each] for each in kept}:
            # Nothing is touched: else whoever counts what has changed would count the same in each slice of work.
            kept_on = before.keys()
        else:
            commit(self._ledger, claims, releasing=others)
            kept_on = kept.keys()
        for holder in kept_on:
            self._ledger.keep(holder, until)
        asked = {slot.holder: slot.units for slot in lacking}
        if constrained:
            # Beside units, a place is saved once nobody stands in its way.
            left = self._constrained.left_to(gang, {claim.holder: claim.node for claim in claims})
            claims = [claim for claim in claims if claim.holder in left]
        parts = (part(claim.units, NOTHING, asked_of(asked.get(claim.holder, slots[0].units)))[1] for claim in claims)
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
            and self._ledger.rows.short(held.node, held.units, (held.holder,)) is None
            and template.may_be_on(held.node)
        )
        return {held.holder: held for held in islice(whole, len(slots))}

    # -- if others left -------------------------------------------------------------------------------------------

    def victims_for(
        self,
        gang: Gang,
        units: Sequence[Unit],
        going: Sequence[Pod],
        saved: Sequence[Holder],
        *,
        for_policies: bool = True,
    ) -> Choice | None:
        """Whose leaving would make room for the quorum: see `preemption.choose`. `for_policies`: also of those whom
        members may not be near, or too many of whom would be in one place."""
        slots = self._slots.in_empty(gang)
        # kube-scheduler keeps room there for others, who have their victims.
        promised = self._constrained.promised(gang)
        room, need = Room(self._ledger, ()), asked_of(slots[0].units)
        room.keep_for(promised)
        lost: dict[NodeName | None, int] = {}
        for unit in units:
            for pod in unit.pods:
                lost[pod.node] = lost.get(pod.node, 0) + len(unit.pods)
        # Where most is free fewest have to leave; and fewest elsewhere, with the gangs that they are of.
        nodes = sorted(self._slots.nodes, key=lambda node: (-room.times(node, need), lost.get(node, 0)))
        if not self._constrained.concerns(gang):
            if len(slots) == 1:
                return choose_for_one(self._ledger, slots[0], nodes, units, going, saved, promised)
            return choose(self._ledger, slots, nodes, units, going, saved, promised)

        on_node: dict[NodeName | None, list[int]] = {}
        for number, unit in enumerate(units):
            for pod in unit.pods:
                on_node.setdefault(pod.node, []).append(number)
        pods = [pod for unit in units for pod in unit.pods]
        gone = [Holder(pod.uid) for pod in (*going, *pods)]
        emptied = self._constrained.environment(gang, slots, saved, gone, promised)
        concerned = self._constrained.concerned_by(gang, slots, pods)

        def beside_others(on: Sequence[NodeName]) -> Choice | None:
            return self._beside_others(
                gang, slots, on, units, on_node, going, saved, promised, emptied, concerned, for_policies=for_policies
            )

        first = beside_others(nodes)
        if len(slots) != 1 or first is None or not first.units:
            return first
        each = (beside_others([node]) for node in islice((node for node in nodes if node in lost), _COMPARED))
        return min((first, *(choice for choice in each if choice is not None)), key=loss)

    def _beside_others(
        self,
        gang: Gang,
        slots: Sequence[Slot],
        nodes: Sequence[NodeName],
        units: Sequence[Unit],
        on_node: Mapping[NodeName | None, Sequence[int]],
        going: Sequence[Pod],
        saved: Sequence[Holder],
        promised: Promised,
        environment: Surroundings,
        concerned: Sequence[Pod],
        *,
        for_policies: bool,
    ) -> Choice | None:
        """The same where members require something of the pods around them. `surroundings`: without all
        of these, of whom others than the `concerned` are in nobody's way but by what they hold."""
        gone = [Holder(pod.uid) for pod in going]
        staying: set[PodUid] = set()
        for _ in range(_ROUNDS):
            if staying:
                leaving = [Holder(pod.uid) for unit in units for pod in unit.pods if pod.uid not in staying]
                environment = self._constrained.environment(gang, slots, saved, [*gone, *leaving], promised)
            could = self._constrained.plan_in(environment, gang, slots, nodes)
            if isinstance(could, Shortfall):
                return None
            in_the_way = self._constrained.in_the_way(gang, could, concerned)
            if for_policies or not in_the_way:
                break
            staying |= in_the_way
        else:
            return None
        must: list[Unit] = []
        others: list[Unit] = []
        # No other is in the way, nor makes room for the plan.
        nodes_left = {*could.values(), *(pod.node for pod in concerned if pod.uid in in_the_way)}
        for number in sorted({number for node in nodes_left for number in on_node.get(node, ())}):
            unit = units[number]
            (must if any(pod.uid in in_the_way for pod in unit.pods) else others).append(unit)
        also = [*going, *(pod for unit in must for pod in unit.pods)]
        # Where the plan has them they are to be: whom the search would keep then leaves only if it is in their way.
        choice = choose(self._ledger, slots, (), others, also, saved, promised, fixed=could)
        if choice is None:
            return None
        choice = Choice((*must, *choice.units), choice.places)
        gone += [Holder(pod.uid) for pod in choice.victims]
        surely = self._constrained.plan(gang, slots, nodes, saved, gone, promised)
        return None if isinstance(surely, Shortfall) else choice


def aim(
    ledger: Ledger,
    slots: Sequence[Slot],
    candidates: Sequence[NodeName],
    staying: Staying = lambda node: NOTHING,
    *,
    releasing: Sequence[Holder] = (),
    kept: Sequence[Holding] = (),
    promised: Promised = (),
) -> dict[Holder, tuple[NodeName, Vector]] | None:
    """For every slot the node that it should wait for, and what of its units is free there; None if the slots would
    have no room even if nothing were held but what stays.

    Nodes with room now come first, then those where the largest part of a slot is free. What holders in `releasing`
    hold counts as free; `kept` and `promised` is what would be held even then. O(slots + candidates x templates), and a
    logarithm.
    """
    now = Room(ledger, [*releasing, *(slot.holder for slot in slots)])
    ever = Room.emptied(ledger, candidates, staying)
    for room in (now, ever):
        room.keep_for(promised)
    for held in kept:
        ever.take(held.node, held.units.items())
    aims: dict[Holder, tuple[NodeName, Vector]] = {}
    names, templates = list(dict.fromkeys(candidates)), templates_of(slots)
    for room in (now, ever):
        room.index(names, len(templates))
    if templates and ever.is_too_small(templates):
        return None
    here = Candidates(names)
    for template in templates:
        need, waiting = template.need, iter(template.slots)
        nodes, again = here.of(template), list[tuple[float, int]]()
        ahead = now.largest_parts(template, nodes, ever)
        best, slot = next(ahead, None), next(waiting, None)
        while slot is not None:
            if again and (best is None or again[0] < best):
                index = heappop(again)[1]
            elif best is not None:
                index, best = best[1], next(ahead, None)
            else:
                return None
            node = nodes[index]
            if ever.lacking(node, need) is not None or not template.may_be_on(node):
                continue
            part, _ = now.part(node, need)
            aims[slot.holder] = (node, part)
            now.take(node, part.items())
            ever.take(node, need)
            heappush(again, (-now.part(node, need)[1], index))
            slot = next(waiting, None)
    return aims


def _within(limit: Mapping[ResourceKey, int], claims: Iterable[Holding]) -> list[Holding]:
    """The claims, in order, as long as they stay below the limit together; those that do not hold nothing."""
    left = dict(limit)
    found: list[Holding] = []
    for claim in claims:
        if all(units <= left.get(resource, 0) for resource, units in claim.units.items() if units):
            add_to(left, claim.units, -1)
            found.append(claim)
        else:
            found.append(replace(claim, units={}))
    return found
