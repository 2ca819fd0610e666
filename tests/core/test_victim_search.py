"""Preemption for gangs: the lowest and the fewest leave, never half a gang, and only where the gang then fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest

from extender.app.contracts.extender_api import Victims
from extender.core.cluster import Pod
from extender.core.gangs.preemption.preemption import PREEMPTS_EVERY
from extender.core.gangs.preemption.victim_search import choose, unit_of
from extender.core.gangs.state.bin_packing import Slot
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import Holder, Ledger
from extender.kube.names import NodeName, PodUid
from tests.builders import gang_pods, ledger_of, node, pod, slot, units
from tests.core.gang_world import GangWorld

FULL = {"cpu": 8000}


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld()
    yield made
    made.check()


def nodes(world: GangWorld, count: int) -> list[NodeName]:
    """Nodes of 8 CPU."""
    for number in range(count):
        world.add_node(node(f"n{number}"))
    return list(world.nodes)


def runs(
    world: GangWorld, name: str, where: NodeName, cpu: int = 8000, *, priority: int = 0, created: float = 0
) -> Pod:
    made = pod(name, {"cpu": cpu}, node=where, priority=priority, created=created)
    world.create(made)
    return made


def gang(name: str, size: int, *, priority: int, cpu: int = 8000, preempts: bool = True) -> list[Pod]:
    return [replace(each, priority=priority, preempts=preempts) for each in gang_pods(name, size, {"cpu": cpu})]


def comes(world: GangWorld, members: list[Pod]) -> None:
    """The gang is created, and each member's filter is called, as when a node has room for one of them."""
    world.create(*members)
    for member in members:
        world.filter(member, list(world.nodes))


def test_pods_of_lower_priority_leave_and_the_gang_is_bound(world: GangWorld) -> None:
    for number, name in enumerate(nodes(world, 3)):
        runs(world, f"low{number}", name)
    comes(world, gang("train", 2, priority=1))
    assert [len(victims) for victims in world.preempted] == [2]
    world.schedule()
    assert world.gangs == {"train": Phase.BOUND}
    assert sum(each.name.startswith("low") for each in world.pods.values()) == 1


@pytest.mark.parametrize("preempts", [True, False])
@pytest.mark.parametrize("priority", [1, 0])
def test_nobody_leaves_for_a_gang_of_the_same_priority_or_one_that_does_not_preempt(
    world: GangWorld, priority: int, preempts: bool
) -> None:
    [n0] = nodes(world, 1)
    runs(world, "there", n0)
    comes(world, gang("train", 1, priority=priority, preempts=preempts))
    assert bool(world.preempted) == (preempts and priority > 0)


def test_nobody_leaves_where_that_would_not_be_enough(world: GangWorld) -> None:
    n0, n1 = nodes(world, 2)
    runs(world, "low", n0)
    runs(world, "high", n1, priority=2)
    comes(world, gang("train", 2, priority=1))
    assert world.preempted == []
    world.pass_time(10 * PREEMPTS_EVERY)
    assert world.preempted == []


def test_the_highest_of_those_who_leave_is_as_low_as_it_can_be(world: GangWorld) -> None:
    n0, n1, n2 = nodes(world, 3)
    runs(world, "middle", n0, priority=5)
    runs(world, "lowest", n1, priority=1)
    runs(world, "low", n2, priority=3)
    comes(world, gang("train", 2, priority=9))
    assert [sorted(victims) for victims in world.preempted] == [["low", "lowest"]]


def test_who_can_stay_stays_the_highest_the_oldest_first(world: GangWorld) -> None:
    [n0] = nodes(world, 1)
    runs(world, "old", n0, 2000, created=1)
    runs(world, "young", n0, 2000, created=2)
    runs(world, "high", n0, 2000, priority=1, created=3)
    comes(world, gang("train", 1, priority=2, cpu=4000))
    assert world.preempted == [["young"]]
    world.schedule()
    assert world.bound("train") == 1


def test_nodes_where_fewest_have_to_leave_are_taken(world: GangWorld) -> None:
    n0, n1, _ = nodes(world, 3)
    for number in range(4):
        runs(world, f"small{number}", n0, 2000)
    runs(world, "one", n1, 1000)
    runs(world, "half", NodeName("n2"), 8000)
    comes(world, gang("train", 1, priority=1))
    assert world.preempted == [["one"]]


def test_what_is_free_of_a_node_is_what_is_free_of_the_scarcest_that_the_gang_asks_for(world: GangWorld) -> None:
    """On both nodes one pod would have to leave; on the first more of a member's need is free already."""
    gpu = "nvidia.com/gpu"
    world.add_node(node("n0", {"cpu": 4000, gpu: 4}))
    world.add_node(node("n1", {"cpu": 4000, gpu: 4}))
    world.create(pod("one-device", {"cpu": 0, gpu: 1}, node=NodeName("n0")))
    world.create(pod("much-cpu", {"cpu": 3000}, node=NodeName("n1")))
    members = [replace(each, priority=1) for each in gang_pods("train", 1, {"cpu": 4000, gpu: 4})]
    comes(world, members)
    assert world.preempted == [["one-device"]]


def test_a_gang_leaves_as_a_whole(world: GangWorld) -> None:
    nodes(world, 4)
    world.create(*gang("low", 3, priority=0))
    world.schedule()
    comes(world, gang("train", 2, priority=1))
    assert [sorted(victims) for victims in world.preempted] == [["low-0", "low-1", "low-2"]]
    world.schedule()
    assert world.bound("train") == 2


def test_a_pod_leaves_rather_than_a_gang(world: GangWorld) -> None:
    nodes(world, 3)
    world.create(*gang("low", 2, priority=0))
    world.schedule()
    free = next(name for name in world.nodes if world.free(name, "cpu"))
    runs(world, "single", free)
    comes(world, gang("train", 1, priority=1))
    assert world.preempted == [["single"]]


def test_a_gang_that_no_node_has_room_for_preempts_when_kube_scheduler_would(world: GangWorld) -> None:
    """On full nodes the built-in fit turns a member away, and its filter is never called: its preempt is."""
    for number, name in enumerate(nodes(world, 2)):
        runs(world, f"low{number}", name)
    members = gang("train", 2, priority=1)
    world.create(*members)
    assert world.preempted == []
    offered = {name: Victims([PodUid(f"uid-low{number}")], 0) for number, name in enumerate(world.nodes)}
    assert world.do(world.scheduler.preempt(members[0], offered)) == {}
    assert [sorted(victims) for victims in world.preempted] == [["low0", "low1"]]
    world.schedule()
    assert world.bound("train") == 2


def test_one_member_of_a_gang_with_a_higher_priority_protects_it_all(world: GangWorld) -> None:
    nodes(world, 2)
    first, second = gang("mixed", 2, priority=0)
    world.create(first, replace(second, priority=5))
    world.schedule()
    comes(world, gang("train", 1, priority=1))
    assert world.preempted == []


def test_those_who_are_about_to_end_are_waited_for_and_nobody_else_is_evicted(world: GangWorld) -> None:
    n0, n1 = nodes(world, 2)
    ending = runs(world, "ending", n0)
    runs(world, "staying", n1)
    world.create(replace(ending, deleting=True))
    comes(world, gang("train", 1, priority=1))
    assert world.preempted == []
    world.delete(ending.uid)
    world.schedule()
    assert world.bound("train") == 1


def test_room_of_those_who_end_slowly_is_kept_for_the_gang(world: GangWorld) -> None:
    n0, n1 = nodes(world, 2)
    victims = [runs(world, "low0", n0), runs(world, "low1", n1)]
    comes(world, gang("train", 2, priority=1))
    world.evicted.clear()  # they take their time
    for victim in victims:
        world.create(replace(victim, deleting=True))
    world.delete(victims[0].uid)
    world.create(pod("thief", {"cpu": 1000}))
    world.schedule()
    assert world.pods[PodUid("uid-thief")].node is None
    world.delete(victims[1].uid)
    world.schedule()
    assert world.bound("train") == 2


def test_what_was_held_back_is_tried_again_after_a_while(world: GangWorld) -> None:
    [n0] = nodes(world, 1)
    runs(world, "guarded", n0)
    comes(world, gang("train", 1, priority=1))
    world.evicted.clear()  # a disruption budget
    world.pass_time(PREEMPTS_EVERY - 1)
    assert len(world.preempted) == 1
    world.pass_time(1)
    world.do(world.scheduler.settle())
    assert world.preempted == [["guarded"]] * 2


def test_it_is_for_the_first_in_turn_alone(world: GangWorld) -> None:
    n0, n1 = nodes(world, 2)
    runs(world, "low0", n0)
    runs(world, "low1", n1)
    comes(world, gang("urgent", 1, priority=3))
    comes(world, gang("next", 1, priority=2))
    assert len(world.preempted) == 1
    world.schedule()
    assert world.gangs == {"urgent": Phase.BOUND, "next": Phase.BOUND}


# -- the choice itself -----------------------------------------------------------------------------------------------


def chosen(
    ledger: Ledger, size: int, running: list[Pod], *, going: list[Pod] | None = None, releasing: Sequence[str] = ()
) -> list[str] | None:
    """Who leaves of these, each by itself, for a gang of `size` members of 1 CPU; None if all would not suffice."""
    slots = [Slot(Holder(f"s{index}"), units(cpu=1)) for index in range(size)]
    alone = [unit_of([each]) for each in running]
    found = choose(ledger, slots, list(ledger.rows.present()), alone, going or [], [Holder(each) for each in releasing])
    return None if found is None else [each.name for each in found.victims]


def bound(ledger: Ledger, name: str, where: str, *, priority: int = 0) -> Pod:
    """One unit of CPU, and no more: where a unit counts, a thousandth of a core would hide that."""
    made = replace(pod(name, node=NodeName(where), priority=priority), requests=units(cpu=1))
    ledger.confirm(made.uid, on=NodeName(where), units=made.requests)
    return made


def test_nobody_leaves_if_there_is_room_once_those_who_leave_anyway_have_gone() -> None:
    ledger = ledger_of({"n1": {"cpu": 1}, "n2": {"cpu": 1}})
    stays, goes = bound(ledger, "stays", "n1"), bound(ledger, "goes", "n2")
    assert chosen(ledger, 1, [stays]) == ["stays"]
    assert chosen(ledger, 1, [stays], going=[goes]) == []


def test_what_is_saved_for_the_gang_counts_as_free() -> None:
    ledger = ledger_of({"n1": {"cpu": 1}, "n2": {"cpu": 1}})
    there = bound(ledger, "there", "n1")
    ledger.commit([slot("saved", "n2", {"cpu": 1})])
    assert chosen(ledger, 2, [there]) is None
    assert chosen(ledger, 2, [there], releasing=["saved"]) == ["there"]
    assert chosen(ledger, 1, [there], releasing=["saved"]) == []


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_all_priorities_up_to_the_lowest_that_suffices_leave(size: int) -> None:
    ledger = ledger_of({f"n{number}": {"cpu": 1} for number in range(4)})
    running = [bound(ledger, f"p{number}", f"n{number}", priority=number) for number in range(4)]
    assert chosen(ledger, size, running) == [f"p{number}" for number in range(size)]
    assert chosen(ledger, 5, running) is None


def test_a_gang_of_one_node_stays_where_just_its_room_is_left_and_then_nobody_else_does() -> None:
    ledger = ledger_of({"n1": {"cpu": 4}})
    *both, one, other = [bound(ledger, name, "n1") for name in ("a", "b", "one", "other")]
    units_there = [unit_of(both), unit_of([one]), unit_of([other])]
    found = choose(ledger, [Slot(Holder("s"), units(cpu=2))], [NodeName("n1")], units_there, [], [])
    assert found is not None
    assert sorted(each.name for each in found.victims) == ["one", "other"]


def test_a_gang_leaves_though_one_unit_on_one_node_is_all_that_would_have_to_be_left_to_it() -> None:
    ledger = ledger_of({"n1": {"cpu": 1}, "n2": {"cpu": 1}})
    both = [bound(ledger, "a", "n1"), bound(ledger, "b", "n2")]
    found = choose(ledger, [Slot(Holder("s"), units(cpu=1))], [NodeName("n1")], [unit_of(both)], [], [])
    assert found is not None
    assert found.victims == tuple(both)


def test_who_asks_for_none_of_what_its_node_has_too_little_of_can_stay() -> None:
    ledger = ledger_of({"n1": {"cpu": 3, "gpu": 1}})
    running = []
    for name, created, asks in (("old", 1, units(cpu=1, gpu=0)), ("young", 2, units(cpu=1)), ("high", 0, units(gpu=1))):
        made = replace(pod(name, node=NodeName("n1"), created=created), requests=asks)
        ledger.confirm(made.uid, on=NodeName("n1"), units=asks)
        running.append(unit_of([made]))
    # A device has failed.
    ledger.capacity.set_node(NodeName("n1"), units(cpu=3, gpu=0))
    found = choose(ledger, [Slot(Holder("s"), units(cpu=2))], [NodeName("n1")], running[:2], [], [])
    assert found is not None
    assert [each.name for each in found.victims] == ["young"]


def test_no_more_counts_as_left_behind_than_is() -> None:
    ledger = ledger_of({"n1": {"cpu": 2, "gpu": 2}})
    running = []
    for name, asks in (("cpu", units(cpu=1)), ("gpu", units(gpu=1)), ("high", units(gpu=1))):
        made = replace(pod(name, node=NodeName("n1")), requests=asks)
        ledger.confirm(made.uid, on=NodeName("n1"), units=asks)
        running.append(unit_of([made]))
    slots = [Slot(Holder("s"), units(gpu=2))]
    assert choose(ledger, slots, [NodeName("n1")], running[:2], [], []) is None
    assert choose(ledger, slots, [NodeName("n1")], running, [], []) is not None


def test_of_one_node_no_more_leave_than_must() -> None:
    ledger = ledger_of({"n1": {"cpu": 4}})
    running = [bound(ledger, f"p{number}", "n1") for number in range(4)]
    assert [len(chosen(ledger, size, running) or []) for size in (1, 2, 3, 4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(200))
def test_slots_that_are_planned_already_find_the_same_victims_as_slots_that_may_be_nowhere_else(seed: int) -> None:
    random = Random(seed)
    ledger = ledger_of({f"n{number}": {"cpu": 4} for number in range(3)})
    names = list(ledger.rows.present())
    running = [bound(ledger, f"p{n}", names[n % 3], priority=random.randrange(4)) for n in range(12)]
    there = [unit_of(running[n : n + 2]) for n in range(0, 12, 2)]
    fixed = {Holder(f"s{n}"): random.choice(names) for n in range(4)}
    slots = [Slot(holder, units(cpu=random.randrange(3))) for holder in fixed]
    pinned = [replace(each, accepts=frozenset((fixed[each.holder],)).__contains__) for each in slots]
    found = choose(ledger, slots, (), there, [], [], fixed=fixed)
    assert found == choose(ledger, pinned, list(dict.fromkeys(fixed.values())), there, [], [])
