"""Nesting: JSON that tenants write is decoded however deeply it is nested. Pure.

The API server takes up to 10,000 levels where a definition lets anything through, and in the fields' managers of every
object; texts in annotations it does not look into. A decoder that goes down level by level ends at about a thousand, by
an error that is no decoding error. One such object must not keep a whole list from being read.
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar, overload

import msgspec

T = TypeVar("T")

DEEPEST = 100
"""Levels that are looked at: no kind that is read has half as many."""
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def shallow(text: bytes, deepest: int = DEEPEST) -> bytes:
    """The same, with null in the place of what is nested more deeply than that."""
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
    """As `msgspec.json.Decoder`, of text that may be nested as deeply as its author likes."""

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
