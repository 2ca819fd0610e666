"""A scripted API server without a network: it implements `Requests`, and answers what a test laid out, in order.

Time passes only where the script or the injected sleep says so.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from typing import Any, Generic, TypeVar

from extender.kube.client.requests import JSON, TIMEOUT

T = TypeVar("T")


class ScriptedApi:
    """`requested` has every call; `exhausted` is set when the script is at its end, and a further watch then hangs."""

    def __init__(self) -> None:
        self.answers: deque[bytes | Exception] = deque()
        self.watches: deque[list[bytes | float | Exception]] = deque()
        self.requested: list[str] = []
        self.bodies: list[Any] = []
        self.silences: list[float] = []
        self.exhausted = asyncio.Event()
        self.slept: list[float] = []
        self.time = 1000.0
        self.takes = 0.0
        """Seconds that each request takes, but for watches."""

    def clock(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        within: float = TIMEOUT,
    ) -> bytes:
        self.requested.append(f"{method} {path}")
        self.bodies.append(None if body is None else (content_type, json.loads(body)))
        if not self.answers:
            self.exhausted.set()
            await asyncio.Event().wait()
        self.time += self.takes
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        """A number in a watch's script is time that passes; an exception ends it so, else it ends as asked."""
        self.requested.append(f"WATCH {path}")
        self.silences.append(silence)
        if not self.watches:
            self.exhausted.set()
            await asyncio.Event().wait()
        for step in self.watches.popleft():
            if isinstance(step, Exception):
                raise step
            if isinstance(step, float):
                self.time += step
            else:
                yield step


class RecordingSink(Generic[T]):
    """Keeps what a `ports.Sink` is told, and what therefore exists."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.items: dict[str, T] = {}

    def replace(self, objects: Iterable[T]) -> Iterable[None]:
        self.items = {name_of(item): item for item in objects}
        self.log.append("replace " + ",".join(self.items))
        return ()

    def upsert(self, item: T) -> None:
        self.items[name_of(item)] = item
        self.log.append(f"upsert {name_of(item)}")

    def remove(self, item: T) -> None:
        self.items.pop(name_of(item), None)
        self.log.append(f"remove {name_of(item)}")


def name_of(item: Any) -> str:
    name = item.name
    return name if isinstance(name, str) else str(name.name)
