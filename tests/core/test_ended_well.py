"""Members that ended well count for their run, also where no living member of it was left for a moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.core.attempt import Attempt
from extender.core.cluster import Owner, Pod
from extender.core.gangs.cycle.members import EndedWell, same_run
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from tests.builders import gang_ask, gone, node, pod
from tests.core.gang_world import GangWorld
from tests.performing import replaced

RUN = Owner("Job", "train", "uid-of-this-run")


@pytest.fixture
def world() -> GangWorld:
    world = GangWorld()
    for number in range(3):
        world.add_node(node(f"n{number}"))
    return world


def member(name: str, owner: Owner | None = RUN) -> Pod:
    return pod(name, gang=gang_ask(quorum=2), owner=owner)


def run_until_one_has_succeeded_and_the_last_has_failed(world: GangWorld) -> None:
    members = [member("m0"), member("m1")]
    world.create(*members)
    world.schedule()
    assert world.bound("train") == 2
    world.finish(members[0].uid)
    world.catch_up()
    world.delete(members[1].uid)
    assert world.gangs == {}


def test_a_successor_of_the_last_living_member_completes_the_quorum(world: GangWorld) -> None:
    run_until_one_has_succeeded_and_the_last_has_failed(world)
    world.create(member("m2"))
    world.schedule()
    assert world.bound("train") == 1
    assert world.gangs == {"train": Phase.BOUND}
    world.check()


def test_a_restart_makes_no_difference(world: GangWorld) -> None:
    run_until_one_has_succeeded_and_the_last_has_failed(world)
    world.restart()
    world.create(member("m2"))
    world.schedule()
    assert world.gangs == {"train": Phase.BOUND}


@pytest.mark.parametrize("owner", [Owner("Job", "train", "uid-of-the-next-run"), None])
def test_a_member_of_another_run_does_not_profit(world: GangWorld, owner: Owner | None) -> None:
    run_until_one_has_succeeded_and_the_last_has_failed(world)
    world.create(member("m2", owner))
    world.schedule()
    assert world.bound("train") == 0


@pytest.mark.parametrize(
    ("ended", "lives", "same"),
    [
        (Attempt("a.1", 2, 2), Attempt("a.1", 2, 2), True),
        (Attempt("a.1", 2, 2), Attempt("a.2", 2, 2), False),
        (Attempt("a.1", 2, 2, (PodUid("uid-lives"),)), None, True),
        (Attempt("a.1", 2, 2), None, False),
        (None, Attempt("a.1", 2, 2), False),
    ],
)
def test_of_one_run_are_those_that_were_bound_together(
    ended: Attempt | None, lives: Attempt | None, same: bool
) -> None:
    finished = replace(member("ended", None), attempt=ended)
    assert same_run(finished, replace(member("lives", None), attempt=lives)) is same


@pytest.mark.parametrize(("created", "bound", "same"), [(5, 9, True), (9, 9, True), (10, 9, False), (0, 9, False)])
def test_of_one_run_is_who_was_there_when_the_other_was_bound(created: float, bound: float, same: bool) -> None:
    finished = replace(member("ended", None), attempt=Attempt("a.1", 2, 2), bound_at=bound)
    lives = replace(member("lives", None), created=created)
    assert same_run(finished, lives) is same
    assert not same_run(replace(finished, attempt=None), lives)


def test_a_bare_member_beyond_the_quorum_completes_it_after_a_restart(world: GangWorld) -> None:
    late = replace(member("m2", None), created=1.0)
    for name in ("m0", "m1"):
        done = replace(member(name, None), node=NodeName("n0"), finished=True, succeeded=True)
        world.do(world.scheduler.observe(replace(done, attempt=Attempt("a.1", 2, 2), created=1.0, bound_at=2.0)))
    world.create(late)
    world.schedule()
    assert world.bound("train") == 1
    assert world.gangs == {"train": Phase.BOUND}


def test_of_one_run_are_those_that_one_controller_made() -> None:
    one, other = member("ended"), member("lives")
    assert same_run(one, other)
    assert not same_run(one, member("lives", Owner("Job", "train", "another")))
    assert not same_run(member("ended", None), other)
    assert not same_run(one, member("lives", None))


DONE = replace(member("m0"), node=NodeName("n0"), finished=True, succeeded=True)


@pytest.mark.parametrize(
    ("facts", "counts"),
    [
        ({}, True),
        ({"finished": False}, False),
        ({"succeeded": False}, False),
        ({"node": None}, False),
        ({"deleting": True}, False),
        ({"gang": None}, False),
    ],
)
def test_ended_well_have_members_that_ran_succeeded_and_are_not_deleted(facts: dict[str, Any], counts: bool) -> None:
    ended_well = EndedWell()
    ended_well.on_event(replace(DONE, **facts))
    assert list(ended_well.known) == ([DONE.uid] if counts else [])
    assert list(ended_well.of_the_run(GangKey("default", "train"), member("m1"))) == ([DONE.uid] if counts else [])
    assert list(ended_well.of_the_run(GangKey("default", "other"), member("m1"))) == []


def test_whoever_is_deleted_or_looks_otherwise_now_did_not_and_the_others_did() -> None:
    ended_well, key = EndedWell(), GangKey("default", "train")
    other, third = (replace(DONE, name=name, uid=PodUid(f"uid-{name}")) for name in ("m5", "m6"))
    for each in (DONE, other, third):
        ended_well.on_event(each)
    ended_well.forget(DONE.uid)
    ended_well.forget(DONE.uid)
    assert list(ended_well.of_the_run(key, member("m1"))) == [other.uid, third.uid]
    ended_well.on_event(replace(other, deleting=True))
    assert list(ended_well.of_the_run(key, member("m1"))) == [third.uid]
    ended_well.on_event(replace(third, gang=gang_ask("next")))
    assert list(ended_well.of_the_run(key, member("m1"))) == []
    assert list(ended_well.of_the_run(GangKey("default", "next"), member("m1"))) == [third.uid]
    assert list(ended_well.known) == [third.uid]


def test_one_that_is_deleted_meanwhile_counts_for_nothing(world: GangWorld) -> None:
    run_until_one_has_succeeded_and_the_last_has_failed(world)
    [ended] = world.ended
    world.do(world.scheduler.forget(gone(ended)))
    world.create(member("m2"))
    world.schedule()
    assert world.bound("train") == 0


def test_nor_does_one_that_a_new_list_has_no_more(world: GangWorld) -> None:
    run_until_one_has_succeeded_and_the_last_has_failed(world)
    world.do(replaced(world.scheduler, Pod, []))
    world.create(member("m2"))
    world.schedule()
    assert world.bound("train") == 0
    assert not world.scheduler.cache.gangs.members.ended_well.known


def test_nor_one_that_is_about_to_be_deleted(world: GangWorld) -> None:
    run_until_one_has_succeeded_and_the_last_has_failed(world)
    [ended] = world.ended.values()
    world.do(world.scheduler.observe(replace(ended, deleting=True)))
    world.create(member("m2"))
    world.schedule()
    assert world.bound("train") == 0


def test_one_of_a_run_that_nobody_was_seen_of_yet_counts_beside_those_of_an_earlier_run(world: GangWorld) -> None:
    earlier = replace(member("old", Owner("Job", "train", "before")), node=NodeName("n0"))
    done = replace(member("m0"), node=NodeName("n0"), finished=True, succeeded=True)
    world.create(earlier)
    world.do(world.scheduler.observe(done))
    gang = world.scheduler.cache.gangs.by_key[GangKey("default", "train")]
    assert gang.roster.succeeded == set()
    world.create(member("m1"))
    assert gang.roster.succeeded == {PodUid("uid-m0")}
