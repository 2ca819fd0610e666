"""A filter call makes a pass if one would find something: each test is a case that no fact reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.core.gangs.state.gang import EvictFor, RoomSaved
from tests.app.test_staleness import NODES, Room
from tests.builders import job_pods, pod

ORDINARY = pod("ordinary", {"cpu": 0})
FILLERS = [pod(f"filler-{name}", {"cpu": 8000}, node=name) for name in NODES]


@pytest.fixture
def room() -> Room:
    """Both nodes are full."""
    made = Room()
    for each in (*FILLERS, ORDINARY):
        made.do(made.scheduler.observe(each))
    return made


def waits(room: Room, name: str = "train") -> set[str]:
    """The members of a gang that finds no room."""
    members = room.gang(name)
    for each in members:
        assert room.filter(each) == []
    return {each.name for each in members}


def test_pods_become_preemptible_when_their_scheduler_calls_for_the_first_time() -> None:
    room = Room()
    scheduler, clock = room.scheduler, room.clock
    for name in NODES:
        low = pod(f"low-{name}", {"cpu": 7000}, node=name, scheduler="second", bound_at=clock.now() - 100)
        room.do(scheduler.observe(low))
    ordinary = pod("ordinary", {"cpu": 100}, scheduler="second")
    members = [replace(each, priority=100) for each in job_pods("train", 2, {"cpu": 6000})]
    for each in (ordinary, *members):
        room.do(scheduler.observe(each))
    for each in members:
        assert room.filter(each) == []
    scheduler.next_deadline()
    room.effects.clear()
    room.filter(ordinary)
    assert [type(effect) for effect in room.effects] == [EvictFor]


def test_a_pass_that_failed_is_made_again(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, members = room.scheduler, waits(room)
    room.do(scheduler.forget(FILLERS[0]))
    room.effects.clear()

    def fails() -> None:
        raise RuntimeError("once")

    with monkeypatch.context() as patch:
        patch.setattr(scheduler.cache.around.daemons, "settle", fails)
        with pytest.raises(RuntimeError, match="once"):
            scheduler.forget(FILLERS[1])
    scheduler.next_deadline()
    room.filter(ORDINARY)
    assert room.woken() == members


def test_a_moment_has_come_that_the_timer_has_not_seen_yet(room: Room) -> None:
    waits(room)
    room.effects.clear()
    due = room.scheduler.next_deadline()
    assert due is not None
    room.filter(ORDINARY)
    assert room.effects == []
    room.clock.ahead += due - room.clock.steady() + 0.1
    room.filter(ORDINARY)
    assert [type(effect) for effect in room.effects] == [RoomSaved]


def test_a_slice_of_work_left_something_to_do(room: Room) -> None:
    scheduler = room.scheduler
    for name in ("one", "two"):
        waits(room, name)
    scheduler.cache.gangs.waiting.queue.fits.work.limit = 1
    room.effects.clear()
    room.do(scheduler.forget(FILLERS[0]))
    room.do(scheduler.forget(FILLERS[1]))
    assert scheduler.more_to_do
    for _ in range(10):
        room.filter(ORDINARY)
    assert not scheduler.more_to_do
    assert room.woken()
