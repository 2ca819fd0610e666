"""The witness: observes the cluster by lists and watches of the API server only.

    pods = Collection("/api/v1/pods", "Pod", hear)    # calls `hear` with each sighting; `pods.known` has the objects
    Watching(api, pods).start()                       # in a thread of its own, or
    async with following(connection, pods): ...       # in the event loop

Continues after the end of a watch, a restart of the API server, and a resource version that is too old. The list after
such a gap reports the changes in it. Shares no code with the service, because it checks the service.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

Json = dict[str, Any]
T = TypeVar("T")

_PAUSE = 0.2
"""Seconds. An API server that starts refuses some requests for a moment."""
_NOT_INSTALLED = 5.0
_SILENCE = 90.0
"""Seconds without a byte after which a watch is dead: there is a bookmark every minute."""


class Late(Exception):
    """An awaited condition did not hold in time; `str()` names the condition."""


class Refusal(Exception):
    """The API server ended a watch with an error."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


# -- what is seen ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sighting(Generic[T]):
    """An object from `version` on, seen at `time`. `type`: the watch's; `before`: as last known."""

    version: int
    time: float
    kind: str
    type: str
    seen: T
    before: T | None = None

    @property
    def gone(self) -> bool:
        return self.type == "DELETED"


def uid_of(found: Json) -> str:
    said: str = found["metadata"]["uid"]
    return said


def name_of(found: Json) -> str:
    said: str = found["metadata"]["name"]
    return said


class Collection(Generic[T]):
    """One collection, fed with lists and events; keeps `read` of each object, by `identity`."""

    def __init__(
        self,
        path: str,
        kind: str,
        hear: Callable[[Sighting[T]], None],
        *,
        read: Callable[[Json], T],
        identity: Callable[[Json], str] = uid_of,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path, self.kind, self.identity = path, kind, identity
        self.known: dict[str, Sighting[T]] = {}
        """The existing objects as last seen, by identity."""
        self.version = 0
        """All changes up to this version have been received."""
        self.is_lost = True
        """Whether it must be listed before it can be watched."""
        self.gaps = 0
        """How often the resource version was too old: changes in these gaps are unknown."""
        self._hear, self._read, self._now = hear, read, now

    def listed(self, answer: Json) -> None:
        """Takes a list: objects that are not on it are gone."""
        present = {self.identity(each): each for each in answer["items"]}
        for identity, before in list(self.known.items()):
            if identity not in present:
                # The version of the deletion is not known. The earliest possible one is assumed, which blames no
                # component wrongly.
                self._note(identity, max(self.version, before.version), "DELETED", before.seen)
        for identity, each in present.items():
            known = self.known.get(identity)
            if known is None or known.version != _version(each):
                self._note(identity, _version(each), "ADDED", self._read(each))
        self.version, self.is_lost = _version(answer), False

    def told(self, event: Json) -> None:
        """Takes an event of the watch; it must not be an error."""
        found = event["object"]
        if event["type"] != "BOOKMARK":
            self._note(self.identity(found), _version(found), event["type"], self._read(found))
        self.version = _version(found)

    def failed(self, error: Exception) -> bool:
        """Takes the error of a list or watch; true if the collection does not exist."""
        status = getattr(error, "status", None)
        if status == 410:
            self.is_lost = True
            self.gaps += 1
        return status == 404

    def _note(self, identity: str, version: int, what: str, seen: T) -> None:
        before = self.known.get(identity)
        sighting = Sighting(version, self._now(), self.kind, what, seen, None if before is None else before.seen)
        # `hear` is called before `known` changes: a reader that finds a version has heard all changes up to it.
        self._hear(sighting)
        if sighting.gone:
            self.known.pop(identity, None)
        else:
            self.known[identity] = sighting


def _version(found: Json) -> int:
    return int(found["metadata"]["resourceVersion"])


def _good(event: Json) -> Json:
    """The event. Raises Refusal if it is an error."""
    if event["type"] == "ERROR":
        raise Refusal(int(event["object"].get("code") or 0))
    return event


# -- in a thread -----------------------------------------------------------------------------------------------------


class Api(Protocol):
    """A client of the API server, as `lab.controlplane.api.Api`. Errors may have a `status`."""

    def get(self, path: str, **query: Any) -> Json: ...

    def watch(self, path: str, **query: Any) -> Iterator[Json]: ...


class Watching:
    """Follows one collection in a thread of its own."""

    def __init__(self, api: Api, collection: Collection[Any]) -> None:
        self.begun = threading.Event()
        """The first list has been received, or the kind is not installed."""
        self._api, self._collection = api, collection
        self._ending = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self.run, daemon=True, name=f"watch of {self._collection.path}").start()

    def end(self) -> None:
        """Stops the calls of `hear`. The thread ends with the next answer, or with the client."""
        self._ending.set()

    def run(self) -> None:
        """Follows the collection until `end`."""
        for take, said in self._heard():
            if self._ending.is_set():
                return
            take(said)
            self.begun.set()

    def _heard(self) -> Iterator[tuple[Callable[[Json], None], Json]]:
        """Yields each list or event with the method that takes it."""
        collection = self._collection
        while not self._ending.is_set():
            try:
                if collection.is_lost:
                    yield collection.listed, self._api.get(collection.path)
                query = {"resourceVersion": str(collection.version), "allowWatchBookmarks": True}
                for event in self._api.watch(collection.path, **query):
                    yield collection.told, _good(event)
            except Exception as error:
                # Any error: the API server is killed and started, and in the end the client is closed.
                if collection.failed(error):
                    self.begun.set()
                    self._ending.wait(_NOT_INSTALLED)
                self._ending.wait(_PAUSE)


# -- in the event loop -----------------------------------------------------------------------------------------------


class Requests(Protocol):
    """The API server, as `extender.kube.client.connection.Connection`. Errors may have a `status`."""

    async def request(self, method: str, path: str) -> bytes: ...

    def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]: ...


class Changing:
    """A state that changes, and whose conditions can be awaited."""

    def __init__(self) -> None:
        self.version = 0
        """Increases with each change."""
        self._changed = asyncio.Event()

    def has_changed(self) -> None:
        self.version += 1
        self._changed.set()

    async def until(self, holds: Callable[[], bool], what: str, *, within: float = 30.0) -> None:
        """Waits until `holds()` is true. Raises Late after `within` seconds."""
        try:
            async with asyncio.timeout(within):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise Late(f"{what}: not within {within:g} s") from None


@asynccontextmanager
async def following(connection: Requests, *collections: Collection[Any]) -> AsyncIterator[None]:
    """Follows the collections during the block; the block begins when all have been listed."""
    begun = [asyncio.Event() for _ in collections]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_follow(connection, each, event)) for each, event in zip(collections, begun, strict=True)
        ]
        for event in begun:
            await event.wait()
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def _follow(connection: Requests, collection: Collection[Any], begun: asyncio.Event) -> None:
    async with aclosing(_heard(connection, collection)) as heard:
        async for take, said in heard:
            take(said)
            begun.set()


async def _heard(
    connection: Requests, collection: Collection[Any]
) -> AsyncGenerator[tuple[Callable[[Json], None], Json], None]:
    while True:
        try:
            if collection.is_lost:
                yield collection.listed, msgspec.json.decode(await connection.request("GET", collection.path))
            query = f"watch=1&allowWatchBookmarks=true&resourceVersion={collection.version}"
            async with aclosing(connection.lines(f"{collection.path}?{query}", silence=_SILENCE)) as lines:
                async for line in lines:
                    yield collection.told, _good(msgspec.json.decode(line))
        except Exception as error:
            collection.failed(error)
            await asyncio.sleep(_PAUSE)
