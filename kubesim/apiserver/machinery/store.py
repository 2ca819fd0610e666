"""Store: objects by kind and name, their resource versions, and the changes since a version.

One counter counts the writes of all kinds. A stored object is never changed in place, so a component that holds one
keeps its state. Lists of the past, readers of watches and subscribers share objects without copies.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from kubesim.apiserver.machinery.history import Change as Change
from kubesim.apiserver.machinery.history import Compacted as Compacted
from kubesim.apiserver.machinery.history import History
from kubesim.apiserver.machinery.history import key_of as key_of
from kubesim.kinds import EVENT, EVENTS, Json, Kind

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"

_REMEMBERED = 10_000
_MOST_BYTES = 256 * 1024 * 1024
_ENCODED = 8192

_Objects = list[Json]

_encode = msgspec.json.Encoder().encode


class Exists(Exception):
    """An object of that name exists already."""


class Missing(Exception):
    """No object of that name exists."""


@dataclass(frozen=True, slots=True)
class Backup:
    """All objects as they were at `version`."""

    version: int
    objects: Mapping[Kind, Mapping[str, Json]]


def version_of(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])


class _Table:
    """The objects of one resource, and their changes."""

    def __init__(self, remembered: int) -> None:
        self.objects: dict[str, Json] = {}
        self.keys: list[str] = []
        self.history = History(remembered)
        self.kind: Kind | None = None
        """The kind of its last change; None before the first change."""


class Store:
    """The objects of all kinds. `remembered`: at most how many changes of each kind are kept.

    `most_bytes` limits the changes of all kinds, `history` their age. `now`: the time; by default they do not age."""

    def __init__(
        self,
        remembered: int = _REMEMBERED,
        *,
        now: Callable[[], float] = lambda: 0.0,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self.version = 1
        self._remembered = remembered
        self._now = now
        self._most_bytes = most_bytes
        self._encoded_bytes = 0
        self._cache: dict[tuple[str, str], _Table] = {}
        self._listeners: list[Callable[[Change], None]] = []
        self._encoded: OrderedDict[int, tuple[Json, bytes]] = OrderedDict()

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        return self._table(kind).objects.get(f"{namespace}/{name}")

    def list(self, kind: Kind, namespace: str | None = None) -> _Objects:
        """The current objects, by namespace and name. `namespace` None means all namespaces."""
        table = self._table(kind)
        return [table.objects[key] for key in _within(table.keys, namespace)]

    def list_at(
        self, kind: Kind, version: int, namespace: str | None = None, after: str = ""
    ) -> Iterator[tuple[str, Json]]:
        """Keys and objects as of `version`, after the key `after`. Raises Compacted at once."""
        table = self._table(kind)
        former: dict[str, Json | None] = {}
        for change in table.history.since(version, self._now()):
            former.setdefault(change.key, change.before)
        keys: Sequence[str] = _within(table.keys, namespace, after)
        gone = [key for key, before in former.items() if before is not None and key not in table.objects]
        gone = _within(sorted(gone), namespace, after) if gone else gone
        if gone:
            keys = sorted([*keys, *gone])
        return self._past(table.objects, keys, former)

    @staticmethod
    def _past(
        objects: dict[str, Json], keys: Sequence[str], former: dict[str, Json | None]
    ) -> Iterator[tuple[str, Json]]:
        for key in keys:
            obj = former[key] if key in former else objects[key]
            if obj is not None:
                yield key, obj

    def create(self, kind: Kind, obj: Json) -> Json:
        """Stores a new object and returns it as stored. Raises Exists."""
        table, key = self._table(kind), key_of(obj)
        if key in table.objects:
            raise Exists(key)
        stored = self._next(obj)
        insort(table.keys, key)
        self._put(table, key, stored)
        self._tell(table, Change(ADDED, kind, stored, self.version))
        return stored

    def replace(self, kind: Kind, obj: Json) -> Json:
        """The object as stored; the identical former one if nothing changes. Raises Missing."""
        table, key = self._table(kind), key_of(obj)
        before = table.objects.get(key)
        if before is None:
            raise Missing(key)
        same_version = {**obj["metadata"], "resourceVersion": before["metadata"]["resourceVersion"]}
        if {**obj, "metadata": same_version} == before:
            return before
        stored = self._next(obj)
        self._put(table, key, stored)
        self._tell(table, Change(MODIFIED, kind, stored, self.version, before))
        return stored

    def remove(self, kind: Kind, namespace: str, name: str) -> Json:
        """Removes an object; returns its last state with the removal's version. Raises Missing."""
        table, key = self._table(kind), f"{namespace}/{name}"
        before = table.objects.pop(key, None)
        if before is None:
            raise Missing(key)
        del table.keys[bisect_left(table.keys, key)]
        last = self._next(before)
        self._tell(table, Change(DELETED, kind, last, self.version, before))
        return last

    def subscribe(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Calls `listener` with every change, at once and in order, until the result is called."""
        self._listeners = [*self._listeners, listener]

        def unsubscribe() -> None:
            self._listeners = [each for each in self._listeners if each is not listener]

        return unsubscribe

    def changes_since(self, kind: Kind, version: int) -> Sequence[Change]:
        """The changes after `version`, oldest first. Raises Compacted."""
        return self._table(kind).history.since(version, self._now())

    def compact(self, before: int) -> None:
        """Forgets the changes up to version `before`: older versions then get Compacted."""
        for table in self._cache.values():
            table.history.forget_up_to(min(before, self.version))

    def back_up(self) -> Backup:
        """The current objects, for `restore`."""
        held = {table.kind: dict(table.objects) for table in self._cache.values() if table.kind is not None}
        return Backup(self.version, held)

    def restore(self, backup: Backup, version: int | None = None) -> None:
        """Restores all objects of the backup; changes written since then are no longer available.

        Versions continue from the backup's, or from `version`, as with `etcdutl snapshot restore --bump-revision ...
        --mark-compacted`; objects keep theirs. Listeners receive the differences, kind by kind and sorted by key. The
        caller must end all watches before."""
        version = backup.version if version is None else version
        told: list[Change] = []
        for table in self._cache.values():
            table.history.clear(version)
            if table.kind is None:
                continue
            there, then = table.objects, backup.objects.get(table.kind, {})
            for key in sorted(there.keys() | then.keys()):
                now, former = there.get(key), then.get(key)
                if now is not former:
                    kind = DELETED if former is None else ADDED if now is None else MODIFIED
                    last = former if former is not None else now
                    assert last is not None
                    told.append(Change(kind, table.kind, last, version, now))
            table.objects, table.keys = dict(then), sorted(then)
        self.version = version
        for change in told:
            for listener in self._listeners:
                listener(change)

    def begin(self, kind: Kind) -> None:
        """Begins to serve the kind: clients cannot ask for anything from before now."""
        history = self._table(kind).history
        if not len(history):
            history.clear(max(history.floor, self.version))

    def drop(self, kind: Kind) -> None:
        """Drops objects and history of a kind that is no longer served."""
        self._cache.pop(_where(kind), None)

    def encoded(self, obj: Json) -> bytes:
        """The object as JSON. It is cached for a short time, because a watch has many readers."""
        known = self._encoded.get(id(obj))
        if known is not None and known[0] is obj:
            return known[1]
        body = _encode(obj)
        self._encoded[id(obj)] = (obj, body)
        self._encoded_bytes += len(body)
        while len(self._encoded) > _ENCODED or self._encoded_bytes > self._most_bytes // 4:
            _, (_, oldest) = self._encoded.popitem(last=False)
            self._encoded_bytes -= len(oldest)
        return body

    @property
    def remembered_bytes(self) -> int:
        """Bytes kept beside the objects themselves: changes, and encodings for watches."""
        return self._encoded_bytes + sum(table.history.bytes for table in self._cache.values())

    def _table(self, kind: Kind) -> _Table:
        where = _where(kind)
        table = self._cache.get(where)
        if table is None:
            table = self._cache[where] = _Table(self._remembered)
        return table

    def _put(self, table: _Table, key: str, obj: Json) -> None:
        table.objects[key] = obj

    def _next(self, obj: Json) -> Json:
        self.version += 1
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}

    def _tell(self, table: _Table, change: Change) -> None:
        table.kind = change.kind
        # The size counts twice, because the former state, or a line that watches share, is kept with the change.
        table.history.note(change, self._now(), 2 * len(self.encoded(change.object)))
        self._bound()
        for listener in self._listeners:
            listener(change)

    def _bound(self) -> None:
        """Forgets half of the largest history until the total is at most `most_bytes`."""
        while sum(table.history.bytes for table in self._cache.values()) > self._most_bytes:
            largest = max((table.history for table in self._cache.values()), key=lambda history: history.bytes)
            largest.forget((len(largest) + 1) // 2)


def _where(kind: Kind) -> tuple[str, str]:
    return (EVENT.group, EVENT.plural) if kind is EVENTS else (kind.group, kind.plural)


def _within(keys: list[str], namespace: str | None, after: str = "") -> list[str]:
    """The keys of the namespace that come after `after`, from sorted `keys`."""
    first, last = 0, len(keys)
    if namespace is not None:
        # "0" follows "/" in ASCII.
        first, last = bisect_left(keys, f"{namespace}/"), bisect_left(keys, f"{namespace}0")
    if after:
        first = max(first, bisect_right(keys, after))
    return keys[first:last]
