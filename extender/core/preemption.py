"""Preemption for a gang: whose leaving would make room for its whole quorum; the lowest, and the fewest of them.

Reads the ledger and changes nothing. A victim is a pod of no gang, or a gang with all its members: never half of one.
kube-scheduler cannot do this: it preempts for one pod on one node. Must not know when a gang may preempt: see `gangs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from extender.core.cluster import Pod
from extender.core.ledger import Holder, Ledger
from extender.core.names import NodeName, ResourceKey
from extender.core.planning import Shortfall, plan
from extender.core.room import Slot


@dataclass(frozen=True, slots=True)
class Unit:
    """Bound pods that leave together. The higher of their priorities; when the oldest of them was created."""

    pods: tuple[Pod, ...]
    priority: int
    created: float


@dataclass(frozen=True, slots=True)
class Choice:
    """Who is to leave, and on which nodes the slots then have room."""

    victims: tuple[Pod, ...]
    nodes: tuple[NodeName, ...]


def unit_of(pods: Iterable[Pod]) -> Unit:
    together = tuple(pods)
    return Unit(together, max(pod.priority for pod in together), min(pod.created for pod in together))


def choose(
    ledger: Ledger,
    slots: Sequence[Slot],
    candidates: Sequence[NodeName],
    units: Sequence[Unit],
    going: Sequence[Pod],
    releasing: Sequence[Holder],
) -> Choice | None:
    """The victims among `units`; none of them if there is room once `going` are gone. None if all would not suffice.

    The highest priority among the victims is as low as it can be; then of those units each is kept that can be, the
    highest, largest and oldest first. `going`: pods that leave anyway. `releasing`: what is saved for the slots.
    O(log(priorities)) plans, and once over the victims.
    """
    gone = [Holder(pod.uid) for pod in going]

    def placed(up_to: float) -> list[NodeName] | None:
        leaving = [*gone, *(Holder(pod.uid) for unit in units if unit.priority <= up_to for pod in unit.pods)]
        found = plan(ledger, slots, candidates, releasing=releasing, leaving=leaving)
        return None if isinstance(found, Shortfall) else [found[slot.holder] for slot in slots]

    nodes = placed(float("-inf"))
    if nodes is not None:
        return Choice((), tuple(dict.fromkeys(nodes)))
    levels = sorted({unit.priority for unit in units})
    if not levels or placed(levels[-1]) is None:
        return None
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        if placed(levels[middle]) is None:
            low = middle + 1
        else:
            high = middle
    nodes = placed(levels[low])
    assert nodes is not None
    leaving = [unit for unit in units if unit.priority <= levels[low]]
    spare = _spare(ledger, slots, nodes, [*gone, *releasing], leaving)
    victims = [unit for unit in sorted(leaving, key=_worth, reverse=True) if not _kept(unit, spare)]
    return Choice(tuple(pod for unit in reversed(victims) for pod in unit.pods), tuple(dict.fromkeys(nodes)))


def _worth(unit: Unit) -> tuple[int, int, float]:
    """Sorts units by how much is lost with them."""
    return unit.priority, len(unit.pods), -unit.created


_Spare = dict[NodeName, dict[ResourceKey, int]]


def _spare(
    ledger: Ledger, slots: Sequence[Slot], nodes: Sequence[NodeName], gone: Iterable[Holder], leaving: Sequence[Unit]
) -> _Spare:
    """What would be free on the nodes of the plan, beside it, if all these were gone."""
    spare: _Spare = {}
    for node in nodes:
        if node not in spare:
            row = ledger.rows[node]
            spare[node] = {r: units - row.held.get(r, 0) for r, units in row.capacity.items()}
    for slot, node in zip(slots, nodes, strict=True):
        for resource, units in slot.units.items():
            spare[node][resource] = spare[node].get(resource, 0) - units
    for holder in dict.fromkeys([*gone, *(Holder(pod.uid) for unit in leaving for pod in unit.pods)]):
        if (held := ledger.holding(holder)) is not None and held.node in spare:
            for resource, units in held.units.items():
                spare[held.node][resource] = spare[held.node].get(resource, 0) + units
    return spare


def _kept(unit: Unit, spare: _Spare) -> bool:
    """Whether the unit can stay after all; then what it needs is spare no more."""
    needs: _Spare = {}
    for pod in unit.pods:
        if pod.node in spare:
            need = needs.setdefault(pod.node, {})
            for resource, units in pod.requests.items():
                need[resource] = need.get(resource, 0) + units
    if any(units > max(0, spare[node].get(r, 0)) for node, need in needs.items() for r, units in need.items() if units):
        return False
    for node, need in needs.items():
        for resource, units in need.items():
            spare[node][resource] = spare[node].get(resource, 0) - units
    return True
