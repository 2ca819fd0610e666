"""Run: sends drawn requests to an embedded cluster in virtual time, or over a socket; and judges.

Findings are answers with a server error, and growth above the bounds. An answer 500 that a real kube-apiserver gives to
the same nonsense is no finding.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx
import structlog

from kubesim.apiserver.serving.api import Answer, ApiServer, Request
from kubesim.clock import Clock
from kubesim.embedded import Cluster
from kubesim.kinds import NODE, POD, Json
from loadtests.client.drawing import JSON, Asked, Drawing

AS_THERE = (
    "does not contain declared merge key",
    "resourceVersion should not be set on objects to be created",
    "strconv.ParseUint: parsing",
    "This pod has more than one PodDisruptionBudget",
    "target.name: Required value",
    "target.kind: Unsupported value",
    "Too large resource version",
    'not in the embedded cluster; "--real" has it',
)
"""Parts of messages that kube-apiserver itself answers with 500 or 504, or of a missing feature."""
MOST_BYTES = 256 * 1024 * 1024 * 5 // 4
MOST_TASKS = 2_000
_LOOK_EVERY = 500
_SETTLES = 120.0

SCHEDULER: Json = {
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "escher-resources"}],
}


@dataclass
class Result:
    seed: int
    requests: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    watches: int = 0
    hours: float = 0.0
    """Hours of the cluster's own time."""
    most_bytes: int = 0
    most_tasks: int = 0
    objects: int = 0
    resident: int = 0
    """The most MiB of this process."""
    errors: Counter[str] = field(default_factory=Counter)
    """What the cluster logged as its own error, by message."""
    findings: list[str] = field(default_factory=list)

    def find(self, asked: Asked | None, what: str) -> None:
        where = "" if asked is None else f"{asked.method} {asked.path} {asked.query} {asked.body[:600]!r}: "
        self.findings.append(f"request {self.requests}: {where}{what}")


class Asking(Protocol):
    async def __call__(self, asked: Asked) -> tuple[int, bytes]: ...


async def in_process(seed: int, *, requests: int | None = None, seconds: float | None = None) -> Result:
    """Sends `requests` requests, or for `seconds` of real time. The loop is a virtual one."""
    result, rng = Result(seed), random.Random(seed)
    began, clock = time.monotonic(), Clock()
    cluster = Cluster(clock, seed=seed, scheduler_configs=[SCHEDULER])
    since = clock.now()
    running = asyncio.ensure_future(cluster.run())
    with _Listening(result):
        await asyncio.sleep(0.1)

        def is_over() -> bool:
            if running.done():
                result.find(None, f"the cluster has ended: {running.exception()!r}")
                return True
            if requests is not None and result.requests >= requests:
                return True
            return seconds is not None and time.monotonic() - began >= seconds

        try:
            await _ask_on(_Within(cluster.api, result, rng), Drawing(rng), result, rng, is_over, cluster.api)
            if not running.done():
                await _still_works(cluster.api, result)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    result.hours = (clock.now() - since) / 3600
    result.resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return result


async def over_the_socket(client: httpx.AsyncClient, seed: int, requests: int) -> Result:
    """Sends the same requests to any server that the client reaches."""
    result, rng = Result(seed), random.Random(seed)
    drawing = Drawing(rng)

    async def ask(asked: Asked) -> tuple[int, bytes]:
        return await _sent(client, asked, result)

    await _ask_on(ask, drawing, result, rng, lambda: result.requests >= requests, None)
    return result


async def _ask_on(
    ask: Asking,
    drawing: Drawing,
    result: Result,
    rng: random.Random,
    is_over: Callable[[], bool],
    api: ApiServer | None,
) -> None:
    while not is_over():
        asked = drawing.asked()
        result.requests += 1
        status, body = await ask(asked)
        result.statuses[status] += 1
        _judge(result, asked, status, body)
        _learn(drawing, status, body)
        if api is None:
            continue
        if rng.random() < 0.2:
            await asyncio.sleep(rng.choice([0.001, 0.1, 1.0, 1.0, 30.0]))
        if result.requests % _LOOK_EVERY == 0:
            _look(result, api)


def _judge(result: Result, asked: Asked, status: int, body: bytes) -> None:
    if status >= 500 and not any(each in body.decode(errors="replace").replace('\\"', '"') for each in AS_THERE):
        result.find(asked, f"{status} {body[:600]!r}")


def _learn(drawing: Drawing, status: int, body: bytes) -> None:
    if status >= 300 or not body.startswith(b"{"):
        return
    try:
        metadata = json.loads(body).get("metadata") or {}
    except ValueError:
        # The body is lines of a watch.
        return
    if isinstance(metadata, dict):
        drawing.versions = [*drawing.versions[-20:], str(metadata.get("resourceVersion") or "1")]
        if metadata.get("continue"):
            drawing.tokens = [*drawing.tokens[-5:], metadata["continue"]]


def _look(result: Result, api: ApiServer) -> None:
    held, tasks = api.store.remembered_bytes, len(asyncio.all_tasks())
    result.most_bytes, result.most_tasks = max(result.most_bytes, held), max(result.most_tasks, tasks)
    if held > MOST_BYTES:
        result.find(None, f"{held} bytes are remembered")
    if tasks > MOST_TASKS:
        result.find(None, f"{tasks} tasks run")


class _Within:
    """Calls an API server in the same loop. Some watches stay open for a while, as with clients."""

    def __init__(self, api: ApiServer, result: Result, rng: random.Random) -> None:
        self._api, self._result, self._rng = api, result, rng
        self._open: list[Any] = []

    async def __call__(self, asked: Asked) -> tuple[int, bytes]:
        answer = self._api.handle(Request(asked.method, asked.path, asked.query, asked.headers, asked.body))
        if isinstance(answer, Answer):
            return answer.status, answer.body
        self._result.watches += 1
        self._open.append(answer)
        if len(self._open) > 20:
            closing = self._open.pop(self._rng.randrange(len(self._open)))
            lines = closing.lines(1.0)
            try:
                await anext(lines, b"")
            except TimeoutError:
                pass
            finally:
                await lines.aclose()
                closing.close()
        return 200, b""


async def _sent(client: httpx.AsyncClient, asked: Asked, result: Result) -> tuple[int, bytes]:
    try:
        async with client.stream(
            asked.method, asked.path, params=asked.query, headers=asked.headers, content=asked.body
        ) as answer:
            if asked.watches and answer.status_code == 200:
                result.watches += 1
                return 200, b""
            return answer.status_code, await answer.aread()
    except httpx.InvalidURL:
        return 400, b""


async def _still_works(api: ApiServer, result: Result) -> None:
    """Checks that in the end a valid pod is placed and runs, on a valid node."""
    node = {
        "metadata": {"name": "sound", "labels": {"sound": "yes"}},
        "status": {"capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    }
    pod = {
        "metadata": {"name": "sound"},
        "spec": {
            "schedulerName": "escher-resources",
            "nodeSelector": {"sound": "yes"},
            "containers": [{"name": "main", "image": "none"}],
        },
    }
    for path, body in ((NODE.path(), node), (POD.path("default"), pod)):
        answer = api.handle(Request("POST", path, {}, {"content-type": JSON}, json.dumps(body).encode()))
        assert isinstance(answer, Answer)
        if answer.status != 201:
            result.find(None, f"what makes sense is refused: {answer.status} {answer.body[:300]!r}")
            return
    end = asyncio.get_running_loop().time() + _SETTLES
    while (found := api.store.get(POD, "default", "sound")) is None or found["status"].get("phase") != "Running":
        if asyncio.get_running_loop().time() > end:
            result.find(None, f"a pod that makes sense does not run: {found and found['status']}")
            return
        await asyncio.sleep(0.5)
    result.objects = sum(len(api.store.list(kind)) for kind in api.served.all())


def _where(error: BaseException) -> str:
    """Returns what was raised, and its innermost place in the embedded cluster."""
    places = [each for each in traceback.extract_tb(error.__traceback__) if "kubesim" in each.filename]
    at = f" in {places[-1].filename.rpartition('kubesim')[2]}:{places[-1].lineno}" if places else ""
    return f" {type(error).__name__}: {error}{at}"


class _Listening:
    """Counts what is logged as an error in the result, and prints nothing."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self._before: dict[str, Any] = {}

    def __enter__(self) -> None:
        self._before = structlog.get_config()

        def count(_logger: Any, level: str, event: Any) -> Any:
            if level in ("error", "exception", "critical"):
                why = event.get("exc_info")
                why = sys.exc_info()[1] if why is True else why
                raised = _where(why) if isinstance(why, BaseException) else ""
                told = {key: event[key] for key in ("kind", "controller", "path") if key in event}
                self._result.errors[f"{event['event']} {told}{raised}"] += 1
            raise structlog.DropEvent

        structlog.configure(processors=[count], cache_logger_on_first_use=False)

    def __exit__(self, *_: object) -> None:
        structlog.configure(**self._before)
