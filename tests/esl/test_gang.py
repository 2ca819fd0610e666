"""Gangs in pure extended resources: reserved whole or rolled back, in any order in which the world may move."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.esl import GangEsl, GangSpec, GhostPhase, Space, Times, gang
from extender.esl.base import CreateGhost, DeleteGhost, Effect, News, PodGone, RemoveCapacity, SetCapacity
from tests.esl.simulated_cluster import SimulatedCluster

DICE = st.randoms(use_true_random=False)
EACH = {"cpu": "1"}


def app(seed: int = 1, space: Space = Space.APP, **times: float) -> GangEsl:
    return GangEsl(space, seed=seed, times=Times(**times))  # type: ignore[arg-type]


def news(world: SimulatedCluster, spec: GangSpec) -> list[News]:
    return [each for application in world.applications for each in application.news(spec.gang.name)]


def over(world: SimulatedCluster, *specs: GangSpec) -> bool:
    return all(set(news(world, spec)) & {News.ENDED, News.FAILED} for spec in specs)


@settings(max_examples=settings().max_examples * 3 // 5)
@given(dice=DICE, beforehand=st.booleans(), one_key=st.booleans(), size=st.integers(1, 6))
def test_all_members_run_and_nothing_is_left(dice: random.Random, beforehand: bool, one_key: bool, size: int) -> None:
    world = SimulatedCluster({"n1": 2, "n2": 3, "n3": 2}, app())
    train = gang("train", size, EACH, one_key=one_key)
    world.ask(0, train, members_beforehand=beforehand)
    world.play(dice, until=lambda: over(world, train))
    assert news(world, train) == [News.RESERVED, News.ENDED]
    assert world.ever["train"] == size
    assert world.nothing_left(train)


@settings(max_examples=settings().max_examples // 2)
@given(dice=DICE, beforehand=st.booleans())
def test_a_gang_that_does_not_fit_leaves_nothing_behind_and_never_has_a_member_bound(
    dice: random.Random, beforehand: bool
) -> None:
    world = SimulatedCluster({"n1": 10}, app(attempts=3))
    train = gang("train", 12, EACH)
    world.ask(0, train, members_beforehand=beforehand)
    began = world.now
    world.play(dice, until=lambda: News.ROLLED_BACK in news(world, train))
    assert world.now == began + 10
    assert world.nothing_left(train)
    world.play(dice, until=lambda: over(world, train))
    assert news(world, train) == [News.ROLLED_BACK, News.ROLLED_BACK, News.FAILED]
    assert "10 of 12 ghosts were bound in time" in world.applications[0].reports[-1].detail
    assert world.ever["train"] == 0
    assert world.nothing_left(train)


@pytest.mark.longer
@pytest.mark.timeout(300)
@settings(max_examples=settings().max_examples // 2)
@given(dice=DICE, beforehand=st.booleans(), seeds=st.sampled_from([(1, 2), (3, 4), (10, 77)]))
def test_two_gangs_that_cannot_both_fit_run_one_after_the_other_without_knowing_of_each_other(
    dice: random.Random, beforehand: bool, seeds: tuple[int, int]
) -> None:
    world = SimulatedCluster({"n1": 8, "n2": 8}, app(seeds[0]), app(seeds[1]))
    left, right = gang("left", 12, EACH), gang("right", 12, EACH)
    world.ask(0, left, members_beforehand=beforehand)
    world.ask(1, right, members_beforehand=beforehand)
    world.play(dice, until=lambda: over(world, left, right))
    assert one_after_the_other(world)
    assert world.nothing_left(left)
    assert world.nothing_left(right)
    assert world.ever == {"left": 12, "right": 12}


@settings(max_examples=settings().max_examples // 2)
@given(dice=DICE, beforehand=st.booleans())
@pytest.mark.longer
def test_two_gangs_of_a_shared_library_take_turns(dice: random.Random, beforehand: bool) -> None:
    world = SimulatedCluster({"n1": 8, "n2": 8}, app(space=Space.LIB))
    first, second = gang("first", 12, EACH), gang("second", 12, EACH)
    for spec in (first, second):
        world.ask(0, spec, members_beforehand=beforehand)
    world.play(dice, until=lambda: over(world, first, second))
    # The first never waits for the second: it has its turn alone.
    assert news(world, first) == [News.RESERVED, News.ENDED]
    assert [gang_name for gang_name, _ in world.order] == ["first", "first", "second", "second"]
    assert one_after_the_other(world)
    assert world.nothing_left(first)
    assert world.nothing_left(second)


def one_after_the_other(world: SimulatedCluster) -> bool:
    """Whether at no time both gangs' resources were on the nodes."""
    return [what for _, what in world.order] == ["exported", "withdrawn"] * 2


def test_a_shared_library_has_one_gangs_ghosts_at_a_time_by_priority_then_age() -> None:
    esl = app(space=Space.LIB)
    assert created(esl.start(gang("old", 2, EACH), 1.0)) == ["old", "old"]
    assert esl.start(gang("older-low", 1, EACH), 2.0) == []
    assert esl.start(gang("young-low", 1, EACH), 3.0) == []
    assert esl.start(gang("young-high", 1, EACH, priority=5), 4.0) == []
    order: list[str] = []
    for name in ("old", "young-high", "older-low"):
        order += created(esl.cancel(gang(name, 1, EACH).gang, 5.0))
        order += created(drop_ghosts(esl, name))
    assert order == ["young-high", "older-low", "young-low"]


def drop_ghosts(esl: GangEsl, name: str) -> list[Effect]:
    """The ghosts that the ESL made for the gang are gone."""
    ghosts = [ghost for (_, ghost), owner in esl._by_ghost.items() if owner.spec.gang.name == name]
    return [effect for ghost in ghosts for effect in esl.handle(PodGone("default", ghost), 5.0)]


def created(effects: list[Effect]) -> list[str]:
    return [effect.ghost.group for effect in effects if isinstance(effect, CreateGhost)]


@settings(max_examples=settings().max_examples * 3 // 5)
@given(dice=DICE, beforehand=st.booleans(), patience=st.integers(0, 60), finishing=st.booleans())
def test_cancelled_at_any_moment_nothing_is_left_but_what_members_use(
    dice: random.Random, beforehand: bool, patience: int, finishing: bool
) -> None:
    world = SimulatedCluster({"n1": 2, "n2": 3}, app())
    train = gang("train", 4, EACH)
    world.finishing = finishing
    world.ask(0, train, members_beforehand=beforehand)
    steps = iter(range(10_000))
    world.play(dice, until=lambda: next(steps) >= patience or world.quiet())
    world.cancel(0, train)
    world.play(dice, until=world.quiet)
    assert world.applications[0].esl.settled(train.gang)
    assert not world.exported(train)
    running = [pod for pod in world.pods.values() if pod.node and not pod.finished and "ghost" not in pod.name]
    assert len(world.ghosts(train)) == len(running)
    for pod in running:
        world.finish(pod.name)
    world.play(dice, until=lambda: over(world, train))
    assert world.nothing_left(train)


@settings(max_examples=settings().max_examples * 3 // 5)
@given(dice=DICE, beforehand=st.booleans(), deleted=st.booleans(), begin=st.integers(0, 40))
def test_a_ghost_that_others_end_costs_an_attempt_or_is_replaced(
    dice: random.Random, beforehand: bool, deleted: bool, begin: int
) -> None:
    world = SimulatedCluster({"n1": 3, "n2": 3}, app())
    # Between the deletion and its replacement a member may run on room that is not held: nobody asked the ESL.
    world.check = lambda: None  # type: ignore[method-assign]
    world.strangers_delete = deleted
    world.finishing = False
    train = gang("train", 4, EACH)
    world.ask(0, train, members_beforehand=beforehand)
    steps = iter(range(1000))
    world.play(dice, until=lambda: next(steps) >= begin or (bool(world.ghosts(train)) and world.quiet()))
    world.strangers_strike = True
    world.play(dice, until=lambda: world.struck and world.ever["train"] == 4 and world.quiet())
    # It is whole again: each member's reservation is there, on a node with a ghost for it.
    alive = [ghost for ghost in world.ghosts(train) if not ghost.finished]
    assert len(alive) == 4
    assert all(ghost.node is not None for ghost in alive)
    assert sum(units for held in world.exported(train).values() for units in held.values()) == 4
    world.finishing = True
    world.play(dice, until=lambda: over(world, train))
    assert world.ever["train"] == 4
    assert world.nothing_left(train)


@settings(max_examples=settings().max_examples * 3 // 10)
@given(dice=DICE)
def test_who_could_not_be_satisfied_by_a_shared_library_is_let_in_as_soon_as_another_has_ended(
    dice: random.Random,
) -> None:
    world = SimulatedCluster({"n1": 3}, app(space=Space.LIB, first_pause=1000, longest_pause=1000))
    world.finishing = False
    first, second = gang("first", 2, EACH), gang("second", 2, EACH)
    world.ask(0, first, members_beforehand=True)
    world.ask(0, second, members_beforehand=True)
    world.play(dice, until=lambda: News.ROLLED_BACK in news(world, second))
    world.finishing = True
    at = world.now
    world.play(dice, until=lambda: over(world, first, second))
    assert world.now == at
    assert one_after_the_other(world)


@settings(max_examples=settings().max_examples // 2)
@given(dice=DICE)
def test_a_ghost_that_is_refused_is_a_failed_attempt_and_a_refused_resource_the_end(dice: random.Random) -> None:
    world = SimulatedCluster({"n1": 4}, app(attempts=2))
    quota = gang("quota", 3, EACH)
    world.refuse = lambda effect: isinstance(effect, CreateGhost) and len(world.ghosts(quota)) == 2
    began = world.now
    world.ask(0, quota, members_beforehand=True)
    world.play(dice, until=lambda: News.ROLLED_BACK in news(world, quota))
    assert world.now == began, "it is not waited for"
    world.play(dice, until=lambda: over(world, quota))
    assert news(world, quota) == [News.ROLLED_BACK, News.FAILED]
    assert world.nothing_left(quota)

    forbidden = gang("forbidden", 3, EACH)
    world.refuse = lambda effect: isinstance(effect, SetCapacity)
    world.ask(0, forbidden, members_beforehand=True)
    world.play(dice, until=lambda: over(world, forbidden))
    assert news(world, forbidden) == [News.FAILED]
    assert world.nothing_left(forbidden)


def test_room_that_no_member_comes_for_is_given_back() -> None:
    world = SimulatedCluster({"n1": 4}, app(idle=60))
    train = gang("train", 2, EACH)
    world.ask(0, train, members_beforehand=False)
    world.applications[0].before.clear()
    world.play(random.Random(1), until=lambda: over(world, train))
    assert news(world, train) == [News.RESERVED, News.FAILED]
    assert world.now == 160
    assert world.nothing_left(train)


def test_a_member_that_is_made_anew_finds_its_reservation() -> None:
    world = SimulatedCluster({"n1": 4}, app())
    world.finishing = False
    train = gang("train", 2, EACH)
    world.ask(0, train, members_beforehand=True)
    dice = random.Random(1)
    world.play(dice, until=lambda: world.ever["train"] == 2 and world.quiet())
    world.delete("train-0")
    world.create("train-0-again", {train.key(0): 1})
    world.play(dice, until=lambda: world.ever["train"] == 3 and world.quiet())
    assert world.applications[0].esl.phase(train.gang) is GhostPhase.HELD
    world.finishing = True
    world.play(dice, until=lambda: over(world, train))
    assert news(world, train) == [News.RESERVED, News.ENDED]


def test_room_whose_members_are_all_deleted_before_their_time_is_given_back_after_a_while() -> None:
    world = SimulatedCluster({"n1": 4}, app(idle=60))
    world.finishing = False
    train = gang("train", 2, EACH)
    world.ask(0, train, members_beforehand=True)
    world.delete("train-1")
    dice = random.Random(1)
    world.play(dice, until=lambda: world.ever["train"] == 1 and world.quiet())
    world.delete("train-0")
    at = world.now
    world.play(dice, until=lambda: over(world, train))
    assert world.now == at + 60
    assert news(world, train) == [News.RESERVED, News.FAILED]


@pytest.mark.parametrize("what", [DeleteGhost, RemoveCapacity])
def test_what_may_not_be_removed_is_said_to_be_left_behind(what: type[Effect]) -> None:
    world = SimulatedCluster({"n1": 4}, app())
    train = gang("train", 2, EACH)
    world.refuse = lambda effect: isinstance(effect, what)
    world.check = lambda: None  # type: ignore[method-assign]
    world.ask(0, train, members_beforehand=True)
    world.play(random.Random(1), until=lambda: over(world, train))
    assert news(world, train) == [News.RESERVED, News.FAILED]
    assert "left behind" in world.applications[0].reports[-1].detail


def test_pauses_grow_differ_between_seeds_and_repeat_with_one() -> None:
    def pauses(seed: int) -> list[float]:
        world = SimulatedCluster({"n1": 1}, app(seed, attempts=6, reserve_within=10, first_pause=1, longest_pause=8))
        train = gang("train", 2, EACH)
        world.ask(0, train, members_beforehand=True)
        begins = [world.now]
        for number in range(1, 6):
            world.play(random.Random(1), until=lambda n=number: len(news(world, train)) == n)  # type: ignore[misc]
            due = world.applications[0].esl.next_deadline()
            assert due is not None
            begins.append(due - world.now)
        return begins[1:]

    first = pauses(1)
    assert first == pauses(1)
    assert first != pauses(2)
    for number, pause in enumerate(first):
        assert 0.5 <= pause / min(8, 2**number) <= 1.5


def test_one_name_is_one_gang_at_a_time() -> None:
    esl = app()
    esl.start(gang("train", 2, EACH), 1.0)
    with pytest.raises(ValueError, match="default/train has not ended yet"):
        esl.start(gang("train", 3, EACH), 2.0)
    assert esl.cancel(gang("other", 1, EACH).gang, 2.0) == []
