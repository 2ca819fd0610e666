"""Feasibility: what is possible for a gang without a plan: ever, with room reserved, with victims.

It reads the ledger; a backfill reservation is one transaction. `queue` decides on turns, `preemption` on victims.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count, islice

from extender.core.cluster import Pod
from extender.core.fit.fit import NOTHING, asked_of, part
from extender.core.gangs.placement.affinity_planner import Constrained, Surroundings
from extender.core.gangs.placement.placement import Places, commit
from extender.core.gangs.placement.slots import Slots, plannable
from extender.core.gangs.preemption.victim_search import Choice, Unit, choose, choose_for_one, loss
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.trial_snapshot import Candidates, Promised, Room, Slot, Staying, templates_of
from extender.core.ledger.ledger import Holder, Holding, HoldingKind, Ledger
from extender.core.ledger.units import add_to
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.quantities import Vector

_COMPARED = 16
"""Number of nodes compared for a single place among others; each costs a plan."""
_ROUNDS = 16
"""Number of searches for a plan with no pod in the way except by its units."""


@dataclass(eq=False)
class Feasibility:
    _ledger: Ledger
    _places: Places
    _slots: Slots
    _constrained: Constrained

    # -- beside resident pods alone -------------------------------------------------------------------------------

    def could_ever_fit(self, gang: Gang) -> bool:
        """Whether the quorum would have room beside resident pods alone."""
        if self._constrained.concerns(gang):
            return bool(plannable(gang)) and self.hopeless(gang) is None
        slots = self._slots.in_empty(gang)
        return bool(slots) and aim(self._ledger, slots, list(self._slots.nodes), self._slots.lasting(gang)) is not None

    def asked(self, gang: Gang) -> Iterator[Vector]:
        """Units of each place of the quorum; computed when iterated."""
        yield from (slot.units for slot in self._slots.in_empty(gang))

    def hopeless(self, gang: Gang) -> Shortfall | None:
        """Why the gang has no place beside resident pods; None if it has one or no rules on pods."""
        if not self._constrained.concerns(gang) or gang.missing >= gang.needed or not plannable(gang):
            return None
        return self._constrained.hopeless(gang, lambda: self._lacks_when_empty(gang))

    def _lacks_when_empty(self, gang: Gang) -> Shortfall | None:
        return self._constrained.lacks_when_empty(gang, self._slots.in_empty(gang), self._slots.emptied(gang))

    def company_changed(self, *, alone: bool) -> int:
        """Changes when placed pods may change `could_ever_fit`; `alone`: also of gangs with rules."""
        return self._constrained.changes(alone=alone)

    # -- reservation ----------------------------------------------------------------------------------------------

    def save(
        self, gang: Gang, nodes: Sequence[NodeName] | None, until: float, limit: Mapping[ResourceKey, int] | None = None
    ) -> float:
        """Makes the backfill reservation: free parts of the quorum's places, on nodes to wait for.

        A place is reserved even if none of it is free yet. `nodes`: to choose from; None: all. `limit`: the most to
        reserve; a place beyond it stays free. Returns the reserved part of all; a place counts by its scarcest
        resource."""
        nodes = list(self._slots.nodes if nodes is None else nodes)
        promised = self._constrained.promised(gang)
        slots = self._slots.in_empty(gang)
        saved = self._places.unbound(gang)
        constrained = self._constrained.concerns(gang)
        kept = self._whole(saved, slots) if not constrained else {}
        unused = (name for number in count() if (name := Holder(f"saved:{gang.key.id}#{number}")) not in kept)
        # If the member of a place matters, the place is named after it: see `affinity_planner.like`.
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
            # Nothing is touched: otherwise unchanged room would count as a change in each slice of work.
            kept_on = before.keys()
        else:
            commit(self._ledger, claims, releasing=others)
            kept_on = kept.keys()
        for holder in kept_on:
            self._ledger.keep(holder, until)
        asked = {slot.holder: slot.units for slot in lacking}
        if constrained:
            # Beside units, a place counts as reserved only if no pod is in its way.
            left = self._constrained.left_to(gang, {claim.holder: claim.node for claim in claims})
            claims = [claim for claim in claims if claim.holder in left]
        parts = (part(claim.units, NOTHING, asked_of(asked.get(claim.holder, slots[0].units)))[1] for claim in claims)
        return (len(kept) + sum(parts)) / max(1, len(slots))

    def _whole(self, saved: Sequence[Holding], slots: Sequence[Slot]) -> dict[Holder, Holding]:
        """Whole reserved places; none if slots differ: a larger one may need a smaller one's."""
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

    # -- with victims ---------------------------------------------------------------------------------------------

    def victims_for(
        self,
        gang: Gang,
        units: Sequence[Unit],
        going: Sequence[Pod],
        saved: Sequence[Holder],
        *,
        for_policies: bool = True,
    ) -> Choice | None:
        """Victims that make room. `for_policies`: also pods in the way only by affinity or spread."""
        slots = self._slots.in_empty(gang)
        # kube-scheduler keeps room there for others, which have their own victims.
        promised = self._constrained.promised(gang)
        room, need = Room(self._ledger, ()), asked_of(slots[0].units)
        room.keep_for(promised)
        lost: dict[NodeName | None, int] = {}
        for unit in units:
            for pod in unit.pods:
                lost[pod.node] = lost.get(pod.node, 0) + len(unit.pods)
        # Nodes with most free room need fewest victims; next come nodes that cost fewest pods elsewhere.
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
        """As `victims_for`, for members with rules on pods. `environment`: without all of these.

        Only `concerned` pods can be in the way other than by their units."""
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
        # No other unit is in the way, or makes room for the plan.
        nodes_left = {*could.values(), *(pod.node for pod in concerned if pod.uid in in_the_way)}
        for number in sorted({number for node in nodes_left for number in on_node.get(node, ())}):
            unit = units[number]
            (must if any(pod.uid in in_the_way for pod in unit.pods) else others).append(unit)
        also = [*going, *(pod for unit in must for pod in unit.pods)]
        # The nodes of the plan are fixed: a unit that the search would keep leaves only if it is in the way.
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
    """For every slot, the node to wait for and the units free there; None if they never fit.

    Nodes with room now come first, then those where the largest part of a slot is free. What holders in `releasing`
    hold counts as free; `kept` and `promised` would be held even in an emptied cluster. O(slots + candidates x
    templates), times a logarithm.
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
    """The claims, in order, that stay below the limit together; the others without units."""
    left = dict(limit)
    found: list[Holding] = []
    for claim in claims:
        if all(units <= left.get(resource, 0) for resource, units in claim.units.items() if units):
            add_to(left, claim.units, -1)
            found.append(claim)
        else:
            found.append(replace(claim, units={}))
    return found
