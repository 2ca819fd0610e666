"""Control plane: the witness of a running control plane, through its watches and its audit log.

    with following(cluster.admin, cluster.audit_log) as follower:
        ...
        follower.interrupted()                  # the service was killed
        ...
        follower.finish()
        follower.violations()

The cluster is one started with `audit=True`. The follower orders watches and log by time: the log has the time of each
answer. A watch's event has the time at which it came, on the same machine. Both are delayed a little before they are
judged, and watches continue through restarts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from lab.controlplane.witness import Api, Collection, Watching
from loadtests.harm.harms import Harm
from loadtests.harm.witness import HarmWitness
from loadtests.shared.reading import Json, seconds

PATHS = {
    "/api/v1/pods": "Pod",
    "/api/v1/nodes": "Node",
    "/api/v1/namespaces": "Namespace",
    "/apis/apps/v1/daemonsets": "DaemonSet",
    "/apis/policy/v1/poddisruptionbudgets": "PodDisruptionBudget",
    "/apis/scheduling.x-k8s.io/v1alpha1/podgroups": "PodGroup",
}
_LAG = 3.0
"""Seconds for which events of all sources are collected before they are put in order."""
_EVERY = 0.5


class AuditLog:
    """Continues reading where it was; an incomplete last line waits for the next call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._rest = b""

    def more(self) -> list[Json]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                said = self._rest + file.read()
                self._position = file.tell()
        except FileNotFoundError:
            return []
        *lines, self._rest = said.split(b"\n")
        return [event for line in lines if (event := _read(line)) is not None]


def _read(line: bytes) -> Json | None:
    try:
        found: Any = msgspec.json.decode(line)
    except msgspec.DecodeError:
        # The API server was killed while it wrote this.
        return None
    return found if isinstance(found, dict) else None


class Follower:
    """Call `start`, and `finish` at the end. One thread feeds the witness, some seconds late."""

    def __init__(
        self,
        api: Api,
        audit_log: Path,
        *,
        paths: Mapping[str, str] = PATHS,
        now: Callable[[], float] = time.time,
        lag: float = _LAG,
        **about: Any,
    ) -> None:
        self.witness = HarmWitness(**about)
        self._log = AuditLog(audit_log)
        self._now, self._lag = now, lag
        self._collections = [self._collection(path, kind) for path, kind in paths.items()]
        self._watching = [Watching(api, each) for each in self._collections]
        self._lock = threading.Lock()
        self._feeding = threading.Lock()
        self._pending: list[tuple[float, int, bool, Json]] = []
        self._count = 0
        self._ending = threading.Event()
        self._reported = 0
        self._error: Exception | None = None

    @property
    def gaps(self) -> int:
        """How many times a watch had to begin again with a list."""
        return sum(each.gaps for each in self._collections)

    def start(self) -> None:
        """Begins to follow; the objects that exist are known when it returns."""
        for each in self._watching:
            each.start()
        for each in self._watching:
            each.begun.wait(30)
        threading.Thread(target=self._feed_on, daemon=True, name="harm-witness").start()

    def interrupted(self) -> None:
        """The service was killed a moment ago."""
        with self._feeding:
            self.witness.interrupted(self._now())

    def finish(self) -> None:
        """Judges all that happened until now. Raises the error of the witness, if it failed."""
        self._ending.wait(self._lag)
        self.close()
        self._feed(self._now())
        with self._feeding:
            self.witness.finish(self._now())

    def close(self) -> None:
        """Ends all watches."""
        self._ending.set()
        for each in self._watching:
            each.end()

    def violations(self) -> list[Harm]:
        if self._error is not None:
            raise self._error
        with self._feeding:
            return self.witness.violations()

    def warnings(self) -> list[Harm]:
        with self._feeding:
            return self.witness.warnings()

    def new_violations(self) -> list[Harm]:
        """The violations found since the last call."""
        found = self.violations()
        new, self._reported = found[self._reported :], len(found)
        return new

    def _collection(self, path: str, kind: str) -> Collection[Json]:
        return Collection(
            path,
            kind,
            lambda sighting: self._hear({"type": sighting.type, "object": sighting.seen}),
            # Items of a list do not state their kind.
            read=lambda found: {**found, "kind": kind},
        )

    def _hear(self, event: Json) -> None:
        self._put(self._now(), event, audit=False)

    def _put(self, at: float, event: Json, *, audit: bool) -> None:
        with self._lock:
            self._count += 1
            self._pending.append((at, self._count, audit, event))

    def _feed_on(self) -> None:
        while not self._ending.wait(_EVERY):
            try:
                self._feed(self._now() - self._lag)
            except Exception as error:
                self._error = error
                raise

    def _feed(self, until: float) -> None:
        """Passes the events before `until` to the witness, in order."""
        with self._feeding:
            for event in self._log.more():
                self._put(
                    seconds(event.get("stageTimestamp") or event.get("requestReceivedTimestamp")), event, audit=True
                )
            with self._lock:
                self._pending.sort(key=lambda each: each[:2])
                due = [each for each in self._pending if each[0] <= until]
                self._pending = self._pending[len(due) :]
            for at, _, audit, event in due:
                if audit:
                    self.witness.audited(event)
                else:
                    self.witness.watched(event, at)


@contextmanager
def following(api: Api, audit_log: Path, **about: Any) -> Iterator[Follower]:
    """A started follower, which ends with the block; call `finish` in the block."""
    follower = Follower(api, audit_log, **about)
    follower.start()
    try:
        yield follower
    finally:
        follower.close()
