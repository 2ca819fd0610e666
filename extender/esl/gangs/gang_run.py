"""One run of a gang, as its caller awaits it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from extender.esl.base import News, Report
from extender.esl.gangs.gang_spec import GangSpec
from extender.esl.gangs.gang_state import GhostPhase


class GangFailed(Exception):
    """The gang has ended without having been reserved; `str()` says why."""


class GangRun:
    """One gang that was asked for."""

    def __init__(self, spec: GangSpec, phase: Callable[[], GhostPhase], cancel: Callable[[], None]) -> None:
        self.spec = spec
        """The ask of this run: members are made from it."""
        self.roll_backs: list[str] = []
        """The reason for each roll-back."""
        self.troubles: list[str] = []
        """What was lost of its room since it was reserved, and what became of that."""
        self.cancel = cancel
        """Callable that cancels the gang: it ends as soon as its members have ended."""
        self._phase = phase
        self._reserved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[Report] = asyncio.get_running_loop().create_future()

    @property
    def phase(self) -> GhostPhase:
        return self._phase()

    async def reserved(self) -> None:
        """All that it needs is held, and its resources are on the nodes. Raises GangFailed."""
        await asyncio.shield(self._reserved)

    async def ended(self) -> Report:
        """Nothing of it is left; the report says ENDED or FAILED, and why."""
        return await asyncio.shield(self._ended)

    def take(self, report: Report) -> None:
        if report.news is News.ROLLED_BACK:
            self.roll_backs.append(report.detail)
        elif report.news is News.INCOMPLETE:
            self.troubles.append(report.detail)
        elif report.news is News.RESERVED:
            self._reserved.set_result(None)
        else:
            self._ended.set_result(report)
            if not self._reserved.done():
                self._reserved.set_exception(GangFailed(f"gang {report.subject}: {report.detail}"))
                # Marks the exception as retrieved, in case no caller awaits the future.
                self._reserved.exception()

    def fail(self, error: BaseException) -> None:
        """The gang is no longer run: every caller that awaits it gets the error."""
        for future in (self._reserved, self._ended):
            if not future.done():
                future.set_exception(error)
                future.exception()
