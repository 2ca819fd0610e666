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
