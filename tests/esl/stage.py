"""A cluster in virtual time, and applications on it that run gangs without an extender, refused or killed at will."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import msgspec
import structlog

from extender.esl import Approach, GangSpec
from extender.esl.gangs.departed import GHOST_LABEL, KEY_LABEL
from extender.kube.client.requests import JSON, TIMEOUT, Requests
from extender.settings.settings import Settings
from kubesim.kinds import JOB, LEASE, NODE, POD, Json
from kubesim.virtual_time import VirtualTimeLoop
from lab.controlplane.nodes import NodeShape
from lab.simulation import Simulation
from tests.kubesim.until import Looks


class Door:
    """`Requests` of one application. With its `killed_at`th request it is dead: nothing passes, nothing comes back."""

    def __init__(self, through: Requests) -> None:
        self._through = through
        self.requests = 0
        self.killed_at: int | None = None
        self.answer_lost = False
        """Whether the last request has still been carried out."""
        self.dead = asyncio.Event()
        self.refuse: Callable[[str, str, Json], Exception | None] = lambda method, path, body: None
        self.writes: Counter[str] = Counter()
        self.under_way = 0
        """Requests that the API server has and has not answered."""

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        within: float = TIMEOUT,
    ) -> bytes:
        self.requests += 1
        if self.requests == self.killed_at:
            if self.answer_lost:
                await self._through.request(method, path, body, content_type=content_type, accept=accept)
            self.dead.set()
        if self.dead.is_set():
            await asyncio.Event().wait()
        refusal = self.refuse(method, path, msgspec.json.decode(body) if body else {})
        self.writes[f"{method} {path.rpartition('/')[2]}" if method == "POST" else method] += 1
        if refusal is not None:
            raise refusal
        self.under_way += 1
        try:
            answer = await self._through.request(method, path, body, content_type=content_type, accept=accept)
        finally:
            self.under_way -= 1
        if self.dead.is_set():
            await asyncio.Event().wait()
        return answer

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._through.lines(path, silence=silence)) as lines:
            async for line in lines:
                if self.dead.is_set():
                    await asyncio.Event().wait()
                yield line


class Stage:
    """`nodes` of `cpu` each."""

    def __init__(self, nodes: int = 2, cpu: str = "4", settings: Settings | None = None) -> None:
        self.simulation = Simulation(nodes=nodes, node_shape=NodeShape(cpu=cpu), settings=settings)

    def door(self, user: str = "application") -> Door:
        return Door(self.simulation._connection(user, user))

    def all(self, kind: Any) -> list[Json]:
        namespace = "default" if kind.namespaced else ""
        found: list[Json] = list(self.simulation.cluster.api.store.list(kind, namespace))
        return found

    # -- members -------------------------------------------------------------------------------------------------

    async def launch(self, spec: GangSpec, seconds: str = "3") -> None:
        """The members exist."""
        await self._launch(self.simulation.requests, spec, seconds)

    def launcher(self, door: Door) -> Callable[[GangSpec], Awaitable[None]]:
        """The application makes them itself."""
        return lambda spec: self._launch(door, spec, "3")

    async def _launch(self, requests: Requests, spec: GangSpec, seconds: str) -> None:
        for bundle in range(spec.size):
            plain = _pod(f"{spec.gang.name}-{bundle}-{spec.run}", seconds)
            made = spec.requirement(bundle, Approach.EXTENDED_RESOURCES).attach(plain)
            await requests.request("POST", POD.path("default"), msgspec.json.encode(made))

    async def job(self, spec: GangSpec, seconds: str = "3", **more: Any) -> None:
        """As many as the gang has members, and the same for all."""
        made = spec.requirement(0, Approach.EXTENDED_RESOURCES).attach(_pod("", seconds))
        made["spec"]["restartPolicy"] = "Never"
        template = {"metadata": {k: made["metadata"][k] for k in ("labels", "annotations")}, "spec": made["spec"]}
        body = {"parallelism": spec.size, "completions": spec.size, "template": template, **more}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": spec.gang.name}, "spec": body}
        await self.simulation.create(job, JOB)

    # -- what there is -------------------------------------------------------------------------------------------

    def ghosts(self) -> list[Json]:
        return [pod for pod in self.all(POD) if GHOST_LABEL in (pod["metadata"].get("labels") or {})]

    def members(self) -> list[Json]:
        return [pod for pod in self.all(POD) if keys_of(pod) and pod not in self.ghosts()]

    def keys(self) -> list[tuple[str, str]]:
        return [
            (node["metadata"]["name"], key)
            for node in self.all(NODE)
            for key in {**node["status"]["capacity"], **node["status"]["allocatable"]}
            if key.startswith("app.escher.dev/")
        ]

    def leases(self) -> list[Json]:
        return [each for each in self.all(LEASE) if each["metadata"]["name"].startswith("escher-ghosts-")]

    def nothing_left(self) -> bool:
        return not self.ghosts() and not self.keys() and not self.leases()

    def without_room(self) -> Counter[tuple[str, str]]:
        """Members that run where no ghost holds their room: how many, by node and key."""
        found: Counter[tuple[str, str]] = Counter()
        for pod in self.members():
            if runs(pod):
                found.update((pod["spec"]["nodeName"], key) for key in keys_of(pod))
        for ghost in self.ghosts():
            if runs(ghost):
                found[ghost["spec"]["nodeName"], ghost["metadata"]["labels"].get(KEY_LABEL, "")] -= 1
        return +found

    async def watch_over(self, allowed: float = 0.0) -> None:
        """No member runs without room for longer than that, while this runs."""
        since: dict[tuple[str, str], float] = {}
        loop = asyncio.get_running_loop()
        with Looks(self.simulation.cluster.api.store, every=0.01) as looks:
            while True:
                now, wrong = loop.time(), self.without_room()
                since = {place: since.get(place, now) for place in wrong}
                for place, began in since.items():
                    assert now - began <= allowed, f"{place}: a member runs without room for {now - began:g} s"
                # What is wrong becomes worse by itself, and nothing else does.
                await (asyncio.sleep(0.01) if wrong else looks.next())

    async def until(self, holds: Callable[[], Any], within: float, what: str = "it") -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while not holds():
            left = f"ghosts {len(self.ghosts())}, keys {len(self.keys())}, leases {len(self.leases())}"
            assert loop.time() < deadline, f"{what} is not within {within:g} s: {left}"
            await asyncio.sleep(0.01)


def _pod(name: str, seconds: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {"escher.dev/run-seconds": seconds}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "none"}]},
    }


def runs(pod: Json) -> bool:
    finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return bool(pod["spec"].get("nodeName")) and not finished and "deletionTimestamp" not in pod["metadata"]


def keys_of(pod: Json) -> list[str]:
    requests = (pod["spec"]["containers"][0].get("resources") or {}).get("requests") or {}
    return [key.partition("/")[2] for key in requests if key.startswith("app.escher.dev/")]


async def killed(gangs: AbstractAsyncContextManager[Any], work: Coroutine[Any, Any, Any], door: Door) -> bool:
    """The application does its work, and whether it is killed before it is done."""

    async def live() -> None:
        async with gangs:
            await work

    living, dying = asyncio.create_task(live()), asyncio.create_task(door.dead.wait())
    await asyncio.wait([living, dying], return_when=asyncio.FIRST_COMPLETED)
    dying.cancel()
    if not door.dead.is_set():
        await living
        return False
    # It tidies up, but nothing of that passes the door.
    living.cancel()
    await asyncio.gather(living, return_exceptions=True)
    work.close()
    return True


def play(story: Coroutine[Any, Any, Any]) -> Any:
    with structlog.testing.capture_logs(), asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(story)
