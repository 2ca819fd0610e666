"""Child processes: they cannot outlive this process, are watched, and are stopped in order.

Single-threaded on purpose: the kernel ends a child when the *thread* that created it ends, and forking is only safe
without other threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.controlplane.processes.components import Component

_PR_SET_PDEATHSIG = 1
# Loaded before any fork, because the child may not import.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

Pause = Callable[[float], object]
"""Returns after at most the given seconds, earlier on an event; may raise to end the waiting."""


class Children:
    """The running components by name, in the order of their start."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def pids(self) -> dict[str, int]:
        return {name: child.pid for name, child in self._running.items()}

    def log_of(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def log_end(self, name: str, *, lines: int = 20) -> str:
        """The last lines of the component's log."""
        try:
            with self.log_of(name).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 64 * 1024))
                text = log.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def start(self, component: Component) -> int:
        """Starts the component, appends its output to its log, and returns its pid."""
        if component.name in self._running:
            raise ValueError(f"{component.name} runs already")
        parent = os.getpid()
        with self.log_of(component.name).open("ab") as log:
            child = subprocess.Popen(
                component.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **component.environment},
                # Ctrl-C in a terminal goes to the whole process group; this process stops its children in order.
                start_new_session=True,
                preexec_fn=lambda: _die_with(parent),
            )
        self._running[component.name] = child
        return child.pid

    def ended(self) -> dict[str, int]:
        """Exit codes of the components that ended since the last call; it forgets these."""
        codes = {name: child.poll() for name, child in self._running.items()}
        gone = {name: code for name, code in codes.items() if code is not None}
        for name in gone:
            del self._running[name]
        return gone

    def send(self, name: str, number: int) -> None:
        self._running[name].send_signal(number)

    def stop(self, within: dict[str, float], *, pause: Pause) -> None:
        """Stops the named components: SIGTERM to all at once, SIGKILL after each one's seconds.

        `pause` must not raise before they have ended, or they keep running.
        """
        began = time.monotonic()
        asked = {name: self._running[name] for name in within if name in self._running}
        for child in asked.values():
            child.terminate()
            # A component that a test has stopped by SIGSTOP would never handle the SIGTERM.
            child.send_signal(signal.SIGCONT)
        while waiting := {name: child for name, child in asked.items() if child.poll() is None}:
            for name, child in waiting.items():
                if time.monotonic() - began >= within[name]:
                    child.kill()
            pause(0.02)
        for name in asked:
            del self._running[name]


def describe_exit(code: int) -> str:
    """`exit code 1`, or `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def says_port_taken(log_end: str) -> bool:
    """True if the log's end says, as Go or Python words it, that another process uses the port."""
    lowered = log_end.lower()
    return any(words in lowered for words in ("address already in use", "address in use", "errno 98"))


def _die_with(parent: int) -> None:
    # Runs in the forked child before exec. SIGKILL, because no process would be left to wait for a slow child.
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # The parent ended between fork and prctl, so no signal will come.
        os._exit(1)


def in_order(components: Sequence[Component]) -> list[dict[str, float]]:
    """Groups in the order of stopping, last started first: component name to its seconds."""
    groups: dict[str, dict[str, float]] = {}
    for component in reversed(components):
        groups.setdefault(component.stage, {})[component.name] = component.stop_within
    return list(groups.values())
