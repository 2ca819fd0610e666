"""Head cache: recognises a repeated request head without parsing it, except for its Content-Length.

kube-scheduler sends the same head with each call of a verb. The cache stores what the parser found in a head the first
time, and interprets nothing itself. Heads that are not as simple as kube-scheduler's are parsed each time."""

from __future__ import annotations

from typing import NamedTuple

_END = b"\r\n\r\n"
_LENGTH = b"\r\nContent-Length: "
_DIGITS = 9
_LONGEST = 2048
"""Bytes of a head; Go's has about 200."""
_REMEMBERED = 64
_FRAMES_OTHERWISE = frozenset({b"transfer-encoding", b"upgrade", b"expect", b"trailer"})


class Request(NamedTuple):
    """The parts of a request that `at_once` needs."""

    method: str
    path: str
    body: bytes


class _Parts(NamedTuple):
    head: bytes
    """The head without the digits of its length, which came directly after the first `_LENGTH`."""
    body: bytes


class HeadCache:
    """The heads of one server. All data passed to it begins where a request begins."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[str, str]] = {}
        """Method and path, by head without the digits of its length."""

    def read(self, data: bytes) -> Request | None:
        """Returns what the parser would find in `data`; None: parse it."""
        if not self._known or (parts := _parts(data)) is None or (known := self._known.get(parts.head)) is None:
            return None
        return Request(*known, parts.body)

    def remember(self, data: bytes, method: str, path: str) -> None:
        """Stores what the parser found: `data` was one whole request with this method and path.

        The connection must be open to further requests."""
        parts = _parts(data)
        if parts is None or not _is_plain(parts.head):
            return
        if len(self._known) >= _REMEMBERED:
            # Only an attacker sends this many different heads.
            self._known.clear()
        self._known[parts.head] = method, path


def _parts(data: bytes) -> _Parts | None:
    """Returns head and body; None unless `data` is one short head and just its announced body."""
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
    """Whether only one Content-Length says where the request ends, and all lines end with CRLF.

    Otherwise a parser might find the end elsewhere."""
    request, *headers = head.split(b"\r\n")
    names = [header.partition(b":")[0].lower() for header in headers]
    return (
        not any(b"\r" in line or b"\n" in line for line in (request, *headers))
        and names.count(b"content-length") == 1
        and _FRAMES_OTHERWISE.isdisjoint(names)
    )
