"""Heads: a request whose head came before, but for its Content-Length, is read by looking that up.

kube-scheduler sends the same head with each call of a verb, and nobody need go through it again, header by header.
Nothing is understood here: what a head means the parser has said, the first time it came; and what is not as simple as
kube-scheduler's heads is left to the parser each time. Must not know connections, nor what is served.
"""

from __future__ import annotations

from typing import NamedTuple

_END = b"\r\n\r\n"
_LENGTH = b"\r\nContent-Length: "
_DIGITS = 9
_LONGEST = 2048
"""Bytes of a head, Go's has some 200."""
_REMEMBERED = 64
_FRAMES_OTHERWISE = frozenset({b"transfer-encoding", b"upgrade", b"expect", b"trailer"})


class Request(NamedTuple):
    """As far as it matters to who is asked at once."""

    method: str
    path: str
    body: bytes


class _Parts(NamedTuple):
    head: bytes
    """Without the digits of its length, of which it is certain where they were: behind the first `_LENGTH`."""
    body: bytes


class HeadCache:
    """Those of one server. What is given to it begins where a request begins."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[str, str]] = {}
        """Method and path, by head without the digits of its length."""

    def read(self, data: bytes) -> Request | None:
        """What the parser would make of `data`; None: that is for the parser to say."""
        if not self._known or (parts := _parts(data)) is None or (known := self._known.get(parts.head)) is None:
            return None
        return Request(*known, parts.body)

    def remember(self, data: bytes, method: str, path: str) -> None:
        """The parser has taken `data` for one whole request, with that method and path, after which others may follow
        on the connection."""
        parts = _parts(data)
        if parts is None or not _is_plain(parts.head):
            return
        if len(self._known) >= _REMEMBERED:
            # Nobody has so many, but who makes them up.
            self._known.clear()
        self._known[parts.head] = method, path


def _parts(data: bytes) -> _Parts | None:
    """None: it is not a head of moderate length and, to the byte, as much after it as that tells."""
    end = data.find(_END, 0, _LONGEST)
    at = data.find(_LENGTH, 0, end) if end > 0 else -1
    if at < 0:
        return None
    at += len(_LENGTH)
    behind = data.find(b"\r", at, end + 1)
    digits = data[at:behind]
    if not digits.isdigit() or len(digits) > _DIGITS or int(digits) != len(data) - end - len(_END):
        return None
    return _Parts(data[:at] + data[behind:end], data[end + len(_END) :])


def _is_plain(head: bytes) -> bool:
    """Whether nothing but its one Content-Length says where the request ends, and no line of it ends otherwise than
    lines do: else a parser might take something for its end that is none here."""
    request, *headers = head.split(b"\r\n")
    names = [header.partition(b":")[0].lower() for header in headers]
    return (
        not any(b"\r" in line or b"\n" in line for line in (request, *headers))
        and names.count(b"content-length") == 1
        and _FRAMES_OTHERWISE.isdisjoint(names)
    )
