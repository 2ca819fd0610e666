"""Lazy node names: keeps the node names of a call as they were sent, and decodes them on first use.

An ordinary pod passes on every node. Then no code reads a name, and the answer contains the received list, byte for
byte. Decoding thousands of names takes five times as long as counting them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import msgspec
from msgspec import Raw

from extender.kube.names import NodeName

_IN_NAMES = b"abcdefghijklmnopqrstuvwxyz0123456789-."
_OPEN, _EACH, _CLOSE = b"[", b'"",', b'""]'
_NAMED, _END, _NULL = b',"Nodes":null,"NodeNames":', b"}", b"null"
_FIRST, _BETWEEN, _LAST = b'["', b'","', b'"]'
_AT_THE_END = _LAST + _END
_FEW = 16
"""Answers with few names are remembered, and would keep the whole body of the call in memory."""
_read = msgspec.json.Decoder(list[NodeName]).decode


class LazyNodeNames(Sequence[NodeName]):
    """A list of names, as JSON in `raw`."""

    __slots__ = ("_count", "_names", "raw")

    def __init__(self, raw: Raw, count: int) -> None:
        """`raw` is a list of `count` names: see `sent_names`."""
        self.raw = raw
        self._count = count
        self._names: list[NodeName] | None = None

    def _all(self) -> list[NodeName]:
        if self._names is None:
            self._names = _read(self.raw)
        return self._names

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[NodeName]:
        return iter(self._all())

    def __contains__(self, name: object) -> bool:
        if self._names is None and isinstance(name, str) and name.isascii():
            sought = name.encode()
            if not sought.translate(None, _IN_NAMES):
                return b'"%b"' % sought in bytes(self.raw)
        return name in self._all()

    @overload
    def __getitem__(self, at: int) -> NodeName: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[NodeName]: ...

    def __getitem__(self, at: int | slice) -> NodeName | Sequence[NodeName]:
        return self._all()[at]


def sent_names(raw: Raw) -> LazyNodeNames | None:
    """Returns the names of `raw` if they can be counted without decoding; else None: decode `raw`.

    It must be a list, without spaces, of more than `_FEW` texts in the characters of node names."""
    return _counted(bytes(raw))


def cut_out(body: bytes) -> tuple[bytes, LazyNodeNames] | None:
    """Returns `body` with null for its node names, and the names; None: not as kube-scheduler's.

    Decoding the first part gives what decoding `body` would, but for the names, as null may replace any one JSON value.
    """
    if not body.endswith(_AT_THE_END) or (at := body.find(_NAMED)) < 0:
        return None
    at += len(_NAMED)
    names = _counted(body[at : -len(_END)])
    return None if names is None else (body[:at] + _NULL + _END, names)


def _counted(raw: bytes) -> LazyNodeNames | None:
    # Removes the characters of names. What is left must be the frame of the list. If each comma has a quote on both
    # sides, no name character is outside of the quotes.
    frame = raw.translate(None, _IN_NAMES)
    count = len(frame) // len(_EACH)
    if count <= _FEW or frame != _OPEN + _EACH * (count - 1) + _CLOSE:
        return None
    if raw.count(_BETWEEN) != count - 1 or not (raw.startswith(_FIRST) and raw.endswith(_LAST)):
        return None
    return LazyNodeNames(Raw(raw), count)
