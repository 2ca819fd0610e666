"""Spelling: names as Kubernetes' JSON writes them."""

from __future__ import annotations


def camel(name: str) -> str:
    """Returns `maxSkew` for `max_skew`."""
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)
