"""Outside: what anybody can see of pods by a watch, told by a process that does nothing else.

    python -m lab.compare.outside KUBECONFIG

Knows one label, whose value it tells; must not know approaches, gangs or the service. Each line of standard output is
one sighting, as JSON; the first is `null`: from there on everything is seen, but for the pods that were there already.
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

from extender.kube.connection import Connection
from extender.kube.credentials import Credentials, from_kubeconfig
from extender.kube.names import CPU
from extender.kube.quantities import count
from extender.kube.requests import address
from lab.controlplane.witness import Changing, Collection, Sighting, following, name_of

NAMESPACE = "default"
_PODS = ("api", "v1", "namespaces", NAMESPACE, "pods")
PODS = address(*_PODS)
LABEL = "compare.escher.dev/gang"
"""On each pod that is measured: whose member it is. Nobody else reads it."""
_STARTS_WITHIN = 60.0


# -- what a pod says -------------------------------------------------------------------------------------------------


def pods_where(**query: str | int) -> str:
    """The path of those that a list would show for this query."""
    return address(*_PODS, query=query)


def cpu_of(pod: Mapping[str, Any]) -> int:
    """What its containers request, in thousandths."""
    asked = [(each.get("resources") or {}).get("requests") or {} for each in pod["spec"]["containers"]]
    return sum(count(CPU, each[CPU]) for each in asked if CPU in each)


def is_turned_away(pod: Mapping[str, Any]) -> bool:
    """Whether kube-scheduler has said that it cannot be placed now."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


class Blind(Exception):
    """Nobody watches any more."""


class Seen(msgspec.Struct, frozen=True):
    """A pod. `gang`: what its label says; None: it bears none. `cpu` that it requests. `time` is this machine's
    monotonic clock, which all its processes share."""

    time: float
    pod: str
    gang: str | None
    cpu: float = 0.0
    node: str = ""
    phase: str = ""
    gone: bool = False


# -- the process that watches ----------------------------------------------------------------------------------------


async def tell(kubeconfig: Path) -> None:
    """Until it is killed, or nobody listens any more."""
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


# -- who listens -----------------------------------------------------------------------------------------------------


class Pod(msgspec.Struct):
    """What became of one, by the watcher's clock; None: that was never seen."""

    gang: str | None
    created: float
    cpu: float = 0.0
    node: str = ""
    bound: float | None = None
    running: float | None = None
    gone: float | None = None


class Members(Changing):
    """Those of one gang, also those that have gone, by name and in the order in which they came. It changes by itself:
    thousands of gangs are waited for at the same time, and each sighting is of one."""

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[str, Pod] = {}
        self.running = 0
        """How many of them are there and run."""


class Watched(Changing):
    """All pods that were seen since `begin`."""

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[str, Pod] = {}
        self.there: set[str] = set()
        """Those that are not gone."""
        self.begun = False
        self.over = False
        """The watcher has ended: nothing is seen any more."""
        self.last = 0.0
        """When something was seen last."""
        self._by_gang: dict[str | None, Members] = {}

    def begin(self) -> None:
        """What was seen so far is forgotten: nothing of it is there any more."""
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
        """Raises Blind where the watcher has ended, so that what is not seen says nothing."""
        if self.over:
            raise Blind("the process that watches from outside has ended: see what it said above")

    def of(self, gang: str) -> Mapping[str, Pod]:
        """All its pods, also those that have gone, by name and in the order in which they came."""
        return self._members(gang).pods

    def running(self, gang: str) -> int:
        """How many of its pods are there and run."""
        return self._members(gang).running

    async def until_running(self, gang: str, pods: int, *, within: float) -> None:
        """So many of its pods are there and run. Raises Late."""
        members = self._members(gang)
        await members.until(lambda: members.running >= pods, gang, within=within)


@asynccontextmanager
async def watching(kubeconfig: Path) -> AsyncIterator[Watched]:
    """The other process watches while the block lasts. Raises Late or Blind if it does not begin."""
    watched = Watched()
    command = [sys.executable, "-m", "lab.compare.outside", str(kubeconfig)]
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
