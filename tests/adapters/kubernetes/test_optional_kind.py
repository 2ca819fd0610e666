"""A kind that may not be there is followed as soon as it is; what is refused is not taken for not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from extender.adapters.kubernetes.reflectors.lost import Lost
from extender.adapters.kubernetes.reflectors.optional_kind import OptionalKind
from extender.adapters.kubernetes.reflectors.safety_kinds import START_SECONDS, SafetyKinds
from extender.kube.errors import Refused, Unavailable
from kubesim.virtual_time import BACKEND


@pytest.fixture
def anyio_backend() -> object:
    return BACKEND


pytestmark = pytest.mark.anyio

FORBIDDEN = Refused(403, "forbidden")


class Reflector:
    """Has listed after so many seconds, each of which failed before."""

    kind = "things"
    age: float | None = None

    def __init__(self, after: float = 0.0) -> None:
        self.synced = asyncio.Event()
        self.lost = Lost(asyncio.get_running_loop().time)
        self._after = after

    async def run(self) -> None:
        if self._after:
            self.lost.failed("forbidden")
        await asyncio.sleep(min(self._after, 1e9))
        self.lost.over()
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
        return [round(later - at, 3) for at, later in zip(self.at, self.at[1:], strict=False)]


@asynccontextmanager
async def following(
    asked: Asked | None, *, listed_after: float = 0.0, patience: float = inf, after: asyncio.Event | None = None
) -> AsyncIterator[OptionalKind]:
    kind = OptionalKind(cast(Any, Reflector(listed_after)), asked, patience=patience, after=after)
    running = asyncio.ensure_future(kind.run())
    yield kind
    running.cancel()
    await asyncio.wait([running])


def stands(kind: OptionalKind) -> tuple[bool, bool, bool]:
    return kind.there, kind.known.is_set(), kind.reflector.synced.is_set()


async def test_what_is_there_is_known_once_it_is_listed() -> None:
    async with following(Asked(True), listed_after=2) as kind:
        await asyncio.sleep(1)
        assert stands(kind) == (True, False, False)
        await asyncio.sleep(2)
        assert stands(kind) == (True, True, True)


async def test_what_is_not_there_is_looked_for_soon_and_then_once_a_minute_and_followed_when_it_comes() -> None:
    async with following(asked := Asked(*[False] * 8, True)) as kind:
        await asyncio.sleep(0.5)
        assert stands(kind) == (False, True, False)
        await asyncio.sleep(300)
        assert stands(kind) == (True, True, True)
    assert asked.pauses == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize("error", [FORBIDDEN, Unavailable("no route"), Refused(404, "no such path")])
async def test_what_is_refused_or_not_answered_is_asked_again_soon_and_waited_for(error: Exception) -> None:
    with capture_logs() as logged:
        async with following(asked := Asked(*[error] * 20, True)) as kind:
            await asyncio.sleep(10)
            assert stands(kind) == (False, False, False)
            assert kind.lost.why == str(error)
            await asyncio.sleep(120)
            assert stands(kind) == (True, True, True)
            assert kind.lost.why == ""
    assert max(asked.pauses) <= 5.5
    assert len(logged) == 1


async def test_a_kind_that_helps_is_waited_for_as_long_as_a_start_takes_and_followed_when_it_may_be() -> None:
    async with following(None, listed_after=300, patience=START_SECONDS) as kind:
        await asyncio.sleep(START_SECONDS - 2)
        assert not kind.known.is_set()
        await asyncio.sleep(4)
        assert (kind.known.is_set(), kind.goes_without) == (True, True)
        assert SafetyKinds([kind], ["namespaces"]).without() == ["namespaces", "things"]
        await asyncio.sleep(300)
        assert (kind.reflector.synced.is_set(), kind.goes_without) == (True, False)


async def test_a_kind_that_narrows_is_waited_for_as_long_as_it_takes() -> None:
    async with following(None, listed_after=10_000) as kind:
        narrowing = SafetyKinds([kind])
        await asyncio.sleep(9_000)
        assert not narrowing.known
        assert narrowing.waits_for() == {"things": "forbidden"}
        assert narrowing.lost_for()["things"] >= 9_000
        await asyncio.sleep(2_000)
        assert narrowing.known
        assert narrowing.waits_for() == {}


async def test_what_the_settings_do_without_is_not_read() -> None:
    kind = OptionalKind(cast(Any, Reflector()), Asked(FORBIDDEN))
    narrowing = SafetyKinds([kind], ["things"])
    assert (narrowing.known, narrowing.work(), narrowing.without()) == (True, [], ["things"])


async def test_it_is_not_looked_for_before_what_it_comes_after_is_known() -> None:
    event = asyncio.Event()
    async with following(asked := Asked(False), after=event) as kind:
        await asyncio.sleep(60)
        assert (asked.at, kind.known.is_set()) == ([], False)
        event.set()
        await asyncio.sleep(0.1)
        assert kind.known.is_set()


class Following(Reflector):
    """Can be followed for a minute, and fails from then on."""

    ends = 0

    async def run(self) -> None:
        self.lost.over()
        self.synced.set()
        await asyncio.sleep(60)
        self.lost.failed("404 page not found")
        await asyncio.Event().wait()

    def uninstalled(self) -> None:
        self.lost.over()
        self.ends += 1


@pytest.mark.parametrize("answers", [[True], [True, False, True], [True, False, Unavailable("starting")]], ids=str)
async def test_one_that_fails_is_followed_as_long_as_the_api_server_does_not_deny_it_again_and_again(
    answers: list[bool | Exception],
) -> None:
    reflector = Following()
    running = asyncio.ensure_future(OptionalKind(cast(Any, reflector), Asked(*answers)).run())
    await asyncio.sleep(400)
    assert reflector.ends == 0
    running.cancel()
    await asyncio.wait([running])


async def test_one_that_the_api_server_denies_again_and_again_is_looked_for_anew() -> None:
    reflector, asked = Following(), Asked(True, *[False] * 8, True)
    kind = OptionalKind(cast(Any, reflector), asked)
    running = asyncio.ensure_future(kind.run())
    await asyncio.sleep(59)
    assert kind.there
    await asyncio.sleep(58)
    assert (kind.there, reflector.ends) == (False, 1)
    await asyncio.sleep(10)
    assert kind.there
    running.cancel()
    await asyncio.wait([running])
