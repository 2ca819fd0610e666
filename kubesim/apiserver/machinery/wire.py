"""Wire: requests and answers of the API server, like HTTP but without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

JSON = "application/json"


@dataclass(frozen=True)
class Request:
    """A request. `path` is decoded and without the query; names in `headers` are lower case.

    `user`: the authenticated user of an in-process connection; if empty, the headers identify the user.
    """

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: str = ""

    def asks(self, name: str) -> bool:
        """Whether this query parameter is true."""
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
    """An endless answer. Its holder must read it or close it."""

    def lines(self) -> AsyncIterator[bytes]:
        """One event each, followed by a newline."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The same lines, as many at once as are waiting."""
        ...

    def close(self) -> None:
        """Ends the stream."""
        ...
