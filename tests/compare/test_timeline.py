"""What pods say of gangs: when they were whole, and how long in part."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.compare.reporting.timeline import GangTimes, times_of
from lab.compare.runs import GHOST, ORDINARY, STUCK, PodRow, Unreadable
from tests.compare.runs_made import TRIAL, pod


def test_latency_is_from_the_ask_to_the_last_member_bound_and_to_the_last_running() -> None:
    times = times_of(TRIAL, [pod(0, 0.3, asked=0.1, running=0.9), pod(1, 0.5, asked=0.1, running=0.6)])
    (gang,) = times.gangs
    assert gang == GangTimes("a", 2, 0.1, 0.5, 0.9, gang.partly, again=0.9, ran=[(0.9, inf)], kept=[(0.5, inf)])
    assert (gang.partly, gang.to_bound, gang.to_running) == pytest.approx((0.2, 0.4, 0.8))
    assert times.all_done == pytest.approx(0.8)


def test_where_no_ask_is_told_latency_is_from_the_first_create() -> None:
    pods = [PodRow(trial=1, gang="a", pod=f"a-{n}", created=0.2 + n, bound=2.0) for n in range(2)]
    (gang,) = times_of(replace(TRIAL, outcome=STUCK), pods).gangs
    assert gang.asked == 0.2


def test_ghosts_do_not_make_the_wait_for_the_first_member_vanish() -> None:
    pods = [PodRow(trial=1, gang="a", pod=f"a-{n}", asked=0.0, created=0.7, bound=0.8, running=0.8) for n in range(2)]
    assert times_of(TRIAL, pods).gangs[0].to_bound == 0.8


def test_a_gang_that_is_never_whole_is_infinitely_late_and_in_part_until_it_is_given_up() -> None:
    stuck = replace(TRIAL, outcome=STUCK, seconds=20.0)
    (gang,) = times_of(stuck, [pod(0, 0.5, gone=21.0), pod(1)]).gangs
    assert (gang.to_bound, gang.to_running, gang.partly) == (inf, inf, 19.5)
    assert times_of(stuck, [pod(0, 0.5), pod(1)]).gangs[0].partly == 19.5


def test_a_gang_that_is_bound_in_a_stuck_trial_counts_only_if_it_was_running() -> None:
    bound = [PodRow(trial=1, gang="a", pod=f"a-{n}", asked=0.0, bound=0.5) for n in range(2)]
    (gang,) = times_of(replace(TRIAL, outcome=STUCK), bound).gangs
    assert gang.to_bound == inf
    assert times_of(TRIAL, bound).gangs[0].to_bound == 0.5


def test_members_that_went_before_the_others_came_do_not_make_it_whole() -> None:
    pods = [pod(0, 0.1, gone=0.2), pod(1, 0.5), pod(2, 0.9)]
    (gang,) = times_of(TRIAL, pods).gangs
    assert (gang.bound, gang.partly) == pytest.approx((0.9, 0.1 + 0.4))


def test_what_happens_after_it_was_whole_is_not_being_in_part() -> None:
    (gang,) = times_of(TRIAL, [pod(0, 0.1, gone=0.4), pod(1, 0.1, gone=0.9)]).gangs
    assert (gang.bound, gang.partly) == (0.1, 0.0)


def test_what_is_bound_while_a_stuck_trial_is_cleared_up_counts_in_nothing() -> None:
    stuck = replace(TRIAL, outcome=STUCK, seconds=20.0, gangs=2)
    late = [pod(0, 0.5), pod(1, 20.1), pod(0, 10.0, gang="b"), pod(1, 10.0, gang="b")]
    times = times_of(stuck, late)
    first, second = times.gangs
    assert (first.to_bound, first.to_running, first.partly) == (inf, inf, 19.5)
    assert second.to_running == 10.0
    assert (times.pods_a_second, times.gangs_a_second) == (3 / 20, 1 / 20)


def test_a_gang_that_lost_a_member_is_whole_again_with_its_replacement() -> None:
    pods = [pod(0, 0.1, gone=0.3), pod(1, 0.2), pod(2, 0.7)]
    (gang,) = times_of(TRIAL, pods).gangs
    assert (gang.bound, gang.running, gang.again) == (0.2, 0.2, 0.7)
    assert gang.partly == pytest.approx(0.1 + 0.4)
    assert gang.ran == gang.kept == [(0.2, 0.3), (0.7, inf)]


def test_a_gang_that_lost_a_member_for_good_is_never_whole_again_and_in_part_until_it_is_given_up() -> None:
    stuck = replace(TRIAL, outcome=STUCK, seconds=20.0)
    (gang,) = times_of(stuck, [pod(0, 0.1, gone=1.0), pod(1, 0.2, gone=20.1)]).gangs
    assert (gang.to_bound, gang.to_again) == (0.2, inf)
    assert gang.partly == pytest.approx(0.1 + 19.0)
    assert gang.was_left_in_part
    assert gang.ran == gang.kept == [(0.2, 1.0)]


def test_a_gang_that_has_ended_in_a_stuck_trial_was_whole_and_its_end_is_not_being_in_part() -> None:
    stuck = replace(TRIAL, outcome=STUCK, seconds=20.0, gangs=2)
    ended, _ = times_of(stuck, [pod(0, 0.1, gone=1.0), pod(1, 0.1, gone=3.0), pod(0, 5.0, gang="b")]).gangs
    assert (ended.again, ended.partly, ended.was_left_in_part) == (0.1, 0.0, False)
    assert (ended.ran, ended.kept) == ([(0.1, 1.0)], [(0.1, inf)])


def test_a_gang_is_left_in_part_after_a_second_or_longer_where_it_is_large() -> None:
    assert not GangTimes("a", 8, 0.0, 1.0, 1.0, partly=1.0).was_left_in_part
    assert GangTimes("a", 8, 0.0, 1.0, 1.0, partly=1.1).was_left_in_part
    assert not GangTimes("a", 256, 0.0, 5.0, 5.0, partly=5.0).was_left_in_part


def test_ordinary_pods_have_their_own_latency_and_all_is_done_with_the_last_of_them() -> None:
    gang = [pod(0, 1.0), pod(1, 1.0), pod(9, 0.5, gang="", role=GHOST)]
    ordinary = [pod(n, at, gang="", role=ORDINARY, asked=0.5, running=at) for n, at in ((2, 0.7), (3, 4.5))]
    times = times_of(TRIAL, gang + ordinary)
    assert times.ordinary == pytest.approx([0.2, 4.0])
    assert times.all_done == 4.5
    waiting = times_of(replace(TRIAL, outcome=STUCK), [*gang, pod(2, None, gang="", role=ORDINARY)])
    assert (waiting.ordinary, waiting.all_done) == ([inf], inf)


def test_gangs_of_which_nothing_was_seen_count_as_never_placed() -> None:
    times = times_of(replace(TRIAL, gangs=3, outcome=STUCK), [pod(0, 0.5), pod(1, 0.5)])
    assert [gang.to_bound for gang in times.gangs] == [0.5, inf, inf]
    assert times.all_done == inf
    with pytest.raises(Unreadable, match="1 of its 1 gangs have no pods"):
        times_of(TRIAL, [])


def test_where_gangs_differ_in_size_each_has_as_many_members_as_pods() -> None:
    pods = [pod(n, 0.5 + n / 10, gang=gang) for gang, size in (("a", 2), ("b", 3)) for n in range(size)]
    times = times_of(replace(TRIAL, size=0, gangs=2), pods)
    assert [(gang.size, gang.bound) for gang in times.gangs] == [(2, 0.6), (3, 0.7)]


def test_rates_are_until_the_last_was_bound_and_pods_of_no_gang_count_as_pods() -> None:
    pods = [pod(0, 1.0), pod(1, 2.0), pod(0, 1.0, gang="b"), pod(1, 4.0, gang="b"), pod(0, 4.0, gang="")]
    times = times_of(replace(TRIAL, gangs=2), pods)
    assert (times.pods_a_second, times.gangs_a_second, len(times.gangs)) == (5 / 4, 2 / 4, 2)


def test_rates_of_a_stuck_trial_are_until_it_was_given_up_and_0_where_nothing_was_placed() -> None:
    stuck = replace(TRIAL, outcome=STUCK, seconds=20.0, gangs=2)
    soon = times_of(stuck, [pod(0, 0.5), pod(1, 0.5)])
    assert (soon.pods_a_second, soon.gangs_a_second) == (2 / 20, 1 / 20)
    nothing = times_of(stuck, [])
    assert (nothing.pods_a_second, nothing.gangs_a_second) == (0.0, 0.0)
    unknown = times_of(replace(stuck, seconds=None), [pod(0, 0.5), pod(1, 0.5)])
    assert (unknown.pods_a_second, unknown.gangs_a_second) == (None, None)


@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=20))
def test_without_losses_a_gang_is_in_part_from_its_first_to_its_last_member(bound: list[float]) -> None:
    (gang,) = times_of(replace(TRIAL, size=len(bound), seconds=200.0), [pod(n, at) for n, at in enumerate(bound)]).gangs
    assert gang.to_bound == max(bound)
    assert gang.partly == pytest.approx(max(bound) - min(bound), abs=1e-9)
