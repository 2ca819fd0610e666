"""Lists of one kind are never faster than their pace, whatever ends the watches between them. Virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from itertools import pairwise
from typing import Any, cast

import pytest

from extender.adapters.kubernetes.codecs import kinds
from extender.adapters.kubernetes.reflectors.list_pace import LISTS_APART
from extender.adapters.kubernetes.reflectors.reflector import Reflector
from extender.core.cluster import Pod
from extender.kube.errors import Away, Expired, Refused, Unavailable
from tests.adapters.kubernetes.manifests import bookmark, event, page, pod, status
from tests.adapters.kubernetes.scripted_api import RecordingSink

pytestmark = pytest.mark.anyio

HOUR = 3600.0
MOST_AN_HOUR = 80 + 12
"""One in 45 s, which is the longest pause with its jitter on average; and those of the first minute."""

Step = bytes | float | Exception


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


class Api:
    """Answers each page of a list with its part of `pages`, and a watch with the steps of that moment."""

    def __init__(self, watch: Callable[[float], list[Step]], pages: tuple[Step, ...] = (page([], 10),)) -> None:
        self.lists: list[float] = []
        self._watch = watch
        self._pages = pages

    async def request(self, method: str, path: str, body: bytes | None = None, **given: Any) -> bytes:
        number = int("continue=" in path)
        if not number and "limit=500" in path:
            self.lists.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.01)
        answer = self._pages[number]
        if isinstance(answer, Exception):
            raise answer
        return cast(bytes, answer)

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        for step in self._watch(asyncio.get_running_loop().time()):
            if isinstance(step, Exception):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step


async def follow(api: Api, seconds: float) -> tuple[Reflector[Pod], RecordingSink[Pod], list[float]]:
    """After so many seconds. When lists were asked for, from the beginning on."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    sink: RecordingSink[Pod] = RecordingSink()
    reflector: Reflector[Pod] = Reflector(cast(Any, api), kinds.pods(5.0), sink, clock=loop.time, chance=lambda: 0.5)
    running = asyncio.ensure_future(reflector.run())
    await asyncio.sleep(seconds)
    running.cancel()
    await asyncio.wait([running])
    return reflector, sink, [at - began for at in api.lists]


def error(code: int) -> bytes:
    return event("ERROR", status(code, "no"))


@pytest.mark.parametrize("after", [0.0, 2.0, 20.0])
@pytest.mark.parametrize(
    "ends",
    [
        *(error(code) for code in (403, 410, 429, 500)),
        Expired(410, "too old"),
        Away("connection reset"),
        bookmark(9),
        event("ADDED", pod("a", 9)),
    ],
    ids=["403", "410", "429", "500", "refused as expired", "reset", "older bookmark", "older event"],
)
async def test_a_watch_that_is_accepted_and_soon_ends_so_leads_to_few_lists(ends: Step, after: float) -> None:
    _, _, lists = await follow(Api(lambda now: [after, ends]), HOUR)
    assert len(lists) <= MOST_AN_HOUR
    assert len([at for at in lists if at > 1800]) >= 15, "and it goes on, as well as it can"


@pytest.mark.parametrize("error", [Expired(410, "too old"), Unavailable("etcd has no leader"), b"<html>"], ids=str)
async def test_a_list_that_breaks_off_after_its_first_page_counts_as_one(error: Step) -> None:
    _, _, lists = await follow(Api(lambda now: [HOUR], (page([], 10, "more"), error)), HOUR)
    assert len(lists) <= MOST_AN_HOUR


@pytest.mark.parametrize("error", [Expired(410, "too old"), Refused(403, "forbidden")], ids=str)
async def test_one_that_is_refused_costs_little_and_is_asked_for_as_soon_as_any(error: Step) -> None:
    """Rights may come at any moment, and a start waits for them."""
    _, _, lists = await follow(Api(lambda now: [HOUR], (error,)), HOUR)
    assert 3600 / 5 <= len(lists) <= 3600 / 3.7 + 10
    assert max(later - at for at, later in pairwise(lists)) <= 5.1


def alive(seconds: float) -> list[Step]:
    """A watch that lives for so long, and says once a minute how far the API server is."""
    return [step for minute in range(int(seconds / 60)) for step in (60.0, bookmark(11 + minute))]


async def test_an_honest_410_after_a_watch_that_lived_is_answered_at_once_each_time() -> None:
    _, _, lists = await follow(Api(lambda now: [*alive(120.0), error(410)]), 1000)
    assert lists == pytest.approx([120.01 * number for number in range(9)], abs=0.1)


async def test_once_a_watch_has_lived_the_row_is_over() -> None:
    """A storm of ten minutes; after it all is as before."""
    storm, ends = 600.0, asyncio.get_running_loop().time() + 600

    def watch(now: float) -> list[Step]:
        return [error(410)] if now < ends else [*alive(300.0), error(410)]

    _, _, lists = await follow(Api(watch), storm + 1000)
    after = [at for at in lists if at > storm]
    assert after[0] <= storm + LISTS_APART
    assert [later - at for at, later in pairwise(after)] == pytest.approx([300] * 3, abs=0.1)


async def test_while_it_waits_to_list_again_it_counts_as_lost_and_is_not_current() -> None:
    reflector, _, _ = await follow(Api(lambda now: [error(410)]), 90)
    assert not reflector.current
    assert reflector.lost.seconds > 0
    assert "expired" in reflector.lost.why


async def test_what_a_later_list_says_is_what_there_is() -> None:
    """However far apart lists are, none is left out."""
    _, sink, lists = await follow(Api(lambda now: [error(500)], (page([pod("a")], 10),)), 300)
    assert sink.log == ["replace a"] * len(lists)
