"""In process: a connection without sockets to an API server in the same event loop.

It implements `extender.kube.client.requests.Requests`, with the same paths, bytes and errors, and applies injected
faults (`ApiServer.faults`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from urllib.parse import parse_qsl, unquote

from extender.kube.client.requests import JSON, TIMEOUT, refusal
from extender.kube.errors import Refused, Silent
from kubesim.apiserver.machinery.wire import Answer, Request
from kubesim.apiserver.serving.api import ApiServer
from kubesim.apiserver.serving.faults import Fault


class InProcess:
    """A connection. `latency`: seconds of each request; with `rng`, between 0.5 and 1.5 times that.

    `user`: the user name of its requests, without any token.
    """

    def __init__(
        self, server: ApiServer, *, latency: float = 0.0, rng: random.Random | None = None, user: str = "in-process"
    ) -> None:
        self._server = server
        self._latency = latency
        self._rng = rng
        self._user = user
        self._headers = {"user-agent": user}

    async def keep_warm(self, connections: int, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        """Keeps no connection open: waits until it is cancelled."""
        while True:
            await sleep(60.0)

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
        # Half of the latency passes before the API server handles the request, half after it.
        pause = self._pause() / 2
        await asyncio.sleep(pause)
        asked = self._request(method, path, body, content_type, accept)
        fault = self._server.faults.met_by(self._user, method, path)
        if fault is not None and fault.again is not None:
            asyncio.get_running_loop().call_later(fault.seconds + fault.again, self._arrive_again, asked, fault)
        if fault is not None and not fault.after:
            await asyncio.sleep(fault.seconds)
            if isinstance(fault.error, Refused):
                self._server.note_refusal(asked, fault.error.status)
            if fault.error is not None:
                raise fault.error
        answer = self._server.handle(asked)
        if pause:
            await asyncio.sleep(pause)
        if fault is not None and fault.after:
            await asyncio.sleep(fault.seconds)
            if fault.error is not None:
                raise fault.error
        if not isinstance(answer, Answer):
            answer.close()
            raise ValueError(f"{method} {path}: a watch is read with `lines`")
        if answer.status >= 300:
            raise refusal(answer.status, answer.body, answer.headers.get("retry-after"))
        return answer.body

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        await asyncio.sleep(self._pause() / 2)
        fault = self._server.faults.met_by(self._user, "GET", path)
        if fault is not None and fault.error is not None:
            raise fault.error
        answer = self._server.handle(self._request("GET", path, None, JSON, JSON))
        if isinstance(answer, Answer):
            if answer.status >= 300:
                raise refusal(answer.status, answer.body, answer.headers.get("retry-after"))
            for line in answer.body.split(b"\n")[:-1]:
                yield line
            return
        async with aclosing(answer.lines(silence)) as lines:  # type: ignore[type-var]
            try:
                async for line in lines:
                    yield line[:-1]
            except TimeoutError as error:
                raise Silent(f"GET {path.partition('?')[0]}: no data for {silence:g} s") from error

    def _arrive_again(self, request: Request, fault: Fault) -> None:
        """Handles the request a second time; its sender gets no answer."""
        if not fault.again_if():
            return
        answer = self._server.handle(request)
        if not isinstance(answer, Answer):
            answer.close()

    def _pause(self) -> float:
        return self._latency if self._rng is None else self._latency * (0.5 + self._rng.random())

    def _request(self, method: str, path: str, body: bytes | None, content_type: str, accept: str) -> Request:
        where, _, query = path.partition("?")
        headers = {**self._headers, "accept": accept}
        if body is not None:
            headers["content-type"] = content_type
        asked = dict(parse_qsl(query, keep_blank_values=True))
        return Request(method, unquote(where), asked, headers, body or b"", self._user)
