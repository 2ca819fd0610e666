"""Known: every object of a kind as last known, by version.

It learns from the answers to Escher's own requests and from the watch, in any order, and does not go back. News that is
older than what it knows of an object, or about an object that has ended, changes nothing. The exception is an API
server that was restored from a backup. Whatever its version, a list is newer than all that was known when it was
requested (`before_list`), and so is an answer. Synchronous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic

import structlog

from extender.app.contracts.kind import Identity, Named, O, identity
from extender.app.contracts.ports import Clock
from extender.app.objects.versions import older
from extender.core.common.bounded import Bounded

_log = structlog.get_logger(__name__)

_ENDED_REMEMBERED = 65_536


@dataclass(slots=True)
class Entry(Generic[O]):
    """One object. `since`: when its uid was first seen here, by the steady clock."""

    item: O
    since: float
    version: str
    """The version told to callers: the first with this spec, whatever status was written since."""
    told: bool = False
    """Whether the watch has reported it: if a list then lacks it, it is gone."""
    at: float = 0.0
    """When this version was first seen here, by the steady clock."""
    echoed: bool = False
    """Whether the watch has reported this very version."""
    learnt: int = 0
    """Number of the last answer to a call that had it; 0: the watch has reported it since."""
    rewound: bool = False
    """Whether its version is from before a restore: whatever comes next is newer."""

    def meant_by(self, expected: str | None) -> str:
        """The object's own version if a caller expects the told one or any; else `expected`."""
        return self.item.resource_version if not expected or expected == self.version else expected


@dataclass(frozen=True, slots=True)
class Asked(Generic[O]):
    """What was known of an object when the store was asked about it: the answer cannot be older."""

    name: Identity
    entry: Entry[O] | None
    ended: int
    """How many objects had ended then."""


class Known(Generic[O]):
    """`ports.Sink` of the kind. `listeners` hear each object that is new, changed or gone.

    `enter` is called first with what is known of an object now (None: nothing). It returns the other objects for which
    something changes. `settle` is called when all that arrived together has been taken."""

    def __init__(
        self,
        clock: Clock,
        enter: Callable[[Identity, O | None], Iterable[Identity]] = lambda name, item: (),
        settle: Callable[[], object] = lambda: None,
    ) -> None:
        self.listeners: list[Callable[[Identity], None]] = []
        self.doubtful: dict[Identity, None] = {}
        """Objects where a list and a call answered meanwhile differ. They are to be asked about."""
        self.rewound: list[Callable[[Identity], None]] = []
        """Hear the identity of each object whose versions do not count any more."""
        self.clock = clock
        self._tell_first = enter
        self._settle = settle
        self._entries: dict[Identity, Entry[O]] = {}
        self._ended: Bounded[str, int] = Bounded(_ENDED_REMEMBERED)
        """UIDs, and how many had ended before. A write takes less time than this many ends."""
        self._ends = 0
        self._answers = 0
        self._asked: tuple[int, int] = (0, 0)
        """How many answers and ends were known when the next list was requested."""

    def get(self, name: Named) -> Entry[O] | None:
        return self._entries.get(identity(name))

    def entries(self) -> Iterator[Entry[O]]:
        return iter(self._entries.values())

    def notify(self, name: Identity) -> None:
        """Something has changed for the object."""
        for hear in self.listeners:
            hear(name)

    # -- facts ---------------------------------------------------------------------------------------------------

    def upsert(self, item: O) -> None:
        """The watch reports that the object exists and looks like this."""
        self._take(item, told=True)
        self._settle()

    def remove(self, item: O) -> None:
        """The watch reports that the object is gone."""
        self.end(item.name, item.uid)

    def before_list(self) -> Callable[[], None]:
        """A list is requested. The returned function is called once it is there."""
        asked = (self._answers, self._ends)

        def is_there() -> None:
            self._asked = asked

        return is_there

    def replace(self, objects: Iterable[O]) -> Iterable[None]:
        """A list: these objects exist and look like this, and others are gone.

        Not so if a call of Escher's was answered otherwise since the list was requested."""
        (answers, ends), self._asked = self._asked, (0, 0)
        listed = set()
        for item in objects:
            name = identity(item.name)
            listed.add(name)
            self._set_known(name, item, answers, ends)
            if not self._take(item, told=True):
                self._doubt(name)
        for name in [name for name in self._entries if name not in listed]:
            if self._entries[name].learnt > answers:
                self._doubt(name)
            else:
                self._end(name, self._entries[name].item.uid)
        self._settle()
        return ()

    def _set_known(self, name: Identity, item: O, answers: int, ends: int) -> None:
        """No version and no end that was known when the list was requested counts against it."""
        if self._ended.get(item.uid, ends) < ends:
            self._ended.pop(item.uid, None)
        known = self._entries.get(name)
        if known is not None and known.learnt <= answers and known.item != item:
            self._rewind(name, at_any_version=not older(known.item.resource_version, item.resource_version))

    def asking(self, name: Named) -> Asked[O]:
        """What `learn` gets with the answer to a request that is sent now."""
        return Asked(identity(name), self.get(name), self._ends)

    def set_stored(self, item: O, asked: Asked[O] | None = None) -> None:
        """The store answered this to a write or a read of Escher's: the object exists."""
        name = identity(item.name)
        if asked is not None and self._went_back(item, asked):
            _log.warning("the API server's resourceVersion went back", name=str(name), version=item.resource_version)
            self._ended.pop(item.uid, None)
            self._rewind(name)
        self.doubtful.pop(name, None)
        self._answers += 1
        self._take(item, told=False)
        self._settle()

    def _went_back(self, item: O, asked: Asked[O]) -> bool:
        known = self._entries.get(identity(item.name))
        if known is not None and known is asked.entry and not known.rewound:
            same = item.resource_version == known.item.resource_version and item != known.item
            return same or older(item.resource_version, known.item.resource_version)
        return self._ended.get(item.uid, asked.ended) < asked.ended

    def _rewind(self, name: Identity, *, at_any_version: bool = True) -> None:
        entry = self._entries.get(name)
        if entry is not None and at_any_version:
            entry.rewound = True
        for hear in self.rewound:
            hear(name)

    def doubt_unechoed(self, since: float) -> None:
        """Doubts what is known since then, by the steady clock, and was reported by no watch."""
        for name, entry in self._entries.items():
            if (not entry.told and entry.since <= since) or (not entry.echoed and entry.at <= since):
                self.doubtful[name] = None

    def _doubt(self, name: Identity) -> None:
        self.doubtful[name] = None
        self.notify(name)

    def end(self, name: Named, uid: str) -> None:
        """The object with this uid does not exist any more."""
        self._end(identity(name), uid)
        self._settle()

    def deleted(self, item: O, left: O | None) -> None:
        """The store has deleted the object: it is gone, or `left` waits for finalizers."""
        if left is None:
            self.end(item.name, item.uid)
        else:
            self.set_stored(left)

    def _take(self, item: O, *, told: bool) -> bool:
        """Whether the object was taken in: False if it is older than what is known."""
        name = identity(item.name)
        known = self._entries.get(name)
        if item.uid in self._ended:
            return False
        same = known is not None and known.item.uid == item.uid
        if known is not None and not known.rewound:
            if same:
                known.told = known.told or told
            if older(item.resource_version, known.item.resource_version):
                return False
            if same and known.told:
                self.doubtful.pop(name, None)
            if same and known.item.resource_version == item.resource_version:
                known.echoed = known.echoed or told
                known.learnt = 0 if told else self._answers
                return True
        now = self.clock.steady()
        entry = Entry(item, now, item.resource_version, told, at=now, echoed=told, learnt=0 if told else self._answers)
        if known is not None and same:
            entry.since, entry.told = known.since, known.told or told
            if known.item.generation == item.generation and not known.rewound:
                entry.version = known.version
        elif known is not None:
            self._remember_ended(known.item.uid)
        self._enter(name, entry)
        return True

    def _end(self, name: Identity, uid: str) -> None:
        self._remember_ended(uid)
        known = self._entries.get(name)
        if known is not None and known.item.uid == uid:
            self._enter(name, None)

    def _remember_ended(self, uid: str) -> None:
        self._ended[uid] = self._ends
        self._ends += 1

    def _enter(self, name: Identity, entry: Entry[O] | None) -> None:
        self._entries.pop(name, None)
        if entry is None:
            self.doubtful.pop(name, None)
        else:
            self._entries[name] = entry
        for each in (name, *self._tell_first(name, None if entry is None else entry.item)):
            self.notify(each)
