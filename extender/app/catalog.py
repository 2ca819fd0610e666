"""The catalog: every EphemeralResource object as last known, and what of them is in force in the ledger.

It learns from the store's answers to our own writes and from the watch, in whatever order these arrive, and does not go
back: what is older than what it knows of an object, or about an object that has ended, changes nothing. Unless the
store itself has gone back, being restored from a backup: a list that is older than the one before tells (`rewind`),
and so does an answer that is older than what was known when it was asked for. Capacity in the
ledger is always that of the objects known here, key by key; where two objects claim one key (shared ones of two
namespaces), the older has it. A node has at most so many keys, for a Node is one object of the API server's, which has
a largest size: an object that would add one too many is in force on none of the nodes that it would be new on, until
there is room on all of them. Synchronous; must not know who writes objects, or why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

import structlog

from extender.app.keeper import Keeper
from extender.app.ports import EphemeralResource
from extender.app.versions import older
from extender.core.names import EphemeralName, NodeName, PodUid, ResourceKey

Identity = tuple[str, str]
"""Namespace and name of an object: whether it is shared is no part of it."""

_log = structlog.get_logger(__name__)

_ENDED_REMEMBERED = 65_536
K = TypeVar("K")


def identity(name: EphemeralName) -> Identity:
    return (name.namespace, name.name)


@dataclass(slots=True)
class Entry:
    """One object. `since`: when its uid was first seen here, by the steady clock."""

    resource: EphemeralResource
    since: float
    version: str
    """The version callers are told: the first at which this spec was seen. Our own writes of status leave it be."""
    told: bool = False
    """Whether the watch has told of it: if it then lacks in a list, it is gone."""
    at: float = 0.0
    """When this version was first seen here, by the steady clock."""
    echoed: bool = False
    """Whether the watch has told of this very version."""
    rewound: bool = False
    """Its version is of a time that is no more: whatever is told next is newer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was known of an object when the store was asked about it: the answer cannot be older."""

    name: Identity
    entry: Entry | None
    ended: int
    """How many ends were known then."""


class Catalog:
    """`ports.Sink[EphemeralResource]`. `listeners` hear the identity of each object that is new, changed or gone."""

    def __init__(self, keeper: Keeper) -> None:
        self.listeners: list[Callable[[Identity], None]] = []
        self.doubtful: dict[Identity, None] = {}
        """Objects of which a list says less than we know: it may be older than a write of ours, or the store has gone
        back. To be asked about."""
        self.intents: dict[Identity, None] = {}
        """Objects that are no resources, and keep what a transaction is about to do."""
        self.rewound: list[Callable[[Identity], None]] = []
        """Hear the identity of each object whose versions count for nothing any more."""
        self._keeper = keeper
        self._entries: dict[Identity, Entry] = {}
        self._by_key: dict[ResourceKey, dict[Identity, None]] = {}
        self._by_owner: dict[PodUid, dict[Identity, None]] = {}
        self._in_force: dict[ResourceKey, dict[NodeName, int]] = {}
        self._crowded_out: dict[ResourceKey, frozenset[NodeName]] = {}
        """Keys for which a node has no room, and the nodes on which they are not in force for that."""
        self._ended: dict[str, int] = {}
        """UIDs, and how many had ended before."""
        self._ends = 0

    # -- reading -------------------------------------------------------------------------------------------------

    def get(self, name: EphemeralName | Identity) -> Entry | None:
        return self._entries.get(identity(name) if isinstance(name, EphemeralName) else name)

    def entries(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def owned_by(self, pod: PodUid) -> list[Identity]:
        return list(self._by_owner.get(pod, ()))

    def holder_of(self, key: ResourceKey) -> EphemeralName | None:
        """The object whose capacity is in force under this key."""
        winner = self._winner(key)
        return None if winner is None else self._entries[winner].resource.name

    def in_force(self, name: EphemeralName) -> bool:
        """Whether the object has its key, and is not one that waits for another to let go of it."""
        return self.holder_of(self._key(name)) == name

    def first_full(
        self, key: ResourceKey, nodes: Iterable[NodeName], beside: Mapping[NodeName, Collection[ResourceKey]] = {}
    ) -> NodeName | None:
        """The first of the nodes that has its most keys, without this one. `beside`: keys that are about to come."""
        for node in nodes:
            row, seen = self._keeper.ledger.rows.get(node), self._keeper.nodes.get(node)
            there = row.ephemeral if row is not None else {}
            # What the node says already makes it no larger: an earlier life of ours may have had a higher limit.
            is_new = key not in there and (seen is None or key not in seen.capacity)
            more = sum(each not in there and each != key for each in beside.get(node, ()))
            if is_new and len(there) + more >= self._keeper.rules.keys_per_node:
                return node
        return None

    def crowded_out(self, name: EphemeralName) -> str:
        """Why the object is not in force on all of its nodes, as they have no room for its key; empty if it is."""
        nodes = self._crowded_out.get(self._key(name), frozenset()) if self.in_force(name) else frozenset[NodeName]()
        full = self.first_full(self._key(name), sorted(nodes)) or min(nodes, default=None)
        return "" if full is None else self.too_many(full)

    def too_many(self, node: NodeName) -> str:
        """That the node has its most keys, with numbers."""
        row, most = self._keeper.ledger.rows.get(node), self._keeper.rules.keys_per_node
        count = 0 if row is None else len(row.ephemeral)
        return f"node {node} has {count} ephemeral resources, and may have {most} (ephemeral_keys_per_node)"

    def expected(self) -> dict[ResourceKey, dict[NodeName, int]]:
        """What should be in the ledger, computed from the objects: the slow twin."""
        found = {key: self._granted(key) for key in self._by_key}
        return {key: nodes for key, nodes in found.items() if nodes}

    def repair(self) -> int:
        """Nothing in the ledger differs from `expected`. How many resources did: none, unless there is a defect."""
        expected, found = self.expected(), self._in_ledger()
        keys = [key for key in {**expected, **found} if expected.get(key) != found.get(key)]
        for key in keys:
            self._in_force[key] = found.get(key, {})
            self._enforce(key)
        self._keeper.settle()
        return len(keys)

    def _in_ledger(self) -> dict[ResourceKey, dict[NodeName, int]]:
        found: dict[ResourceKey, dict[NodeName, int]] = {}
        for node, row in self._keeper.ledger.rows.items():
            for key, units in row.ephemeral.items():
                found.setdefault(key, {})[node] = units
        return found

    # -- facts ---------------------------------------------------------------------------------------------------

    def upsert(self, item: EphemeralResource) -> None:
        """The watch says that it exists and looks like this."""
        self._take(item, told=True)
        self._keeper.settle()

    def remove(self, item: EphemeralResource) -> None:
        """The watch says that it is gone."""
        self._end(identity(item.name), item.uid)
        self._keeper.settle()

    def replace(self, objects: Iterable[EphemeralResource]) -> None:
        """A list: these exist. Others are gone, unless they are of our own writing and the watch never knew them."""
        listed = set()
        for item in objects:
            listed.add(identity(item.name))
            if not self._take(item, told=True):
                self._doubt(identity(item.name))
        for name in [name for name in self._entries if name not in listed]:
            if self._entries[name].told:
                self._end(name, self._entries[name].resource.uid)
            else:
                self._doubt(name)
        self._keeper.settle()

    def rewind(self) -> None:
        """The store has gone back in time; a list follows. No version that is known here counts against it."""
        self._ended.clear()
        for name in list(self._entries):
            self._rewind(name)

    def asking(self, name: EphemeralName | Identity) -> Asked:
        """What `learn` is to be told with the answer to a request that is sent now."""
        asked = identity(name) if isinstance(name, EphemeralName) else name
        return Asked(asked, self.get(asked), self._ends)

    def learn(self, item: EphemeralResource, asked: Asked | None = None) -> None:
        """The store answered this to a write or a read of ours: it is there."""
        name = identity(item.name)
        if asked is not None and self._went_back(item, asked):
            _log.warning("the API server has gone back in time", name="/".join(name), version=item.resource_version)
            self._ended.pop(item.uid, None)
            self._rewind(name)
        self.doubtful.pop(name, None)
        self._take(item, told=False)
        self._keeper.settle()

    def _went_back(self, item: EphemeralResource, asked: Asked) -> bool:
        known = self._entries.get(identity(item.name))
        if known is not None and known is asked.entry and not known.rewound:
            return older(item.resource_version, known.resource.resource_version)
        return self._ended.get(item.uid, asked.ended) < asked.ended

    def _rewind(self, name: Identity) -> None:
        entry = self._entries.get(name)
        if entry is not None:
            entry.rewound = True
        for hear in self.rewound:
            hear(name)

    def doubt_unechoed(self, since: float) -> None:
        """Objects or versions known since then, by the steady clock, that the watch has not told of are asked about."""
        for name, entry in self._entries.items():
            if (not entry.told and entry.since <= since) or (not entry.echoed and entry.at <= since):
                self.doubtful[name] = None

    def _doubt(self, name: Identity) -> None:
        self.doubtful[name] = None
        self._tell(name)

    def end(self, name: EphemeralName | Identity, uid: str) -> None:
        """The store says that the object with this uid is there no more."""
        self._end(identity(name) if isinstance(name, EphemeralName) else name, uid)
        self._keeper.settle()

    def deleted(
        self, name: EphemeralName | Identity, resource: EphemeralResource, left: EphemeralResource | None
    ) -> None:
        """The store has deleted the object: it is gone, or what is `left` waits for finalizers, in force nowhere."""
        if left is None:
            self.end(name, resource.uid)
        else:
            self.learn(left)

    def _take(self, item: EphemeralResource, *, told: bool) -> bool:
        """Whether it could be: False where it is older than what is known."""
        name = identity(item.name)
        known = self._entries.get(name)
        if item.uid in self._ended:
            return False
        same = known is not None and known.resource.uid == item.uid
        if known is not None and not known.rewound:
            if same:
                known.told = known.told or told
            if older(item.resource_version, known.resource.resource_version):
                return False
            if same and known.told:
                self.doubtful.pop(name, None)
            if same and known.resource.resource_version == item.resource_version:
                known.echoed = known.echoed or told
                return True
        now = self._keeper.clock.steady()
        entry = Entry(item, now, item.resource_version, told, at=now, echoed=told)
        if known is not None and same:
            entry.since, entry.told = known.since, known.told or told
            if known.resource.generation == item.generation and not known.rewound:
                entry.version = known.version
        elif known is not None:
            self._remember_ended(known.resource.uid)
        self._enter(name, entry)
        return True

    def _end(self, name: Identity, uid: str) -> None:
        self._remember_ended(uid)
        known = self._entries.get(name)
        if known is not None and known.resource.uid == uid:
            self._enter(name, None)

    def _remember_ended(self, uid: str) -> None:
        # Without an end to it this would grow for ever; writes are in flight for seconds, not for so many deletions.
        self._ended[uid] = self._ends
        self._ends += 1
        if len(self._ended) > _ENDED_REMEMBERED:
            del self._ended[next(iter(self._ended))]

    # -- what is in force ----------------------------------------------------------------------------------------

    def _enter(self, name: Identity, entry: Entry | None) -> None:
        """The object is known as this, or known no more; the ledger follows."""
        before = self._entries.pop(name, None)
        keys: dict[ResourceKey, None] = {}
        if before is not None:
            keys[self._key(before.resource.name)] = None
            self._unlink(self._by_key, self._key(before.resource.name), name)
            if before.resource.owner is not None:
                self._unlink(self._by_owner, before.resource.owner.uid, name)
        self.intents.pop(name, None)
        if entry is not None:
            self._entries[name] = entry
            if entry.resource.intent is not None and not entry.resource.deleting:
                self.intents[name] = None
            keys[self._key(entry.resource.name)] = None
            self._by_key.setdefault(self._key(entry.resource.name), {})[name] = None
            if entry.resource.owner is not None:
                self._by_owner.setdefault(entry.resource.owner.uid, {})[name] = None
        else:
            self.doubtful.pop(name, None)
        for key in keys:
            self._enforce(key)
        rivals = [rival for key in keys for rival in self._by_key.get(key, ()) if rival != name]
        for each in (name, *rivals):
            self._tell(each)

    def _tell(self, name: Identity) -> None:
        for hear in self.listeners:
            hear(name)

    @staticmethod
    def _unlink(index: dict[K, dict[Identity, None]], key: K, name: Identity) -> None:
        names = index[key]
        del names[name]
        if not names:
            del index[key]

    def _key(self, name: EphemeralName) -> ResourceKey:
        return name.key(self._keeper.ledger.domain)

    def _winner(self, key: ResourceKey) -> Identity | None:
        claiming = [name for name in self._by_key.get(key, ()) if not self._entries[name].resource.problem]
        return min(claiming, key=lambda name: (self._entries[name].resource.created, name), default=None)

    def _desired(self, key: ResourceKey) -> dict[NodeName, int]:
        winner = self._winner(key)
        return {} if winner is None else self._entries[winner].resource.desired()

    def _enforce(self, key: ResourceKey) -> None:
        before = self._in_force.pop(key, {})
        self._crowded_out.pop(key, None)
        new = [node for node in self._desired(key) if node not in before]
        if self.first_full(key, new) is not None:
            self._crowded_out[key] = frozenset(new)
        after = self._granted(key)
        for node in before | after:
            if before.get(node, 0) != after.get(node, 0):
                self._keeper.set_capacity(node, key, after.get(node, 0))
        if after:
            self._in_force[key] = after
        if self._crowded_out and (left := before.keys() - after.keys()):
            self._let_in(left)

    def _granted(self, key: ResourceKey) -> dict[NodeName, int]:
        without = self._crowded_out.get(key, frozenset())
        return {node: units for node, units in self._desired(key).items() if node not in without}

    def _let_in(self, nodes: AbstractSet[NodeName]) -> None:
        """These nodes have a key less: whoever waits for that comes into force, the oldest first."""
        waiting = [name for key, full in self._crowded_out.items() if full & nodes and (name := self._winner(key))]
        for name in sorted(waiting, key=lambda name: (self._entries[name].resource.created, name)):
            self._enforce(self._key(self._entries[name].resource.name))
            self._tell(name)
