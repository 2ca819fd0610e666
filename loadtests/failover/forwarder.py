"""Forwarder: replaces kube-proxy; connects its port's clients to the port in the EndpointSlice.

Existing connections keep their target, as with kube-proxy. Only the port counts: all replicas are on this machine, and
an EndpointSlice may not have a loopback address. Runs in a separate thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from lab.controlplane.api import ApiError

_LOOK_EVERY = 0.02


class Forwarder:
    """`leader`: returns the leader's port as in the cluster now, or None if no replica leads."""

    def __init__(self, port: int, leader: Callable[[], int | None]) -> None:
        self._port = port
        self._leader = leader
        self._to: int | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._ready = threading.Event()
        self._over: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        """Starts the thread and returns when it listens."""
        self._thread.start()
        assert self._ready.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        looking = asyncio.create_task(self._look())
        self._ready.set()
        await self._over.wait()
        looking.cancel()
        server.close()
        for end in self._ends:
            end.transport.abort()
        await asyncio.gather(*self._connections)

    async def _look(self) -> None:
        while True:
            with suppress(ApiError, OSError):
                self._to = await asyncio.to_thread(self._leader)
            await asyncio.sleep(_LOOK_EVERY)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        try:
            await self._forward(reader, writer)
        finally:
            await self._close(writer)
            self._connections.discard(connection)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.add(writer)
        if self._to is None:
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            return
        self._ends.add(back)
        # The end of either connection closes both.
        ways = [asyncio.create_task(_pass(reader, back)), asyncio.create_task(_pass(there, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await self._close(back)

    async def _close(self, end: asyncio.StreamWriter) -> None:
        """Closes the socket and waits for it: if the loop ended earlier, it would stay open."""
        end.close()
        with suppress(OSError):
            await end.wait_closed()
        self._ends.discard(end)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while said := await reader.read(2**16):
            writer.write(said)
            await writer.drain()
