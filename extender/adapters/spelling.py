"""Spelling: names as Kubernetes' JSON writes them."""

from __future__ import annotations


def camel(name: str) -> str:
    """`max_skew` as `maxSkew`."""
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)
