"""An embedded API server on a port of this machine, in a thread of its own, for programs that are its clients."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import trustme
import uvicorn

from kubesim.apiserver.serving.api import ApiServer
from kubesim.apiserver.serving.server import application
from kubesim.clock import Clock

KUBECTL = Path(sys.executable).with_name("kubectl")
TOKEN = "secret"

T = TypeVar("T")


@dataclass(frozen=True)
class Standing:
    address: str
    kubeconfig: Path
    _api: ApiServer
    _loop: asyncio.AbstractEventLoop

    def do(self, act: Callable[[ApiServer], T]) -> T:
        """What the act says of the API server; it is done where the server is."""
        return asyncio.run_coroutine_threadsafe(_done(act, self._api), self._loop).result(10)

    def kubectl(self, *words: str, says: object = None) -> subprocess.CompletedProcess[str]:
        home = self.kubeconfig.parent
        given = None if says is None else json.dumps(says)
        environment = {**os.environ, "HOME": str(home), "KUBECACHEDIR": str(home / "cache"), "NO_PROXY": "*"}
        command = [str(KUBECTL), f"--kubeconfig={self.kubeconfig}", *words]
        return subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=60, check=False, env=environment
        )


async def _done(act: Callable[[ApiServer], T], api: ApiServer) -> T:
    return act(api)


@contextmanager
def standing(home: Path) -> Iterator[Standing]:
    """Its kubeconfig is in that folder."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(None)
    started: list[ApiServer] = []
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    pem, key, ca = home / "server.pem", home / "server.key", home / "ca.pem"
    own.cert_chain_pems[0].write_to_path(pem)
    own.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(ca)
    config = uvicorn.Config(
        _late(started),
        port=0,
        http="httptools",
        ws="none",
        log_level="error",
        lifespan="on",
        ssl_certfile=pem,
        ssl_keyfile=key,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]

    async def serve() -> None:
        started.append(ApiServer(Clock(time.time()), random.Random(1), token=TOKEN))
        await server.serve()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        address = f"https://127.0.0.1:{port}"
        yield Standing(address, _kubeconfig(home, address), started[0], loop)
    finally:
        server.should_exit = True
        thread.join(10)
        loop.close()


def _late(started: list[ApiServer]) -> Any:
    """The application of a server that is made in its own event loop."""
    made: list[Any] = []

    async def handle(scope: Any, receive: Any, send: Any) -> None:
        if not made:
            made.append(application(started[0]))
        await made[0](scope, receive, send)

    return handle


def _kubeconfig(home: Path, address: str) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": address, "certificate-authority": "ca.pem"}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
        "current-context": "c",
    }
    path = home / "kubeconfig"
    path.write_text(json.dumps(config))
    return path
