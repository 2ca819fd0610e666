"""A part dies, or cannot be reached, at every single step of a gang's life: it makes no difference in the end.

A step is one round of the event loop. Between two of them nothing can be seen from outside, so that dying at every
step is dying at every line. Whoever is started anew knows what the cluster says, and nothing else.

By default every fourth step is tried, with HYPOTHESIS_PROFILE=many every one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import structlog
from hypothesis import settings

from extender.kube.errors import Refused
from kubesim.virtual_time import VirtualTimeLoop
from tests.app.fakes import Fault
from tests.app.played_town import Town
from tests.builders import node

Story = Callable[[Town], Awaitable[None]]
Strike = Callable[[Town], None]


class SteppedLoop(VirtualTimeLoop):
    """Counts its rounds, and does something before one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.strike_at = 0
        self.strike: Callable[[], None] = lambda: None

    def _run_once(self) -> None:
        self.steps += 1
        if self.steps == self.strike_at:
            self.strike()
        super()._run_once()


# -- what would happen, and how it must end whatever happens ----------------------------------------------------------


async def placed_at_once(town: Town) -> None:
    town.server.create(*town.gang("train", 4))
    await town.until_bound(4)


async def woken_by_a_node(town: Town) -> None:
    town.server.drop_node("n3")
    town.server.create(*town.gang("train", 4))
    await town.pass_time(1)
    town.server.put_node(node("n3"))
    await town.until_bound(4)


async def let_through_the_gate_by_a_node(town: Town) -> None:
    town.server.drop_node("n3")
    town.server.create(*(replace(each, at_our_gate=True) for each in town.gang("train", 4)))
    await town.pass_time(1)
    town.server.put_node(node("n3"))
    await town.until_bound(4)


async def a_member_is_made_again_after_the_first_binding(town: Town) -> None:
    town.job("train", 4)
    await town.until_bound(1)
    town.server.delete(next(each for each in town.server.pods.values() if each.node is None).uid)
    await town.until_bound(4)


async def two_of_which_one_fits(town: Town) -> None:
    for pair in zip(town.gang("train", 3), town.gang("other", 3), strict=True):
        town.server.create(*pair)
    await town.until(lambda: 3 in (len(town.bound()), len(town.bound("other"))))


async def refused_and_evicted(town: Town) -> None:
    town.server.faults = [Fault(Refused(422, "invalid"), of="bind train-1") for _ in range(100)]
    town.server.create(*town.gang("train", 4, timeout=4))
    await town.until_bound(3)
    await town.until_bound(0)


async def refused_and_evicted_and_made_again(town: Town) -> None:
    town.server.faults = [Fault(Refused(422, "invalid"), of="bind train-1") for _ in range(5)]
    town.job("train", 4)
    await town.until_bound(3)
    await town.until_bound(4)


STORIES: dict[str, tuple[Story, list[int]]] = {
    each.__name__: (each, outcome)
    for each, outcome in (
        (placed_at_once, [4, 0]),
        (woken_by_a_node, [4, 0]),
        (let_through_the_gate_by_a_node, [4, 0]),
        (a_member_is_made_again_after_the_first_binding, [4, 0]),
        (two_of_which_one_fits, [3, 0]),
        (refused_and_evicted, [0, 0]),
        (refused_and_evicted_and_made_again, [4, 0]),
    )
}
"""And how many members of the two gangs are bound in the end, the larger number first."""


# -- what strikes ----------------------------------------------------------------------------------------------------


def away(town: Town, seconds: float, *, relist: bool = False) -> None:
    town.server.go_away()
    asyncio.get_running_loop().call_later(seconds, lambda: town.server.come_back(relist=relist))


def list_anew(town: Town) -> None:
    for follower in town.server.followers:
        follower.list()


OURS: dict[str, Strike] = {
    "the service": lambda town: town.crash(),
    "the service and what it has just sent": lambda town: town.crash(losing=True),
}
OTHERS: dict[str, Strike] = {
    "the service for longer than a plan is held": lambda town: town.crash(for_seconds=40),
    "kube-scheduler": lambda town: town.restart_scheduler(),
    "the API server for 1 s": lambda town: away(town, 1),
    "the API server for 60 s": lambda town: away(town, 60, relist=True),
    "the watches": list_anew,
}
CASES = [
    *((story, strike) for story in STORIES for strike in OURS),
    *((story, strike) for story in list(STORIES)[:4] for strike in OTHERS),
]


@pytest.mark.parametrize(("story", "strike"), CASES, ids=[f"{strike}-{story}" for story, strike in CASES])
def test_whatever_is_struck_at_whatever_step_it_ends_as_if_nothing_had_been(story: str, strike: str) -> None:
    with structlog.testing.capture_logs():
        steps = live(story, strike, 0)
        assert steps > 20
        for step in some(steps):
            try:
                live(story, strike, step)
            except (AssertionError, TimeoutError) as error:
                raise AssertionError(f"struck at step {step} of {steps}: {error!r}") from error


def some(steps: int) -> range:
    """Those that are tried: as many as the profile tries examples, to that of many."""
    every = max(1, settings.get_profile("many").max_examples // settings().max_examples)
    return range(1 + steps % every, steps + 1, every)


def live(story: str, strike: str, step: int) -> int:
    """The story, struck at that step if it is not 0, has come to its end. How many steps it took."""
    loop = SteppedLoop()

    async def course() -> int:
        town = Town()
        loop.strike = lambda: (OURS | OTHERS)[strike](town)
        loop.strike_at = step
        tell, outcome = STORIES[story]
        await tell(town)
        taken = loop.steps
        await town.come_to_rest()
        assert sorted((len(town.bound()), len(town.bound("other"))), reverse=True) == outcome
        return taken

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(course())
