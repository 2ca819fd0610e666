"""Golden files made anew: what a real kube-scheduler sends to an extender, and what it was answered.

    python -m tests.adapters.http.make_golden [DIR]

Starts a real control plane (`lab.controlplane`; a first time it is built), with two kube-schedulers that call an
extender: one with nodeCacheCapable as shipped, one without it. Between each and the pass-through verbs sits the
recorder.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import uvicorn
import yaml
from prometheus_client import CollectorRegistry

from extender.adapters.http.server.asgi import create_app
from extender.adapters.http.verbs.record import Tape, create_recorder
from extender.app.contracts.api import Management
from extender.app.contracts.ports import PodRef
from extender.kube.names import NodeName
from extender.shipped import places
from extender.shipped.progress import Progress
from lab.controlplane import schedulers
from lab.controlplane.api import Api, ApiError
from lab.controlplane.clusters import RealCluster
from lab.controlplane.nodes import NodeShape
from lab.controlplane.processes import binaries
from tests.adapters.http.fakes import listening
from tests.adapters.http.pass_through import PassThrough

GOLDEN = Path(__file__).parent / "golden"
PODS = "/api/v1/namespaces/default/pods"
_log = logging.getLogger("make_golden")


def main() -> None:
    """The folder holds new recordings."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN
    for each in ("names", "nodes"):
        shutil.rmtree(folder / each, ignore_errors=True)
    full = listening()
    with (
        tempfile.TemporaryDirectory() as scratch,
        RealCluster.start(
            nodes=3,
            node_shape=NodeShape(cpu="2", memory="4Gi", extra={"escher.dev/default.data1": "2"}),
            service=False,
            marks=False,
            scheduler_binaries={"full": binaries.build(Progress()) / "kube-scheduler"},
            scheduler_configs={"full": _config(Path(scratch), f"http://127.0.0.1:{full.getsockname()[1]}")},
        ) as cluster,
    ):
        asyncio.run(_record(cluster, folder, full))


def _config(folder: Path, url: str) -> Path:
    """The shipped extender configuration, with whole nodes instead of names, under the scheduler name `full`."""
    config = schedulers.for_every_pod(schedulers.load(places.shipped("scheduler-config") / "escher.yaml"))
    config["profiles"] = [{"schedulerName": "full"}]
    config["extenders"][0] |= {"urlPrefix": f"{url}/scheduler", "nodeCacheCapable": False}
    path = folder / "full.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


async def _record(cluster: RealCluster, folder: Path, full: socket.socket) -> None:
    async def write(pod: PodRef, node: NodeName) -> str:
        binding = {
            "metadata": {"name": pod.name, "uid": pod.uid},
            "target": {"kind": "Node", "name": node},
        }
        await asyncio.to_thread(cluster.admin.post, f"{PODS}/{pod.name}/binding", binding)
        return ""

    extender: Any = create_app(PassThrough(write), _no_management(), ready=lambda: True, registry=CollectorRegistry())
    upstream = listening()
    forward = f"http://127.0.0.1:{upstream.getsockname()[1]}"
    service = listening(int(cluster.service_url.rpartition(":")[2]))
    running = [
        (_server(extender), upstream),
        (_server(create_recorder(forward, Tape(folder / "names"))), service),
        (_server(create_recorder(forward, Tape(folder / "nodes"))), full),
    ]
    # The sockets listen already: who connects before a server has started waits for it.
    tasks = [asyncio.create_task(server.serve(sockets=[listener])) for server, listener in running]
    try:
        for scheduler in ("escher", "full"):
            await asyncio.to_thread(_scenario, cluster.admin, scheduler)
            _log.info("recorded %s", scheduler)
    finally:
        for server, _ in running:
            server.should_exit = True
        await asyncio.gather(*tasks)


def _scenario(api: Api, scheduler: str) -> None:
    """Placed, a gang's members placed, rejected, one that only one node can take, and a preemption."""
    api.post(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": f"high-{scheduler}"}, "value": 1000, "preemptionPolicy": "PreemptLowerPriority"},
    )
    _create(api, scheduler, "plain", cpu="100m")
    _bound(api, "plain")
    _create(api, scheduler, "asks", cpu="0.1", limits={"escher.dev/default.data1": "1"})
    _bound(api, "asks")
    ask = {"escher.dev/gang-min-member": "2", "escher.dev/gang-timeout-seconds": "20"}
    for name in ("train-0", "train-1"):
        _create(api, scheduler, name, cpu="1e-1", labels={"escher.dev/gang": "train"}, annotations=ask)
    _bound(api, "train-0", "train-1")
    _create(api, scheduler, "rejected", cpu="100m")
    _eventually(lambda: api.get(f"{PODS}/rejected")["status"].get("conditions"), "the rejection")
    # First, for the end of every other pod would wake it.
    _delete(api, "rejected", "plain", "asks", "train-0", "train-1")
    # Every node full, and then one pod of higher priority.
    fillers = ("filler-0", "filler-1", "filler-2")
    for name in fillers:
        _create(api, scheduler, name, cpu="2")
    _bound(api, *fillers)
    _create(api, scheduler, "urgent", cpu="2", priority=f"high-{scheduler}")
    _bound(api, "urgent")
    _delete(api, "urgent", *fillers)


def _create(
    api: Api,
    scheduler: str,
    name: str,
    *,
    cpu: str,
    limits: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    priority: str = "",
) -> None:
    resources = {"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": limits or {}}
    api.post(
        PODS,
        {
            "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
            "spec": {
                "schedulerName": scheduler,
                "priorityClassName": priority,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "none", "resources": resources}],
            },
        },
    )


def _bound(api: Api, *names: str) -> None:
    for name in names:
        _eventually(lambda name=name: api.get(f"{PODS}/{name}")["spec"].get("nodeName"), f"{name} bound")


def _delete(api: Api, *names: str) -> None:
    def gone(name: str) -> bool:
        try:
            api.delete(f"{PODS}/{name}")
        except ApiError as error:
            return error.status == 404
        return False

    for name in names:
        _eventually(lambda name=name: gone(name), f"{name} gone")


def _eventually(holds: Any, what: str, within: float = 60) -> None:
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)


def _server(app: Any) -> uvicorn.Server:
    return uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_keep_alive=120))


def _no_management() -> Management:
    return cast(Management, None)


if __name__ == "__main__":
    main()
