"""state.json of one cluster: its processes, their addresses, and its owner.

Only the supervisor writes it, whole and atomically; any process may read it. A process is identified by pid *and* start
time, because a pid alone may meanwhile belong to another process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

Phase = Literal["starting", "ready", "stopping"]


class Running(msgspec.Struct, frozen=True):
    """One process: its name in this cluster, its pid, and its start in clock ticks since boot."""

    name: str
    pid: int
    began: int


class ClusterState(msgspec.Struct):
    """Everything that `status` and `down` need; it contains no secret."""

    kind: str
    name: str
    phase: Phase
    kubeconfig: str
    api_url: str
    service_url: str
    ports: dict[str, int]
    supervisor: Running
    processes: list[Running] = msgspec.field(default_factory=list)
    ended: dict[str, str] = msgspec.field(default_factory=dict)
    """Components that ended without a command, and how."""


def write(folder: Path, state: ClusterState) -> None:
    """Writes the state; a concurrent reader sees the old or the new one, never a part."""
    draft = folder / "state.json.draft"
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2))
    draft.replace(folder / "state.json")


def read(folder: Path) -> ClusterState | None:
    """The last written state, or None if there is no readable one."""
    try:
        return msgspec.json.decode((folder / "state.json").read_bytes(), type=ClusterState)
    except (OSError, msgspec.MsgspecError):
        return None


def identify(name: str, pid: int) -> Running:
    """Name, pid and start time of a running process of this cluster."""
    return Running(name=name, pid=pid, began=_began(pid) or 0)


def alive(process: Running) -> bool:
    """True if this very process runs; a zombie or another process with its pid does not count."""
    began = _began(process.pid)
    return began is not None and (process.began in (0, began))


def _began(pid: int) -> int | None:
    """Start time in ticks, None if the process is gone, 0 where the system has no /proc."""
    try:
        # The second field is the command in parentheses and may itself contain spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            pass
        return 0
    return None if fields[0] in ("Z", "X") else int(fields[19])
