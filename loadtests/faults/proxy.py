"""Proxy: HTTP/1.1 over TLS from the service to kube-apiserver, honest until it is given faults.

It runs in a thread of its own. It reads each request whole and then sends it on; it reads each answer whole and then
passes it on. Watches are passed on event by event, in order. `draw` decides which faults happen.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from lab.controlplane.api import Access
from loadtests.faults.draw import NONE, Deciding, Fault, cut

_LONGEST_EVENT = 2**24
_RETRY_AFTER = 1
"""Seconds; the header has no fractions."""
_OF_ONE_CONNECTION = frozenset(
    {"connection", "content-length", "date", "host", "keep-alive", "server", "te", "transfer-encoding", "upgrade"}
)
_REASONS = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout", 410: "Expired"}

T = TypeVar("T")


class _Metadata(msgspec.Struct):
    name: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Event(msgspec.Struct):
    type: str
    object: _Object


_events = msgspec.json.Decoder(_Event)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: CIMultiDict[str]
    body: bytes


class Proxy:
    """Listens on `url` between its start and its end; disturbs while it has faults."""

    def __init__(self, upstream: Access, *, certificate: Path, key: Path) -> None:
        self.url = ""
        self._upstream = upstream
        self._identity = self.identity(certificate, key)
        self._faults: Deciding | None = None
        self._late: set[asyncio.Task[Answer]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="proxy")

    @staticmethod
    def identity(certificate: Path, key: Path) -> ssl.SSLContext:
        """The TLS context of a server with this certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        return context

    def start(self) -> None:
        self._thread.start()
        self._do(self._open())

    def end(self) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def hinder(self, faults: Deciding) -> None:
        """From now on these faults happen."""
        self._do(self._set(faults))

    def calm(self) -> None:
        """Ends all faults; held events have been sent, and late requests are done."""
        self._do(self._set(None))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    # -- in the loop ---------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        self._calm = asyncio.Event()
        self._calm.set()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._upstream.trust),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=_LONGEST_EVENT,
        )
        self._runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._identity)
        await site.start()
        self.url = f"https://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _close(self) -> None:
        await self._set(None)
        await self._runner.cleanup()
        await self._session.close()
        # Watches of a stopped service, which has not closed them.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _set(self, faults: Deciding | None) -> None:
        self._faults = faults
        if faults is not None:
            self._calm.clear()
            return
        self._calm.set()
        await asyncio.gather(*self._late, return_exceptions=True)

    async def _wait(self, seconds: float) -> None:
        """Waits this many seconds, or until the faults end."""
        try:
            async with asyncio.timeout(seconds):
                await self._calm.wait()
        except TimeoutError:
            pass

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        watch = request.query.get("watch") in ("1", "true")
        fault = self._faults.of_request(request.method, request.path, watch=watch) if self._faults else NONE
        try:
            if watch:
                return await self._follow(request, fault)
            return await self._pass(request, body, fault)
        except (aiohttp.ClientError, OSError):
            # One side has gone away: the service stops, or the API server does.
            return _cut_off(request, abrupt=True)

    async def _pass(self, request: web.BaseRequest, body: bytes, fault: Fault) -> web.StreamResponse:
        match fault.kind:
            case "lose-request":
                return _cut_off(request, abrupt=fault.abrupt)
            case "late":
                task = self._loop.create_task(self._ask_later(request, body, fault.seconds))
                self._late.add(task)
                task.add_done_callback(self._late.discard)
                return _cut_off(request, abrupt=fault.abrupt)
            case "429" | "500" | "503" | "504" as status:
                return _refusal(int(status))
            case "delay-request":
                await self._wait(fault.seconds)
            case "twice":
                await self._ask(request, body)
        said = await self._ask(request, body)
        match fault.kind:
            case "delay-answer":
                await self._wait(fault.seconds)
            case "lose-answer":
                return _cut_off(request, abrupt=fault.abrupt)
            case "cut-answer":
                begun = web.StreamResponse(status=said.status, headers=said.headers)
                begun.content_length = len(said.body)
                await begun.prepare(request)
                await begun.write(cut(said.body, fault.share))
                return _cut_off(request, abrupt=fault.abrupt, begun=begun)
        return web.Response(status=said.status, headers=said.headers, body=said.body)

    async def _ask_later(self, request: web.BaseRequest, body: bytes, seconds: float) -> Answer:
        await self._wait(seconds)
        return await self._ask(request, body)

    async def _ask(self, request: web.BaseRequest, body: bytes) -> Answer:
        async with self._session.request(
            request.method, self._address(request), headers=_passed_on(request.headers), data=body or None
        ) as answer:
            return Answer(answer.status, _passed_on(answer.headers), await answer.read())

    def _address(self, request: web.BaseRequest) -> URL:
        return URL(self._upstream.url + request.raw_path, encoded=True)

    # -- watches

    async def _follow(self, request: web.BaseRequest, fault: Fault) -> web.StreamResponse:
        match fault.kind:
            case "lose-request":
                return _cut_off(request, abrupt=fault.abrupt)
            case "429" | "500" | "503" | "504" as status:
                return _refusal(int(status))
            case "delay-request" | "delay-answer":
                await self._wait(fault.seconds)
        async with self._session.get(self._address(request), headers=_passed_on(request.headers)) as answer:
            response = web.StreamResponse(status=answer.status, headers=_passed_on(answer.headers))
            await response.prepare(request)
            async for line in answer.content:
                if not await self._tell(request, response, line):
                    return response
            await response.write_eof()
            return response

    async def _tell(self, request: web.BaseRequest, response: web.StreamResponse, line: bytes) -> bool:
        """Passes the event on, or does what is drawn for it. False at the end of the watch."""
        fault = self._fault_of(request.path, line)
        match fault.kind:
            case "hold-event":
                await self._wait(fault.seconds)
            case "repeat-event":
                await response.write(line)
            case "end-watch":
                await response.write_eof()
                return False
            case "cut-watch":
                await response.write(cut(line, fault.share))
                _cut_off(request, abrupt=fault.abrupt, begun=response)
                return False
            case "expire-watch":
                gone = {"type": "ERROR", "object": json.loads(_status(410))}
                await response.write(json.dumps(gone).encode() + b"\n")
                await response.write_eof()
                return False
        await response.write(line)
        return True

    def _fault_of(self, path: str, line: bytes) -> Fault:
        if self._faults is None:
            return NONE
        try:
            event = _events.decode(line)
        except msgspec.DecodeError:
            return NONE
        return self._faults.of_event(path, event.type, event.object.metadata.name)


def _cut_off(request: web.BaseRequest, *, abrupt: bool, begun: web.StreamResponse | None = None) -> web.StreamResponse:
    """Closes the client's connection as it is; aiohttp finds that it cannot write the answer."""
    if request.transport is not None:
        if abrupt:
            request.transport.abort()
        else:
            request.transport.close()
    return begun or web.Response()


def _passed_on(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _OF_ONE_CONNECTION)


def _refusal(status: int) -> web.Response:
    headers = {"Content-Type": "application/json"} | ({"Retry-After": str(_RETRY_AFTER)} if status == 429 else {})
    return web.Response(status=status, headers=headers, body=_status(status))


def _status(code: int) -> bytes:
    """Kubernetes' Status, as kube-apiserver would word it."""
    said = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"made up by the proxy: {code}",
        "reason": _REASONS[code],
        "code": code,
    }
    return json.dumps(said).encode()
