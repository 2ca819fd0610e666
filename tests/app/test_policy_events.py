"""Policies as they come into force, change and end: the `Scheduler` is told, and what it decides for that is done."""

from __future__ import annotations

from extender.app.contracts.kind import Identity
from extender.app.cycle.policy_events import GovernedByKeeper
from extender.core.policies.policy_types import AntiAffinity, BinPacking, PolicyInForce
from extender.kube.names import NodeName
from tests.builders import pod
from tests.filters.escher_policies.world import PolicyWorld, naming

IT, OTHER = Identity("default", "it"), Identity("other", "it")


def test_what_comes_changes_and_ends_is_heeded_and_its_effects_are_done() -> None:
    world = PolicyWorld(zones="a")
    table = GovernedByKeeper(world.scheduler, world)
    table.put(IT, PolicyInForce(AntiAffinity()))
    for name in ("one", "two"):
        world.place(name, annotations=naming("it"))
    assert list(world.asleep) == ["uid-two"]
    table.put(OTHER, PolicyInForce(BinPacking()))
    assert list(world.asleep) == ["uid-two"], "it is another's namespace"
    table.put(IT, PolicyInForce(BinPacking()))
    world.schedule()
    assert world.node_of("two") == "n0"
    table.drop(IT)
    three = pod("three", annotations=naming("it"))
    world.create(three)
    assert not world.filter(three, [NodeName("n0")]).passed


def test_dropping_what_is_not_there_changes_nothing() -> None:
    world = PolicyWorld(zones="a")
    table = GovernedByKeeper(world.scheduler, world)
    table.drop(IT)
    assert world.place("one") == "n0"


def test_a_thousand_changes_while_pods_come_and_go_lead_to_no_wrong_placement_and_no_missed_wake() -> None:
    world = PolicyWorld(zones="ab", cpu=10_000)
    table = GovernedByKeeper(world.scheduler, world)
    for number in range(1000):
        table.put(IT, PolicyInForce(BinPacking() if number % 2 else AntiAffinity()))
        name = f"p{number}"
        world.place(name, 1000, annotations=naming("it"))
        standing = [each for each in world.pods.values() if each.node is not None]
        if number % 2:
            assert not world.asleep, "nothing is in anybody's way"
            for each in standing[1:]:
                world.delete(each.uid)
        else:
            assert len(world.pods) - len(world.asleep) == len(standing) <= 2
    world.check()
