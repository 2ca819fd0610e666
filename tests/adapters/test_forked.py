"""Work in a copy of the process: nothing of it is seen here but its answer, and none outlives its time."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from extender.adapters.forked import MOST_WAITING, Forked
from extender.adapters.memory import Memory
from extender.app.management import NotFound
from extender.kube.errors import Unavailable

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("at_once", [False, True])
async def test_the_answer_comes_and_what_the_work_has_done_does_not(at_once: bool) -> None:
    state = {"a": [1, 2, 3]}

    def work() -> int:
        state["a"].append(4)
        return sum(state["a"])

    assert await Forked(at_once=at_once).in_a_copy(work) == 10
    assert state == {"a": [1, 2, 3]}


async def test_an_answer_larger_than_a_pipe_comes_whole() -> None:
    assert len(await Forked().in_a_copy(lambda: "x" * 2_000_000)) == 2_000_000


async def test_a_refusal_is_raised_here() -> None:
    def work() -> None:
        raise NotFound("node", "n9", "there is no node n9")

    with pytest.raises(NotFound, match="there is no node n9") as refused:
        await Forked().in_a_copy(work)
    assert (refused.value.field, refused.value.value) == ("node", "n9")


async def test_a_defect_is_one_here() -> None:
    with pytest.raises(RuntimeError, match="division by zero"):
        await Forked().in_a_copy(lambda: 1 / 0)


async def test_a_copy_that_dies_is_told_of() -> None:
    with pytest.raises(Unavailable, match="could not be worked out"):
        await Forked().in_a_copy(lambda: os._exit(1))


async def test_what_takes_too_long_is_killed_and_the_next_is_answered() -> None:
    forked = Forked(within=0.2)
    reading, writing = os.pipe()

    def work() -> None:
        os.write(writing, str(os.getpid()).encode())
        time.sleep(60)

    with pytest.raises(Unavailable, match=r"within 0\.2 s"):
        await forked.in_a_copy(work)
    copy = int(os.read(reading, 100))
    for each in (reading, writing):
        os.close(each)
    with pytest.raises(ProcessLookupError):
        os.kill(copy, 0)
    assert await forked.in_a_copy(lambda: 1) == 1


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_copy_tries_several_things_each_in_a_copy_of_its_own(at_once: bool) -> None:
    forked, state = Forked(at_once=at_once), [1, 2, 3]

    def more(number: int) -> int:
        state.append(number)
        return sum(state)

    def work() -> list[int]:
        # So that a copy of it has more memory mapped than this had at its beginning.
        thought = b"x" * 2**26
        assert thought
        tried = [forked.within_a_copy(lambda number=number: more(number)) for number in (4, 5)]  # type: ignore[misc]
        return [*tried, sum(state)]

    assert await forked.in_a_copy(work) == [10, 11, 6]


async def test_one_that_takes_too_long_in_a_copy_is_told_of_there_and_leaves_time_for_others() -> None:
    forked = Forked(within=0.6)

    def work() -> str:
        with pytest.raises(Unavailable, match=r"within 0\.2 s"):
            forked.within_a_copy(lambda: time.sleep(60))
        return "another"

    assert await forked.in_a_copy(work) == "another"


async def test_what_takes_too_much_memory_is_told_of() -> None:
    with pytest.raises(Unavailable, match="256 MiB"):
        await Forked().in_a_copy(lambda: len(b"x" * 2**30))


async def test_a_copy_takes_half_of_the_memory_that_is_left_at_most() -> None:
    tight = Forked(memory=lambda: Memory(used=300 * 2**20, limit=400 * 2**20))
    with pytest.raises(Unavailable, match="50 MiB"):
        await tight.in_a_copy(lambda: len(b"x" * 2**27))
    assert await tight.in_a_copy(lambda: len(b"x" * 2**20)) == 2**20


async def test_with_too_little_memory_no_copy_is_made_and_it_is_said_when_to_ask_again() -> None:
    with pytest.raises(Unavailable, match="of its 419430400 bytes of memory are left") as refused:
        await Forked(memory=lambda: Memory(used=350 * 2**20, limit=400 * 2**20)).in_a_copy(lambda: 1)
    assert refused.value.retry_after == 10.0


async def test_where_the_kernel_has_to_end_somebody_it_ends_a_copy_first() -> None:
    def work() -> str:
        return Path("/proc/self/oom_score_adj").read_text().strip()

    assert await Forked().in_a_copy(work) == "1000"
    assert work() != "1000"


async def test_of_too_many_at_once_the_last_are_turned_away() -> None:
    forked = Forked()
    asked = [asyncio.create_task(forked.in_a_copy(lambda: 1)) for _ in range(MOST_WAITING + 2)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert answers[:MOST_WAITING] == [1] * MOST_WAITING
    assert all(isinstance(each, Unavailable) for each in answers[MOST_WAITING:])


async def test_what_a_terminal_tells_the_copy_too_is_heard_here_once() -> None:
    heard, told, loop = list[int](), asyncio.Event(), asyncio.get_running_loop()

    def hear() -> None:
        heard.append(signal.SIGINT)
        told.set()

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)

    loop.add_signal_handler(signal.SIGINT, hear)
    try:
        with pytest.raises(Unavailable):
            await Forked().in_a_copy(work)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(told.wait(), 5)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    assert heard == [signal.SIGINT]
