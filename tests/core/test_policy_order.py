"""The order of gangs that wait, where policies have one: by what they say now, and not when the gang came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from extender.app.contracts.effects import Effect
from extender.app.cycle.scheduler import Scheduler
from extender.core.cluster import Pod
from extender.core.gangs.state.gang import RoomSaved
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.filters.share_order import SHARE
from extender.kube.names import NodeName, PodUid
from tests.builders import gang_pods, gone, node, pod
from tests.core.gang_world import FixedClock
from tests.performing import Performing

NAMES = [NodeName(f"n{number}") for number in range(4)]
FULL = {"cpu": 8000}


class Shares(Performing):
    """Four nodes, all full: two by pods of a share, two by others."""

    def __init__(self) -> None:
        self.clock, self.effects = FixedClock(), list[Effect]()
        self.scheduler = Scheduler(self.clock)
        for name in NAMES:
            self.do(self.scheduler.observe(node(name)))
        for number, name in enumerate(NAMES):
            share = {SHARE: "rich"} if number < 2 else {}
            self.do(self.scheduler.observe(pod(f"p{number}", FULL, node=name, annotations=share)))

    def take(self, effects: Sequence[Effect]) -> None:
        self.effects += effects

    def gang(self, name: str, share: str | None = None, *, asked: bool = True, **facts: object) -> list[Pod]:
        said = {} if share is None else {SHARE: share}
        members = [replace(each, annotations=said, **facts) for each in gang_pods(name, 2, FULL)]  # type: ignore[arg-type]
        for member in members:
            self.do(self.scheduler.observe(member))
        for member in members if asked else ():
            assert not self.do(self.scheduler.filter(member, NAMES)).passed
        return members

    def free(self, *numbers: int) -> None:
        for number in numbers:
            self.do(self.scheduler.forget(gone(PodUid(f"uid-p{number}"))))

    def planned(self) -> list[str]:
        gangs = self.scheduler.cache.gangs.by_key
        assert self.scheduler.cache.violations() == []
        return [key.name for key, gang in gangs.items() if gang.phase is Phase.PLANNED]


@pytest.fixture
def shares() -> Shares:
    return Shares()


def test_who_uses_less_goes_first_though_it_came_later(shares: Shares) -> None:
    shares.gang("early", "rich")
    shares.gang("late", "poor")
    shares.free(2, 3)
    assert shares.planned() == ["late"]


def test_without_shares_it_is_by_age(shares: Shares) -> None:
    shares.gang("early", created=1.0)
    shares.gang("late", created=2.0)
    shares.free(2, 3)
    assert shares.planned() == ["early"]


def test_priority_goes_before_shares(shares: Shares) -> None:
    shares.gang("early", "rich", priority=1)
    shares.gang("late", "poor")
    shares.free(2, 3)
    assert shares.planned() == ["early"]


def test_what_is_used_now_counts_and_not_what_was_when_they_came(shares: Shares) -> None:
    shares.gang("early", "rich", created=1.0)
    shares.gang("late", "poor", created=2.0)
    # The share's own pods end: it uses nothing any more.
    shares.free(0, 1)
    assert shares.planned() == ["early"]
    assert not any(shares.scheduler.cache.gangs.by_key[GangKey("default", "early")].wait.order)


def test_use_that_grows_while_they_wait_turns_the_order_around(shares: Shares) -> None:
    shares.gang("early", "poor", created=1.0)
    shares.gang("late", "rich", created=2.0)
    for number in (2, 3):
        # They come to count for the other share, with twice the weight of what they ask for.
        shares.do(shares.scheduler.observe(pod(f"p{number}", FULL, node=NAMES[number], annotations={SHARE: "poor"})))
    shares.do(shares.scheduler.observe(pod("p4", {"cpu": 1000}, node=NAMES[2], annotations={SHARE: "poor"})))
    shares.free(0)
    assert shares.planned() == []
    shares.free(1)
    assert shares.planned() == ["late"]


def test_one_that_kube_scheduler_has_not_asked_about_is_not_overtaken(shares: Shares) -> None:
    first, *_ = shares.gang("early", "rich", asked=False)
    shares.gang("late", "poor", asked=False)
    shares.free(2, 3)
    assert not shares.do(shares.scheduler.filter(first, NAMES)).passed
    assert shares.planned() == ["late"]


def test_and_does_not_hold_up_who_fits_where_it_does_not(shares: Shares) -> None:
    first, *_ = shares.gang("early", "rich", asked=False)
    large = [replace(each, annotations={SHARE: "poor"}) for each in gang_pods("large", 3, FULL)]
    for member in large:
        shares.do(shares.scheduler.observe(member))
    shares.free(2, 3)
    shares.do(shares.scheduler.filter(first, NAMES))
    assert shares.planned() == ["early"]
    assert shares.do(shares.scheduler.filter(first, NAMES)).passed


def test_room_is_saved_for_the_first_by_share(shares: Shares) -> None:
    shares.gang("early", "rich")
    shares.gang("late", "poor")
    shares.clock.time += 61
    shares.do(shares.scheduler.tick())
    assert [each.gang.name for each in shares.effects if isinstance(each, RoomSaved)] == ["late"]


def noted(monkeypatch: pytest.MonkeyPatch, of: object, call: str) -> list[Any]:
    """What such calls are about, from now on."""
    about, answer = list[Any](), getattr(of, call)

    def note(first: Any, *rest: Any) -> Any:
        about.append(first)
        return answer(first, *rest)

    monkeypatch.setattr(of, call, note)
    return about


def test_of_those_that_are_alike_one_is_asked_about_when_what_is_used_changes(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        shares.gang(f"rich{number}", "rich")
        shares.gang(f"poor{number}", "poor")
    asked = noted(monkeypatch, shares.scheduler.cache.gangs.waiting.queue.order, "of")
    shares.free(0)
    assert 0 < len(asked) <= 6
    assert shares.planned() == []
    shares.free(2)
    assert shares.planned() == ["poor0"]


def test_gangs_that_changed_are_lined_up_once_however_many_slices_they_are_tried_in(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        shares.gang(f"g{number}", created=float(number + 1))
    gangs = shares.scheduler.cache.gangs
    gangs.waiting.queue.fits.work.limit = 1
    tried, lined_up = noted(monkeypatch, gangs.planning, "plan"), noted(monkeypatch, gangs.requeue, "_line_up")
    for gang in gangs.by_key.values():
        gang.wait.tried_at = None
    gangs.requeue.look_again()
    shares.do(shares.scheduler.settle())
    turns = 0
    while shares.scheduler.more_to_do:
        shares.do(shares.scheduler.tick())
        turns += 1
    assert [gang.key.name for gang in tried] == [f"g{number}" for number in range(30)]
    assert turns >= 29
    assert lined_up == []
