"""Outside: what anybody can see of pods by a watch, told by a process that does nothing else.

    python -m extender.compare.outside KUBECONFIG

Knows one label, whose value it tells; must not know approaches, gangs or the service. Each line of standard output is
one sighting, as JSON; the first is `null`: from there on everything is seen.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from extender.controlplane.witness import Changing, Collection, Late, Sighting, following, name_of
from extender.kube.connection import Connection
from extender.kube.credentials import Credentials, from_kubeconfig
from extender.kube.requests import address

NAMESPACE = "default"
PODS = address("api", "v1", "namespaces", NAMESPACE, "pods")
LABEL = "compare.escher.dev/gang"
"""On each pod that is measured: whose member it is. Nobody else reads it."""
_STARTS_WITHIN = 60.0


class Seen(msgspec.Struct, frozen=True):
    """A pod that bears the label. `time` is this machine's monotonic clock, which all its processes share."""

    time: float
    pod: str
    gang: str
    node: str = ""
    phase: str = ""
    gone: bool = False


# -- the process that watches ----------------------------------------------------------------------------------------


async def tell(kubeconfig: Path) -> None:
    """Until it is killed, or nobody listens any more."""
    told: dict[str, tuple[str, str]] = {}

    def hear(sighting: Sighting[tuple[str, str, str, str]]) -> None:
        pod, gang, node, phase = sighting.seen
        if gang and (sighting.gone or told.get(pod) != (node, phase)):
            told[pod] = (node, phase)
            if sighting.gone:
                del told[pod]
            _say(Seen(sighting.time, pod, gang, node, phase, sighting.gone))

    pods = Collection(PODS, "Pod", hear, read=_read, identity=name_of)
    credentials = await Credentials.load(from_kubeconfig(kubeconfig))
    async with Connection(credentials) as connection, following(connection, pods):
        _say(None)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def _read(found: dict[str, Any]) -> tuple[str, str, str, str]:
    labels = found["metadata"].get("labels") or {}
    phase = (found.get("status") or {}).get("phase", "")
    return name_of(found), labels.get(LABEL, ""), found["spec"].get("nodeName") or "", phase


def _say(seen: Seen | None) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(seen) + b"\n")
    sys.stdout.buffer.flush()


# -- who listens -----------------------------------------------------------------------------------------------------


class Pod(msgspec.Struct):
    """What became of one, by the watcher's clock; None: that was never seen."""

    gang: str
    created: float
    node: str = ""
    bound: float | None = None
    running: float | None = None
    gone: float | None = None


class Watched(Changing):
    """All pods that were seen since `begin`."""

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[str, Pod] = {}
        self.begun = False

    def begin(self) -> None:
        """What was seen so far is forgotten: nothing of it is there any more."""
        self.pods = {}

    def take(self, line: bytes) -> None:
        seen = msgspec.json.decode(line, type=Seen | None)
        if seen is None:
            self.begun = True
        else:
            pod = self.pods.setdefault(seen.pod, Pod(seen.gang, seen.time))
            if seen.gone:
                pod.gone = seen.time
            elif seen.node:
                pod.node = seen.node
                pod.bound = seen.time if pod.bound is None else pod.bound
                if seen.phase == "Running" and pod.running is None:
                    pod.running = seen.time
        self.has_changed()

    @property
    def there(self) -> int:
        return sum(pod.gone is None for pod in self.pods.values())

    def placed(self, gang: str) -> tuple[int, int]:
        """How many of its pods have been bound, and have been running."""
        mine = [pod for pod in self.pods.values() if pod.gang == gang]
        return sum(pod.bound is not None for pod in mine), sum(pod.running is not None for pod in mine)


@asynccontextmanager
async def watching(kubeconfig: Path) -> AsyncIterator[Watched]:
    """The other process watches while the block lasts. Raises Late if it does not begin."""
    watched = Watched()
    command = [sys.executable, "-m", "extender.compare.outside", str(kubeconfig)]
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    stdout = child.stdout
    assert stdout is not None

    async def listen() -> None:
        async for line in stdout:
            watched.take(line)

    listening = asyncio.create_task(listen())
    try:
        await watched.until(lambda: watched.begun or listening.done(), "the watcher's beginning", within=_STARTS_WITHIN)
        if not watched.begun:
            raise Late("the watcher has ended before it began: see what it said above")
        yield watched
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        if child.returncode is None:
            child.kill()
        await child.wait()


def main() -> None:
    asyncio.run(tell(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
