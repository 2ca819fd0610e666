"""Reads `NAME=VALUE`, as options take it."""

from __future__ import annotations

from collections.abc import Iterable

from extender.shipped.errors import WrongUse


def pairs(texts: Iterable[str] | None) -> list[tuple[str, str]]:
    """The names and values; empty texts are left out. Raises WrongUse."""
    found = []
    for text in filter(None, texts or ()):
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise WrongUse(f"expected NAME=VALUE, found {text!r}")
        found.append((name, value))
    return found
