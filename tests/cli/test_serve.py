"""`escher serve` as a process: how it begins, what it refuses to begin with, and how it ends."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
import uvicorn
import yaml
from starlette.types import Receive, Scope, Send
from typer.testing import CliRunner

from extender.cli.main import app
from extender.settings.settings import BadSettings, load_settings
from kubesim.apiserver.serving.api import ApiServer
from kubesim.apiserver.serving.server import application
from kubesim.clock import Clock
from tests.cli.certificates import Certificates
from tests.kubesim.apiserver.apis import NODES, PODS

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "deploy" / "crds" / "ephemeralresources.yaml"
STOPPING = "Escher is shutting down: the pod is tried again"


@dataclass
class Cluster:
    """An API server on loopback with one node, and the kubeconfig for it."""

    kubeconfig: Path
    client: httpx.AsyncClient
    server: uvicorn.Server
    held: list[str]
    """Bindings of which nothing more is heard."""

    async def member(self, name: str) -> dict[str, Any]:
        """A member of a gang of two."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {"escher.dev/gang": "train"},
                "annotations": {"escher.dev/gang-min-member": "2"},
            },
            "spec": {
                "schedulerName": "escher",
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            },
        }
        made = await self.client.post(PODS, json=body)
        assert made.status_code == 201, made.text
        return dict(made.json())


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    api = ApiServer(Clock(), random.Random(1))
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    inner, held = application(api), list[str]()

    async def holding(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/slow/binding"):
            held.append(scope["path"])
            await asyncio.sleep(60)
        await inner(scope, receive, send)

    server = uvicorn.Server(
        uvicorn.Config(holding, http="httptools", log_level="critical", timeout_graceful_shutdown=1)
    )
    serving = asyncio.ensure_future(server.serve([listening]))
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=10) as client:
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        assert (await client.post(definitions, json=yaml.safe_load(CRDS.read_text()))).status_code == 201
        capacity = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        node = {"metadata": {"name": "n1"}, "status": {"capacity": capacity, "allocatable": capacity}}
        assert (await client.post(NODES, json={"apiVersion": "v1", "kind": "Node", **node})).status_code == 201
        yield Cluster(kubeconfig(tmp_path, address), client, server, held)
    server.should_exit = True
    await serving


def kubeconfig(folder: Path, address: str) -> Path:
    file = folder / "kubeconfig"
    said = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "users": [{"name": "u", "user": {}}],
    }
    file.write_text(yaml.safe_dump(said))
    return file


@dataclass
class Running:
    process: Process
    port: int
    client: httpx.AsyncClient
    log: list[str]

    async def until(self, true: Callable[[], Any]) -> None:
        async with asyncio.timeout(30):
            while not await true():
                assert self.process.returncode is None, "".join(self.log)
                await asyncio.sleep(0.05)

    async def ready(self) -> bool:
        try:
            return (await self.client.get("/readyz")).status_code == 200
        except httpx.ConnectError:
            return False

    async def stops(self) -> bool:
        return any("Shutting down" in line for line in self.log)

    async def one_waits(self) -> bool:
        return "escher_bind_barrier_waiting 1.0" in (await self.client.get("/metrics")).text


@asynccontextmanager
async def serving(*arguments: str, **environment: str) -> AsyncIterator[Running]:
    """`escher serve` as a process, on a port of its own choice."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "extender", "serve", "--port", "0", *arguments), stderr=PIPE, env=environment
    )
    assert process.stderr is not None
    log: list[str] = []
    try:
        async with asyncio.timeout(30):
            while not (found := re.search(r"at=\['127\.0\.0\.1:(\d+)'\]", log[-1] if log else "")):
                line = await process.stderr.readline()
                assert line, "".join(log)
                log.append(line.decode())
        reading = asyncio.ensure_future(_read(process.stderr, log))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{found[1]}", trust_env=False, timeout=30) as client:
            yield Running(process, int(found[1]), client, log)
        await reading
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _read(stream: asyncio.StreamReader, log: list[str]) -> None:
    while line := await stream.readline():
        log.append(line.decode())


async def a_bind_waits(cluster: Cluster, service: Running) -> asyncio.Task[httpx.Response]:
    """A gang's first member stands at the barrier; the other one never comes."""
    first, _ = await cluster.member("train-0"), await cluster.member("train-1")
    await service.until(service.ready)

    async def has_place() -> bool:
        asked = {"Pod": first, "Nodes": None, "NodeNames": ["n1"]}
        return bool((await service.client.post("/scheduler/filter", json=asked)).json().get("NodeNames"))

    await service.until(has_place)
    of = {"PodName": "train-0", "PodNamespace": "default", "PodUID": first["metadata"]["uid"], "Node": "n1"}
    waiting = asyncio.ensure_future(service.client.post("/scheduler/bind", json=of))
    await service.until(service.one_waits)
    return waiting


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_a_signal_ends_it_in_order_and_who_waits_at_a_barrier_is_told_at_once(
    cluster: Cluster, sent: signal.Signals, code: int
) -> None:
    async with serving("--kubeconfig", str(cluster.kubeconfig)) as service:
        waiting = await a_bind_waits(cluster, service)
        began = monotonic()
        service.process.send_signal(sent)
        answer = await waiting
        assert monotonic() - began < 1
        assert (answer.status_code, answer.json()["Error"]) == (200, STOPPING)
        assert await service.process.wait() == code
        assert monotonic() - began < 5
    told = "".join(service.log)
    assert f"event='stopping' asked_by='{sent.name}'" in told
    assert told.index("event='stopping'") < told.index("Shutting down") < told.index("event='stopped'")
    assert "Traceback" not in told
    assert "ERROR" not in told


async def test_it_ends_in_order_though_the_api_server_is_away(cluster: Cluster) -> None:
    async with serving("--kubeconfig", str(cluster.kubeconfig)) as service:
        waiting = await a_bind_waits(cluster, service)
        cluster.server.should_exit = True
        await service.until(lambda: _refused(cluster))
        service.process.send_signal(signal.SIGTERM)
        assert (await waiting).json()["Error"] == STOPPING
        assert await service.process.wait() == 0
    assert "event='stopped'" in service.log[-1]


async def test_one_that_leads_lets_another_before_those_have_left_who_keep_their_connections(
    cluster: Cluster, tmp_path: Path
) -> None:
    """One of them sends the rest of its call when it likes."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("leader_election: true\nlease_namespace: default\n")
    asked = ("--kubeconfig", str(cluster.kubeconfig), "--config", str(settings))
    async with serving(*asked, POD_NAME="escher-0") as service:

        async def leads() -> bool:
            return (await service.client.get("/readyz")).json().get("leading") is True

        async def given_back() -> bool:
            return any("the lease is released" in line for line in service.log)

        await service.until(leads)
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(b"PUT /v1/namespaces/default/resources/r HTTP/1.1\r\nHost: e\r\nContent-Length: 99\r\n\r\n{")
        await writer.drain()
        service.process.send_signal(signal.SIGTERM)
        await service.until(given_back)
        # The server waits for longer than that, and ends such calls then.
        assert not any("graceful" in line for line in service.log), "".join(service.log)
        assert not reader.at_eof()
        writer.close()
        assert await service.process.wait() == 0


async def test_a_second_signal_does_not_wait_for_what_is_being_written(cluster: Cluster) -> None:
    async with serving("--kubeconfig", str(cluster.kubeconfig)) as service:
        containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
        spec = {"schedulerName": "escher", "containers": containers}
        made = await cluster.client.post(PODS, json={"metadata": {"name": "slow"}, "spec": spec})
        await service.until(service.ready)
        of = {"PodName": "slow", "PodNamespace": "default", "PodUID": made.json()["metadata"]["uid"], "Node": "n1"}
        waiting = asyncio.ensure_future(service.client.post("/scheduler/bind", json=of))

        async def written() -> bool:
            return bool(cluster.held)

        await service.until(written)
        service.process.send_signal(signal.SIGTERM)
        await service.until(service.stops)
        began = monotonic()
        service.process.send_signal(signal.SIGTERM)
        assert await service.process.wait() == 0
        assert monotonic() - began < 2
        with suppress(httpx.TransportError):
            assert (await waiting).is_error


@asynccontextmanager
async def log_to(kind: str) -> AsyncIterator[int]:
    """A file that takes no more of the log, as the kind says."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    if kind == "a full disk":
        os.close(writing)
        writing = os.open("/dev/full", os.O_WRONLY)
    elif kind == "nobody any more":
        os.close(reading)
        reading = os.open("/dev/null", os.O_RDONLY)
    try:
        yield writing
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("kind", ["a full disk", "nobody any more", "somebody who reads nothing"])
async def test_a_log_that_cannot_be_written_stops_nothing(cluster: Cluster, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ("--kubeconfig", str(cluster.kubeconfig), "--port", str(port), "--log-level", "debug")
    async with log_to(kind) as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "extender", "serve", *options),
            stderr=stderr,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as client:
                service = Running(process, port, client, [])
                await service.until(service.ready)
                asked = {"Pod": await cluster.member("train-0"), "Nodes": None, "NodeNames": ["n1"]}
                for _ in range(100):
                    # Each is a line.
                    assert (await client.post("/scheduler/filter", json=asked)).status_code == 200
                cluster.server.should_exit = True
                await service.until(lambda: _refused(cluster))
                # What follows the API server has something to say of that.
                await asyncio.sleep(1)
                assert (await client.post("/scheduler/filter", json=asked)).status_code == 200
                lost = re.search(r"^escher_log_lines_lost_total (\S+)", (await client.get("/metrics")).text, re.M)
                assert lost is not None
                assert kind == "somebody who reads nothing" or float(lost[1]) >= 100
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(20):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _refused(cluster: Cluster) -> bool:
    try:
        await cluster.client.get("/readyz")
    except httpx.HTTPError:
        return True
    return False


async def test_a_signal_is_heeded_while_credentials_are_waited_for(tmp_path: Path) -> None:
    """A plugin may ask a person; as the first process of a container it would not even be ended by SIGTERM."""
    file = kubeconfig(tmp_path, "http://127.0.0.1:9")
    said = yaml.safe_load(file.read_text())
    asked = tmp_path / "asked"
    run = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
        "command": "sh",
        "args": ["-c", f"echo $$ > {asked}; exec sleep 60"],
    }
    said["users"][0]["user"] = {"exec": run}
    file.write_text(yaml.safe_dump(said))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "extender", "serve", "--port", "0", "--kubeconfig", str(file)),
        stderr=PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        async with asyncio.timeout(30):
            while not (asked.exists() and asked.read_text().strip()):  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        for pid in asked.read_text().split() if asked.exists() else []:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def refused(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, list[str]]:
    """Exit code and the lines on standard error of `escher serve` that does not start."""
    monkeypatch.setattr("extender.cli.serve._log_to_stderr", lambda settings: None)
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stderr.splitlines()


@pytest.mark.parametrize(
    ("certificate", "key", "client_ca", "complaint"),
    [
        ("absent", "key", None, r"tls_certificate = \S*/absent: No such file or directory"),
        ("certificate", "absent", None, r"tls_key = \S*/absent: No such file or directory"),
        ("certificate", "key", "absent", r"tls_client_ca = \S*/absent: No such file or directory"),
        ("folder", "key", None, r"tls_certificate = \S*: Is a directory"),
        ("garbage", "key", None, r"tls_certificate = \S*/garbage: it has no certificate \(PEM\)"),
        ("certificate", "garbage", None, r"tls_key = \S*/garbage: it has no usable private key \(PEM\)"),
        ("certificate", "key", "garbage", r"tls_client_ca = \S*/garbage: it has no certificate \(PEM\)"),
        ("certificate", "other_key", None, r"tls_key = \S*/other.key: it is not the key of tls_certificate = \S*"),
        (
            "certificate",
            "locked_key",
            None,
            r"tls_key = \S*/locked.key: it is encrypted; give one without a passphrase",
        ),
    ],
)
def test_certificates_that_cannot_be_used_are_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, certificate: str, key: str, client_ca: str | None, complaint: str
) -> None:
    files = Certificates(tmp_path)
    options = ["--tls-certificate", str(getattr(files, certificate)), "--tls-key", str(getattr(files, key))]
    if client_ca is not None:
        options += ["--tls-client-ca", str(getattr(files, client_ca))]
    code, told = refused(monkeypatch, "--port", "0", "--kubeconfig", str(tmp_path / "none"), *options)
    assert (code, len(told)) == (1, 1), told
    assert re.fullmatch(f"escher serve: {complaint}", told[0])


async def test_a_port_that_is_taken_is_named_in_one_line(tmp_path: Path) -> None:
    config = kubeconfig(tmp_path, "http://127.0.0.1:9")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "extender", "serve", "--port", str(port), "--kubeconfig", str(config)),
            stderr=PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        _, told = await process.communicate()
    taken = f"escher serve: host = '127.0.0.1', port = {port}: Address already in use\n"
    assert (process.returncode, told.decode()) == (1, taken)


@pytest.mark.parametrize(
    ("host", "why"),
    [("192.0.2.1", ", port = 0: Cannot assign requested address"), ("no such host", ": ")],
)
def test_an_address_that_is_none_of_this_machine_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, host: str, why: str
) -> None:
    code, told = refused(monkeypatch, "--host", host, "--insecure", "--port", "0", "--kubeconfig", "/none")
    assert (code, len(told)) == (1, 1)
    assert told[0].startswith(f"escher serve: host = '{host}'{why}")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--tls-client-ca", "ca.pem"], ["tls_client_ca = ca.pem", "tls_certificate", "tls_key"]),
        (["--tls-certificate", "tls.crt"], ["tls_certificate = tls.crt", "tls_key"]),
        (["--tls-key", "tls.key"], ["tls_key = tls.key", "tls_certificate"]),
        (["--tls-key", "tls.key", "--tls-client-ca", "ca.pem"], ["tls_key = tls.key", "tls_certificate"]),
    ],
)
def test_what_would_be_served_without_tls_though_it_is_asked_for_is_wrong_use(
    monkeypatch: pytest.MonkeyPatch, given: list[str], named: list[str]
) -> None:
    code, told = refused(monkeypatch, "--port", "0", *given)
    assert (code, len(told)) == (2, 1), told
    assert [each for each in named if each not in told[0]] == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "escher.example"])
def test_to_listen_for_other_machines_without_asking_who_they_are_has_to_be_said(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    code, told = refused(monkeypatch, "--host", host, "--port", "0", "--kubeconfig", "/none")
    assert (code, len(told)) == (2, 1), told
    assert told[0].startswith(f"escher serve: host = {host!r}: other machines reach it")
    assert all(each in told[0] for each in ("tls_client_ca", "insecure: true", "--insecure"))


@pytest.mark.parametrize(
    "given",
    [
        {"host": "127.0.0.1"},
        {"host": "127.1.2.3"},
        {"host": "::1"},
        {"host": "localhost"},
        {"host": "0.0.0.0", "insecure": True},
        {"host": "0.0.0.0", "tls_certificate": "crt", "tls_key": "key", "tls_client_ca": "ca"},
    ],
    ids=str,
)
def test_what_only_this_machine_reaches_and_what_asks_who_calls_needs_no_word(given: dict[str, Any]) -> None:
    assert load_settings(None, **given).host == given["host"]


def test_a_certificate_alone_says_nothing_of_those_who_call() -> None:
    with pytest.raises(BadSettings, match="other machines reach it"):
        load_settings(None, host="0.0.0.0", tls_certificate="crt", tls_key="key")
