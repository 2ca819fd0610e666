"""Clients: the calls of the management API over HTTP, for code that blocks and code that awaits.

Handles addresses, headers and HTTP errors. httpx, slow to import, is imported with the first client: asks need none.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar
from urllib.parse import quote

import msgspec

from escher_k8s.answers import Decision, Missed, Resource
from escher_k8s.calls import Calls
from escher_k8s.errors import EscherError, Unreachable, Unreached, problem
from escher_k8s.management.calling import Request, Steps
from escher_k8s.management.following import SILENCE, Reading
from escher_k8s.management.holding import DEFAULT_TTL, held, held_awaited
from escher_k8s.management.operations import NodeSpec
from escher_k8s.management.retrying import Retrying
from escher_k8s.management.tokens import token_for

if TYPE_CHECKING:
    import ssl

    import httpx

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:8080"
DEFAULT_TIMEOUT = 60.0
"""Seconds. A call waits for the API server's answers to its writes."""
DEFAULT_RETRY = 10.0
"""Seconds."""


class _Addressed(Calls):
    """The base of both clients: HTTP requests, answers and errors."""

    def __init__(
        self,
        url: str | None,
        namespace: str | None,
        node: str | None,
        retry_for: float,
        token: str | None,
        token_file: Path | str | None,
    ) -> None:
        self._retry_for = retry_for
        self.url = (url or os.environ.get("ESCHER_URL") or DEFAULT_URL).rstrip("/")
        self._token = token_for(self.url, token, token_file, os.environ)
        self.namespace = namespace or os.environ.get("ESCHER_NAMESPACE") or "default"
        self.node = node or os.environ.get("ESCHER_NODE") or None

    def _spelt(self, request: Request) -> dict[str, Any]:
        """The request as httpx takes it."""
        headers = {"Escher-Node": self.node, "Authorization": self._token.header(), **request.headers}
        spelt: dict[str, Any] = {
            "method": request.method,
            "url": f"{self.url}/v1/" + "/".join(quote(part, safe="") for part in request.path),
            "params": _given(request.params),
            "headers": _given(headers),
        }
        if request.body is not None:
            spelt["content"] = msgspec.json.encode(request.body)
            spelt["headers"]["Content-Type"] = "application/json"
        return spelt

    def _read(self, answer: httpx.Response) -> bytes:
        """The answer's body. Raises Problem."""
        if not answer.is_success:
            raise problem(answer.status_code, answer.reason_phrase, answer.content, answer.headers.get("Retry-After"))
        return answer.content

    def _lost(self, error: httpx.HTTPError) -> NoReturn:
        import httpx

        unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        kind = Unreached if unsent else Unreachable
        if isinstance(error, httpx.TimeoutException):
            raise kind(f"the service at {self.url} did not answer in time") from error
        raise kind(f"the service at {self.url} cannot be reached: {error}") from error

    def _pause(self, reading: Reading, lost: httpx.HTTPError | None) -> float:
        """Seconds until the stream is to be opened again. Raises Unreachable."""
        if (pause := reading.pause()) is not None:
            return pause
        if lost is not None:
            self._lost(lost)
        raise Unreachable(f"the service at {self.url} ends every event stream at once")

    def _strange(self, error: msgspec.MsgspecError) -> NoReturn:
        raise Unreachable(f"{self.url} is not an Escher service that this client supports: {error}") from error


class Escher(_Addressed):
    """The management API of one service, for blocking code. Use it in a `with` block, or close it.

    Several threads may use one client.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        node: str | None = None,
        token: str | None = None,
        token_file: Path | str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        verify: ssl.SSLContext | bool = True,
        retry_for: float = DEFAULT_RETRY,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Arguments that are left out are read from the environment, or have defaults.

        `url`: of the service; else $ESCHER_URL, else http://127.0.0.1:8080. `namespace`: of calls that name none; else
        $ESCHER_NAMESPACE, else `default`. `node`: the caller's own, for a node_spec of None; else $ESCHER_NODE, else,
        in a pod, found out. `token`: the caller's; or `token_file`, read for every call; else $ESCHER_TOKEN, else the
        file in $ESCHER_TOKEN_FILE, else, in a pod and over https, that of its service account. `timeout`: seconds for
        each answer. `verify`: for https, the trusted authorities and the certificate to show. `retry_for`: seconds for
        which repeatable requests are sent again while the service is away or unable."""
        import httpx

        super().__init__(url, namespace, node, retry_for, token, token_file)
        self._http = httpx.Client(timeout=timeout, verify=verify, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Its connections are closed; it answers no more calls."""
        self._http.close()

    def perform(self, steps: Steps[T]) -> T:
        """Sends the call's requests, one after the other, and returns the call's result."""
        retrying = Retrying(self._retry_for)
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._send(request)
                except EscherError as error:
                    if (pause := retrying.pause(request, error)) is None:
                        request = steps.throw(error)
                    else:
                        time.sleep(pause)
                    continue
                request = steps.send(answer)
        except StopIteration as ended:
            result: T = ended.value
            return result
        except msgspec.MsgspecError as error:
            self._strange(error)

    def hold_resource(
        self,
        name: str,
        capacity: int,
        *,
        node_spec: NodeSpec = None,
        num_nodes: int | None = None,
        ttl_seconds: float = DEFAULT_TTL,
        shared: bool = False,
        namespace: str | None = None,
    ) -> AbstractContextManager[Resource]:
        """The resource exists while the `with` block lasts, and is deleted afterwards.

        If this process dies first, it is gone `ttl_seconds` later. Otherwise as `set_resource`. Raises NotHeld at the
        end if it could not be renewed."""
        put = partial(
            self.set_resource,
            name,
            capacity,
            node_spec=node_spec,
            num_nodes=num_nodes,
            ttl_seconds=ttl_seconds,
            shared=shared,
            namespace=namespace,
        )
        return held(put, partial(self.delete_resource, name, shared=shared, namespace=namespace), ttl_seconds)

    def follow_events(self, *, namespace: str | None = None, after: int | None = None) -> Iterator[Decision | Missed]:
        """The service's decisions from now on, or after number `after`, without end.

        `namespace`: only its decisions. A broken connection is opened again; nothing is lost, or `Missed` has the
        number. Raises Problem; Unreachable once the service has been away for a minute."""
        import httpx

        reading = Reading(namespace, after)
        while True:
            lost: httpx.HTTPError | None = None
            try:
                with self._http.stream(**self._spelt(reading.request()), timeout=SILENCE) as answer:
                    if not answer.is_success:
                        answer.read()
                        self._read(answer)
                    for line in answer.iter_lines():
                        if (told := reading.line(line)) is not None:
                            yield told
            except httpx.HTTPError as error:
                lost = error
            except msgspec.MsgspecError as error:
                self._strange(error)
            time.sleep(self._pause(reading, lost))

    def _send(self, request: Request) -> bytes:
        import httpx

        try:
            return self._read(self._http.request(**self._spelt(request)))
        except httpx.HTTPError as error:
            self._lost(error)


class AsyncEscher(_Addressed):
    """The management API of one service, for code that awaits. Use `async with`, or close it."""

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        node: str | None = None,
        token: str | None = None,
        token_file: Path | str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        verify: ssl.SSLContext | bool = True,
        retry_for: float = DEFAULT_RETRY,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """As `Escher`."""
        import httpx

        super().__init__(url, namespace, node, retry_for, token, token_file)
        self._http = httpx.AsyncClient(timeout=timeout, verify=verify, transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Its connections are closed; it answers no more calls."""
        await self._http.aclose()

    async def perform(self, steps: Steps[T]) -> T:
        """Sends the call's requests, one after the other, and returns the call's result."""
        retrying = Retrying(self._retry_for)
        try:
            request = next(steps)
            while True:
                try:
                    answer = await self._send(request)
                except EscherError as error:
                    if (pause := retrying.pause(request, error)) is None:
                        request = steps.throw(error)
                    else:
                        await asyncio.sleep(pause)
                    continue
                request = steps.send(answer)
        except StopIteration as ended:
            result: T = ended.value
            return result
        except msgspec.MsgspecError as error:
            self._strange(error)

    def hold_resource(
        self,
        name: str,
        capacity: int,
        *,
        node_spec: NodeSpec = None,
        num_nodes: int | None = None,
        ttl_seconds: float = DEFAULT_TTL,
        shared: bool = False,
        namespace: str | None = None,
    ) -> AbstractAsyncContextManager[Resource]:
        """As `Escher.hold_resource`, for `async with`."""
        put = partial(
            self.set_resource,
            name,
            capacity,
            node_spec=node_spec,
            num_nodes=num_nodes,
            ttl_seconds=ttl_seconds,
            shared=shared,
            namespace=namespace,
        )
        return held_awaited(put, partial(self.delete_resource, name, shared=shared, namespace=namespace), ttl_seconds)

    async def follow_events(
        self, *, namespace: str | None = None, after: int | None = None
    ) -> AsyncIterator[Decision | Missed]:
        """As `Escher.follow_events`."""
        import httpx

        reading = Reading(namespace, after)
        while True:
            lost: httpx.HTTPError | None = None
            try:
                async with self._http.stream(**self._spelt(reading.request()), timeout=SILENCE) as answer:
                    if not answer.is_success:
                        await answer.aread()
                        self._read(answer)
                    async for line in answer.aiter_lines():
                        if (told := reading.line(line)) is not None:
                            yield told
            except httpx.HTTPError as error:
                lost = error
            except msgspec.MsgspecError as error:
                self._strange(error)
            await asyncio.sleep(self._pause(reading, lost))

    async def _send(self, request: Request) -> bytes:
        import httpx

        try:
            return self._read(await self._http.request(**self._spelt(request)))
        except httpx.HTTPError as error:
            self._lost(error)


def _given(values: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}
