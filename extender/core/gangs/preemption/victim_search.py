"""Victim search: which evictions make room for a gang's whole quorum, with the least loss.

It reads the ledger and changes nothing. It prefers victims of the lowest priority, and few of them. A victim is a unit:
a pod without a gang, or a gang with all its members, never a part. kube-scheduler preempts for one pod on one node, so
it cannot do this. `preemption` decides which pods may be victims, and when.

Cost: one pass over the units, which sums up by node and priority what they would free. Then O(log(priorities)) plans,
which look at nodes, not at pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from extender.core.budgets import Budgets
from extender.core.cluster import Pod
from extender.core.fit.fit import NOTHING, asked_of, lacking
from extender.core.gangs.state.bin_packing import Shortfall, plan
from extender.core.gangs.state.trial_snapshot import Promised, Room, Slot
from extender.core.ledger.ledger import Holder, Ledger
from extender.core.ledger.units import add_to
from extender.kube.names import NodeName, ResourceKey

_COMPARED = 64
"""Number of nodes compared for a single slot."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Bound pods that leave together.

    `priority`: the lowest of theirs, so that no pod protects the others. `created`: that of the oldest.
    `breaks_budget`: a disruption budget does not let all of them go.
    """

    pods: tuple[Pod, ...]
    priority: int
    created: float
    breaks_budget: bool = False

    @property
    def level(self) -> tuple[bool, int]:
        """Sorts units by which leaves first: budgets are broken last, as in kube-scheduler."""
        return self.breaks_budget, self.priority


@dataclass(frozen=True, slots=True)
class Choice:
    """The victims by unit, first to leave first, and the nodes on which the slots then have room."""

    units: tuple[Unit, ...]
    places: Mapping[Holder, NodeName]

    @property
    def breaks_budgets(self) -> bool:
        """Whether disruption budgets must be broken, because there is no room otherwise."""
        return any(unit.breaks_budget for unit in self.units)

    @property
    def victims(self) -> tuple[Pod, ...]:
        return tuple(pod for unit in self.units for pod in unit.pods)

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        return tuple(dict.fromkeys(self.places.values()))


def unit_of(pods: Iterable[Pod]) -> Unit:
    together = tuple(pods)
    return Unit(together, min([pod.priority for pod in together]), min([pod.created for pod in together]))


def within_budgets(
    search: Callable[[Sequence[Unit]], Choice | None],
    units: Sequence[Unit],
    last: Sequence[Unit],
    budgets: Budgets,
    *,
    as_last_resort: bool,
) -> tuple[Choice | None, int]:
    """The victims among units that may leave together by the budgets; and the number of pods kept.

    Each unit alone may go; each of the `last` breaks a budget. As a last resort, if the search finds no victims
    otherwise, budgets are broken: nothing is kept then.
    """
    choice = search(units)
    if choice is not None and budgets.objection(choice.victims) is None:
        return choice, 0
    chosen = choice.units if choice is not None else ()
    first = {unit.pods[0].uid for unit in chosen}
    rest = (unit for unit in sorted(units, key=lambda unit: unit.priority) if unit.pods[0].uid not in first)
    spending = budgets.spending()
    within: list[Unit] = []
    beyond: list[Unit] = []
    for unit in (*chosen, *rest):
        (within if spending.add(unit.pods) else beyond).append(unit)
    if choice is not None:
        choice = search(within)
        if not as_last_resort:
            return choice, sum(len(unit.pods) for unit in beyond)
    if choice is None and as_last_resort and (last or beyond):
        choice = search([*within, *(replace(unit, breaks_budget=True) for unit in beyond), *last])
    return choice, 0


def small_first(
    search: Callable[[Sequence[Unit], Sequence[Unit]], tuple[Choice | None, int]],
    units: Sequence[Unit],
    last: Sequence[Unit],
    most: int,
) -> tuple[Choice | None, int]:
    """Searches units of at most `most` pods, then all: a gang is as large as its author makes it."""
    small, last_small = ([unit for unit in each if len(unit.pods) <= most] for each in (units, last))
    found = search(small, last_small)
    if found[0] is None and len(small) + len(last_small) < len(units) + len(last):
        return search(units, last)
    return found


def choose(
    ledger: Ledger,
    slots: Sequence[Slot],
    candidates: Sequence[NodeName],
    units: Sequence[Unit],
    going: Sequence[Pod],
    releasing: Sequence[Holder],
    promised: Promised = (),
    fixed: Mapping[Holder, NodeName] | None = None,
) -> Choice | None:
    """The victims among `units`; None if all of them would not suffice.

    There are none if room suffices once the `going` pods, which leave anyway, are gone. No disruption budget is broken
    if possible. Then the highest priority among the victims is as low as possible. Then each unit that can stay is
    kept: first those that break a budget, then the highest, largest and oldest. `releasing`: backfill reservations for
    the slots. `promised`: room that the slots may not use. `fixed`: nodes of the slots, if planned already.
    """
    gone = [Holder(pod.uid) for pod in going]
    left = _left_by(units)
    levels = sorted(left)
    room = Room(ledger, [*releasing, *(slot.holder for slot in slots)], gone)
    room.keep_for(promised)

    def without(room: Room, begin: int, end: int) -> Room:
        """What is free if the units of these levels leave as well."""
        found = room.copy()
        for level in levels[begin:end]:
            for node, units_there in left[level].items():
                found.give(node, units_there)
        return found

    def placed(room: Room) -> Mapping[Holder, NodeName] | None:
        if fixed is not None:
            return _as_fixed(room.copy(), slots, fixed)
        found = plan(ledger, slots, candidates, room=room.copy())
        return None if isinstance(found, Shortfall) else found

    nodes = placed(room)
    if nodes is not None:
        return Choice((), nodes)
    if not levels or (nodes := placed(enough := without(room, 0, len(levels)))) is None:
        return None
    # `low` levels, in `room`, do not suffice, and `high` levels, in `enough`, do.
    low, high = 0, len(levels)
    while high - low > 1:
        middle = (low + high + 1) // 2
        tried = without(room, low, middle)
        if (found := placed(tried)) is None:
            low, room = middle, tried
        else:
            high, enough, nodes = middle, tried, found
    leaving = [unit for unit in units if unit.level <= levels[high - 1]]
    spare = _spare(enough, slots, nodes)
    victims = [unit for unit in sorted(leaving, key=_worth, reverse=True) if not _kept(unit, spare)]
    return Choice(tuple(reversed(victims)), nodes)


def _as_fixed(room: Room, slots: Sequence[Slot], fixed: Mapping[Holder, NodeName]) -> dict[Holder, NodeName] | None:
    """Each slot on its fixed node, if there is room for all. The room is used up."""
    for slot in slots:
        node, need = fixed[slot.holder], asked_of(slot.units)
        if room.lacking(node, need) is not None:
            return None
        room.take(node, need)
    return {slot.holder: fixed[slot.holder] for slot in slots}


def choose_for_one(
    ledger: Ledger,
    slot: Slot,
    candidates: Sequence[NodeName],
    units: Sequence[Unit],
    going: Sequence[Pod],
    releasing: Sequence[Holder],
    promised: Promised = (),
) -> Choice | None:
    """As `choose`, for a single slot: among the first nodes, the one with the least loss."""
    found = choose(ledger, [slot], candidates, units, going, releasing, promised)
    if found is None or len(found.victims) <= 1:
        return found
    there: dict[NodeName, list[Unit]] = {}
    for unit in units:
        for node in dict.fromkeys(pod.node for pod in unit.pods if pod.node is not None):
            there.setdefault(node, []).append(unit)
    for node in islice((node for node in candidates if node in there), _COMPARED):
        other = choose(ledger, [slot], [node], there[node], going, releasing, promised)
        if other is not None and loss(other) < loss(found):
            found = other
    return found


def loss(choice: Choice) -> tuple[tuple[bool, int], int]:
    """The loss: a broken budget first, then the highest priority, then the number of pods."""
    return max((unit.level for unit in choice.units), default=(False, 0)), len(choice.victims)


_Spare = dict[NodeName, dict[ResourceKey, int]]


def _left_by(units: Sequence[Unit]) -> dict[tuple[bool, int], _Spare]:
    """What the units of each level hold, by node."""
    found: dict[tuple[bool, int], _Spare] = {}
    for unit in units:
        level = found.setdefault(unit.level, {})
        for pod in unit.pods:
            assert pod.node is not None
            add_to(level.setdefault(pod.node, {}), pod.requests)
    return found


def _worth(unit: Unit) -> tuple[tuple[bool, int], int, float]:
    """Sorts units by how much is lost with them."""
    return unit.level, len(unit.pods), -unit.created


def _spare(room: Room, slots: Sequence[Slot], nodes: Mapping[Holder, NodeName]) -> _Spare:
    """What would be free on the nodes of the plan, beside it, in this room."""
    spare = {node: room.free(node) for node in set(nodes.values())}
    for slot in slots:
        add_to(spare[nodes[slot.holder]], slot.units, -1)
    return spare


def _kept(unit: Unit, spare: _Spare) -> bool:
    """Whether the unit can stay after all. If so, what it needs is removed from `spare`."""
    needs: _Spare = {}
    for pod in unit.pods:
        if pod.node in spare:
            add_to(needs.setdefault(pod.node, {}), pod.requests)
    if any(lacking(spare[node], NOTHING, need.items()) is not None for node, need in needs.items()):
        return False
    for node, need in needs.items():
        add_to(spare[node], need, -1)
    return True
