"""Leader election: takes part in the election, renews a won lease, and knows whether it leads.

It may run on an event loop of its own, so that no work of this process delays a renewal. `leads`, `leader` and `proved`
are for any thread, the rest only for the loop on which it runs. `core.election` says what is to be done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from extender.core.election import Act, Election, Record, Standing
from extender.kube.errors import Gone, Occupied, Refused, Unavailable

_log = structlog.get_logger(__name__)


class LeaseLost(Exception):
    """This replica no longer leads; `str()` says why. Its process restarts as a follower."""


class Ballot(Protocol):
    """Where the record is stored."""

    async def look(self) -> Record:
        """Returns the record as it is. Raises Unavailable, Refused."""
        ...

    async def write(self, record: Record, *, changes_hands: bool) -> Record:
        """Raises Occupied or Gone if it has changed since that version; Unavailable, Refused."""
        ...


class LeaderElection:
    """One replica's part in the election. `clock`: seconds of a monotonic clock.

    `won` is called once, when it leads. `turns`: whether the deciding event loop runs; else the lease is not
    renewed."""

    def __init__(
        self,
        election: Election,
        ballot: Ballot,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        *,
        won: Callable[[], object] = lambda: None,
        turns: Callable[[], bool] = lambda: True,
    ) -> None:
        self._election = election
        self._ballot = ballot
        self._clock = clock
        self._sleep = sleep
        self._won = won
        self._has_won = False
        self._turns = turns
        self._refused = ""
        self._resigned = False
        self._over = asyncio.Event()
        """Set when the replica has resigned and, if it led, the lease was given back."""

    @property
    def leads(self) -> bool:
        """Whether a decision may be made now, and a write begin."""
        return self._election.leads(self._clock())

    @property
    def leader(self) -> Record:
        """The lease record as it was last read."""
        return self._election.record

    async def run(self) -> None:
        """Takes part until it is cancelled or this replica resigns. Raises LeaseLost."""
        while not self._resigned:
            now = self._clock()
            act = self._election.next(now)
            if self._election.standing(now) is Standing.LOST:
                raise LeaseLost(self._why())
            if act is Act.LOOK:
                await self._look()
            elif act is Act.WRITE and self.leads and not self._turns():
                self._election.resign()
                raise LeaseLost("the event loop of this process hangs")
            elif act is Act.WRITE:
                await self._write()
            else:
                until = min(self._election.due, self._election.until) if self.leads else self._election.due
                # A little longer, so that a rounded time does not let this loop spin.
                await self._sleep(max(0.0, until - now) + 0.001)
        await self._over.wait()

    def proved(self) -> None:
        """The replica has led long enough to know that it works: former failures count no more."""
        self._election.works = True

    async def is_vacant(self) -> bool:
        try:
            return not (await self._ballot.look()).holder
        except (Unavailable, Refused):
            return False

    async def resign(self) -> bool:
        """Stops deciding and writing. Returns whether it led; if so, `give_back` has to follow."""
        held, self._resigned = self.leads, True
        self._election.resign()
        if not held:
            self._over.set()
        return held

    async def give_back(self, *, in_vain: bool = False) -> None:
        """Releases the lease, so that other replicas need not wait for its end.

        Begun writes must be over, because another replica may begin then. `in_vain`: this replica could not work."""
        try:
            try:
                await self._ballot.write(self._election.released(in_vain=in_vain), changes_hands=False)
            except Occupied:
                # A renewal that was under way came first.
                self._election.saw(await self._ballot.look(), self._clock())
                if self._election.record.holder == self._election.me:
                    await self._ballot.write(self._election.released(in_vain=in_vain), changes_hands=False)
        except (Unavailable, Refused) as error:
            _log.warning("the lease could not be released; it expires by itself", why=str(error))
        else:
            _log.info("the lease is released")
        finally:
            self._over.set()

    async def _look(self) -> None:
        before = self._election.record.holder
        try:
            record = await self._ballot.look()
        except (Unavailable, Refused) as error:
            self._unheard(error)
            return
        self._election.saw(record, self._clock())
        if record.holder != before:
            _log.info("who leads", leader=record.holder or "none", at=record.at)

    async def _write(self) -> None:
        wanted, sent = self._election.wanted(), self._clock()
        changes_hands = wanted.holder != self._election.record.holder
        self._election.sending(wanted, sent)
        try:
            written = await self._ballot.write(wanted, changes_hands=changes_hands)
        except (Gone, Occupied) as error:
            if isinstance(error, Gone):
                # The lease was deleted, or its namespace does not exist.
                self._tell(error)
            self._election.refused(self._clock())
            return
        except (Unavailable, Refused) as error:
            self._unheard(error)
            return
        if self._resigned:
            return
        self._election.wrote(written, sent, self._clock())
        if self.leads and not self._has_won:
            _log.info("became the leader", changes=written.transitions)
            self._has_won = True
            self._won()

    def _unheard(self, error: Exception) -> None:
        self._election.unheard(self._clock())
        self._tell(error)

    def _tell(self, error: Exception) -> None:
        said = f"{type(error).__name__}: {error}"
        tell = _log.info if said == self._refused else _log.warning
        self._refused = said
        tell("the lease could not be read or written", why=str(error))

    def _why(self) -> str:
        record = self._election.record
        if record.holder != self._election.me:
            return f"the lease names {record.holder or 'no replica'} now"
        return f"the lease could not be renewed in time: {self._refused or 'this process did not run'}"
