"""Scene: a real control plane with a recorder between its kube-scheduler and the real service.

Two schedulers with the profiles of scheduler-config/escher.yaml run one after the other. One extender entry calls all
verbs for every pod. The first scheduler sends nodes as names, as shipped; the second, with `nodeCacheCapable: false`,
as whole objects.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
import yaml

from extender.adapters.http.verbs.record import Tape, create_recorder
from extender.shipped import loopback, places
from extender.shipped.progress import Progress
from lab.controlplane import clusters, schedulers
from lab.controlplane.processes import binaries
from loadtests.recorded.calls import Call
from loadtests.recorded.template import template
from loadtests.shared.pods import EXTENDER, LEDGER, pod
from loadtests.shared.progress import say
from loadtests.shared.reading import node_of

Json = dict[str, Any]

_PODS = "/api/v1/namespaces/default/pods"
_RESOURCE = "data1"
_ASK: Any = {f"escher.dev/default.{_RESOURCE}": 1}
_WITH_RESOURCE = 10
"""Nodes."""
_EACH = 3
"""The number of different calls that are kept of each kind."""
_WITHIN = 120.0
_WORDS = {False: "names", True: "whole"}
_FILE = re.compile(r"\d+-(filter|prioritize|bind|preempt)-200\.request\.json")


def recorded(nodes: int) -> list[Call]:
    """What kube-scheduler sent on a cluster of `nodes` nodes."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        program = binaries.build(Progress()) / "kube-scheduler"
        listening = {whole: stack.enter_context(_listening()) for whole in (False, True)}
        cluster = stack.enter_context(
            clusters.RealCluster.start(
                nodes=nodes,
                marks=False,
                scheduler_binaries=dict.fromkeys(_WORDS.values(), program),
                scheduler_configs={
                    _WORDS[whole]: _config(folder, at.getsockname()[1], whole=whole) for whole, at in listening.items()
                },
            )
        )
        # The two schedulers below have its profiles.
        cluster.stop_component("kube-scheduler")
        for word in _WORDS.values():
            cluster.stop_component(f"kube-scheduler-{word}")
        scene = _Scene(cluster, nodes)
        scene.furnish()
        found: list[Call] = []
        for whole, at in listening.items():
            tape = Tape(folder / _WORDS[whole])
            stack.enter_context(_recorder(cluster.service_url, tape, at))
            cluster.start_component(f"kube-scheduler-{_WORDS[whole]}")
            for profile in (EXTENDER, LEDGER):
                say(f"{nodes} nodes, {_WORDS[whole]}, {profile}")
                scene.play(profile)
                found += _kept(tape, profile, nodes, whole=whole)
            cluster.stop_component(f"kube-scheduler-{_WORDS[whole]}")
        return found


def _config(folder: Path, port: int, *, whole: bool) -> Path:
    """The shipped configuration, except for the form of nodes."""
    config = schedulers.for_every_pod(schedulers.load(places.shipped("scheduler-config") / "escher.yaml"))
    config["extenders"][0] |= {"urlPrefix": f"http://127.0.0.1:{port}/scheduler", "nodeCacheCapable": not whole}
    file = folder / f"{_WORDS[whole]}.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


@contextlib.contextmanager
def _listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as made:
        yield made


@contextlib.contextmanager
def _recorder(forward: str, tape: Tape, at: socket.socket) -> Iterator[None]:
    config = uvicorn.Config(create_recorder(forward, tape), log_level="warning", timeout_keep_alive=120)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [at]}, daemon=True, name="recorder")
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def _kept(tape: Tape, profile: str, nodes: int, *, whole: bool) -> list[Call]:
    """A few different calls of each kind on the tape; empties the tape."""
    kept: dict[Call, None] = {}
    kinds: Counter[tuple[str, str]] = Counter()
    for file in sorted(tape.folder.iterdir()):
        named = _FILE.fullmatch(file.name)
        if named is not None:
            call = template(named[1], file.read_bytes(), profile=profile, whole=whole, cluster=nodes)
            if call not in kept and kinds[call.verb, call.kind] < _EACH:
                kinds[call.verb, call.kind] += 1
                kept[call] = None
        file.unlink()
    return list(kept)


@dataclass
class _Scene:
    """Pods come, are placed, and go. Their names begin with their kind (`calls.KINDS`)."""

    cluster: clusters.RealCluster
    nodes: int

    def furnish(self) -> None:
        """Gives some nodes an ephemeral resource, and creates a higher priority class."""
        resource = {"capacity": 4, "node_spec": {}, "num_nodes": _WITH_RESOURCE}
        url = f"{self.cluster.service_url}/v1/namespaces/default/resources/{_RESOURCE}"
        status, said = loopback.ask("PUT", url, body=resource, timeout=60)
        if status // 100 != 2:
            raise RuntimeError(f"{status} {said.decode(errors='replace')}")
        classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
        self.cluster.admin.post(classes, {"metadata": {"name": "urgent"}, "value": 1000})

    def play(self, profile: str) -> None:
        """Every kind of pod once; preemption, which ignores the profile, with the first only."""
        web = {"app": "web", "tier": "front"}
        self._placed([pod("ordinary-0", profile, cpu="500m", memory="1Gi")])
        self._placed([pod("ordinary-1", profile, cpu="250m", memory="128Mi", labels=web, grace=30)])
        self._placed([pod("ephemeral-0", profile, cpu="500m", memory="1Gi", **_ASK)])
        gang: Any = {"gang": "training", "quorum": 4}
        self._placed([pod(f"gang-0-{each}", profile, cpu="2", memory="4Gi", **gang) for each in range(4)])
        self._clear()
        if profile == EXTENDER:
            self._filled()
            self._placed([pod("urgent-0", profile, cpu="4", memory="1Gi", priority_class="urgent")])
            self._clear()

    def _placed(self, pods: Sequence[Json]) -> None:
        for each in pods:
            self.cluster.admin.post(_PODS, each)
        for each in pods:
            path = f"{_PODS}/{each['metadata']['name']}"
            _eventually(lambda: node_of(self.cluster.admin.get(path)), f"{path} bound")  # noqa: B023 (called at once)

    def _filled(self) -> None:
        """Fills each node with a pod of the service's scheduler: only such may be preempted."""

        def create(number: int) -> None:
            made = pod(f"filler-{number}", EXTENDER, cpu="6", memory="1Gi")
            made["spec"]["nodeName"] = f"node-{number}"
            self.cluster.admin.post(_PODS, made)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(create, range(self.nodes)))

        def running() -> bool:
            return len(self.cluster.admin.list_all(_PODS, fieldSelector="status.phase=Running")) == self.nodes

        _eventually(running, f"{self.nodes} pods running", every=1.0)

    def _clear(self) -> None:
        self.cluster.admin.delete(_PODS, {"gracePeriodSeconds": 0})
        _eventually(lambda: not self.cluster.admin.get(_PODS, limit=1)["items"], "an empty namespace", every=0.5)


def _eventually(holds: Callable[[], object], what: str, every: float = 0.1) -> None:
    deadline = time.monotonic() + _WITHIN
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(every)
