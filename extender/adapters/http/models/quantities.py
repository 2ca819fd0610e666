"""Quantities: reads and shows amounts as the management API writes them, as numbers or text.

The core counts cpu in thousandths of a core; people write and read cores. Everything else is in whole units.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from extender.kube.names import CPU, ResourceKey
from extender.kube.quantities import InvalidQuantity, Vector, count, parse_quantity

MOST_RESOURCES = 1024
"""In one vector. No node has as many; a longer vector is a mistake or an attack."""

_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def read_vector(value: Mapping[str, object]) -> dict[ResourceKey, int]:
    """Returns units by resource, as in the core. Raises ValueError with resource and value."""
    if len(value) > MOST_RESOURCES:
        raise ValueError(f"names {len(value)} resources; the limit is {MOST_RESOURCES}")
    return {resource_key(key): _units(key, number) for key, number in value.items()}


def resource_key(text: str) -> ResourceKey:
    """Returns the text if it is a valid resource name. Raises ValueError."""
    if not _KEY.fullmatch(text):
        raise ValueError(
            f"{text[:80]!r} is not a resource name; write one such as cpu, nvidia.com/gpu or escher.dev/team-a.data1"
        )
    return ResourceKey(text)


def _units(key: str, number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int | float | str):
        raise ValueError(f"{key}: {str(number)[:40]} is not a quantity; write a number or a text such as 500m or 16Gi")
    text = number if isinstance(number, str) else _plain(number)
    try:
        # Kubernetes would round up. Half a device is more likely a mistake.
        if key != CPU and parse_quantity(text).denominator != 1:
            raise InvalidQuantity(f"{key}: {text!r} is not a whole number; only cpu is divisible")
        return count(key, text)
    except InvalidQuantity as error:
        said = str(error)
        raise ValueError(said if said.startswith(f"{key}: ") else f"{key}: {said}") from None


def _plain(number: float) -> str:
    """Returns a JSON number as a quantity's text; for NaN and infinities an invalid one."""
    return str(int(number)) if isinstance(number, int) or number.is_integer() else repr(number)


def shown(units: Vector) -> dict[str, int | float]:
    """Returns the vector as JSON shows it: cpu in cores."""
    return {key: _cores(number) if key == CPU else number for key, number in units.items()}


def shown_units(resource: ResourceKey, units: int) -> int | float:
    """Returns one number of a vector as JSON shows it."""
    return _cores(units) if resource == CPU else units


def _cores(milli: int) -> int | float:
    return milli // 1000 if milli % 1000 == 0 else milli / 1000
