"""Virtual time: moments are exact and order is that of setting, whatever else goes on."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kubesim.virtual_time import VirtualTimeLoop


async def _heard(others: int) -> list[tuple[int, float]]:
    """What twenty timers for one moment tell, while so many others go off before it, or are taken back."""
    loop, heard = asyncio.get_running_loop(), list[tuple[int, float]]()

    def hear(number: int) -> None:
        heard.append((number, loop.time()))

    for number in range(20):
        loop.call_at(1.1, hear, number)
        for other in range(others):
            passing = loop.call_at(0.1 * (other + number % 3), lambda: None)
            if other % 2:
                passing.cancel()
    await asyncio.sleep(2)
    return heard


@pytest.mark.parametrize("others", [0, 1, 7])
def test_timers_for_one_moment_go_off_at_it_and_as_they_were_set(others: int) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(_heard(others)) == [(number, 1.1) for number in range(20)]


def test_timers_that_are_taken_back_do_not_pile_up_and_change_nothing_for_others() -> None:
    async def hear() -> tuple[list[int], int]:
        loop, heard, most = asyncio.get_running_loop(), list[int](), 0
        assert isinstance(loop, VirtualTimeLoop)
        for number in range(5_000):
            if number % 100 == 0:
                loop.call_at(10.0, heard.append, number)
            loop.call_at(9.0, heard.append, -1).cancel()
            most = max(most, len(loop._timers))
        await asyncio.sleep(20)
        return heard, most

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        heard, most = runner.run(hear())
    assert heard == list(range(0, 5_000, 100))
    assert most < 250


@pytest.mark.parametrize("every", [0.0, 1.0])
def test_a_thread_is_heard_whether_there_is_something_else_to_do_or_not(every: float) -> None:
    async def hear() -> str:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[str] = loop.create_future()

        def pass_time() -> None:
            loop.call_later(every, pass_time)

        pass_time()
        threading.Thread(target=lambda: loop.call_soon_threadsafe(told.set_result, "heard")).start()
        return await told

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(hear()) == "heard"


def test_waiting_for_nothing_is_an_error() -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner, pytest.raises(RuntimeError, match="nothing will ever"):
        runner.run(asyncio.Event().wait())
