"""Loops: the same thing done to the same object over and over is found, and so is time that does not pass."""

from __future__ import annotations

import asyncio

import pytest

from kubesim.kinds import Json
from loadtests.life.loops import MOST_A_MINUTE, MOST_ROUNDS, Loops, Spinning, WatchedLoop


def asked(name: str, user: str = "escher", resource: str = "pods") -> Json:
    return {"verb": "patch", "user": {"username": user}, "objectRef": {"resource": resource, "name": name}}


def heard(*events: Json, times: int, over: float = 30.0) -> list[str]:
    found: list[str] = []
    now = 0.0
    loops = Loops(found.append, lambda: now)
    for _ in range(times):
        for event in events:
            loops.hear(event)
        now += over / times
    return found


def test_many_requests_about_one_pod_within_a_minute_are_told_once() -> None:
    [said] = heard(asked("p"), times=5 * MOST_A_MINUTE)
    assert "patch pods p" in said


def test_a_pod_that_the_scheduler_tries_without_end_is_a_loop_too() -> None:
    [said] = heard(asked("p", "system:kube-scheduler"), times=5 * MOST_A_MINUTE)
    assert "kube-scheduler has asked, patch pods p" in said


def test_many_requests_about_many_pods_are_no_loop() -> None:
    assert heard(*(asked(f"p-{number}") for number in range(20)), times=MOST_A_MINUTE // 2) == []


def test_many_requests_over_an_hour_are_no_loop() -> None:
    assert heard(asked("p"), times=5 * MOST_A_MINUTE, over=3600.0) == []


def test_what_others_do_is_theirs_and_events_are_told_as_often_as_wanted() -> None:
    assert heard(asked("p", "system:nodes"), asked("p", resource="events"), times=5 * MOST_A_MINUTE) == []


def test_the_status_of_a_node_is_written_for_each_edit_of_a_resource_and_that_is_no_loop() -> None:
    writes, edits = asked("n", resource="nodes"), asked("r", "people", "ephemeralresources")
    assert heard(edits, writes, times=5 * MOST_A_MINUTE) == []
    [said] = heard(edits, writes, writes, times=5 * MOST_A_MINUTE)
    assert "patch nodes n" in said
    [said] = heard(edits, asked("p"), times=5 * MOST_A_MINUTE)
    assert "patch pods p" in said


def test_the_status_of_an_object_is_written_for_each_edit_of_it_and_that_is_no_loop() -> None:
    writes, edits = asked("p", resource="escherpolicies"), asked("p", "people", "escherpolicies")
    assert heard(edits, writes, times=5 * MOST_A_MINUTE) == []
    [said] = heard(edits, writes, writes, times=5 * MOST_A_MINUTE)
    assert "patch escherpolicies p" in said
    [said] = heard(asked("other", "people", "escherpolicies"), writes, times=5 * MOST_A_MINUTE)
    assert "patch escherpolicies p" in said


def test_a_loop_in_which_no_time_passes_ends() -> None:
    async def spin() -> None:
        for _ in range(10 * MOST_ROUNDS):
            await asyncio.sleep(0)

    with pytest.raises(Spinning, match="within a second"), asyncio.Runner(loop_factory=WatchedLoop) as runner:
        runner.run(spin())


def test_a_loop_in_which_time_passes_goes_on() -> None:
    async def wait() -> None:
        for _ in range(2 * MOST_ROUNDS // 10):
            await asyncio.sleep(1.0)

    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        runner.run(wait())
