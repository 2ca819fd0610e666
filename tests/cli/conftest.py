"""The service for real on loopback, over the application in memory, and the command line that calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import cache

import anyio
import pytest
import typer.main
from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

from extender.cli.main import app
from tests.adapters.http.fakes import on_loopback, service
from tests.app.world import World

Escher = Callable[..., Awaitable[Result]]


@pytest.fixture(scope="package", autouse=True)
def put_together_once() -> Iterator[None]:
    """What typer makes of `app`: that takes longer than most of its commands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(typer.main.get_command))
        yield


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    made.add_nodes("n1", "n2", "n3", labels={"zone": "a"})
    async with made.running():
        yield made
    made.audit()


@pytest.fixture
async def escher(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Escher]:
    """Runs `escher` with these arguments against the world's service."""
    for variable in ("NAMESPACE", "NODE", "TLS_CA", "TLS_CERTIFICATE", "TLS_KEY", "TOKEN", "TOKEN_FILE"):
        monkeypatch.delenv(f"ESCHER_{variable}", raising=False)
    # What the service logs is none of a command's output.
    with capture_logs():
        async with on_loopback(service(management=world.management())) as port:
            monkeypatch.setenv("ESCHER_URL", f"http://127.0.0.1:{port}")

            async def run(*arguments: str) -> Result:
                return await anyio.to_thread.run_sync(lambda: CliRunner().invoke(app, arguments))

            yield run
