"""Messages between a supervisor and the process that started it: JSON lines over two pipes."""

from __future__ import annotations

from typing import Literal

import msgspec

from lab.controlplane.processes.state import ClusterState


class Command(msgspec.Struct, omit_defaults=True):
    """To the supervisor: one `reply` per command, in order; `shutdown` is answered by the end.

    `arguments`: added for this run to those of a component that is started.
    """

    do: Literal["start", "stop", "kill", "detach", "shutdown"]
    name: str = ""
    signal: int = 0
    arguments: tuple[str, ...] = ()


class Event(msgspec.Struct, omit_defaults=True):
    """From the supervisor.

    starting, usable: `component`, and for usable the `seconds` it took. api: the API server answers, `state` has its
    address, the rest is still starting. ready: everything is usable. failed: `message` for a person; the end follows.
    ended: `component` ended without a command, `message` says how. reply: to a command; `message` is empty on success.
    """

    event: Literal["starting", "usable", "api", "ready", "failed", "ended", "reply"]
    component: str = ""
    seconds: float = 0.0
    message: str = ""
    port_taken: bool = False
    state: ClusterState | None = None
