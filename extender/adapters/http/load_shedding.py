"""Shedding: what gives way when there is too much to do. Management calls do; kube-scheduler's never come here.

    verb -------------------------------------------> answered where it was read
    health, metrics --------------------------------> answered
    management call --memory near its limit?--> 503
                    --one in each pass of the event loop--> begun
                    --its turn has not come in time--> 503

There is one event loop. A verb is answered in the pass in which it is read, so what it waits for is that pass: with one
management call begun in each, it waits for one at most, however many have come. Tenants take turns at that: who asks
without end keeps nobody waiting for all of it. If passes are long, because of verbs or
of news from the API server, fewer management calls are begun, and who waits for too long is told so, before any work is
done for it. Nothing is measured for that but how long they wait.

Knows the event loop and bytes. Must not know what a call asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from extender.adapters.http.problems import Problem, ProblemKind
from extender.adapters.memory import Memory, unlimited
from extender.core.shares import Turns

_log = structlog.get_logger(__name__)

ALWAYS = frozenset(("/healthz", "/readyz", "/version", "/metrics"))
"""What tells how the service is must be answered when it is not well."""
LATE, NO_MEMORY = "late", "memory"
"""Why a call was shed."""
LONGEST_WAIT = 15.0
MEMORY_SHARE = 0.9
_ONE_CALL = 96 * 2**20
"""Bytes that a call may take (a page of 5,000 nodes with 50,000 pods); or half of what is in use, if that is less."""
_MEMORY_HOLDS = 1.0
"""Seconds for which it is believed of who comes how much memory is in use."""
_SAID_AGAIN = 60.0


def _elapsed() -> float:
    return asyncio.get_running_loop().time()


class LoadShedding:
    """`longest_wait`: seconds within which a management call's turn has to come. `memory`: as the kernel says; None
    where nothing limits it. `share`: of the limit, beyond which none is begun; 0: it is all the same. `shed` is told
    why, of each that is refused; `now` passes, and is never set back."""

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
        """Since when, and what tells them that it is their turn."""
        self._passing = False
        """Whether the next pass of the event loop is looked at."""
        self._known: tuple[float, Memory | None] | None = None
        self._said: dict[str, float] = {}

    def check_memory(self) -> None:
        """There is memory for another management call, as far as is known. Raises Problem."""
        now = self._now()
        if not self._share:
            return
        if self._known is None or now - self._known[0] >= _MEMORY_HOLDS:
            self._known = now, self._memory()
        memory = self._known[1]
        if memory is not None and memory.left < max((1 - self._share) * memory.limit, min(memory.used / 2, _ONE_CALL)):
            told = (
                f"{memory.used} of the {memory.limit} bytes of memory that the service may have are in use: what is "
                "left is for kube-scheduler's calls (setting management_memory_share)"
            )
            raise self._refusal(NO_MEMORY, told, now, retry_after=10)

    async def turn(self, tenant: str = "") -> None:
        """It is the caller's turn to begin: nobody else's in this pass of the event loop. Raises Problem where it has
        not come in time, or those before have left no memory for it."""
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
        """Once in each pass, for as long as somebody waits."""
        now = self._now()
        while (found := self._waiting.take()) is not None:
            _, (since, turn) = found
            if turn.done():
                # Its caller has left.
                continue
            if now - since <= self._longest_wait:
                turn.set_result(None)
                # Who comes meanwhile is not the first.
                asyncio.get_running_loop().call_soon(self._next)
                return
            told = (
                f"the call has waited for {now - since:.1f} s to be begun: kube-scheduler's calls go first (setting "
                "management_wait_seconds)"
            )
            turn.set_exception(self._refusal(LATE, told, now, retry_after=1))
        self._passing = False

    def _refusal(self, why: str, told: str, now: float, retry_after: int) -> Problem:
        self._shed(why)
        if now - self._said.get(why, -_SAID_AGAIN) >= _SAID_AGAIN:
            self._said[why] = now
            _log.warning("management calls are refused", why=told)
        return Problem(ProblemKind.BUSY, told, headers={"Retry-After": str(retry_after)})
