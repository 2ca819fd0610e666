"""The application of a gang without an extender is killed at every single step, and started anew: whatever was under
way, nothing is left of the run that is dead, no member runs without its room, and the next run comes about.

A step is one thing that happens: an effect that is carried out, news that arrive, a pod that is bound.
"""

from __future__ import annotations

import random

import pytest

from extender.esl import GangEsl, GangSpec, Space, Times, gang
from extender.esl.base import CreateGhost, News
from tests.esl.simulated_cluster import SimulatedCluster

EACH = {"cpu": "1"}
FIRST, SECOND = "aaaaaa", "bbbbbb"
SIZE = 3


def world_of(cpus: int, space: Space = Space.APP) -> SimulatedCluster:
    world = SimulatedCluster({"n1": cpus - 1, "n2": 1}, GangEsl(space, seed=1))
    world.applications[0].instance = FIRST
    return world


def steps_of(world: SimulatedCluster, spec: GangSpec, dice: random.Random, most: int) -> int:
    """How many steps its life has taken, no more than `most`."""
    steps = 0

    def enough() -> bool:
        nonlocal steps
        steps += 1
        return steps > most or ended(world, spec)

    world.play(dice, until=enough)
    return steps


def ended(world: SimulatedCluster, spec: GangSpec) -> bool:
    reports = [report for each in world.applications for report in each.reports if report.run == spec.run]
    return any(report.news in (News.ENDED, News.FAILED) for report in reports)


def life(step: int, seed: int, *, cpus: int, quota: int | None, cancelled: bool, wiped: bool) -> bool:
    """Whether the first run was killed before its end."""
    dice = random.Random(seed)
    world = world_of(cpus)
    world.finishing = not cancelled
    first = gang("train", SIZE, EACH, run=f"{FIRST}00")
    second = first.with_run(f"{SECOND}00")
    if quota is not None:
        world.refuse = lambda effect: (
            isinstance(effect, CreateGhost) and len(world.ghosts(first)) + len(world.ghosts(second)) >= quota
        )
    world.ask(0, first, members_beforehand=bool(seed % 2))
    if cancelled:
        steps_of(world, first, dice, step // 2)
        world.cancel(0, first)
    steps_of(world, first, dice, step - step // 2 if cancelled else step)
    if ended(world, first):
        return False
    world.keys_vanish = wiped
    world.kill(0, GangEsl(Space.APP, seed=2), SECOND, dice)
    world.finishing = True
    world.ask(0, second, members_beforehand=bool(seed % 3))
    world.play(dice, until=lambda: ended(world, second) and world.nothing_left(first) and world.nothing_left(second))
    assert world.applications[0].news("train")[-1] in (News.ENDED, News.RESERVED)
    assert world.ever["train"] >= SIZE
    return True


@pytest.mark.parametrize("wiped", [False, True], ids=["", "and a node forgets its resources"])
@pytest.mark.parametrize("cancelled", [False, True], ids=["", "when it was cancelled"])
@pytest.mark.parametrize(
    ("cpus", "quota"), [(7, None), (3, None), (7, SIZE + 1)], ids=["room for both", "room for one", "a quota"]
)
def test_killed_at_every_step_nothing_is_left_and_the_next_run_comes_about(
    cpus: int, quota: int | None, cancelled: bool, wiped: bool
) -> None:
    killed = 0
    for seed in range(3):
        for step in range(200):
            try:
                if not life(step, seed, cpus=cpus, quota=quota, cancelled=cancelled, wiped=wiped):
                    break
            except AssertionError as error:
                raise AssertionError(f"killed at step {step}, seed {seed}: {error}") from error
            killed += 1
    assert killed > 20


@pytest.mark.parametrize("space", list(Space), ids=[space.value for space in Space])
def test_killed_at_every_step_it_is_no_obstacle_to_another_that_wants_the_same_room(space: Space) -> None:
    """As it is started anew it wants its room again, too: both come about, one after the other."""
    for step in range(0, 120, 3):
        dice = random.Random(step)
        world = SimulatedCluster({"n1": 2, "n2": 2}, GangEsl(space, seed=1), GangEsl(space, seed=3))
        world.applications[0].instance, world.applications[1].instance = FIRST, "cccccc"
        left, right = gang("left", SIZE, EACH, run=f"{FIRST}00"), gang("right", SIZE, EACH, run="cccccc00")
        again = left.with_run(f"{SECOND}00")
        world.ask(0, left, members_beforehand=False)
        world.ask(1, right, members_beforehand=False)
        steps_of(world, left, dice, step)
        if ended(world, left):
            break
        world.kill(0, GangEsl(space, seed=2), SECOND, dice)
        world.ask(0, again, members_beforehand=False)
        world.play(
            dice,
            until=lambda w=world, a=again, r=right: ended(w, a) and ended(w, r),  # type: ignore[misc]
        )
        assert world.applications[0].news("left")[-1] is News.ENDED
        assert world.applications[1].news("right")[-1] is News.ENDED
        world.play(dice, until=lambda w=world, s=(left, right, again): all(map(w.nothing_left, s)))  # type: ignore[misc]
    else:
        raise AssertionError("its end was never reached")


def test_killed_again_and_again_nothing_is_left() -> None:
    dice = random.Random(5)
    world = world_of(7)
    specs = []
    for number, letter in enumerate("abcdefgh"):
        instance = letter * 6
        if number:
            world.kill(0, GangEsl(Space.APP, seed=number), instance, dice)
        else:
            world.applications[0].instance = instance
        specs.append(gang("train", SIZE, EACH, run=f"{instance}00"))
        world.ask(0, specs[-1], members_beforehand=True)
        steps_of(world, specs[-1], dice, dice.randrange(30))
    world.play(dice, until=lambda: ended(world, specs[-1]) and all(world.nothing_left(spec) for spec in specs))


def test_what_others_take_while_it_is_down_is_no_obstacle() -> None:
    """The ghosts of a dead run are preempted, its members deleted: what is left goes all the same."""
    for seed in range(20):
        dice = random.Random(seed)
        world = world_of(7)
        world.finishing = False
        first = gang("train", SIZE, EACH, run=f"{FIRST}00")
        world.ask(0, first, members_beforehand=True)
        world.play(dice, until=lambda w=world: w.ever["train"] == SIZE and w.quiet())  # type: ignore[misc]
        world.check = lambda: None  # type: ignore[method-assign]
        world.kill(0, GangEsl(Space.LIB, seed=2, times=Times(idle=5)), SECOND, dice)
        world.delete(dice.choice([pod.name for pod in world.ghosts(first)]))
        world.finishing = True
        world.play(dice, until=lambda w=world, f=first: w.nothing_left(f) and w.quiet())  # type: ignore[misc]
