"""A kind that may not be there is followed as soon as it is, and nobody waits for it meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from extender.adapters.kube.where_there import WhereThere
from extender.kube.errors import Refused, Unavailable
from kubesim.virtual_time import BACKEND


@pytest.fixture
def anyio_backend() -> object:
    return BACKEND


pytestmark = pytest.mark.anyio


class Reflector:
    """Has listed at once."""

    kind = "things"

    def __init__(self) -> None:
        self.synced = asyncio.Event()

    async def run(self) -> None:
        self.synced.set()
        await asyncio.Event().wait()


class Asked:
    """Answers or raises these, one after the other, and the last one for ever."""

    def __init__(self, *answers: bool | Exception) -> None:
        self._answers = list(answers)
        self.at: list[float] = []

    async def __call__(self) -> bool:
        self.at.append(asyncio.get_running_loop().time())
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def pauses(self) -> list[float]:
        return [later - at for at, later in zip(self.at, self.at[1:], strict=False)]


@asynccontextmanager
async def following(asked: Asked) -> AsyncIterator[WhereThere]:
    kind = WhereThere(cast(Any, Reflector()), asked, "there are none")
    running = asyncio.ensure_future(kind.run())
    yield kind
    running.cancel()
    await asyncio.wait([running])


async def test_what_is_there_is_known_once_it_is_listed() -> None:
    async with following(Asked(True)) as kind:
        assert not kind.known
        await asyncio.sleep(0.1)
        assert (kind.there, kind.known, kind.reflector.synced.is_set()) == (True, True, True)


async def test_what_is_not_there_is_looked_for_once_a_minute_and_followed_when_it_comes() -> None:
    async with following(asked := Asked(False, False, True)) as kind:
        await asyncio.sleep(1)
        assert (kind.there, kind.known, kind.reflector.synced.is_set()) == (False, True, False)
        await asyncio.sleep(200)
        assert (kind.there, kind.known, kind.reflector.synced.is_set()) == (True, True, True)
    assert asked.pauses == [60, 60]


async def test_what_may_not_be_read_counts_as_not_there_and_is_told_once() -> None:
    with capture_logs() as logged:
        async with following(Asked(Refused(403, "forbidden"))) as kind:
            await asyncio.sleep(500)
            assert (kind.there, kind.known) == (False, True)
    [entry] = logged
    assert (entry["kind"], entry["without_it"], entry["why"]) == ("things", "there are none", "forbidden")


async def test_that_it_is_gone_without_is_told_once_and_not_while_nothing_is_known() -> None:
    for answers, times in (((Unavailable("no route"), True), 0), ((Refused(403, "forbidden"),), 1), ((False, True), 1)):
        told: list[str] = []
        kind = WhereThere(cast(Any, Reflector()), Asked(*answers), "", gone_without=partial(told.append, "without"))
        running = asyncio.ensure_future(kind.run())
        await asyncio.sleep(500)
        running.cancel()
        await asyncio.wait([running])
        assert len(told) == times


async def test_an_api_server_that_says_nothing_is_asked_again_soon_and_waited_for() -> None:
    async with following(asked := Asked(Unavailable("no route"), Unavailable("no route"), True)) as kind:
        await asyncio.sleep(1.5)
        assert (kind.there, kind.known) == (False, False)
        await asyncio.sleep(1)
        assert (kind.there, kind.known) == (True, True)
    assert asked.pauses == [1, 1]
