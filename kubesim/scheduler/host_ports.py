"""Host ports: the plugin NodePorts: which ports of its node a pod wants to itself, and whom that keeps away.

Knows containers' ports as the API server has completed them; must not know nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

_EVERY_ADDRESS = "0.0.0.0"


class HostPort(NamedTuple):
    number: int
    protocol: str
    address: str

    def clashes(self, other: HostPort) -> bool:
        """Whether no node has room for both."""
        if (self.number, self.protocol) != (other.number, other.protocol):
            return False
        return self.address == other.address or _EVERY_ADDRESS in (self.address, other.address)


def host_ports(spec: Mapping[str, Any]) -> tuple[HostPort, ...]:
    """Of all containers that run for as long as the pod does."""
    return tuple(dict.fromkeys(_wanted(spec)))


def clash(wanted: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    taken = tuple(used)
    return any(port.clashes(other) for port in wanted for other in taken)


def _wanted(spec: Mapping[str, Any]) -> Iterator[HostPort]:
    staying = (each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always")
    for container in (*staying, *spec["containers"]):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or 0
            if number > 0:
                yield HostPort(number, port.get("protocol") or "TCP", port.get("hostIP") or _EVERY_ADDRESS)
