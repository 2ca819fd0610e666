"""A state dump over HTTP: as it was written, compressed for whoever takes that."""

from __future__ import annotations

import gzip

import httpx
import pytest

from tests.adapters.http.fakes import NotedManagement

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("accepts", "encoding"),
    [
        ("gzip", "gzip"),
        ("br, GZIP;q=0.5", "gzip"),
        ("", None),
        ("identity", None),
        ("gzip;q=0, identity", None),
    ],
)
async def test_it_is_compressed_where_that_is_taken(
    client: httpx.AsyncClient, management: NotedManagement, accepts: str, encoding: str | None
) -> None:
    answer = await client.get("/v1/state-dump", headers={"Accept-Encoding": accepts})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert answer.headers.get("content-encoding") == encoding
    assert answer.headers["cache-control"] == "no-store"
    assert answer.content == gzip.decompress(management.dumped)
    assert management.asked == ["dump"]
