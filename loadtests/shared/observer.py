"""Observer: a separate process watches pods and nodes, and reports what was visible at each moment.

It uses only the API server and imports no module that decides. It reads pods and nodes with
`loadtests.shared.reading`, so that it cannot share a mistake with the ledger. `loadtests.shared.sightings` evaluates
what it saw.

Run as `python -m loadtests.shared.observer KUBECONFIG`. Commands are lines on stdin (`begin`, `take`, `report`, `end`),
answers are lines of JSON. `Observer` is the client side.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

from lab.controlplane.api import Access, Api
from lab.controlplane.witness import Collection, Sighting, Watching, name_of
from loadtests.shared.reading import Json
from loadtests.shared.sightings import Excess, GangSeen, Replay, Report, reduced_node, reduced_pod

_BEGINS_WITHIN = 30.0


def collection(kind: str, log: list[Sighting[Json]]) -> Collection[Json]:
    """Watches all pods or all nodes, and appends what is seen to `log`."""
    if kind == "Pod":
        return Collection("/api/v1/pods", kind, log.append, read=reduced_pod)
    # A node that is created again under its name is the same node for the pods bound to it.
    return Collection("/api/v1/nodes", kind, log.append, read=reduced_node, identity=name_of)


def catch_up(api: Api, watched: Collection[Json], *, within: float = 10.0) -> int:
    """Returns the version up to which all is seen: at least the API server's at the call.

    Raises TimeoutError.
    """
    answer = api.get(watched.path)
    there = {watched.identity(each): int(each["metadata"]["resourceVersion"]) for each in answer["items"]}
    version, deadline = int(answer["metadata"]["resourceVersion"]), time.monotonic() + within
    while watched.version < version:
        seen = {identity: each.version for identity, each in watched.known.copy().items()}
        # The list's own version may come from a change of another kind, which this watch never reports.
        if all(seen.get(identity, 0) >= each for identity, each in there.items()) and seen.keys() <= there.keys():
            break
        if time.monotonic() > deadline:
            raise TimeoutError(f"the watch of {watched.path} did not catch up with {version} in {within:g} s")
        threading.Event().wait(0.01)
    return version


def say(answer: Json) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


def main(kubeconfig: Path) -> None:
    log: list[Sighting[Json]] = []
    api, collections = Api(Access(kubeconfig)), [collection(kind, log) for kind in ("Node", "Pod")]
    watching = [Watching(api, each) for each in collections]
    for each in watching:
        each.start()
    if not all(each.begun.wait(_BEGINS_WITHIN) for each in watching):
        sys.exit(f"the API server has not answered for {_BEGINS_WITHIN:g} s")
    replay = Replay()
    say({"ready": True})
    for line in sys.stdin:
        command = line.strip()
        if command == "end":
            return
        try:
            until = min(catch_up(api, each) for each in collections)
        except TimeoutError as error:
            say({"error": str(error)})
            continue
        # Keep sightings of one watch beyond `until`: the other watch may still report earlier versions.
        seen = len(log)
        fresh, log[:seen] = log[:seen], [each for each in log[:seen] if each.version > until]
        replay.take(each for each in fresh if each.version <= until)
        if command == "begin":
            replay.begin()
            say({"begun": True})
        elif command == "take":
            say({"taken": True})
        else:
            report = replay.finish(time.monotonic())
            report.gaps = sum(each.gaps for each in collections)
            say(dataclasses.asdict(report))


class Observer:
    """The client side of the observer's process, for tests."""

    def __init__(self, kubeconfig: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "loadtests.shared.observer", str(kubeconfig)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
            # The owner handles an interrupt from the terminal. The observer ends when its stdin ends.
            start_new_session=True,
        )
        self._answer()

    def begin(self) -> None:
        """Discards what was seen until now, except the objects that exist now."""
        self._ask("begin")

    def take(self) -> None:
        """Evaluates what was seen until now for the coming report and frees it: for long runs."""
        self._ask("take")

    def report(self) -> Report:
        """Returns what was seen until now, at least up to the API server's state at this call."""
        said = self._ask("report")
        gangs = {name: GangSeen(**gang) for name, gang in said.pop("gangs").items()}
        excesses = [Excess(**excess) for excess in said.pop("excesses")]
        return Report(gangs=gangs, excesses=excesses, **said)

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write("end\n")
            self._process.stdin.close()
            self._process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _ask(self, command: str) -> Json:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Json:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the observer has ended with exit code {self._process.wait()}"
        said: Json = json.loads(line)
        assert "error" not in said, said["error"]
        return said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
