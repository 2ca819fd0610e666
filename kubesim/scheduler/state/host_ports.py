"""Host ports: the plugin NodePorts: the host ports that a pod wants, and their conflicts.

It reads containers' ports after the API server has set their defaults.
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
        """Whether no node can have both."""
        if (self.number, self.protocol) != (other.number, other.protocol):
            return False
        return self.address == other.address or _EVERY_ADDRESS in (self.address, other.address)


def host_ports(spec: Mapping[str, Any]) -> tuple[HostPort, ...]:
    """The host ports of all containers that run as long as the pod does."""
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
