"""A watched kind: what a reflector follows, its path, and how its JSON becomes a core object.

One object that cannot be read never spoils the rest of its page, whatever error it causes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from extender.adapters.translation.pod_sizes import LONG
from extender.core.common.value import value
from extender.kube.nesting import Decoder

_LARGE_PAGE = 2**23
"""Bytes. Objects of a larger page are decoded one by one."""

T = TypeVar("T")
J = TypeVar("J")


class _ListMetadata(Struct, gc=False):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    following: str = msgspec.field(name="continue", default="")


class _Page(Struct, Generic[J]):
    metadata: _ListMetadata
    items: list[J] | None


class _Event(Struct, Generic[J]):
    type: str
    object: J


class _Metadata(Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Any(Struct):
    """Any object. A bookmark has nothing but a resource version."""

    metadata: _Metadata


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that cannot be read: its name, and the reason."""

    what: str
    why: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list. `following`: the token for the next part; empty on the last."""

    items: list[T]
    unreadable: list[Unreadable]
    version: str
    following: str


@value
class WatchEvent(Generic[T]):
    """One line of a watch. `item` is None if BOOKMARK, ERROR (`raw`: its Status) or unreadable."""

    type: str
    version: str
    item: T | None = None
    unreadable: Unreadable | None = None
    raw: bytes = b""


class WatchedKind(Generic[T]):
    """A kind to follow. `name`: for metrics and logs; `path`: the collection of all namespaces."""

    def __init__(
        self,
        name: str,
        path: str,
        shape: type[Any],
        translate: Callable[[Any], T],
        outlined: Callable[[Raw], bytes | Raw] = lambda raw: raw,
    ) -> None:
        """`outlined` returns a large object's JSON without fields that exceed Escher's limits."""
        self.name = name
        self.path = path
        self._translate = translate
        self._outlined = outlined
        self._one = Decoder(shape)
        self._page: Decoder[_Page[Any]] = Decoder(_Page[shape])  # type: ignore[valid-type]
        self._event: Decoder[_Event[Any]] = Decoder(_Event[shape])  # type: ignore[valid-type]

    def read_page(self, body: bytes) -> Page[T]:
        """Decodes the page. Raises msgspec.DecodeError if it is no list at all."""
        if len(body) > _LARGE_PAGE:
            return self._read_one_by_one(body)
        try:
            page = self._page.decode(body)
        except msgspec.ValidationError:
            return self._read_one_by_one(body)
        try:
            items = [self._translate(shape) for shape in page.items or ()]
        except Exception:
            return self._read_one_by_one(body)
        return Page(items, [], page.metadata.resource_version, page.metadata.following)

    def _read_one_by_one(self, body: bytes) -> Page[T]:
        """The slow path, for a very large page or for one with an object that cannot be read."""
        items: list[T] = []
        unreadable: list[Unreadable] = []
        page = _raw_page.decode(body)
        for raw in page.items or ():
            try:
                items.append(self._translate(self._one.decode(self._outlined(raw))))
            except Exception as error:
                unreadable.append(_unreadable(raw, error))
        return Page(items, unreadable, page.metadata.resource_version, page.metadata.following)

    def read_event(self, line: bytes) -> WatchEvent[T]:
        """Decodes the event. Raises msgspec.DecodeError if the line is no event."""
        if len(line) > LONG:
            return self._read_unusual(line)
        try:
            event = self._event.decode(line)
        except msgspec.ValidationError:
            return self._read_unusual(line)
        try:
            return WatchEvent(event.type, event.object.metadata.resource_version, self._translate(event.object))
        except Exception:
            return self._read_unusual(line)

    def _read_unusual(self, line: bytes) -> WatchEvent[T]:
        event = _raw_events.decode(line)
        if event.type == "ERROR":
            return WatchEvent(event.type, "", raw=bytes(event.object))
        if event.type == "BOOKMARK":
            return WatchEvent(event.type, _anything.decode(event.object).metadata.resource_version)
        try:
            shape = self._one.decode(self._outlined(event.object))
            return WatchEvent(event.type, shape.metadata.resource_version, self._translate(shape))
        except Exception as error:
            bad = _unreadable(event.object, error)
            return WatchEvent(event.type, bad.version, unreadable=bad)


_raw_page = Decoder(_Page[Raw])
_raw_events = Decoder(_Event[Raw])
_anything = Decoder(_Any)


def _unreadable(raw: Raw, error: Exception) -> Unreadable:
    try:
        metadata = _anything.decode(raw).metadata
    except msgspec.ValidationError:
        return Unreadable("an object without a name", str(error))
    name = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    return Unreadable(name, str(error) or type(error).__name__, metadata.resource_version)


class _Whole(Struct):
    metadata: Raw
    spec: Raw = Raw(b"null")
    status: Raw = Raw(b"null")


_wholes = Decoder(_Whole)


def spec_within(most: int, instead: bytes) -> Callable[[Raw], bytes | Raw]:
    """Replaces a spec of over `most` bytes by `instead`. The result raises msgspec.DecodeError."""

    def outlined(raw: Raw) -> bytes | Raw:
        if len(memoryview(raw)) <= most:
            return raw
        whole = _wholes.decode(raw)
        if len(memoryview(whole.spec)) <= most:
            return raw
        whole.spec = Raw(instead)
        return msgspec.json.encode(whole)

    return outlined
