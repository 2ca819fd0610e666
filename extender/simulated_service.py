"""One life of the service in a simulation: its verbs, its line to the API server, and a death nobody hears of it after.

Knows the application and how its process ends: killed, it answers nobody, sends nothing, and what it has just sent
arrives or does not. Must not know the rest of the cluster, nor when it dies.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from extender.app.contracts.ports import Clock
from extender.availability import Candidate, Replica
from extender.bootstrap import Application, Cluster
from extender.kube.connection import Fence
from extender.kube.errors import Away, Silent, Unavailable
from extender.kube.requests import JSON, TIMEOUT
from extender.runtime import Runtime
from extender.settings import Settings

ARRIVES_WITHIN = 0.8
"""Seconds within which a request may arrive after its sender has died, or was told that it had not: less than a killed
service is away and than a lease has left for what was sent, for nobody could tell it from one that was sent in time."""
_DEAD = "the process is dead"


class NoAnswer(Exception):
    """A scheduler that called the service got none; `str()` says why."""


class SteppedClock:
    """Implements `ports.Clock`: the time of day as somebody has set it; `steady` goes on as ever."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead = 0.0
        """By how many seconds it is before the API server's; negative: behind it."""

    def now(self) -> float:
        return self._clock.now() + self.ahead

    def steady(self) -> float:
        return self._clock.steady()


class Line:
    """Implements `Requests`: a connection that ends with its process, and whose watches can be late."""

    late_by = 0.0
    """Seconds from what a watch tells to its being heard."""
    twice = False
    """Whether all that a watch tells is heard two times."""

    def __init__(self, inner: Cluster) -> None:
        self._inner = inner
        self._dead = False
        self._under_way: set[asyncio.Task[bytes]] = set()
        self._unschedulable: Unavailable | None = None
        self._held = ""
        """Watches with a path in which this pattern is found tell nothing, while `_flows` is not set."""
        self._flows = asyncio.Event()
        self._flows.set()
        self._breaks = 0
        self._silenced = ("", 0)
        """A pattern as for `_held`, and how often watches were silenced: those that were open then are silent."""

    def cut(self, *, losing: bool) -> None:
        """Nothing more is sent, nor heard. `losing`: what is on its way there does not arrive; else soon, or not."""
        self._dead = True
        self._flows.set()
        for sent in list(self._under_way):
            if losing:
                sent.cancel()
            else:
                asyncio.get_running_loop().call_later(ARRIVES_WITHIN, sent.cancel)

    def hold_watches(self, of: str = "") -> None:
        """From now on nothing that a watch tells comes through, until `release_watches`. `of`: a pattern that is found
        in the paths of those that are held; empty: all."""
        if not self._dead:
            self._held = of
            self._flows.clear()

    def release_watches(self) -> None:
        self._flows.set()

    def silence_watches(self, of: str = "") -> None:
        """The watches that are open now tell nothing any more, and stay open. `of`: as for `hold_watches`."""
        self._silenced = (of, self._silenced[1] + 1)

    def break_watches(self) -> None:
        """All of them have failed; what they had still to tell is lost."""
        self._breaks += 1
        self._flows.set()

    def turn_away(self, answer: Unavailable) -> None:
        """Its watches have failed, and so does all that it asks, until `let_in`."""
        self._unschedulable = answer
        self.break_watches()

    def let_in(self) -> None:
        self._unschedulable = None

    async def keep_warm(self, connections: int) -> None:
        await self._inner.keep_warm(connections)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        within: float = TIMEOUT,
    ) -> bytes:
        self._check()
        asked = self._inner.request(method, path, body, content_type=content_type, accept=accept, within=within)
        sent = asyncio.ensure_future(asked)
        self._under_way.add(sent)
        sent.add_done_callback(self._arrived)
        try:
            answer = await asyncio.shield(sent)
        except asyncio.CancelledError:
            # Of whoever has died meanwhile it arrives all the same.
            if not self._dead:
                sent.cancel()
            raise
        self._check()
        return answer

    def _arrived(self, sent: asyncio.Task[bytes]) -> None:
        self._under_way.discard(sent)
        _forget(sent)

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        self._check()
        unbroken, unsilenced = self._breaks, self._silenced[1]
        clock = asyncio.get_running_loop().time
        heard = clock()
        told = self._inner.lines(path, silence=silence)
        async with aclosing(_late(told, self.late_by) if self.late_by else told) as lines:
            async for line in lines:
                if re.search(self._held, path):
                    await self._flows.wait()
                if self._silenced[1] != unsilenced and re.search(self._silenced[0], path):
                    await asyncio.sleep(heard + silence - clock())
                    raise Silent(f"nothing for {silence:g} s")
                self._check()
                if self._breaks != unbroken:
                    raise Away("connection reset by peer")
                heard = clock()
                yield line
                if self.twice:
                    yield line

    def _check(self) -> None:
        if self._dead:
            raise Away(_DEAD)
        if self._unschedulable is not None:
            raise self._unschedulable


class ServiceLife:
    """From its start to its death. `run` it; `application` is what runs."""

    def __init__(
        self, connection: Cluster, settings: Settings, world: Runtime, candidate: Candidate | None = None
    ) -> None:
        """`candidate`: who it is among several; None: the only one."""
        self.line = Line(connection)
        self.replica = None if candidate is None else Replica(candidate, self.line, self._connect, settings, world)
        if self.replica is None:
            self.application = Application(self.line, settings, world)
            service = self.application.asgi(settings)
        else:
            self.application, service = self.replica.application, self.replica.asgi()
        self._works = self.replica or self.application
        self.http = service
        """What a server would serve."""
        calls = service.calls
        self._calls: dict[str, Callable[[bytes], bytes | Awaitable[bytes]]] = calls.by_name
        self._died: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _connect(self, _: Fence) -> Cluster:
        return self.line

    async def stop(self) -> None:
        """It has ended as SIGTERM ends it: nobody waits any more, and who comes after it need not."""
        await self.application.close()
        if self.replica is not None:
            await self.replica.resign()
        self.kill(losing=False)

    async def run(self) -> None:
        """Until it is cancelled or killed. Raises what a part of it died of."""
        following = asyncio.ensure_future(self._works.run())
        try:
            await asyncio.wait({following, self._died}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
        finally:
            self.kill(losing=True)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await self.application.close()

    async def synced(self) -> None:
        """It has listed every kind that it needs to be ready, but for those that may not be installed."""
        for reflector in self.application.reflectors:
            await reflector.synced.wait()
        await self.application.intents_known.wait()

    def kill(self, *, losing: bool) -> None:
        """As kill -9 does it. `losing`: what it has just sent does not arrive."""
        if not self._died.done():
            self._died.set_result(None)
            self.line.cut(losing=losing)

    async def call(self, verb: str, body: bytes) -> bytes:
        """What a scheduler gets. Raises NoAnswer."""
        if self._died.done():
            raise NoAnswer("connection refused")
        if not self._works.ready():
            raise NoAnswer("the service is not ready")
        answered = self._calls[verb](body)
        if isinstance(answered, bytes):
            return answered
        answer = asyncio.ensure_future(answered)
        either: set[asyncio.Future[Any]] = {answer, self._died}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._died.done():
            return answer.result()
        answer.add_done_callback(_forget)
        raise NoAnswer("connection reset by peer")


async def _late(lines: AsyncGenerator[bytes, None], seconds: float) -> AsyncGenerator[bytes, None]:
    """The same, each so much later; the end of it too."""
    loop = asyncio.get_running_loop()
    told: asyncio.Queue[tuple[float, bytes | Exception | None]] = asyncio.Queue()

    async def listen() -> None:
        async with aclosing(lines):
            try:
                async for line in lines:
                    told.put_nowait((loop.time(), line))
                told.put_nowait((loop.time(), None))
            except Unavailable as error:
                told.put_nowait((loop.time(), error))

    listening = asyncio.ensure_future(listen())
    try:
        while True:
            when, line = await told.get()
            await asyncio.sleep(max(0.0, when + seconds - loop.time()))
            if line is None:
                return
            if isinstance(line, Exception):
                raise line
            yield line
    finally:
        listening.cancel()
        await asyncio.wait({listening})


def _forget(answer: asyncio.Future[bytes]) -> None:
    """Nobody is there to hear of it."""
    if not answer.cancelled():
        answer.exception()
