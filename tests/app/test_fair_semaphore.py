"""A semaphore that namespaces share."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice

import pytest

from extender.app.fair_semaphore import FairSemaphore

pytestmark = pytest.mark.anyio


class Work:
    """Takes a second, each."""

    def __init__(self, semaphore: FairSemaphore) -> None:
        self.semaphore = semaphore
        self.done: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def begin(self, namespace: str, count: int = 1) -> None:
        self.tasks += [asyncio.create_task(self._one(namespace)) for _ in range(count)]

    async def _one(self, namespace: str) -> None:
        async with self.semaphore.held(namespace):
            await asyncio.sleep(1)
            self.done.append(namespace)


@pytest.mark.parametrize("queued", [10, 1000])
async def test_one_that_asks_once_is_served_in_its_turn_however_much_another_has_queued(queued: int) -> None:
    work = Work(FairSemaphore(2))
    work.begin("a", queued)
    work.begin("b")
    await asyncio.sleep(2.5)
    assert work.done.count("b") == 1
    await asyncio.gather(*work.tasks)
    assert len(work.done) == queued + 1


async def test_one_namespace_holds_no_more_than_its_part_however_long_it_holds_it() -> None:
    work = Work(FairSemaphore(8, each=3))
    work.begin("a", 10)
    work.begin("b")
    await asyncio.sleep(1.5)
    assert work.done == [*"aaab"]
    await asyncio.gather(*work.tasks)


async def test_of_several_that_hold_it_for_long_none_takes_more_than_it_leaves() -> None:
    work = Work(FairSemaphore(24, each=8))
    for namespace in "abcd":
        work.begin(namespace, 100)
    work.begin("last")
    await asyncio.sleep(1.5)
    assert Counter(work.done) == {"a": 8, "b": 8, "c": 4, "d": 2, "last": 1}
    await asyncio.sleep(10)
    assert max(map(work.done[-100:].count, "abcd")) <= 2 * min(map(work.done[-100:].count, "abcd"))
    for each in work.tasks:
        each.cancel()


async def test_no_more_than_it_says_hold_it_at_once() -> None:
    work = Work(FairSemaphore(3))
    for namespace in "abcabcabc":
        work.begin(namespace)
    for second in range(1, 4):
        await asyncio.sleep(1.01)
        assert len(work.done) == 3 * second


@pytest.mark.parametrize("when", [0.5, 1.0])
async def test_one_that_leaves_while_it_waits_or_when_its_turn_comes_keeps_nothing(when: float) -> None:
    work = Work(FairSemaphore(1))
    work.begin("a", 3)
    asyncio.get_running_loop().call_later(when, work.tasks[1].cancel)
    await asyncio.sleep(2.5)
    assert work.done == ["a", "a"]
    work.begin("b")
    await asyncio.gather(*islice(work.tasks, 2, None))
    assert work.done == ["a", "a", "b"]
