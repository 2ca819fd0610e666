"""Quotas of gang places: who would be too many waits aside, in nobody's way, and comes when there are places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.app.explain.explain import Explain
from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.gangs.queue.queue import BackfillTrigger, Queue
from extender.core.gangs.state.gang import NO_ROOM, OVER_QUOTA, Gang
from extender.core.ledger.ledger import HoldingKind
from extender.core.names import GangKey
from extender.kube.names import PodUid
from tests.builders import gang_ask, gang_pods, node, pod
from tests.core.gang_world import GangWorld

ONE, FULL = {"cpu": 1000}, {"cpu": 8000}


@pytest.fixture
def world() -> Iterator[GangWorld]:
    """Four nodes of 8 CPU; namespace `a` may hold four gang places."""
    made = GangWorld(patience=BackfillTrigger(2, 60.0))
    for number in range(4):
        made.add_node(node(f"n{number}"))
    made.allow(a=4)
    yield made
    made.check()


def gang(name: str, size: int, namespace: str = "a", *, asks: Any = ONE, quorum: int | None = None) -> list[Pod]:
    ask = gang_ask(name, quorum or size, namespace=namespace)
    return [replace(each, namespace=namespace, gang=ask) for each in gang_pods(name, size, asks)]


def used(world: GangWorld, namespace: str = "a") -> int:
    return world.scheduler.cache.ledger.totals.places.get(namespace, 0)


def test_a_gang_beyond_the_quota_is_turned_away_for_that_and_comes_when_places_are_free(world: GangWorld) -> None:
    first, second = gang("first", 3), gang("second", 2)
    world.create(*first, *second)
    world.schedule()
    assert (world.bound("first"), world.bound("second"), used(world)) == (3, 0, 3)
    assert {world.asleep[each.uid] for each in second} == {OVER_QUOTA}
    world.delete(first[0].uid)
    world.schedule()
    assert (world.bound("second"), used(world)) == (2, 4)


def test_it_is_explained_with_numbers(world: GangWorld) -> None:
    world.create(*gang("first", 3), *gang("second", 2), *gang("never", 9))
    world.schedule()
    explain = Explain(world.scheduler.cache)
    told = explain.gang(GangKey("a", "second"))
    assert "requested: gang_places=2, used: gang_places=3, limited: gang_places=4" in told.summary
    assert "wait until others of its namespace end, or raise isolation.namespaces.a.gang_places" in told.remedies[0]
    assert "set gang-min-member to 4" in explain.gang(GangKey("a", "never")).remedies[0]


def test_others_of_its_shape_do_not_wait_behind_it(world: GangWorld) -> None:
    """All rooms are taken, and as soon as one is free it is the other namespace's, though this one waited first."""
    world.allow(a=2)
    holding = gang("holding", 2, asks=FULL)
    world.create(*holding, pod("filler", FULL, node="n2"), pod("another", FULL, node="n3"))
    world.schedule()
    world.create(*gang("mine", 2, asks=FULL))
    world.schedule()
    theirs = gang("theirs", 2, "b", asks=FULL)
    world.create(*theirs)
    for member in theirs:
        world.filter(member, list(world.nodes))
    world.delete(PodUid("uid-filler"))
    world.delete(PodUid("uid-another"))
    world.schedule()
    assert (world.bound("mine"), world.bound("theirs")) == (0, 2)


def test_no_room_is_saved_for_it_and_what_was_saved_is_given_back(world: GangWorld) -> None:
    world.create(*(pod(f"filler-{name}", FULL, node=name) for name in world.nodes))
    waiting = gang("waiting", 3, asks=FULL)
    world.create(*waiting)
    assert world.filter(waiting[0], list(world.nodes)).unresolvable
    world.pass_time(61.0)
    world.delete(PodUid("uid-filler-n0"))
    assert world.scheduler.cache.ledger.totals.saved
    world.allow(a=2)
    assert not world.scheduler.cache.ledger.totals.saved
    world.delete(PodUid("uid-filler-n1"))
    world.pass_time(120.0)
    assert not world.scheduler.cache.ledger.totals.saved
    others = gang("others", 2, "b", asks=FULL)
    world.create(*others)
    world.schedule()
    assert world.bound("others") == 2


MANY = 100
"""More than are tried at once when a place is free."""


def crowd(world: GangWorld) -> list[Pod]:
    """Gangs of one that wait for one of the four places; those that hold them have 1 CPU each."""
    holding = [gang(f"first{number}", 1)[0] for number in range(4)]
    waiting = [replace(gang(f"next{number}", 1)[0], created=9.0 + number) for number in range(MANY)]
    world.create(*holding, *waiting)
    world.schedule()
    assert {world.asleep[each.uid] for each in waiting} == {OVER_QUOTA}
    return waiting


def test_one_place_that_is_free_is_looked_at_for_a_few_and_the_first_in_turn_has_it(
    world: GangWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, entered = crowd(world), []
    enter = Queue.enter

    def noting(self: Queue, each: Gang) -> None:
        entered.append(each)
        enter(self, each)

    monkeypatch.setattr(Queue, "enter", noting)
    world.delete(PodUid("uid-first0-0"))
    assert [each for each in waiting if each.uid not in world.asleep] == waiting[:1]
    assert len(entered) < MANY / 2
    assert len(world.scheduler.cache.gangs.waiting.quota.aside) == MANY - 1
    world.schedule()


def test_where_those_that_are_first_in_turn_find_no_room_the_place_is_for_who_does(world: GangWorld) -> None:
    waiting = crowd(world)
    for name in list(world.nodes):
        world.create(replace(pod(f"fills-{name}", {"cpu": 6000}, node=name), namespace="b"))
    large = [replace(gang(f"large{number}", 1, asks=FULL)[0], created=1.0) for number in range(MANY)]
    world.create(*large)
    for each in large:
        world.filter(each, list(world.nodes))
    world.delete(PodUid("uid-first0-0"))
    assert [each for each in waiting if each.uid not in world.asleep] == waiting[:1]
    world.schedule()
    assert world.bound("next0") == 1


def test_a_lower_quota_takes_nothing_away(world: GangWorld) -> None:
    world.create(*gang("first", 4))
    world.schedule()
    world.allow(a=1)
    world.create(*gang("second", 1))
    world.schedule()
    assert (world.bound("first"), world.bound("second")) == (4, 0)


def test_a_higher_quota_wakes_who_waits_though_no_node_has_gained_room(world: GangWorld) -> None:
    second = gang("second", 2)
    world.create(*gang("first", 3), *second)
    world.schedule()
    world.allow(a=5)
    assert not world.asleep
    world.schedule()
    assert world.bound("second") == 2


def test_one_beyond_the_quorum_has_a_place_if_the_quota_leaves_one(world: GangWorld) -> None:
    members = gang("train", 6, quorum=2)
    world.create(*members)
    world.schedule()
    assert (world.bound("train"), used(world)) == (4, 4)
    assert {*world.asleep.values()} == {OVER_QUOTA}
    world.allow(a=5)
    world.schedule()
    assert world.bound("train") == 5
    world.delete(next(uid for uid, each in world.pods.items() if each.node is not None))
    world.schedule()
    assert world.bound("train") == 5


def test_members_of_a_plan_that_waits_count_and_are_free_when_it_runs_out(world: GangWorld) -> None:
    first, second = gang("first", 3), gang("second", 3)
    world.create(*first, *second)
    world.filter(first[0])
    assert used(world) == 3
    assert {*world.filter(second[0]).unresolvable.values()} == {OVER_QUOTA}
    world.delete(first[1].uid)
    world.delete(first[2].uid)
    world.pass_time(31.0)
    world.schedule()
    assert world.bound("second") == 3


def test_after_a_restart_places_count_as_before(world: GangWorld) -> None:
    world.create(*gang("first", 3), *gang("second", 2))
    world.schedule()
    world.restart()
    world.schedule()
    assert (used(world), world.bound("second")) == (3, 0)
    world.create(*gang("third", 1))
    world.schedule()
    assert (world.bound("third"), used(world)) == (1, 4)


def test_room_and_quota_are_told_apart(world: GangWorld) -> None:
    world.create(*(pod(f"filler-{name}", FULL, node=name) for name in world.nodes))
    member = gang("train", 2)[0]
    world.create(*gang("train", 2))
    assert {*world.filter(member, list(world.nodes)).unresolvable.values()} == {NO_ROOM}


# -- in any order ------------------------------------------------------------------------------------------------

steps = st.one_of(
    st.tuples(st.just("create"), st.sampled_from("ab"), st.integers(1, 4)),
    st.tuples(st.just("surplus"), st.sampled_from("ab"), st.integers(1, 3)),
    st.tuples(st.just("delete"), st.integers(0, 40), st.none()),
    st.tuples(st.just("finish"), st.integers(0, 40), st.none()),
    st.tuples(st.just("ask"), st.integers(0, 40), st.none()),
    st.tuples(st.just("allow"), st.integers(0, 6), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 31.0]), st.none()),
    st.tuples(st.just("schedule"), st.none(), st.none()),
    st.tuples(st.just("restart"), st.none(), st.none()),
)


def recounted(world: GangWorld) -> int:
    """Members of `a` that are bound, and places that are held for its gangs."""
    bound = sum(
        each.namespace == "a" and each.node is not None and isinstance(each.gang, GangAsk)
        for each in world.pods.values()
    )
    held = [each for each in world.scheduler.cache.ledger.rows.holdings() if each.owner and each.owner.namespace == "a"]
    return bound + sum(each.kind in (HoldingKind.RESERVATION, HoldingKind.ASSUMPTION) for each in held)


@settings(max_examples=80)
@given(st.lists(steps, min_size=4, max_size=25), st.sampled_from([1, 16]))
def test_no_new_place_is_ever_beyond_the_quota_and_who_may_have_one_is_not_kept_aside(
    given_steps: list[Any], at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("extender.core.gangs.state.quota._AT_ONCE", at_once)
        play(given_steps)


def play(given_steps: list[Any]) -> None:
    world, limit = GangWorld(), 3
    for number in range(3):
        world.add_node(node(f"n{number}", {"cpu": 4000}))
    world.allow(a=limit)
    for number, (what, first, second) in enumerate(given_steps):
        before = used(world)
        there = list(world.pods)
        chosen = PodUid(there[first % len(there)]) if isinstance(first, int) and there else None
        match what:
            case "create":
                world.create(*gang(f"g{number}", second, first))
            case "surplus":
                world.create(*gang(f"g{number}", second + 2, first, quorum=second))
            case "delete" if chosen:
                world.delete(chosen)
            case "finish" if chosen and world.pods[chosen].node is not None:
                world.finish(chosen)
                world.catch_up()
            case "ask" if chosen and world.pods[chosen].node is None and chosen not in world.assumed:
                world.filter(world.pods[chosen])
            case "allow":
                limit = first
                world.allow(a=limit)
            case "wait":
                world.pass_time(first)
            case "schedule":
                world.schedule()
            case "restart":
                world.restart()
        assert used(world) <= max(before, limit)
        assert used(world) == recounted(world)
        quota = world.scheduler.cache.gangs.waiting.quota
        for key in quota.aside:
            assert quota.over(world.scheduler.cache.gangs.by_key[key]) is not None, (
                f"{key} is aside, and may have places"
            )
        world.check()
