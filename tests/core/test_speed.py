"""What a thousand waiting gangs cost those who come and go: `pytest -m bench tests/core/test_speed.py`.

Prints ratios to the same work with nobody waiting; asserts nothing about time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import pytest

from extender.app.cycle.scheduler import Scheduler
from extender.core.cluster import Node, Pod
from extender.core.gangs.state.state_machine import Phase
from extender.kube.names import NodeName
from tests.builders import gang_ask, node, pod
from tests.core.gang_world import FixedClock
from tests.performing import Performing, replaced

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

NODES, ROUNDS, WAITING = 5000, 200, 1000


class Crowd(Performing):
    """Nodes of 8 CPU, all but a few of them full but for 2 CPU; so many gangs wait for 4 CPU a member."""

    def __init__(self, waiting: int) -> None:
        self.scheduler = Scheduler(FixedClock())
        self.names = [NodeName(f"n{number}") for number in range(NODES)]
        self.do(replaced(self.scheduler, Node, (node(name) for name in self.names)))
        self.do(
            replaced(
                self.scheduler,
                Pod,
                (
                    pod(f"filler-{name}", {"cpu": 6000}, node=name)
                    for number, name in enumerate(self.names)
                    if number % 100
                ),
            )
        )
        self.made = 0
        for number in range(waiting):
            # More than the fifty free nodes hold, of a dozen different shapes.
            ask = gang_ask(f"g{number}", 101 + number % 12)
            members = [pod(f"g{number}-{m}", {"cpu": 4000}, gang=ask) for m in range(ask.quorum)]
            for member in members:
                self.do(self.scheduler.observe(member))
            self.do(self.scheduler.filter(members[0], self.names))
        phases = [gang.phase for gang in self.scheduler.cache.gangs.by_key.values()]
        assert phases == [Phase.WAITING] * waiting

    def another(self) -> Pod:
        self.made += 1
        return pod(f"p{self.made}")

    def an_ordinary_pod_is_filtered(self) -> None:
        self.do(self.scheduler.filter(self.another(), self.names))

    def an_ordinary_pod_is_bound_and_ends(self) -> None:
        made = self.another()
        self.do(self.scheduler.observe(pod(made.name, node=self.names[self.made % NODES])))
        self.do(self.scheduler.forget(made))

    def a_gang_of_eight_is_planned_and_given_up(self) -> None:
        self.made += 1
        members = [pod(f"new{self.made}-{m}", gang=gang_ask(f"new{self.made}", 8)) for m in range(8)]
        for member in members:
            self.do(self.scheduler.observe(member))
        assert self.do(self.scheduler.filter(members[0], self.names)).passed
        for member in members:
            self.do(self.scheduler.forget(member))


def microseconds(work: Callable[[], None]) -> float:
    seen = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        seen.append(time.perf_counter() - began)
    return statistics.median(seen) * 1e6


def test_a_thousand_waiting_gangs(capsys: pytest.CaptureFixture[str]) -> None:
    alone, crowd = Crowd(0), Crowd(WAITING)
    for work in (
        Crowd.an_ordinary_pod_is_filtered,
        Crowd.an_ordinary_pod_is_bound_and_ends,
        Crowd.a_gang_of_eight_is_planned_and_given_up,
    ):
        quiet, busy = (microseconds(partial(work, where)) for where in (alone, crowd))
        what = work.__name__.replace("_", " ")
        said = f"{what}: {quiet:.0f} us; with {WAITING} gangs waiting {busy / quiet:.2f} times as long"
        with capsys.disabled():
            print(f"\n{said}", end="")  # noqa: T201
