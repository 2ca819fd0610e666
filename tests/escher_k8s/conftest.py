"""Clients of a service in a simulation: no socket, and virtual time that passes only while a call is under way."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import httpx
import pytest
from structlog.testing import capture_logs

from escher_k8s import AsyncEscher, Escher
from kubesim.kinds import NAMESPACE, POD, Json
from kubesim.virtual_time import VirtualTimeLoop
from lab.simulation import Simulation

T = TypeVar("T")


class Stage:
    """A cluster of three nodes, `node-1` to `node-3`, with the service; and what clients of it are given."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        self._over = asyncio.Event()
        ready: asyncio.Future[Simulation] = self._runner.get_loop().create_future()
        self._life = self._runner.get_loop().create_task(self._live(ready))
        self.simulation = self.run(_result(ready))
        app = self.simulation.service
        assert app is not None
        self.awaited = httpx.ASGITransport(app.http)
        self.blocking = Bridge(self)

    async def _live(self, ready: asyncio.Future[Simulation]) -> None:
        async with Simulation(nodes=4) as simulation:
            await simulation.create({"metadata": {"name": "team-a"}}, NAMESPACE)
            ready.set_result(simulation)
            await self._over.wait()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What it answers; time passes until then."""
        return self._runner.run(work)

    def create(self, pod: Json) -> None:
        self.run(self.simulation.create(pod, POD))

    def pass_time(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        self._over.set()
        self.run(_result(self._life))
        self._runner.close()


async def _result(future: asyncio.Future[T]) -> T:
    return await future


class Bridge(httpx.BaseTransport):
    """Carries a blocking client's requests into the simulation's loop."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def answer() -> httpx.Response:
            request.stream = httpx.ByteStream(request.read())
            answered = await self._stage.awaited.handle_async_request(request)
            return httpx.Response(answered.status_code, headers=answered.headers, content=await answered.aread())

        return self._stage.run(answer())


@pytest.fixture(scope="package")
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


@contextmanager
def reaching(stage: Stage) -> Iterator[None]:
    """Whatever address a client is given, it reaches the stage, until the block ends; what the service logs meanwhile
    is none of a client's output."""
    clients: Any = {"Client": stage.blocking, "AsyncClient": stage.awaited}
    with pytest.MonkeyPatch.context() as patched, capture_logs():
        for name, transport in clients.items():

            def made(kind: Any, reached: Any, **given: Any) -> Any:
                return kind(**{**given, "transport": reached})

            patched.setattr(f"httpx.{name}", functools.partial(made, getattr(httpx, name), transport))
        yield


@pytest.fixture
def on_stage(stage: Stage) -> Iterator[Stage]:
    """Whatever address a client is given, it reaches the stage."""
    with reaching(stage):
        yield stage


class Client:
    """`ask` has a client do something, whichever kind it is: `client.ask(lambda escher: escher.list_gangs())`."""

    def __init__(self, stage: Stage, kind: type[Escher] | type[AsyncEscher], **options: Any) -> None:
        self._stage, self._kind, self._options = stage, kind, {"namespace": "team-a", **options}

    def ask(self, call: Callable[[Any], Any], **options: Any) -> Any:
        given = {**self._options, **options}
        if self._kind is Escher:
            with Escher("http://escher.test", transport=self._stage.blocking, **given) as escher:
                return call(escher)

        async def asked() -> Any:
            async with AsyncEscher("http://escher.test", transport=self._stage.awaited, **given) as escher:
                answer = call(escher)
                return await answer if inspect.isawaitable(answer) else answer

        return self._stage.run(asked())


@pytest.fixture(params=[Escher, AsyncEscher])
def client(request: pytest.FixtureRequest, stage: Stage) -> Client:
    return Client(stage, request.param)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Those of no pod, wherever the tests run. The file that a service account has the namespace in."""
    of_pods = ("NODE_NAME", "POD_NAME", "POD_NAMESPACE", "HOSTNAME", "KUBERNETES_SERVICE_HOST")
    for variable in ("ESCHER_NODE", "ESCHER_TOKEN", "ESCHER_TOKEN_FILE", *of_pods):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("escher_k8s.calls.NAMESPACE_FILE", tmp_path / "namespace")
    return tmp_path / "namespace"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clients' pauses in seconds, which pass at once.

    Nobody else's: servers of other tests may live on in this process, and spin if their loops' sleeps end at once.
    """
    passed: list[float] = []

    async def pass_at_once(seconds: float) -> None:
        passed.append(seconds)

    monkeypatch.setattr("escher_k8s.client.time", SimpleNamespace(sleep=passed.append))
    monkeypatch.setattr("escher_k8s.client.asyncio", SimpleNamespace(sleep=pass_at_once))
    return passed
