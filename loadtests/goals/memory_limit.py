"""Memory limit: loads a service in its own control group, with little more memory than it uses.

    python -m loadtests.goals.memory_limit                 # 5,000 nodes, 50,000 pods; as root, on Linux; two minutes
    python -m loadtests.goals.memory_limit --more 32       # 32 MiB more than it has when it is ready

The service is a separate process, as in a container: it sees only its own control group. Its embedded API server is
outside of the group. The limit is set once the service is ready. Then callers of each kind send requests without a
pause: state dumps, what-ifs (in copies of the process), pages of the cluster's state. One caller sends filter calls for
ordinary pods. The output has the status of each answer, the slowest verb and the most memory in use. It also has the
number of processes that the kernel killed for lack of memory: copies, or the service itself. Swap is not limited: if
there is any, the kernel may use it.

Exit code 1 if a verb failed, or the service ended or was not ready afterwards; 2 if no such group can be created.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import msgspec

from loadtests.goals.at_scale import SETTLES, serving, wait_until_ready
from loadtests.goals.measuring import objects
from loadtests.goals.measuring.crowded import Crowded
from loadtests.recorded.calls import load, select
from loadtests.shared.progress import say

NODES, PODS, MORE, SECONDS, CALLERS = 5000, 50_000, 64, 30.0, 8
VERB = "filter"
NO_GROUP = 2
"""The exit code if no group can be created."""
_MIB = 2**20
_ROOT = Path("/sys/fs/cgroup")
_ENTER = 'echo $$ > "$0/cgroup.procs" && mount --bind "$0" "$1" && shift && exec "$@"'

Ask = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


class NoGroup(RuntimeError):
    """No control group can be created; `str()` says why."""


class Group:
    """A control group for memory, of version 1 or 2."""

    seen_at = _ROOT / "memory" if (_ROOT / "memory").is_dir() else _ROOT
    """Where groups are; a process inside a group sees only its own group there."""
    _is_old = seen_at != _ROOT

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    @contextmanager
    def made(cls) -> Iterator[Group]:
        """Yields a new group, which exists until the block ends. Raises NoGroup."""
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
            raise NoGroup("nobody may have mounts of its own here")
        group = cls(cls.seen_at / f"escher-{os.getpid()}")
        try:
            group.path.mkdir()
        except OSError as error:
            raise NoGroup(f"no control group can be made at {group.path}: {error}") from error
        try:
            if not group._limit.exists():
                raise NoGroup(f"control groups in {cls.seen_at} do not limit memory")
            yield group
        finally:
            group.path.rmdir()

    @property
    def _limit(self) -> Path:
        return self.path / ("memory.limit_in_bytes" if self._is_old else "memory.max")

    @property
    def entered(self) -> tuple[str, ...]:
        """A command prefix that runs a command in this group, as in a container."""
        return ("unshare", "--mount", "sh", "-c", _ENTER, str(self.path), str(self.seen_at))

    def leave(self, more: int) -> None:
        """Sets the limit to the memory in use plus `more` bytes."""
        self._limit.write_text(str(self.used + more))

    @property
    def used(self) -> int:
        """Bytes in use."""
        return int((self.path / ("memory.usage_in_bytes" if self._is_old else "memory.current")).read_text())

    @property
    def most(self) -> int:
        """The most bytes in use so far."""
        return int((self.path / ("memory.max_usage_in_bytes" if self._is_old else "memory.peak")).read_text())

    @property
    def ended(self) -> int:
        """How many processes the kernel has killed for lack of memory."""
        said = (self.path / ("memory.oom_control" if self._is_old else "memory.events")).read_text()
        lines = (line.split() for line in said.splitlines())
        return next((int(value) for name, value in lines if name == "oom_kill"), 0)


class Told:
    """Callers' answers: counts by request and status. `late`: seconds of the slowest verb."""

    def __init__(self) -> None:
        self.answers: dict[str, Counter[str]] = defaultdict(Counter)
        self.late = 0.0

    def verbs_failed(self) -> int:
        return sum(count for status, count in self.answers[VERB].items() if status != "200")


async def ask_for_much(address: str, nodes: int, seconds: float, callers: int) -> Told:
    """Sends filter calls from one caller, and each other kind of request from `callers`."""
    told, until = Told(), time.monotonic() + seconds
    async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=60, limits=httpx.Limits()) as client:

        async def go_on(what: str, ask: Ask) -> None:
            while (began := time.monotonic()) < until:
                try:
                    status = str((await ask(client)).status_code)
                except httpx.TransportError as error:
                    status = type(error).__name__
                told.answers[what][status] += 1
                if what == VERB:
                    told.late = max(told.late, time.monotonic() - began)

        asks = [(VERB, _verb(nodes)), *_MANAGEMENT.items()]
        async with asyncio.TaskGroup() as group:
            for what, ask in asks:
                for _ in range(1 if what == VERB else callers):
                    group.create_task(go_on(what, ask))
    return told


def _verb(nodes: int) -> Ask:
    """Returns a filter call that is about a new pod each time."""
    [call] = select(load(), verb=VERB, kind="ordinary", profile="escher", whole=False, cluster=5000)[:1]
    drawn = random.Random(1)
    ready = call.prepare(drawn)
    names = msgspec.json.encode([objects.node_name(number) for number in range(min(nodes, 500))])
    ready = replace(ready, nodes=names)

    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        uid = str(uuid.UUID(int=drawn.getrandbits(128), version=4))
        return await client.post(f"/scheduler/{VERB}", content=ready.body(f"pod-{uid[:8]}", uid))

    return ask


def _get(path: str) -> Ask:
    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        return await client.get(path)

    return ask


async def _what_if(client: httpx.AsyncClient) -> httpx.Response:
    gang = {"kind": "pods", "namespace": objects.NAMESPACES[0], "name": "train", "count": 64, "gang": True}
    return await client.post("/v1/what-if", json={"question": {**gang, "each": {"cpu": 4}}})


_MANAGEMENT: dict[str, Ask] = {
    "state dump": _get("/v1/state-dump"),
    "cluster state": _get("/v1/cluster-state?limit=5000"),
    "what-if": _what_if,
}


def run(nodes: int, pods: int, more: int, seconds: float, callers: int) -> int:
    """Runs the measurement and returns the exit code. Raises NoGroup."""
    with tempfile.TemporaryDirectory() as made, Group.made() as group:
        folder, log = Path(made), Path(made) / "log"
        say(f"making an API server with {nodes} nodes and {pods} pods")
        with (
            Crowded.start(folder, nodes=nodes, pods=pods) as crowded,
            serving(crowded.kubeconfig, log, within=group.entered) as (service, port),
        ):
            wait_until_ready(service, port, log)
            time.sleep(SETTLES)
            group.leave(more * _MIB)
            say(f"{group.used / _MIB:.0f} MiB in use, {more} more may be; asking for {seconds:g} s")
            address = f"http://127.0.0.1:{port}"
            told = asyncio.run(ask_for_much(address, nodes, seconds, callers))
            lives = service.poll() is None
            sys.stdout.write(_in_words(told, group, lives))
            if lives:
                wait_until_ready(service, port, log)
            return 0 if lives and not told.verbs_failed() else 1


def _in_words(told: Told, group: Group, lives: bool) -> str:
    lines = [
        f"{what:<14}" + ", ".join(f"{status}: {count}" for status, count in sorted(answers.items()))
        for what, answers in told.answers.items()
    ]
    lines.append(f"the slowest {VERB} took {told.late * 1000:.0f} ms")
    lines.append(f"{group.most / _MIB:.0f} MiB were in use at most")
    lines.append(f"{group.ended} processes ended for want of memory, and the service {'goes on' if lives else 'ended'}")
    return "\n".join(lines) + "\n"


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.goals.memory_limit", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=NODES, help=f"of the cluster (default: {NODES})")
    parser.add_argument("--pods", type=int, default=PODS, help=f"that are bound (default: {PODS})")
    parser.add_argument("--more", type=int, default=MORE, help=f"MiB beyond what it has when ready (default: {MORE})")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for which it is asked (default: {SECONDS:g})")
    parser.add_argument("--callers", type=int, default=CALLERS, help=f"of each kind at a time (default: {CALLERS})")
    wanted = parser.parse_args(given)
    try:
        return run(wanted.nodes, wanted.pods, wanted.more, wanted.seconds, wanted.callers)
    except NoGroup as error:
        say(f"{error}; this is for Linux, and for root")
        return NO_GROUP


if __name__ == "__main__":
    sys.exit(main())
