"""Outside: a process of its own that watches pods and reports them, as any client could.

    python -m lab.compare.trials.outside KUBECONFIG

Each line of standard output is one sighting, as JSON. The first is `null`: from there on it reports all pods, except
those that existed before. Of labels it reports the value of one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, from_kubeconfig
from extender.kube.client.requests import address
from extender.kube.names import CPU
from extender.kube.quantities import count
from lab.controlplane.witness import Changing, Collection, Sighting, following, name_of

NAMESPACE = "default"
_PODS = ("api", "v1", "namespaces", NAMESPACE, "pods")
PODS = address(*_PODS)
LABEL = "compare.escher.dev/gang"
"""On each measured pod: the name of its gang. Only this package reads it."""
_STARTS_WITHIN = 60.0


# -- reading pods ----------------------------------------------------------------------------------------------------


def pods_where(**query: str | int) -> str:
    """The path of the list of pods that match this query."""
    return address(*_PODS, query=query)


def cpu_of(pod: Mapping[str, Any]) -> int:
    """The sum of its containers' CPU requests, in thousandths."""
    asked = [(each.get("resources") or {}).get("requests") or {} for each in pod["spec"]["containers"]]
    return sum(count(CPU, each[CPU]) for each in asked if CPU in each)


def is_turned_away(pod: Mapping[str, Any]) -> bool:
    """Whether kube-scheduler has reported that it cannot be placed now."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


class Blind(Exception):
    """The watching process has ended."""


class Seen(msgspec.Struct, frozen=True):
    """A pod. `gang`: its label's value, None: no label; `cpu`: its request, in cores.

    `time`: this machine's monotonic clock, which all its processes share."""

    time: float
    pod: str
    gang: str | None
    cpu: float = 0.0
    node: str = ""
    phase: str = ""
    gone: bool = False


# -- the process that watches ----------------------------------------------------------------------------------------


async def tell(kubeconfig: Path) -> None:
    """Reports until it is killed, or its standard input ends."""
    told: dict[str, tuple[str, str]] = {}
    old: set[str] = set()
    has_begun = False

    def hear(sighting: Sighting[tuple[str, str | None, float, str, str]]) -> None:
        pod, gang, cpu, node, phase = sighting.seen
        if not has_begun:
            old.add(pod)
        if pod not in old and (sighting.gone or told.get(pod) != (node, phase)):
            told[pod] = (node, phase)
            if sighting.gone:
                del told[pod]
            _say(Seen(sighting.time, pod, gang, cpu, node, phase, sighting.gone))

    pods = Collection(PODS, "Pod", hear, read=_read, identity=name_of)
    credentials = await Credentials.load(from_kubeconfig(kubeconfig))
    async with Connection(credentials) as connection, following(connection, pods):
        has_begun = True
        _say(None)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def _read(found: dict[str, Any]) -> tuple[str, str | None, float, str, str]:
    labels, node = found["metadata"].get("labels") or {}, found["spec"].get("nodeName") or ""
    phase = (found.get("status") or {}).get("phase", "")
    return name_of(found), labels.get(LABEL), cpu_of(found) / 1000, node, phase


def _say(seen: Seen | None) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(seen) + b"\n")
    sys.stdout.buffer.flush()


# -- the listening side ----------------------------------------------------------------------------------------------


class Pod(msgspec.Struct):
    """One pod's times by the watcher's clock; None: that was never seen."""

    gang: str | None
    created: float
    cpu: float = 0.0
    node: str = ""
    bound: float | None = None
    running: float | None = None
    gone: float | None = None


class Members(Changing):
    """The pods of one gang, also gone ones; separate, because thousands of gangs are awaited."""

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[str, Pod] = {}
        self.running = 0
        """How many of them exist and run."""


class Watched(Changing):
    """All pods that were seen since `begin`."""

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[str, Pod] = {}
        self.there: set[str] = set()
        """The pods that are not gone."""
        self.begun = False
        self.over = False
        """The watcher has ended: nothing is seen any more."""
        self.last = 0.0
        """When something was seen last."""
        self._by_gang: dict[str | None, Members] = {}

    def begin(self) -> None:
        """Forgets earlier pods; none of them may exist any more."""
        self.pods, self.there, self._by_gang = {}, set(), {}
        self.last = time.monotonic()

    def take(self, line: bytes) -> None:
        seen = msgspec.json.decode(line, type=Seen | None)
        if seen is None:
            self.begun = True
        else:
            self._see(seen)
        self.has_changed()

    def _see(self, seen: Seen) -> None:
        self.last = seen.time
        pod, members = self.pods.get(seen.pod), self._members(seen.gang)
        if pod is None:
            pod = self.pods[seen.pod] = members.pods[seen.pod] = Pod(seen.gang, seen.time, seen.cpu)
        if seen.gone:
            members.running -= pod.running is not None and pod.gone is None
            pod.gone = seen.time
            self.there.discard(seen.pod)
        else:
            self.there.add(seen.pod)
            if seen.node:
                pod.node = seen.node
                pod.bound = seen.time if pod.bound is None else pod.bound
                if seen.phase == "Running" and pod.running is None:
                    pod.running = seen.time
                    members.running += pod.gone is None
        members.has_changed()

    def _members(self, gang: str | None) -> Members:
        return self._by_gang.setdefault(gang, Members())

    def require(self) -> None:
        """Raises Blind if the watcher has ended, because its silence then means nothing."""
        if self.over:
            raise Blind("the process that watches from outside has ended: see what it said above")

    def of(self, gang: str) -> Mapping[str, Pod]:
        """All its pods, also gone ones, by name, in the order of their creation."""
        return self._members(gang).pods

    def running(self, gang: str) -> int:
        """How many of its pods exist and run."""
        return self._members(gang).running

    async def until_running(self, gang: str, pods: int, *, within: float) -> None:
        """Waits until `pods` of its pods exist and run. Raises Late."""
        members = self._members(gang)
        await members.until(lambda: members.running >= pods, gang, within=within)


@asynccontextmanager
async def watching(kubeconfig: Path) -> AsyncIterator[Watched]:
    """Runs the watching process during the block. Raises Late or Blind if it does not begin."""
    watched = Watched()
    command = [sys.executable, "-m", "lab.compare.trials.outside", str(kubeconfig)]
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    stdout = child.stdout
    assert stdout is not None

    async def listen() -> None:
        async for line in stdout:
            watched.take(line)
        watched.over = True
        watched.has_changed()

    listening = asyncio.create_task(listen())
    try:
        await watched.until(lambda: watched.begun or watched.over, "the watcher's beginning", within=_STARTS_WITHIN)
        watched.require()
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
