"""Client of the supervisor: starts it, follows it until the cluster is usable, orders, ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from extender.shipped import places
from extender.shipped.errors import ClusterError, PortTaken
from lab.controlplane.processes import components, state
from lab.controlplane.processes.components import ClusterSpec
from lab.controlplane.processes.protocol import Command, Event
from lab.controlplane.processes.state import ClusterState

_END_WITHIN = 40.0

Listener = Callable[[Event], None]


class Supervision:
    """A running supervisor and its lifeline. The cluster ends when this process ends."""

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._one_command = threading.Lock()
        self._child = subprocess.Popen(
            [sys.executable, "-m", "lab.controlplane.processes.supervisor"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **components.import_path()},
            # This process handles Ctrl-C in its terminal; the supervisor notices through the lifeline.
            start_new_session=True,
        )
        self._write(msgspec.json.encode(spec))

    def follow_start(self, listen: Listener) -> ClusterState:
        """Waits until the cluster is usable. Raises ClusterError (PortTaken) with the reason."""
        while (event := self._next()) is not None:
            listen(event)
            if event.event == "failed":
                self._child.wait()
                raise (PortTaken if event.port_taken else ClusterError)(event.message)
            if event.event == "ready" and event.state is not None:
                return event.state
        raise ClusterError(f"the supervisor ended unexpectedly\n{self._last_words()}")

    def order(self, command: Command) -> None:
        """Has the supervisor carry out the command. Raises ClusterError if it fails."""
        with self._one_command:
            self._write(msgspec.json.encode(command))
            while (event := self._next()) is not None:
                if event.event == "reply":
                    if event.message:
                        raise ClusterError(event.message)
                    return
        raise ClusterError(f"the cluster {self._spec.name} has ended\n{self._last_words()}")

    def let_go(self) -> None:
        """Lets the cluster run on when this process ends."""
        self.order(Command("detach"))
        self._close_pipes()

    def end(self) -> None:
        """Ends the supervisor and all processes of the cluster."""
        if self._child.poll() is None:
            with contextlib.suppress(ClusterError):
                self._write(msgspec.json.encode(Command("shutdown")))
            try:
                self._child.wait(_END_WITHIN)
            except subprocess.TimeoutExpired:
                # The kernel ends its children with it.
                self._child.kill()
                self._child.wait()
        self._close_pipes()

    def _write(self, line: bytes) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(line + b"\n")
            self._child.stdin.flush()
        except OSError as error:
            raise ClusterError(f"the supervisor of cluster {self._spec.name} is gone") from error

    def _next(self) -> Event | None:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        return msgspec.json.decode(line, type=Event) if line else None

    def _close_pipes(self) -> None:
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _last_words(self) -> str:
        log = Path(self._spec.folder) / "logs" / "supervisor.log"
        try:
            return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        except OSError:
            return f"(no {log})"


def running(name: str) -> ClusterState | None:
    """The state of the cluster `name` with the processes that really run, or None if none does.

    Processes that should run and do not are in `ended`, whether or not the supervisor has noticed.
    """
    found = state.read(places.cluster_folder(name))
    if found is None:
        return None
    everything = [found.supervisor, *found.processes]
    found.processes = [process for process in everything if state.alive(process)]
    if found.phase == "ready":
        for process in everything:
            if process not in found.processes:
                found.ended.setdefault(process.name, f"process {process.pid} is gone")
    return found if found.processes else None


def take_down(name: str) -> list[str]:
    """Ends the cluster's processes and no others; returns their names, empty if none ran.

    Raises ClusterError if one could not be ended.
    """
    found = running(name)
    if found is None:
        return []
    names = [process.name for process in found.processes]
    if state.alive(found.supervisor):
        _send(found.supervisor, signal.SIGTERM)
        _wait_until_gone([found.supervisor], within=_END_WITHIN)
    # Normally all are gone by now, unless the supervisor was killed where the kernel does not end its children.
    left = [process for process in found.processes if state.alive(process)]
    for process in left:
        _send(process, signal.SIGKILL)
    if not _wait_until_gone(left, within=10):
        still = ", ".join(f"{each.name} (pid {each.pid})" for each in left if state.alive(each))
        raise ClusterError(f"could not stop {still}")
    return names


def _send(process: state.Running, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


def _wait_until_gone(processes: list[state.Running], *, within: float) -> bool:
    deadline = time.monotonic() + within
    while any(state.alive(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.03)
    return True
