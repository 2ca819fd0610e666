"""Connection: requests to one API server in bytes. Every failure is an error of `errors`.

All requests share one aiohttp session, because to open a TLS connection costs more than to use one. There are no models
of the client library, because a gang of 64 writes 64 Bindings at once. The only retries follow a renewal of credentials
after 401 or a failed TLS handshake.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

import aiohttp
from yarl import URL

from extender import __version__
from extender.kube.client.requests import JSON, TIMEOUT, refusal
from extender.kube.client.sockets import forgetting, kept_alive
from extender.kube.errors import Away, Refused, Silent, Unavailable

if TYPE_CHECKING:
    # It imports the `kubernetes` client, which takes half a second and is needed here for types only.
    from extender.kube.client.credentials import Credentials, Papers

_CONNECT_TIMEOUT = 10.0
_MOST_CONNECTIONS = 512
# Below the 90 s after which kube-apiserver closes idle connections, so that no request meets a closing one.
_KEEP_ALIVE = 60.0


class Fence(Protocol):
    """The time until which this replica may write."""

    def check(self) -> None:
        """Raises Unavailable if nothing may be written now."""
        ...

    @property
    def seconds(self) -> float:
        """The most seconds that a write may take."""
        ...


class _Watched(aiohttp.BytesPayload):
    """A body whose bytes go to the socket only if the fence allows it at that moment."""

    def __init__(self, value: bytes, fence: Fence) -> None:
        super().__init__(value)
        self._fence = fence

    async def write_with_length(self, writer: aiohttp.abc.AbstractStreamWriter, content_length: int | None) -> None:
        # The head waits for the body, without which the API server does nothing.
        try:
            self._fence.check()
        except Unavailable as error:
            raise ConnectionAbortedError(str(error)) from error
        await super().write_with_length(writer, content_length)


class Connection:
    """`Requests` for the cluster of `credentials`. Create it in the event loop; close it.

    The `fence` is asked right before each write, however long ago the request began. Data that the server has not
    acknowledged within its seconds is dropped, also by the kernel.
    """

    def __init__(self, credentials: Credentials, fence: Fence | None = None) -> None:
        self._credentials = credentials
        self._fence = fence
        self._base = credentials.address
        self._proxy = credentials.proxy
        self._server_name = credentials.server_name
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=_MOST_CONNECTIONS,
                keepalive_timeout=_KEEP_ALIVE,
                socket_factory=kept_alive if fence is None else forgetting(fence.seconds),
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Unzipping large lists would hold up the event loop longer than the network does.
            headers={"User-Agent": f"escher/{__version__}", "Accept-Encoding": "identity"},
            read_bufsize=2**18,
        )
        self._usual_timeout = aiohttp.ClientTimeout(total=TIMEOUT, sock_connect=_CONNECT_TIMEOUT)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        await self._session.close()

    async def keep_warm(self, connections: int, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        """Keeps this number of connections open until cancelled.

        A gang's Bindings are written all at once. To open 64 TLS connections for them took 60 ms of processor time on a
        small machine. To use open ones takes 4 ms.
        """
        while True:
            asked = [self.request("GET", "/version", within=_CONNECT_TIMEOUT) for _ in range(connections)]
            for failure in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(failure, BaseException) and not isinstance(failure, Unavailable | Refused):
                    raise failure
            await sleep(_KEEP_ALIVE * 0.75)

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
        limits = (
            self._usual_timeout
            if within == TIMEOUT
            else aiohttp.ClientTimeout(total=within, sock_connect=min(within, _CONNECT_TIMEOUT))
        )
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = content_type
        renewed = False
        while True:
            papers = await self._credentials.papers()
            try:
                async with self._open(method, path, body, headers, limits, papers) as response:
                    content: bytes = await response.read()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                if not renewed and _for_certificates(error):
                    renewed = await self._credentials.renew(papers)
                    # Only a request that certainly was not sent is sent again.
                    if renewed and isinstance(error, aiohttp.ClientSSLError):
                        continue
                raise Away(_worded(method, path, error)) from error
            if response.status < 300:
                return content
            if response.status == 401 and not renewed and await self._credentials.renew(papers):
                renewed = True
                continue
            raise _refusal(response, content)

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        papers = await self._credentials.papers()
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT, sock_read=silence)
        try:
            async with self._open("GET", path, None, {"Accept": JSON}, limits, papers) as response:
                if response.status >= 300:
                    content = await response.read()
                    if response.status == 401 and await self._credentials.renew(papers):
                        raise Unavailable("the credentials had to be renewed")
                    raise _refusal(response, content)
                try:
                    async for line in _split(response.content):
                        yield line
                finally:
                    _abort(response)
        except aiohttp.SocketTimeoutError as error:
            raise Silent(f"GET {path}: no data for {silence:g} s") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if _for_certificates(error):
                await self._credentials.renew(papers)
                raise Unavailable(_worded("GET", path, error)) from error
            raise Away(_worded("GET", path, error)) from error

    def _open(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        limits: aiohttp.ClientTimeout,
        papers: Papers,
    ) -> Any:
        if papers.authorization is not None:
            headers = {**headers, "Authorization": papers.authorization}
        return self._session.request(
            method,
            URL(self._base + path, encoded=True),
            data=body if body is None or self._fence is None else _Watched(body, self._fence),
            headers=headers,
            timeout=limits,
            proxy=self._proxy,
            server_hostname=self._server_name,
            # The pool keys connections by context, so none with an old certificate or authority is used again. Such a
            # connection closes when it has been idle as long as any other.
            ssl=papers.trust if papers.trust is not None else True,
            allow_redirects=False,
        )


def _for_certificates(error: BaseException) -> bool:
    """Whether one side refused the other's certificate, during or (TLS 1.3) after the handshake."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        # aiohttp's own subclasses have no reason.
        if isinstance(cause, ssl.SSLError) and "ALERT" in (getattr(cause, "reason", None) or ""):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _refusal(response: aiohttp.ClientResponse, content: bytes) -> Unavailable | Refused:
    headers = response.headers
    return refusal(response.status, content, headers.get("Retry-After"), headers.get("Date"))


def _worded(method: str, path: str, error: BaseException) -> str:
    where = path.partition("?")[0]
    return f"{method} {where}: {str(error) or type(error).__name__}"


async def _split(content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """The whole lines of a stream. Each chunk is searched once, whatever the length of its line."""
    begun: list[bytes] = []
    while chunk := await content.readany():
        first, *others = chunk.split(b"\n")
        begun.append(first)
        for other in others:
            line = b"".join(begun)
            begun = [other]
            if line:
                yield line


def _abort(response: aiohttp.ClientResponse) -> None:
    """Aborts a stream that is not read to its end: a TLS shutdown would wait half a minute."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
