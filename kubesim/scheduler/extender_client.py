"""Extender client: sends bytes to an extender and returns its bytes, over HTTP or in process.

Its errors have the words of kube-scheduler's client, because users see them in events and pod conditions. It has no
time limit: the caller cancels a call.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import aiohttp

_KEEP_ALIVE = 90.0
_MOST_IDLE = 512


class ExtenderFailed(Exception):
    """The extender gave no valid answer. `str()` is the text that users read."""


class ExtenderClient(Protocol):
    async def call(self, verb: str, body: bytes) -> bytes:
        """The body of a 200. `verb`: the last part of the address. Raises ExtenderFailed."""
        ...


class HttpExtender:
    """An extender at `url_prefix`. Create it in the running loop, and close it."""

    def __init__(self, url_prefix: str, *, https: bool = False, tls: Mapping[str, Any] | None = None) -> None:
        """`tls`: tlsConfig of the file. Without a caFile nothing is verified, as in Kubernetes."""
        self._prefix = url_prefix.rstrip("/")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=_MOST_IDLE, keepalive_timeout=_KEEP_ALIVE, ssl=_trust(tls or {}) if https or tls else True
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "Go-http-client/1.1", "Content-Type": "application/json", "Accept-Encoding": "gzip"},
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def close(self) -> None:
        await self._session.close()

    async def call(self, verb: str, body: bytes) -> bytes:
        url = f"{self._prefix}/{verb}"
        try:
            async with self._session.post(url, data=body, allow_redirects=False) as response:
                content: bytes = await response.read()
        except aiohttp.ClientConnectorError as error:
            where = f"{error.host}:{error.port}"
            raise ExtenderFailed(f'Post "{url}": dial tcp {where}: connect: {_reason(error.os_error)}') from error
        except (aiohttp.ClientError, OSError) as error:
            raise ExtenderFailed(f'Post "{url}": {str(error) or "EOF"}') from error
        if response.status != 200:
            raise ExtenderFailed(f"failed {verb} with extender at URL {url}, code {response.status}")
        return content


class CallableExtender:
    """An extender in this process: `answer` gets verb and body, and returns the body of a 200.

    A cancelled call goes on at the extender's side, as a server's handler does. An exception other than ExtenderFailed
    counts as status 500.
    """

    def __init__(self, answer: Callable[[str, bytes], Awaitable[bytes]], url_prefix: str = "in-process") -> None:
        self._answer = answer
        self._prefix = url_prefix
        self._running: set[asyncio.Task[bytes]] = set()

    async def call(self, verb: str, body: bytes) -> bytes:
        task = asyncio.ensure_future(self._ask(verb, body))
        self._running.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    async def _ask(self, verb: str, body: bytes) -> bytes:
        try:
            return await self._answer(verb, body)
        except ExtenderFailed:
            raise
        except Exception as error:
            raise ExtenderFailed(f"failed {verb} with extender at URL {self._prefix}/{verb}, code 500") from error

    def _forget(self, task: asyncio.Task[bytes]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()


def _trust(tls: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.get("caFile") or None)
    if tls.get("insecure") or not tls.get("caFile"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.get("certFile"):
        context.load_cert_chain(tls["certFile"], tls.get("keyFile") or None)
    return context


def _reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else str(error)
