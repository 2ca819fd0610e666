"""An outside witness: a process of its own that watches pods and nodes, and says what could be seen at every moment.

It asks the API server and nobody else, and imports nothing that decides: what pods and nodes say it has from
`loadtests.reading`, and so it cannot share a mistake with the ledger. What is made of it: `loadtests.sightings`.

Run as `python -m loadtests.observer KUBECONFIG`; commands come as lines on stdin (`begin`, `take`, `report`, `end`),
answers are lines of JSON. `Observer` is the other side of it.
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
from loadtests.reading import Json
from loadtests.sightings import Excess, GangSeen, Replay, Report, reduced_node, reduced_pod

_BEGINS_WITHIN = 30.0


def collection(kind: str, log: list[Sighting[Json]]) -> Collection[Json]:
    """All pods or all nodes; what is seen is appended to `log`."""
    if kind == "Pod":
        return Collection("/api/v1/pods", kind, log.append, read=reduced_pod)
    # A node that is made again under its name is the same to pods that were bound to it.
    return Collection("/api/v1/nodes", kind, log.append, read=reduced_node, identity=name_of)


def catch_up(api: Api, watched: Collection[Json], *, within: float = 10.0) -> int:
    """The version up to which all has been seen: at least what the API server knew when this was called.

    Raises TimeoutError.
    """
    answer = api.get(watched.path)
    there = {watched.identity(each): int(each["metadata"]["resourceVersion"]) for each in answer["items"]}
    version, deadline = int(answer["metadata"]["resourceVersion"]), time.monotonic() + within
    while watched.version < version:
        seen = {identity: each.version for identity, each in watched.known.copy().items()}
        # The list's own version may be that of a change in another kind, which this watch never tells.
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
        # What one watch has told beyond that must wait for what the other will tell before it.
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
    """The process, as tests talk to it."""

    def __init__(self, kubeconfig: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "loadtests.observer", str(kubeconfig)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[1],
            # An interrupt from the terminal is its owner's to heed: with that its stdin ends, and so does it.
            start_new_session=True,
        )
        self._answer()

    def begin(self) -> None:
        """What was seen so far is forgotten, but for what is there now."""
        self._ask("begin")

    def take(self) -> None:
        """What was seen up to now is in the report to come, and no longer kept as it was seen: for long runs."""
        self._ask("take")

    def report(self) -> Report:
        """Everything up to now, and at least up to what the API server knew when this was called."""
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
