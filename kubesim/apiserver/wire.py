"""Wire: requests and answers of the API server, as HTTP has them but without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

JSON = "application/json"


@dataclass(frozen=True)
class Request:
    """`path` is decoded and without the query; the names of `headers` are in lower case.

    `user`: who asks, where the way in vouches for it; empty where the headers must tell.
    """

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: str = ""

    def asks(self, name: str) -> bool:
        """Whether a parameter of the query is set to true."""
        return self.query.get(name, "") in ("1", "true", "t", "True", "TRUE", "T")

    @property
    def accept(self) -> str:
        return self.headers.get("accept", "")

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", JSON).partition(";")[0].strip().lower()

    @property
    def dry_run(self) -> bool:
        return "All" in self.query.get("dryRun", "")


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": JSON})


class Stream(Protocol):
    """An answer without end. Whoever has one reads it or closes it."""

    def lines(self) -> AsyncIterator[bytes]:
        """One event each, with a newline behind it."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The same lines, as many at once as there are."""
        ...

    def close(self) -> None:
        """No more is kept for the reader."""
        ...
