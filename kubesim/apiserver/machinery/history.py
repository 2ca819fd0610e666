"""History: the recent writes, from which watches and lists of the past are answered.

It is bounded in number, in age and in bytes. A client can no longer ask for changes that were forgotten.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from kubesim.kinds import Json, Kind

SECONDS = 300.0
"""How long a change is kept: kube-apiserver makes etcd forget what is older than five minutes."""
_LAZY = 1.25
"""Changes are forgotten in bulk, only once their number or age exceeds the limit by this factor."""


class Compacted(Exception):
    """The history has forgotten the version asked for. `oldest`: the oldest available version."""

    def __init__(self, version: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {version} ({oldest})")
        self.version, self.oldest = version, oldest


@dataclass(frozen=True, slots=True)
class Change:
    """One write. `object` has the version of this write, also if it is DELETED.

    A DELETED `object` is the last state. `before` is the former state, None if ADDED. `lines`: encodings that watches
    share.
    """

    type: str
    kind: Kind
    object: Json
    version: int
    before: Json | None = None
    lines: dict[Hashable, bytes] = field(default_factory=dict, compare=False, repr=False)

    @property
    def key(self) -> str:
        return key_of(self.object)


def key_of(obj: Json) -> str:
    """The key of an object, as etcd orders objects: namespace, a slash, name."""
    metadata = obj["metadata"]
    namespace: str = metadata.get("namespace") or ""
    return f"{namespace}/{metadata['name']}"


class History:
    """The changes of one resource, oldest first. `floor`: the last version that was forgotten."""

    def __init__(self, most: int) -> None:
        self.floor = 0
        self.bytes = 0
        self._most = most
        self._changes: list[Change] = []
        self._times: list[float] = []
        self._sizes: list[int] = []

    def __len__(self) -> int:
        return len(self._changes)

    def note(self, change: Change, now: float, size: int) -> None:
        self._changes.append(change)
        self._times.append(now)
        self._sizes.append(size)
        self.bytes += size
        if len(self._changes) > self._most * _LAZY:
            self.forget(len(self._changes) - self._most)
        if self._times[0] < now - SECONDS * _LAZY:
            self.forget_old(now)

    def since(self, version: int, now: float) -> Sequence[Change]:
        """The changes after `version`. Raises Compacted."""
        self.forget_old(now)
        if version < self.floor:
            raise Compacted(version, self.floor)
        if not self._changes or self._changes[-1].version <= version:
            return ()
        return self._changes[self._after(version) :]

    def forget(self, count: int) -> None:
        """Forgets the oldest `count` changes."""
        if count > 0:
            self.floor = max(self.floor, self._changes[count - 1].version)
            self.bytes -= sum(self._sizes[:count])
            for each in (self._changes, self._times, self._sizes):
                del each[:count]

    def forget_old(self, now: float) -> None:
        if self._times and self._times[0] < now - SECONDS:
            self.forget(bisect_left(self._times, now - SECONDS))

    def forget_up_to(self, version: int) -> None:
        self.forget(self._after(version))
        self.floor = max(self.floor, version)

    def clear(self, floor: int) -> None:
        """Forgets all changes. A client can ask for nothing from before version `floor`."""
        self.forget(len(self))
        self.floor = floor

    def _after(self, version: int) -> int:
        return bisect_right(self._changes, version, key=lambda change: change.version)
