"""What is insisted on is asked for again until it is answered, at the pace that the API server asks for."""

from __future__ import annotations

import asyncio

import pytest

from extender.app.objects.retry import until_answered
from extender.kube.errors import Refused, Unavailable

pytestmark = pytest.mark.anyio


class Attempts:
    """Attempts that meet these errors, one after the other, and then succeed; `at` has when each was made."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.at: list[float] = []

    async def __call__(self) -> None:
        self.at.append(asyncio.get_running_loop().time())
        if self._errors:
            raise self._errors.pop(0)

    def pauses(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.at, self.at[1:], strict=False)]


async def test_each_pause_is_as_long_as_was_asked_for() -> None:
    attempts = Attempts(Unavailable("busy", 7.0), Unavailable("busy", 0.5), Unavailable("busy", 86_400.0))
    await until_answered(attempts)
    assert attempts.pauses() == pytest.approx([7.0, 0.5, 30.0])


async def test_where_nothing_was_asked_for_they_grow() -> None:
    attempts = Attempts(*[Unavailable("away")] * 8)
    await until_answered(attempts)
    assert attempts.pauses() == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])


async def test_what_would_come_too_late_is_given_up_at_once() -> None:
    attempts = Attempts(Unavailable("busy", 7.0))
    with pytest.raises(Unavailable, match="busy"):
        await until_answered(attempts, within=5.0)
    assert len(attempts.at) == 1


async def test_what_is_refused_is_not_asked_again() -> None:
    attempts = Attempts(Refused(403, "forbidden"))
    with pytest.raises(Refused):
        await until_answered(attempts)
    assert len(attempts.at) == 1
