"""What a plan ahead, and the arrays, are asked in an order that nobody expects."""

from __future__ import annotations

import pytest

from extender.core.gangs.queue.queue import BackfillTrigger
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger import node_rows
from extender.kube.names import NodeName
from tests.builders import gang_pods, ledger_of, node, pod, units
from tests.core.gang_world import GangWorld


def test_one_planned_beside_another_leaves_it_the_nodes_that_it_alone_needs() -> None:
    """There is room for both: the large on the large node, the small on the small ones."""
    world = GangWorld()
    world.add_node(node("large", {"cpu": 8000}))
    for number in range(4):
        world.add_node(node(f"small{number}", {"cpu": 1000}))
    large, small = gang_pods("large", 2, {"cpu": 4000}), gang_pods("little", 3)
    world.create(large[0])
    assert world.filter(large[0]).passed
    world.create(small[0])
    world.filter(small[0])
    for member in small[1:]:
        world.create(member)
        world.filter(member)
    world.create(large[1])
    world.schedule()
    assert (world.bound("large"), world.bound("little")) == (2, 3), world.gangs
    assert world.turned_back == []
    world.check()


def test_a_node_that_is_sent_twice_has_room_once() -> None:
    world = GangWorld()
    for number in range(70):
        world.add_node(node(f"n{number}", {"cpu": 1000}))
    members = gang_pods("train", 3)
    world.create(*members)
    names = list(world.nodes)
    assert world.filter(members[0], [names[0], names[0], *names[1:]]).passed
    assert world.gangs == {"train": Phase.PLANNED}
    world.check()


def test_a_plan_of_which_nothing_is_left_is_none() -> None:
    """Its node is gone, and so are those that had a place there: nothing would ever run out."""
    world = GangWorld()
    world.add_node(node("gone"))
    members = gang_pods("train", 4, quorum=2)
    world.create(*members[:3])
    assert world.filter(members[0]).passed
    assert world.gangs == {"train": Phase.PLANNED}
    world.assumed.clear()
    world.remove_node(NodeName("gone"))
    for member in members[:2]:
        world.delete(member.uid)
    assert world.gangs == {"train": Phase.GATHERING}
    world.add_node(node("new"))
    assert world.filter(members[2]).passed
    world.create(members[3])
    world.schedule()
    assert world.bound("train") == 2
    world.check()


def test_nodes_that_come_and_go_while_nobody_asks_for_columns_are_not_all_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_rows, "_MOST_KEPT", 8)
    ledger = ledger_of({"stays": {"cpu": 4000}})
    need = list(units(cpu=1000).items())
    assert ledger.columns.offer(need) is not None
    ledger.capacity.set_node(NodeName("stays"), units(cpu=2000))
    for number in range(100):
        name = NodeName(f"n{number}")
        ledger.capacity.set_node(name, units(cpu=1000))
        ledger.capacity.remove_node(name)
        ledger.changes.drain()
    assert len(ledger.changes._for_columns) <= 9
    offer = ledger.columns.offer(need)
    assert offer is not None
    assert dict(offer.where()) == {"stays": 2}


def test_what_is_saved_again_as_it_was_is_no_change() -> None:
    """Or to count it anew used up each slice of work, and nobody behind was ever tried."""
    world = GangWorld(patience=BackfillTrigger(bypasses=1, seconds=30))
    for name in ("n0", "n1", "n2"):
        world.add_node(node(name, {"cpu": 2000}))
    small = [pod(f"small-{number}", {"cpu": 1500}) for number in range(3)]
    world.create(*small)
    world.schedule()
    large, other = gang_pods("large", 2, {"cpu": 2000}), gang_pods("other", 2, {"cpu": 1800})
    world.create(*large, *other)
    world.schedule()
    world.pass_time(31)
    world.delete(small[0].uid)
    cache = world.scheduler.cache
    saved = cache.gangs.waiting.queue.saved
    assert saved.gang is not None
    cache.gangs.waiting.queue.fits.refresh()
    held = cache.ledger.held_for(saved.gang.key)
    assert held
    saved.save((), world.clock.steady() + 1)
    assert not cache.ledger.changes.drain()
    assert [each.holder for each in cache.ledger.held_for(saved.gang.key)] == [each.holder for each in held]
    world.check()
