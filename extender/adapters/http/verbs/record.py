"""Recorder: a proxy between kube-scheduler and an extender that stores every body as it was sent.

    python -m extender.adapters.http.verbs.record --listen 127.0.0.1:9090 --forward http://127.0.0.1:8080 --out DIR

Set kube-scheduler's `urlPrefix` to http://127.0.0.1:9090/scheduler. Call 7, a filter answered with 200, is stored as

    DIR/0007-filter-200.request.json
    DIR/0007-filter-200.answer.json

byte for byte. The files of tests/adapters/http/golden were recorded with it. It does not interpret or change what it
forwards, and does not check who connects: use it for loopback and tests only.
"""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_RECORDED = re.compile(r"(\d{4,})-[a-z]+-\d{3}\.(request|answer)\.json")
_HOP_BY_HOP = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})


class Tape:
    """The folder of recordings. Numbers continue after those of an earlier recording."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        numbers = [int(match[1]) for each in folder.iterdir() if (match := _RECORDED.fullmatch(each.name))]
        self._last = max(numbers, default=0)

    def next_number(self) -> int:
        """Returns a number that no other call has, in the order in which calls arrive."""
        self._last += 1
        return self._last

    def keep(self, number: int, verb: str, status: int, request: bytes, answer: bytes) -> None:
        """Writes both bodies to files."""
        stem = f"{number:04}-{verb}-{status}"
        (self.folder / f"{stem}.request.json").write_bytes(request)
        (self.folder / f"{stem}.answer.json").write_bytes(answer)


def create_recorder(forward: str, tape: Tape, *, client: httpx.AsyncClient | None = None) -> Starlette:
    """Returns the proxy as an ASGI app. If `forward` is unreachable, it records and answers 502."""
    # A bind may wait as long as it likes: the caller's time-out decides, as without a proxy.
    upstream = client or httpx.AsyncClient(timeout=None)

    async def pass_on(request: Request) -> Response:
        number = tape.next_number()
        body = await request.body()
        path = request.url.path
        headers = {name: value for name, value in request.headers.items() if name not in _HOP_BY_HOP}
        try:
            answered = await upstream.request(
                request.method, forward.rstrip("/") + path, content=body, headers={**headers, "accept-encoding": ""}
            )
        except httpx.TransportError as error:
            status, content, kind = 502, f"no server answers at {forward}: {error!r}".encode(), "text/plain"
        else:
            status, content = answered.status_code, answered.content
            kind = answered.headers.get("content-type", "application/json")
        verb = path.rpartition("/")[2]
        tape.keep(number, verb if re.fullmatch("[a-z]+", verb) else "other", status, body, content)
        return Response(content, status, media_type=kind)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with upstream:
            yield

    return Starlette(routes=[Route("/{path:path}", pass_on, methods=["GET", "POST", "PUT"])], lifespan=lifespan)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the proxy until it is interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m extender.adapters.http.verbs.record",
        description="Record the calls between kube-scheduler and its extender, byte for byte.",
    )
    parser.add_argument("--listen", required=True, metavar="HOST:PORT", type=_address)
    parser.add_argument("--forward", required=True, metavar="URL", help="the extender, without /scheduler")
    parser.add_argument("--out", required=True, metavar="DIR", type=Path)
    wanted = parser.parse_args(arguments)
    host, port = wanted.listen
    app = create_recorder(wanted.forward, Tape(wanted.out))
    uvicorn.run(app, host=host, port=port, log_level="warning", timeout_keep_alive=120)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdigit() and int(port) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9090")
    return host, int(port)


if __name__ == "__main__":
    main()
