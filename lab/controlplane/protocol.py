"""What a supervisor and the process that started it say to each other: JSON objects, one a line, over two pipes."""

from __future__ import annotations

from typing import Literal

import msgspec

from lab.controlplane.state import ClusterState


class Command(msgspec.Struct, omit_defaults=True):
    """To the supervisor; every command is answered by one `reply`, in order. `shutdown` is answered by the end.

    `arguments`: of a component that is started, after its own, this time.
    """

    do: Literal["start", "stop", "kill", "detach", "shutdown"]
    name: str = ""
    signal: int = 0
    arguments: tuple[str, ...] = ()


class Event(msgspec.Struct, omit_defaults=True):
    """From the supervisor.

    starting, usable: `component`, and for usable the `seconds` it took. api: the API server answers and `state` says
    where, the rest is still starting. ready: everything is usable. failed: `message` for a person; the end follows.
    ended: `component` ended by itself, `message` says how. reply: to a command; `message` is empty if it was done.
    """

    event: Literal["starting", "usable", "api", "ready", "failed", "ended", "reply"]
    component: str = ""
    seconds: float = 0.0
    message: str = ""
    port_taken: bool = False
    state: ClusterState | None = None
