"""Local: the embedded cluster on a port of 127.0.0.1, in a thread of this process.

    with LocalCluster.start(folder) as cluster:
        cluster.add_nodes(3)
        subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "get", "nodes"])

It is for tests, which share one cluster and empty it between them. Time is the machine's; `pytest_plugin` also offers
virtual time.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import socket
import threading
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
import uvicorn

from extender.kube.client.certificates import Authority, write_kubeconfig, write_secret
from extender.kube.client.requests import JSON
from kubesim.apiserver.serving.api import ADMIN
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.apiserver.serving.server import application
from kubesim.clock import Clock
from kubesim.emptying import empty
from kubesim.kinds import NODE
from kubesim.nodes import plain
from kubesim.options import Options

T = TypeVar("T")

_STARTS_WITHIN, _ANSWERS_WITHIN = 30.0, 60.0


class _Server(uvicorn.Server):
    """A server that sets `usable` when it listens."""

    def __init__(self, config: uvicorn.Config, usable: threading.Event) -> None:
        super().__init__(config)
        self._usable = usable

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._usable.set()


class LocalCluster:
    """An embedded cluster on a port. Create it with `start`; end it by `stop` or its `with` block.

    Any thread may call it. `kubeconfig` is for kubectl and every client library and contains `url` and `token`.
    """

    def __init__(self, folder: Path, options: Options) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.token = secrets.token_urlsafe(32)
        self._options = options
        self._folder = folder
        self._usable = threading.Event()
        self._failure: BaseException | None = None
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._live, name="kubesim", daemon=True)

    @classmethod
    def start(cls, folder: Path, options: Options | None = None) -> Self:
        """A running cluster. `folder` receives its keys and its kubeconfig. Raises RuntimeError."""
        made = cls(folder, options or Options())
        made._write_credentials()
        made._thread.start()
        if not made._usable.wait(_STARTS_WITHIN) or made._failure is not None:
            made._socket.close()
            raise RuntimeError("the embedded cluster did not start") from made._failure
        return made

    # -- its objects ---------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Any = None, *, content_type: str = JSON) -> Any:
        """The answer to one request as admin. Raises the errors of `extender.kube.errors`."""
        sent = None if body is None else msgspec.json.encode(body)
        return msgspec.json.decode(self._do(self._requests.request(method, path, sent, content_type=content_type)))

    def add_nodes(
        self,
        count: int,
        offered: Mapping[str, str] | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        start: int = 0,
    ) -> list[str]:
        """Creates the nodes `node-0`, `node-1` ... and returns their names."""
        made = [self.ask("POST", NODE.path(), each) for each in plain(count, offered, labels=labels, start=start)]
        return [each["metadata"]["name"] for each in made]

    def empty(self) -> None:
        """Deletes everything that was created since the start."""
        self._do(empty(self._cluster.api, self._first))

    # -- its life cycle ------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stops the cluster and waits for its thread. Raises the error that ended a part of it."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._server_ends)
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._thread.is_alive():
            work.close()
            raise RuntimeError("the embedded cluster has ended") from self._failure
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_ANSWERS_WITHIN)

    def _write_credentials(self) -> None:
        authority = Authority.make("kubesim")
        certificate, key = authority.issue("kube-apiserver")
        write_secret(self._certificate, certificate)
        write_secret(self._key, key)
        write_kubeconfig(
            self.kubeconfig, context="kubesim", server=self.url, authority=authority.certificate, token=self.token
        )

    @property
    def _certificate(self) -> Path:
        return self._folder / "server.crt"

    @property
    def _key(self) -> Path:
        return self._folder / "server.key"

    def _live(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._usable.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._cluster = cluster = self._options.cluster(Clock(time.time()), token=self.token)
        self._first = cluster.api.store.back_up()
        self._requests = InProcess(cluster.api, rng=random.Random(self._options.seed), user=ADMIN)
        self._server = _Server(
            uvicorn.Config(
                application(cluster.api),
                http="httptools",
                ws="none",
                access_log=False,
                log_config=None,
                timeout_keep_alive=90,
                timeout_graceful_shutdown=1,
                ssl_certfile=self._certificate,
                ssl_keyfile=self._key,
            ),
            self._usable,
        )
        running = asyncio.create_task(cluster.run())
        serving = asyncio.create_task(self._server.serve([self._socket]))
        await asyncio.wait({running, serving}, return_when=asyncio.FIRST_COMPLETED)
        self._server_ends()
        await serving
        running.cancel()
        [outcome] = await asyncio.gather(running, return_exceptions=True)
        if isinstance(outcome, Exception):
            raise outcome

    def _server_ends(self) -> None:
        self._server.should_exit = True
