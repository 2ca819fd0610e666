"""The recorder passes everything on unchanged, and keeps every body byte for byte."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import httpx
import pytest

from extender.adapters.http.verbs import record
from extender.adapters.http.verbs.record import Tape, create_recorder
from tests.adapters.http.fakes import NotedVerbs, filter_body, in_process, on_loopback, service

pytestmark = pytest.mark.anyio


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


async def test_both_bodies_are_kept_exactly_as_they_were_sent(verbs: NotedVerbs, tmp_path: Path) -> None:
    body = b'{ "Pod":{"metadata":{"name":"p","namespace":"n","uid":"\\u0075"},"spec":{"containers":[]}},\n"Nodes":null,'
    body += b'"NodeNames":["n1"]}'
    upstream = in_process(service(verbs))
    async with in_process(create_recorder("http://escher.test", Tape(tmp_path), client=upstream)) as client:
        answer = await client.post("/scheduler/filter", content=body)
        refused = await client.post("/scheduler/bind", content=b"nonsense")
        odd = await client.get("/no verb/7")
    assert answer.status_code == 200
    assert refused.status_code == 400
    assert refused.headers["content-type"] == "application/problem+json"
    assert odd.status_code == 404
    assert contents(tmp_path) == {
        "0001-filter-200.request.json": body,
        "0001-filter-200.answer.json": answer.content,
        "0002-bind-400.request.json": b"nonsense",
        "0002-bind-400.answer.json": refused.content,
        "0003-other-404.request.json": b"",
        "0003-other-404.answer.json": odd.content,
    }


async def test_numbers_go_on_where_an_earlier_recording_ended(tmp_path: Path) -> None:
    Tape(tmp_path / "new" / "folder").keep(7, "bind", 200, b"", b"")
    assert Tape(tmp_path / "new" / "folder").next_number() == 8


async def test_where_nobody_answers_the_caller_is_told_and_that_is_recorded(tmp_path: Path) -> None:
    async with in_process(create_recorder("http://127.0.0.1:1", Tape(tmp_path))) as client:
        answer = await client.post("/scheduler/filter", json=filter_body())
    assert answer.status_code == 502
    assert "no server answers at http://127.0.0.1:1" in answer.text
    assert (tmp_path / "0001-filter-502.request.json").exists()


async def test_the_program_records_what_passes_through_it(verbs: NotedVerbs, tmp_path: Path) -> None:
    async with on_loopback(service(verbs)) as port:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            free = listener.getsockname()[1]
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "extender.adapters.http.verbs.record"),
            *("--listen", f"127.0.0.1:{free}", "--forward", f"http://127.0.0.1:{port}/", "--out", str(tmp_path)),
        )
        try:
            async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(retries=8)) as client:
                answer = await client.post(f"http://127.0.0.1:{free}/scheduler/filter", json=filter_body())
        finally:
            program.terminate()
            await program.wait()
    assert answer.json()["NodeNames"] == ["n1", "n2"]
    assert len(contents(tmp_path)) == 2


@pytest.mark.parametrize("listen", ["127.0.0.1", ":80", "127.0.0.1:http", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_refused(listen: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_code:
        record.main(["--listen", listen, "--forward", "http://x", "--out", "d"])
    assert exit_code.value.code == 2
    assert "is not HOST:PORT" in capsys.readouterr().err


def test_the_arguments_reach_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    served: list[tuple[str, int]] = []
    monkeypatch.setattr("uvicorn.run", lambda app, *, host, port, **_: served.append((host, port)))
    record.main(["--listen", "127.0.0.1:9090", "--forward", "http://x", "--out", str(tmp_path)])
    assert served == [("127.0.0.1", 9090)]


async def test_its_connections_are_closed_with_it(verbs: NotedVerbs, tmp_path: Path) -> None:
    upstream = in_process(service(verbs))
    async with on_loopback(create_recorder("http://escher.test", Tape(tmp_path), client=upstream)):
        assert not upstream.is_closed
    assert upstream.is_closed
