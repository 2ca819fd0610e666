"""Apportionment: divides a whole by weights, by largest remainder (Hamilton's method).

Arithmetic is exact. Of equal remainders, the name that sorts first gets the part.
"""

from __future__ import annotations

from collections.abc import Mapping


def apportion(whole: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Parts that add up to the whole; each is its quota rounded down or up. Weights are above 0."""
    total = sum(weights.values())
    parts = {name: whole * weight // total for name, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda name: (-(whole * weights[name] % total), name))
    for name in by_remainder[: whole - sum(parts.values())]:
        parts[name] += 1
    return parts


def apportion_at_most(whole: int, weights: Mapping[str, int], demands: Mapping[str, int]) -> dict[str, int]:
    """As `apportion`, but no part exceeds its demand: others share what is left, up to theirs."""
    parts: dict[str, int] = {}
    rest = dict(weights)
    while rest:
        fair = apportion(whole - sum(parts.values()), rest)
        content = [name for name in rest if demands.get(name, 0) <= fair[name]]
        if not content:
            return {**parts, **fair}
        for name in content:
            parts[name] = demands.get(name, 0)
            del rest[name]
    return parts
