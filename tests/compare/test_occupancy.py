"""What pods held of the room: how much of it was of use, and when nothing could go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.compare.reporting.occupancy import Occupancy, occupancy_of
from lab.compare.reporting.timeline import GangTimes, lasting, times_of
from lab.compare.runs import DONE, GHOST, MEMBER, ORDINARY, STUCK, PodRow, TrialRow
from tests.compare.runs_made import TRIAL, pod

TWO = replace(TRIAL, workload="contention", gangs=2, seconds=20.0)


def occupancy(trial: TrialRow, pods: Sequence[PodRow]) -> Occupancy:
    found = occupancy_of(trial, pods, times_of(trial, pods))
    assert found is not None
    return found


def member(number: int, bound: float | None, gone: float | None = None, *, gang: str = "a", **more: Any) -> PodRow:
    """Of 2 CPUs."""
    return replace(pod(number, bound, gang=gang, gone=gone, cpu=2.0, holds=2.0), **more)


def other(role: str, number: int, bound: float | None, gone: float | None = None) -> PodRow:
    cpu = 2.0 if role == ORDINARY else None
    return pod(number, bound, gang="", gone=gone, role=role, cpu=cpu, holds=2.0)


def whole(gang: str, begin: float, end: float) -> list[PodRow]:
    return [member(number, begin, end, gang=gang) for number in range(2)]


def test_room_is_held_in_vain_until_all_are_bound_and_used_while_all_run() -> None:
    pods = [member(0, 1.0, 5.0, running=2.0), member(1, 3.0, 6.0, running=4.0)]
    found = occupancy(replace(TRIAL, seconds=8.0), pods)
    assert (found.in_vain, found.used, found.between) == pytest.approx((2.0 * 2, 4.0 * 1, 4.0 * 1 + 2.0 * 1))
    assert [(level.since, level.held, level.kept, level.used) for level in found.levels] == [
        (0.0, 0.0, 0.0, 0.0),
        (1.0, 2.0, 0.0, 0.0),
        (3.0, 4.0, 4.0, 0.0),
        (4.0, 4.0, 4.0, 4.0),
        (5.0, 2.0, 2.0, 0.0),
        (6.0, 0.0, 0.0, 0.0),
        (8.0, 0.0, 0.0, 0.0),
    ]


def test_a_member_that_its_ghost_let_in_uses_what_the_ghost_holds() -> None:
    ghosts = [other(GHOST, 10 + number, 1.0, 7.0) for number in range(2)]
    members = [member(number, 3.0, 6.0, holds=0.0) for number in range(2)]
    found = occupancy(replace(TRIAL, seconds=8.0), [*ghosts, *members])
    assert (found.used, found.between, found.in_vain) == pytest.approx((4.0 * 3, 0.0, 4.0 * 2 + 4.0 * 1))


def test_what_is_left_of_a_gang_that_lost_a_member_is_held_in_vain_until_it_is_whole_again() -> None:
    pods = [member(0, 1.0, 3.0), member(1, 1.0, 7.0), member(2, 5.0, 7.0)]
    found = occupancy(replace(TRIAL, seconds=8.0), pods)
    assert (found.used, found.between, found.in_vain) == pytest.approx((4.0 * 2 + 4.0 * 2, 0.0, 2.0 * 2))


def test_ordinary_pods_use_what_they_hold_while_they_run() -> None:
    ordinary = replace(other(ORDINARY, 2, 1.0, 4.0), running=2.0)
    found = occupancy(replace(TRIAL, seconds=8.0), [*whole("a", 5.0, 6.0), ordinary])
    assert (found.used, found.between, found.in_vain) == pytest.approx((2.0 * 2 + 4.0 * 1, 2.0 * 1, 0.0))


def test_what_is_held_when_a_trial_is_given_up_counts_until_then() -> None:
    found = occupancy(replace(TRIAL, outcome=STUCK, seconds=8.0), [member(0, 1.0, 9.0), member(1, None)])
    assert (found.used, found.in_vain) == pytest.approx((0.0, 2.0 * 7))


def test_gangs_that_hold_parts_of_the_room_are_in_a_deadlock_until_one_is_whole() -> None:
    first = [member(0, 0.5, 13.0), member(1, 12.0, 13.0)]
    second = [member(0, 0.6, 10.0, gang="b"), *(member(n, 14.0, 15.0, gang="b") for n in (1, 2))]
    found = occupancy(TWO, [*first, *second])
    assert found.deadlocks == pytest.approx([11.4])
    assert found.deadlocked == pytest.approx(11.4)


def test_ghosts_that_hold_parts_of_the_room_are_in_a_deadlock_until_they_let_it_go() -> None:
    """The pause in which nothing is held is waiting."""
    ghosts = [other(GHOST, 10, 0.5, 10.0), other(GHOST, 11, 0.6, 10.2)]
    found = occupancy(TWO, [*ghosts, *whole("a", 14.0, 15.0), *whole("b", 16.0, 17.0)])
    assert found.deadlocks == pytest.approx([9.6])


def test_a_deadlock_that_lasts_to_the_end_of_a_stuck_trial_is_not_resolved() -> None:
    stuck = replace(TWO, outcome=STUCK)
    found = occupancy(stuck, [member(0, 1.0), member(1, None), member(0, 1.0, gang="b"), member(1, 20.1, gang="b")])
    assert found.deadlocks == [inf]
    assert found.deadlocked == pytest.approx(19.0)


def test_what_is_on_its_way_is_no_deadlock() -> None:
    assert occupancy(TWO, [member(0, 0.5, 5.0), member(1, 1.4, 5.0), *whole("b", 6.0, 7.0)]).deadlocks == []
    large = [member(number, 1.0 + number / 100, 15.0) for number in range(256)]
    assert occupancy(replace(TWO, size=256, gangs=1), large).deadlocks == []


def test_nodes_that_are_slow_to_run_and_to_end_what_is_bound_make_no_deadlock() -> None:
    slow = [member(number, 0.5, gone, running=6.0) for number, gone in ((0, 7.0), (1, 12.0))]
    part = [member(0, 0.5, 14.0, gang="b"), member(1, 12.5, 14.0, gang="b")]
    assert occupancy(TWO, [*slow, *part]).deadlocks == []


def test_who_holds_a_part_while_another_gang_runs_is_in_no_deadlock() -> None:
    part = [member(0, 0.5, 9.0, gang="b"), member(1, 6.0, 9.0, gang="b")]
    assert occupancy(TWO, [*whole("a", 0.6, 6.0), *part]).deadlocks == []


def test_an_ordinary_pod_keeps_off_a_deadlock_only_if_it_ends() -> None:
    gangs = [member(0, 0.5, 9.0), member(1, 6.1, 9.0), *whole("b", 10.0, 11.0)]
    ends, stays = other(ORDINARY, 2, 0.5, 6.0), other(ORDINARY, 2, 0.5, 20.1)
    assert occupancy(TWO, [*gangs, ends]).deadlocks == []
    assert occupancy(TWO, [*gangs, stays]).deadlocks == pytest.approx([5.6])


def test_one_gang_alone_is_in_no_deadlock_however_long_it_is_in_part() -> None:
    lost = [member(0, 1.0, 3.0), member(1, 1.0, 20.1)]
    assert occupancy(replace(TRIAL, outcome=STUCK, seconds=20.0), lost).deadlocks == []


def test_who_is_placed_slowly_while_another_waits_for_its_turn_is_in_no_deadlock() -> None:
    """Each Binding is a step: what counts is how long there was none."""
    ghosts = [other(GHOST, 10 + number, 0.5 + 0.9 * number, 15.0) for number in range(6)]
    slow = [member(number, 5.5, 15.0, holds=0.0) for number in range(2)]
    assert occupancy(TWO, [*ghosts, *slow, *whole("b", 16.0, 17.0)]).deadlocks == []
    late = other(GHOST, 17, 8.0, 15.0)
    waits = [member(number, 9.0, 15.0, holds=0.0) for number in range(2)]
    found = occupancy(TWO, [*ghosts, late, *waits, *whole("b", 16.0, 17.0)])
    assert found.deadlocks == pytest.approx([3.0])


def test_what_is_left_of_gangs_that_have_all_run_is_no_deadlock() -> None:
    leak = other(GHOST, 10, 0.5, 20.0)
    found = occupancy(TWO, [*whole("a", 1.0, 2.0), *whole("b", 1.0, 2.0), leak])
    assert found.deadlocks == []
    assert found.in_vain > 2 * 17


def test_a_gang_that_is_not_asked_for_yet_waits_for_nothing() -> None:
    leak = other(GHOST, 10, 3.0, 20.0)
    pods = [*whole("a", 1.0, 2.0), *(replace(each, asked=18.0) for each in whole("b", 18.5, 19.0)), leak]
    assert occupancy(TWO, pods).deadlocks == []


def test_of_a_run_that_did_not_record_what_pods_hold_nothing_is_said() -> None:
    bound = [pod(0, 0.5), pod(1, 0.5)]
    assert occupancy_of(TRIAL, bound, times_of(TRIAL, bound)) is None
    held = [replace(each, holds=1.0) for each in bound]
    assert occupancy_of(replace(TRIAL, seconds=None), held, times_of(TRIAL, held)) is None


# -- against a slow twin ---------------------------------------------------------------------------------------------

END = 12.0
moments = st.integers(0, 60).map(lambda quarter: quarter / 4)


@st.composite
def pods_of(draw: st.DrawFn) -> list[PodRow]:
    found = []
    for number in range(draw(st.integers(1, 10))):
        role = draw(st.sampled_from([MEMBER, MEMBER, MEMBER, ORDINARY, GHOST]))
        bound, runs, lives = draw(moments), draw(moments), draw(st.none() | moments)
        running = draw(st.sampled_from([None, bound + runs / 10]))
        gone = None if lives is None else max(bound, running or 0.0) + lives
        gang = draw(st.sampled_from("abc")) if role == MEMBER else ""
        holds = draw(st.sampled_from([0.0, 0.5, 2.0]))
        found.append(pod(number, bound, gang=gang, running=running, gone=gone, role=role, cpu=0.7, holds=holds))
    return found


def twin(trial: TrialRow, pods: Sequence[PodRow], gangs: Sequence[GangTimes]) -> list[float]:
    """Used, between, in vain and in a deadlock, by looking at each stretch in which nothing changes."""

    def there(begin: float | None, end: float | None, at: float) -> bool:
        return begin is not None and begin <= at < (inf if end is None else end)

    times = {0.0, END, *(gang.again for gang in gangs)}
    times |= {at for each in pods for at in (each.bound, each.running, each.gone) if at is not None}
    used = between = in_vain = deadlocked = stalled = held = 0.0
    for begin, end in pairwise(sorted(each for each in times if each <= END)):
        at, took = (begin + end) / 2, end - begin
        bound = [each for each in pods if there(each.bound, each.gone, at)]
        running = {gang.gang for gang in gangs if any(there(*span, at) for span in gang.ran)}
        kept = {gang.gang for gang in gangs if any(there(*span, at) for span in gang.kept)}
        of_gangs = [each for each in bound if each.gang in kept]
        ordinary = [each for each in bound if each.role == ORDINARY]
        now_kept = 0.7 * (len(of_gangs) + len(ordinary))
        now_used = 0.7 * sum(each.gang in running for each in bound)
        now_used += 0.7 * sum(there(each.running, each.gone, at) for each in ordinary)
        now_held = sum(each.holds or 0.0 for each in bound)
        idle = max(0.0, now_held - now_kept)
        used, in_vain = used + now_used * took, in_vain + idle * took
        between += max(0.0, now_kept - now_used) * took
        frees = bool(of_gangs) or any(each.gone is not None and each.gone <= END for each in ordinary)
        if now_held > held + 1e-9:
            deadlocked, stalled = deadlocked + stalled * (stalled > lasting(trial.size)), 0.0
        if idle > 1e-9 and not frees and sum(gang.again > at for gang in gangs) > 1:
            stalled += took
        else:
            deadlocked, stalled = deadlocked + stalled * (stalled > lasting(trial.size)), 0.0
        held = now_held
    return [used, between, in_vain, deadlocked + stalled * (stalled > lasting(trial.size))]


@given(pods_of(), st.sampled_from([1, 2, 3]))
def test_it_is_what_looking_at_each_moment_says(pods: list[PodRow], size: int) -> None:
    gangs = len({each.gang for each in pods if each.gang})
    trial = replace(TRIAL, size=size, gangs=gangs, outcome=STUCK, seconds=END)
    times = times_of(trial, pods)
    found = occupancy(trial, pods)
    said = [found.used, found.between, found.in_vain, found.deadlocked]
    assert said == pytest.approx(twin(trial, pods, times.gangs), abs=1e-6)
    assert found.deadlocked <= END
    assert all(after.since > level.since for level, after in pairwise(found.levels))


@given(st.lists(st.tuples(moments, moments, moments), min_size=1, max_size=8))
def test_without_ghosts_all_that_was_held_is_accounted_for(lives: list[tuple[float, float, float]]) -> None:
    pods = [
        member(number, bound, bound + runs + lasts + 0.25, running=bound + runs)
        for number, (bound, runs, lasts) in enumerate(lives)
    ]
    trial = replace(TRIAL, size=len(pods), outcome=DONE, seconds=100.0)
    found = occupancy(trial, pods)
    assert found.used + found.between + found.in_vain == pytest.approx(
        sum(2.0 * (runs + lasts + 0.25) for _, runs, lasts in lives)
    )
