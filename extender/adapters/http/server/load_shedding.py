"""Load shedding: refuses management calls under overload; kube-scheduler's verbs never come here.

    verb -------------------------------------------> answered where it was read
    health, metrics --------------------------------> answered
    management call --memory near its limit?--> 503
                    --one in each pass of the event loop--> begun
                    --its turn has not come in time--> 503

There is one event loop. A verb is answered in the pass in which it is read, so it waits for that pass. Each pass begins
one management call, so a verb waits for at most one. Tenants take turns: a tenant with endless calls delays others by
one call each. Long passes, because of verbs or of news from the API server, begin fewer management calls. A call that
waits too long is refused before any work is done for it. Only the waiting time is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from extender.adapters.http.problems import Problem, ProblemKind
from extender.adapters.memory import Memory, unlimited
from extender.core.tenancy.shares import Turns

_log = structlog.get_logger(__name__)

ALWAYS = frozenset(("/healthz", "/readyz", "/version", "/metrics"))
"""Reports on the service's health must be answered when it is not healthy."""
LATE, NO_MEMORY = "late", "memory"
"""Reasons to refuse a call."""
LONGEST_WAIT = 15.0
MEMORY_SHARE = 0.9
_ONE_CALL = 96 * 2**20
"""Bytes that a call may take (5,000 nodes with 50,000 pods), or half of those in use if less."""
_MEMORY_HOLDS = 1.0
"""Seconds for which a measurement of the used memory is reused."""
_SAID_AGAIN = 60.0


def _elapsed() -> float:
    return asyncio.get_running_loop().time()


class LoadShedding:
    """Decides which management calls may begin. `longest_wait`: seconds that a call may wait.

    `memory`: as the kernel reports; None without a limit. `share`: part of the limit above which no call begins; 0: no
    check. `shed` is called with the reason of each refusal; `now`: a steady clock."""

    def __init__(
        self,
        longest_wait: float = LONGEST_WAIT,
        memory: Callable[[], Memory | None] = unlimited,
        share: float = MEMORY_SHARE,
        shed: Callable[[str], None] = lambda why: None,
        now: Callable[[], float] = _elapsed,
    ) -> None:
        self._longest_wait = longest_wait
        self._memory = memory
        self._share = share
        self._shed = shed
        self._now = now
        self._waiting: Turns[tuple[float, asyncio.Future[None]]] = Turns()
        """When each call came, and the future that announces its turn."""
        self._passing = False
        """Whether `_next` is scheduled for the next pass of the event loop."""
        self._known: tuple[float, Memory | None] | None = None
        self._said: dict[str, float] = {}

    def check_memory(self) -> None:
        """Checks that there is memory for another management call. Raises Problem."""
        now = self._now()
        if not self._share:
            return
        if self._known is None or now - self._known[0] >= _MEMORY_HOLDS:
            self._known = now, self._memory()
        memory = self._known[1]
        if memory is not None and memory.left < max((1 - self._share) * memory.limit, min(memory.used / 2, _ONE_CALL)):
            told = (
                f"{memory.used} of the {memory.limit} bytes of memory that the service may use are in use: the "
                "rest is for kube-scheduler's calls (setting api_memory_limit_share)"
            )
            raise self._refusal(NO_MEMORY, told, now, retry_after=10)

    async def turn(self, tenant: str = "") -> None:
        """Waits until the caller may begin; one caller may in each pass of the event loop.

        Raises Problem if its turn came too late, or if there is no memory left."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.add(tenant, (self._now(), turn))
        if not self._passing:
            self._passing = True
            loop.call_soon(self._next)
        await turn
        self._known = None
        self.check_memory()

    def _next(self) -> None:
        """Runs once in each pass while calls wait."""
        now = self._now()
        while (found := self._waiting.take()) is not None:
            _, (since, turn) = found
            if turn.done():
                # The caller has left.
                continue
            if now - since <= self._longest_wait:
                turn.set_result(None)
                # A call that comes meanwhile does not begin in this pass.
                asyncio.get_running_loop().call_soon(self._next)
                return
            told = (
                f"the call waited {now - since:.1f} s for its turn: kube-scheduler's calls go first (setting "
                "api_queue_seconds)"
            )
            turn.set_exception(self._refusal(LATE, told, now, retry_after=1))
        self._passing = False

    def _refusal(self, why: str, told: str, now: float, retry_after: int) -> Problem:
        self._shed(why)
        if now - self._said.get(why, -_SAID_AGAIN) >= _SAID_AGAIN:
            self._said[why] = now
            _log.warning("management calls are refused", why=told)
        return Problem(ProblemKind.BUSY, told, headers={"Retry-After": str(retry_after)})
