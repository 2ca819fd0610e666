"""Simulated service: one life of the service in a simulation, with its verbs and connection.

The life ends as the process does. A killed service answers no caller and sends nothing. A request that it has just sent
arrives or is lost.
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
from extender.kube.client.connection import Fence
from extender.kube.client.requests import JSON, TIMEOUT
from extender.kube.errors import Away, Silent, Unavailable
from extender.runtime import Runtime
from extender.settings.settings import Settings

# A late request looks like one sent in time, so this is less than a killed service is away, and than a lease leaves.
ARRIVES_WITHIN = 0.8
"""Seconds in which a request may still arrive after its sender died or saw it fail."""
_DEAD = "the process is dead"


class NoAnswer(Exception):
    """The service gave a scheduler no answer; `str()` says why."""


class SteppedClock:
    """`ports.Clock` whose time of day can be set; `steady` is not affected."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ahead = 0.0
        """Seconds ahead of the API server's clock; negative: behind it."""

    def now(self) -> float:
        return self._clock.now() + self.ahead

    def steady(self) -> float:
        return self._clock.steady()


class Line:
    """`Requests`: a connection that ends with its process, and whose watches can be late."""

    late_by = 0.0
    """Seconds from a watch's line to its delivery."""
    twice = False
    """Whether every line of a watch is delivered two times."""

    def __init__(self, inner: Cluster) -> None:
        self._inner = inner
        self._dead = False
        self._under_way: set[asyncio.Task[bytes]] = set()
        self._unschedulable: Unavailable | None = None
        self._held = ""
        """A pattern: watches with a matching path deliver nothing while `_flows` is not set."""
        self._flows = asyncio.Event()
        self._flows.set()
        self._breaks = 0
        self._silenced = ("", 0)
        """A pattern as `_held`, and a count of silences; watches older than the last are silent."""

    def cut(self, *, losing: bool) -> None:
        """Ends sending and receiving. `losing`: requests under way are lost; else they may come."""
        self._dead = True
        self._flows.set()
        for sent in list(self._under_way):
            if losing:
                sent.cancel()
            else:
                asyncio.get_running_loop().call_later(ARRIVES_WITHIN, sent.cancel)

    def hold_watches(self, of: str = "") -> None:
        """Holds back watches until `release_watches`. `of`: a pattern of paths; empty: all."""
        if not self._dead:
            self._held = of
            self._flows.clear()

    def release_watches(self) -> None:
        self._flows.set()

    def silence_watches(self, of: str = "") -> None:
        """Silences the watches that are open now; they stay open. `of`: as for `hold_watches`."""
        self._silenced = (of, self._silenced[1] + 1)

    def break_watches(self) -> None:
        """Breaks all watches; lines not delivered are lost."""
        self._breaks += 1
        self._flows.set()

    def turn_away(self, answer: Unavailable) -> None:
        """Breaks its watches, and fails all requests with `answer`, until `let_in`."""
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
            # A dead sender's request arrives all the same.
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
                    raise Silent(f"no data for {silence:g} s")
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
    """The service from its start to its death. Call `run`; `application` is what runs."""

    def __init__(
        self, connection: Cluster, settings: Settings, world: Runtime, candidate: Candidate | None = None
    ) -> None:
        """`candidate`: its identity among several replicas; None: the only one."""
        self.line = Line(connection)
        self.replica = None if candidate is None else Replica(candidate, self.line, self._connect, settings, world)
        if self.replica is None:
            self.application = Application(self.line, settings, world)
            service = self.application.asgi(settings)
        else:
            self.application, service = self.replica.application, self.replica.asgi()
        self._works = self.replica or self.application
        self.http = service
        """The app for a server."""
        calls = service.calls
        self._calls: dict[str, Callable[[bytes], bytes | Awaitable[bytes]]] = calls.by_name
        self._died: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _connect(self, _: Fence) -> Cluster:
        return self.line

    async def stop(self) -> None:
        """Ends as by SIGTERM: no caller waits any more, and the next replica need not wait."""
        await self.application.close()
        if self.replica is not None:
            await self.replica.resign()
        self.kill(losing=False)

    async def run(self) -> None:
        """Runs until cancelled or killed. Raises the error of a part that failed."""
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
        """Waits until all kinds for readiness are listed, except those that may be absent."""
        for reflector in self.application.reflectors:
            await reflector.synced.wait()
        await self.application.intents_known.wait()

    def kill(self, *, losing: bool) -> None:
        """Ends as by kill -9. `losing`: what it has just sent does not arrive."""
        if not self._died.done():
            self._died.set_result(None)
            self.line.cut(losing=losing)

    async def call(self, verb: str, body: bytes) -> bytes:
        """The answer for a scheduler. Raises NoAnswer."""
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
    """The same lines and the same end, each later by `seconds`."""
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
    """Retrieves the exception, because no caller waits for it."""
    if not answer.cancelled():
        answer.exception()
