"""Leader health: whether a leader can work, judged by its requests and not by its Lease.

Reads and writes are judged apart. If no request of the application was answered for a lease, the leader reads something
itself: a quiet cluster must not count as a silent one. A refusal by the API server is an answer: rights are the
service's, and no other replica has more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from extender.core.ledger.channel import Channel
from extender.kube.errors import Refused, Unavailable

PATIENCE_LEASES = 8
"""Leases within which requests must have come through."""
READY_WITHIN = 120.0
"""Seconds from winning the lease until verbs are answered.

Of the largest clusters the lists take one. Waiting at start for kinds that only help is not counted: it has a limit of
its own, and may come between two lists."""
_LOOKS_EVERY = 1.0


class LeaderHealth:
    """Judges requests. `lease`: seconds. `clock`: steady seconds. `ready`: the cluster was read.

    `read`: asks the API server for something small; raises Unavailable, Refused. `is_patient`: whether the service now
    waits for a kind that it can do without."""

    def __init__(
        self,
        lease: float,
        read: Callable[[], Awaitable[object]],
        ready: Callable[[], bool],
        is_patient: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._lease = lease
        self._read = read
        self._ready = ready
        self._is_patient = is_patient
        self._clock = clock
        self._channels: dict[str, Channel] | None = None
        """None while this replica does not lead."""
        self._answered_at = 0.0

    def heard(self, writes: bool, error: Exception | None) -> None:
        """Takes in the outcome of a request of the application; `error`: what it raised."""
        if isinstance(error, Unavailable):
            if self._channels is not None:
                self._channels["writes" if writes else "reads"].failed(self._clock())
            return
        if not writes:
            self._answered_at = self._clock()
        if self._channels is not None:
            self._channels["writes" if writes else "reads"].answered()

    async def answers(self) -> bool:
        try:
            await self._read()
        except Unavailable:
            return False
        except Refused:
            pass
        return True

    async def lasts(self, in_vain: int, proved: Callable[[], None]) -> str:
        """Why this replica, which leads from now on, can work no more; returns only then.

        `in_vain`: how many leaders before it failed. It waits twice as long for each of them, so that replicas that all
        fail do not take turns. `proved` is called when it has worked for twice as long as it waits."""
        began = reads_since = self._clock()
        longer = 2**in_vain
        patience = self._lease * PATIENCE_LEASES * longer
        channels = self._channels = {kind: Channel(patience) for kind in ("reads", "writes")}
        self._answered_at, is_proven = began, False
        while True:
            await asyncio.sleep(_LOOKS_EVERY)
            now = self._clock()
            if now - self._answered_at >= self._lease:
                await self.answers()
                # Whatever the answer: the next attempt comes one lease later.
                self._answered_at = max(self._answered_at, now)
            if dead := [kind for kind, channel in channels.items() if channel.is_dead]:
                return f"for {patience:g} s none of its {' and '.join(dead)} reached the API server"
            if self._is_patient():
                reads_since = now
            if not self._ready() and now - reads_since >= READY_WITHIN * longer:
                return f"the cluster could not be read within {READY_WITHIN * longer:g} s"
            if not is_proven and self._ready() and now - began >= 2 * patience:
                is_proven = True
                proved()
