"""Following what the service decides: a connection that breaks is opened again where it was, and patience ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from escher_k8s import AsyncEscher, Decision, Escher, Invalid, Missed, Unreachable


def event(number: int) -> str:
    data = f'{{"number":{number},"time":"2026-11-23T08:00:00Z","what":"GangBound","namespace":"a","gang":"g"}}'
    return f"id: {number}\nevent: GangBound\ndata: {data}\n\n"


class Service(httpx.AsyncByteStream, httpx.SyncByteStream):
    """Each request gets the next of `streams`: its text, and then the connection breaks or ends."""

    def __init__(self, *streams: str | httpx.Response | None) -> None:
        self.asked: list[httpx.Request] = []
        self._streams = list(streams)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        stream = self._streams.pop(0) if self._streams else None
        if stream is None:
            raise httpx.ConnectError("nobody there")
        return stream if isinstance(stream, httpx.Response) else httpx.Response(200, stream=Broken(stream))


class Broken(httpx.AsyncByteStream, httpx.SyncByteStream):
    def __init__(self, text: str) -> None:
        self._text = text

    def __iter__(self) -> Iterator[bytes]:
        yield self._text.encode()
        raise httpx.ReadError("broken")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._text.encode()
        raise httpx.ReadError("broken")


def heard(service: Service, kind: type[Escher | AsyncEscher], most: int, **options: Any) -> list[Decision | Missed]:
    """The first that a client of that kind hears."""
    if kind is Escher:
        with Escher("http://escher.test", transport=httpx.MockTransport(service)) as escher:
            return [told for _, told in zip(range(most), escher.follow_events(**options), strict=False)]

    async def follow() -> list[Decision | Missed]:
        found: list[Decision | Missed] = []
        async with AsyncEscher("http://escher.test", transport=httpx.MockTransport(service)) as escher:
            async for told in escher.follow_events(**options):
                found.append(told)
                if len(found) == most:
                    break
        return found

    return asyncio.run(follow())


pytestmark = pytest.mark.usefixtures("pauses")
BOTH = pytest.mark.parametrize("kind", [Escher, AsyncEscher])


@BOTH
def test_a_stream_that_breaks_is_read_on_from_where_it_was(kind: type[Escher | AsyncEscher]) -> None:
    service = Service(": following\n\n" + event(7) + event(8), None, event(9))
    numbers = [told.number for told in heard(service, kind, 3, namespace="a") if isinstance(told, Decision)]
    assert numbers == [7, 8, 9]
    assert [request.headers.get("Last-Event-ID") for request in service.asked] == [None, "8", "8"]
    assert {str(request.url) for request in service.asked} == {"http://escher.test/v1/events?namespace=a"}


@BOTH
def test_what_was_forgotten_is_told(kind: type[Escher | AsyncEscher]) -> None:
    service = Service('event: Missed\ndata: {"count":3,"before":5}\n\n' + event(5))
    first, second = heard(service, kind, 2, after=1)
    assert first == Missed(3, 5)
    assert isinstance(second, Decision)
    assert (second.number, second.gang, second.what) == (5, "g", "GangBound")
    assert service.asked[0].headers["Last-Event-ID"] == "1"


@BOTH
def test_a_stream_that_is_dropped_for_being_slow_is_read_on_after_what_was_missed(
    kind: type[Escher | AsyncEscher],
) -> None:
    dropped = 'id: 11\nevent: Missed\ndata: {"count":9,"before":12}\n\n'
    service = Service(event(2) + dropped, event(12))
    first, missed, last = heard(service, kind, 3)
    assert missed == Missed(9, 12)
    assert (isinstance(first, Decision), isinstance(last, Decision)) == (True, True)
    assert [request.headers.get("Last-Event-ID") for request in service.asked] == [None, "11"]


@BOTH
def test_after_a_minute_in_vain_it_says_so(kind: type[Escher | AsyncEscher], pauses: list[float]) -> None:
    with pytest.raises(Unreachable, match="nobody there"):
        heard(Service(event(1)), kind, 2)
    assert 45 < sum(pauses) <= 60


@BOTH
def test_a_refusal_is_not_tried_again(kind: type[Escher | AsyncEscher]) -> None:
    refusal = httpx.Response(422, json={"type": "urn:escher:problem:invalid", "status": 422, "detail": "namespace: no"})
    with pytest.raises(Invalid, match="namespace"):
        heard(Service(refusal), kind, 1)
