"""Free loopback ports, chosen so that clusters that start at the same time seldom collide.

A port may be taken after the choice: the caller tries again with other ports when a component finds its port taken.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Sequence
from pathlib import Path

from extender.shipped.errors import ClusterError

_LOWEST = 20_000


def choose(names: Sequence[str], *, avoid: Collection[int] = ()) -> dict[str, int]:
    """A distinct free port for every name, none in `avoid`. Raises ClusterError if there are few.

    The ports lie below the range from which the kernel takes ports of outgoing connections. Otherwise a client of this
    cluster might use the port before its server listens.
    """
    # Not the seeded module-level generator: two test runs with one seed would choose the same ports.
    candidates = random.SystemRandom().sample(range(_LOWEST, _ephemeral_start()), k=200 + len(names))
    free = (port for port in candidates if port not in avoid and _is_free(port))
    chosen = dict(zip(names, free, strict=False))
    if len(chosen) < len(names):
        raise ClusterError(f"found only {len(chosen)} of {len(names)} free ports on 127.0.0.1 from {_LOWEST} up")
    return chosen


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Go's net.Listen does: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _ephemeral_start() -> int:
    try:
        start = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
    return start if start >= _LOWEST + 1_000 else 60_000
