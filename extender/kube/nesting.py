"""Nesting: decodes JSON of tenants however deeply it is nested. Pure.

The API server accepts up to 10,000 levels if a definition allows anything, and in every object's managed fields. It
does not check texts in annotations. A recursive decoder fails at about a thousand levels, with an error that is no
decoding error. One such object must not make a whole list unreadable.
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar, overload

import msgspec

T = TypeVar("T")

DEEPEST = 100
"""Levels that are decoded: no kind that Escher reads has half as many."""
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def shallow(text: bytes, deepest: int = DEEPEST) -> bytes:
    """The same JSON, with null for everything nested more deeply than `deepest`."""
    parts: list[bytes] = []
    depth = kept = 0
    for token in _TOKENS.finditer(text):
        match token[0]:
            case b"[" | b"{":
                depth += 1
                if depth == deepest + 1:
                    parts.append(text[kept : token.start()])
            case b"]" | b"}":
                depth -= 1
                if depth == deepest:
                    parts.append(b"null")
                    kept = token.end()
    return b"".join([*parts, text[kept:]]) if depth <= deepest else b""


class Decoder(Generic[T]):
    """As `msgspec.json.Decoder`, but for text with any depth of nesting."""

    @overload
    def __init__(self, of: type[T]) -> None: ...
    @overload
    def __init__(self, of: Any) -> None: ...
    def __init__(self, of: Any) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(of)

    def decode(self, text: bytes | str | msgspec.Raw) -> T:
        """Raises msgspec.DecodeError."""
        try:
            return self._decoder.decode(text)
        except RecursionError:
            return self._decoder.decode(shallow(text.encode() if isinstance(text, str) else bytes(text)))
