"""Which nodes a gang should wait for: those with room now, then those where most of a place is free."""

from __future__ import annotations

from collections.abc import Sequence

from extender.core.gangs.preemption.feasibility import aim
from extender.core.gangs.state.bin_packing import Slot
from extender.core.ledger.ledger import Holder, Holding, Ledger
from extender.kube.names import NodeName, PodUid
from extender.kube.quantities import Vector
from tests.builders import ledger_of, slot, units

GPU = "nvidia.com/gpu"


def taken(ledger: Ledger, on: str, **amounts: int) -> None:
    """A foreign pod holds so much there, and does not leave for a plan."""
    node = next(name for name in ledger.rows.present() if name == on)
    ledger.confirm(PodUid(f"pod-{on}"), on=node, units=units(amounts))


def slots(number: int, **amounts: int) -> list[Slot]:
    return [Slot(Holder(f"s{index}"), units(amounts)) for index in range(number)]


def aims(
    ledger: Ledger, wanted: list[Slot], releasing: Sequence[Holder] = (), kept: Sequence[Holding] = ()
) -> dict[Holder, tuple[NodeName, Vector]] | None:
    return aim(ledger, wanted, list(ledger.rows.present()), releasing=releasing, kept=kept)


def test_nodes_with_room_come_first_then_those_where_most_is_free() -> None:
    ledger = ledger_of({"n1": {"cpu": 4}, "n2": {"cpu": 4}, "n3": {"cpu": 4}})
    taken(ledger, "n1", cpu=4)
    taken(ledger, "n2", cpu=1)
    assert aims(ledger, slots(3, cpu=4)) == {
        "s0": ("n3", {"cpu": 4}),
        "s1": ("n2", {"cpu": 3}),
        "s2": ("n1", {"cpu": 0}),
    }


def test_no_node_is_waited_for_by_more_than_it_can_ever_hold() -> None:
    ledger = ledger_of({"n1": {"cpu": 4}, "n2": {"cpu": 2}})
    assert aims(ledger, slots(3, cpu=2)) == {
        "s0": ("n1", {"cpu": 2}),
        "s1": ("n1", {"cpu": 2}),
        "s2": ("n2", {"cpu": 2}),
    }
    assert aims(ledger, slots(4, cpu=2)) is None


def test_how_much_is_free_is_said_by_the_scarcest_resource() -> None:
    ledger = ledger_of({"n1": {"cpu": 4, GPU: 4}, "n2": {"cpu": 4, GPU: 4}})
    taken(ledger, "n1", cpu=3)
    taken(ledger, "n2", **{"cpu": 2, GPU: 2})
    assert aims(ledger, slots(2, **{"cpu": 4, GPU: 4})) == {
        "s0": ("n2", {"cpu": 2, GPU: 2}),
        "s1": ("n1", {"cpu": 1, GPU: 4}),
    }


def test_what_was_saved_before_counts_as_free() -> None:
    ledger = ledger_of({"n1": {"cpu": 4}, "n2": {"cpu": 4}})
    taken(ledger, "n1", cpu=2)
    ledger.commit([slot("saved", "n2", {"cpu": 4})])
    assert aims(ledger, slots(1, cpu=4)) == {"s0": ("n1", {"cpu": 2})}
    assert aims(ledger, slots(1, cpu=4), releasing=[Holder("saved")]) == {"s0": ("n2", {"cpu": 4})}


def test_what_is_kept_would_be_held_even_if_nobody_else_held_anything() -> None:
    ledger = ledger_of({"n1": {"cpu": 4}, "n2": {"cpu": 4}})
    taken(ledger, "n2", cpu=4)
    place = slot("kept", "n1", units(cpu=4))
    ledger.commit([place])
    assert aims(ledger, slots(1, cpu=4), kept=[place]) == {"s0": ("n2", {"cpu": 0})}
    assert aims(ledger, slots(2, cpu=4), kept=[place]) is None
