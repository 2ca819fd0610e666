"""An elastic Job that is shrunk below its quorum: the quorum is what the Job makes, for as long as that is less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from extender.core.cluster import Owner, Pod
from extender.core.gang_ask import GangAsk, derived_key
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.kube.names import NodeName
from tests.builders import node, pod
from tests.core.gang_world import GangWorld
from tests.performing import replaced

JOB = Owner("Job", "train", "uid-train", "batch")
GANG = derived_key("default", JOB.kind, JOB.name, JOB.group, JOB.uid)


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld()
    for number in range(8):
        made.add_node(node(f"n{number}", {"cpu": 1000}))
    yield made
    made.check()


def spec(parallel: int, gang: GangKey = GANG) -> Promise:
    return Promise(JOB.uid, parallel, gang.namespace, gang, parallel)


def set_parallel(world: GangWorld, number: int) -> None:
    world.do(world.scheduler.observe(spec(number)))


def index(number: int, run: int = 0, gang: GangKey = GANG) -> Pod:
    return pod(f"train-{number}-{run}", gang=GangAsk(gang, 4), owner=JOB)


def running(world: GangWorld, size: int = 4) -> None:
    set_parallel(world, size)
    world.create(*(index(number) for number in range(size)))
    world.schedule()


def quorum(world: GangWorld) -> int:
    return world.scheduler.cache.gangs.by_key[GANG].terms.quorum


def shrink(world: GangWorld) -> None:
    """To two: the Job's spec says so, and then its pods go."""
    set_parallel(world, 2)
    for number in (2, 3):
        world.delete(index(number).uid)


def fail(world: GangWorld, number: int) -> None:
    """The index has failed, and the Job makes it again."""
    world.delete(index(number).uid)
    world.create(index(number, 1))
    world.schedule()


def test_a_failed_index_of_a_shrunk_job_is_placed_again(world: GangWorld) -> None:
    running(world)
    shrink(world)
    fail(world, 1)
    assert (world.bound(GANG.name), world.gangs, quorum(world)) == (2, {GANG.name: Phase.BOUND}, 2)
    assert world.evicted == []


def test_the_index_may_have_failed_before_the_job_was_shrunk(world: GangWorld) -> None:
    running(world)
    for number in (2, 3):
        world.delete(index(number).uid)
    fail(world, 1)
    assert world.bound(GANG.name) == 1
    set_parallel(world, 2)
    world.schedule()
    assert (world.bound(GANG.name), world.gangs) == (2, {GANG.name: Phase.BOUND})


def test_a_job_that_is_raised_again_has_its_quorum_again(world: GangWorld) -> None:
    running(world)
    shrink(world)
    set_parallel(world, 4)
    assert quorum(world) == 4
    world.create(index(2, 1))
    world.schedule()
    assert world.bound(GANG.name) == 2
    world.create(index(3, 1))
    world.schedule()
    assert (world.bound(GANG.name), world.gangs) == (4, {GANG.name: Phase.BOUND})


def test_a_job_raised_above_its_quorum_has_that_and_no_more(world: GangWorld) -> None:
    running(world)
    set_parallel(world, 8)
    assert quorum(world) == 4


def test_a_job_smaller_than_its_quorum_before_anybody_ran_keeps_its_gang_waiting(world: GangWorld) -> None:
    """Nobody has shrunk it: a part of what was asked for is not bound."""
    set_parallel(world, 2)
    members = [index(number) for number in range(2)]
    world.create(*members)
    world.bring(members)
    world.schedule()
    assert (quorum(world), world.bound(GANG.name)) == (4, 0)


def test_a_job_of_which_no_pods_are_wanted_leaves_the_quorum(world: GangWorld) -> None:
    """Its pods go; a part of them is not bound meanwhile."""
    for number in range(6):
        world.remove_node(NodeName(f"n{number}"))
    running(world)
    set_parallel(world, 0)
    world.schedule()
    assert (quorum(world), world.bound(GANG.name)) == (4, 0)


def test_a_job_that_is_gone_says_nothing(world: GangWorld) -> None:
    running(world)
    shrink(world)
    world.do(world.scheduler.forget(spec(2)))
    assert quorum(world) == 4
    assert (world.bound(GANG.name), world.evicted) == (2, [])


def test_jobs_may_be_listed_after_pods_or_before(world: GangWorld) -> None:
    running(world)
    shrink(world)
    for order in ((Promise, Pod), (Pod, Promise)):
        world.restart()
        for kind in order:
            world.do(replaced(world.scheduler, kind, [spec(2)] if kind is Promise else list(world.pods.values())))
        assert (quorum(world), world.gangs) == (2, {GANG.name: Phase.BOUND})
        world.do(replaced(world.scheduler, Promise, []))
        assert quorum(world) == 4


@pytest.mark.parametrize(
    "other",
    [
        replace(GANG, namespace="other"),
        replace(GANG, name="job.other"),
        GangKey("default", "by-label"),
    ],
)
def test_only_the_gang_that_is_the_job_has_its_quorum_from_it(world: GangWorld, other: GangKey) -> None:
    """A label may have several Jobs in one gang; and a pod may name any controller as its own."""
    member = replace(index(0, gang=other), namespace=other.namespace)
    set_parallel(world, 2)
    world.create(member)
    assert world.scheduler.cache.gangs.by_key[other].terms.quorum == 4
