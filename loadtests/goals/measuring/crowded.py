"""An embedded API server with many nodes and bound pods, in a separate process.

    with Crowded.start(folder, nodes=5000, pods=50_000) as crowded:
        subprocess.run(["escher", "serve", "--kubeconfig", crowded.kubeconfig])

There is no controller, scheduler or kubelet: nothing changes except by `change`, which plays them.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import uvicorn
import uvloop
import yaml

from extender.shipped.crds import shipped_definitions
from kubesim.apiserver.serving.api import ApiServer
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.apiserver.serving.server import application
from kubesim.clock import Clock
from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, NAMESPACE, NODE, POD
from loadtests.goals.measuring import objects

_PATIENCE = 120.0


@dataclass(frozen=True)
class Crowded:
    kubeconfig: Path
    _orders: Connection

    @classmethod
    @contextmanager
    def start(cls, folder: Path, *, nodes: int, pods: int) -> Iterator[Crowded]:
        """Yields the server once it answers. Its kubeconfig is in that folder."""
        ours, theirs = multiprocessing.Pipe()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            context = multiprocessing.get_context("spawn")
            server = context.Process(target=_live, args=(theirs, listening, nodes, pods), daemon=True)
            server.start()
        try:
            crowded = cls(_kubeconfig(folder, address), ours)
            crowded._answer()
            yield crowded
        finally:
            server.terminate()
            server.join()

    def change(self, pods: int) -> int:
        """Creates, binds, runs and deletes pods in sequence. Returns the number of watch events."""
        self._orders.send(pods)
        return self._answer()

    def _answer(self) -> int:
        if not self._orders.poll(_PATIENCE):
            raise TimeoutError("the API server has not answered")
        return int(self._orders.recv())


def _kubeconfig(folder: Path, address: str) -> Path:
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


def _live(orders: Connection, listening: socket.socket, nodes: int, pods: int) -> None:
    uvloop.run(_serve(orders, listening, nodes, pods))


async def _serve(orders: Connection, listening: socket.socket, nodes: int, pods: int) -> None:
    api = ApiServer(Clock(time.time()), random.Random(1))
    requests = InProcess(api, rng=random.Random(1))
    for definition in shipped_definitions():
        await requests.request("POST", CUSTOM_RESOURCE_DEFINITION.path(), objects.encoded(definition))
    # Objects are stored unchanged, because nothing here needs defaults or validation.
    for name in objects.NAMESPACES:
        await requests.request("POST", NAMESPACE.path(), objects.encoded({"metadata": {"name": name}}))
    for node in objects.nodes(nodes):
        api.store.create(NODE, node)
    for pod in objects.bound_pods(pods, nodes):
        api.store.create(POD, pod)
    config = uvicorn.Config(
        application(api), http="httptools", ws="none", loop="none", access_log=False, log_level="warning"
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listening]))
    drawn = random.Random(2)

    async def change(count: int) -> int:
        told = 0
        for number in range(count):
            states = objects.life(5 * number, 7, drawn.randrange(16**8), objects.node_name(97 * number % nodes))
            for state in states:
                (api.store.replace if told % len(states) else api.store.create)(POD, state)
                told += 1
            api.store.remove(POD, state["metadata"]["namespace"], state["metadata"]["name"])
            await asyncio.sleep(0)
        return told + count

    loop = asyncio.get_running_loop()
    orders.send(0)
    ordered = asyncio.Event()
    loop.add_reader(orders.fileno(), ordered.set)
    while not serving.done():
        await ordered.wait()
        ordered.clear()
        if orders.poll():
            orders.send(await change(orders.recv()))
