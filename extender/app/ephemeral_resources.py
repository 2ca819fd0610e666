"""Ephemeral resources as a kind of ours: what is special to them.

Capacity in the ledger is always that of the objects in force, key by key; where two objects claim one key (shared ones
of two namespaces), the older has it. A node has at most so many keys, for a Node is one object of the API server's,
which has a largest size: an object that would add one too many is in force on none of the nodes that it would be new
on, until there is room on all of them.

The nodes that an object's nodeSpec means are chosen here, when its status is judged. A choice is made once, and again
where capacity, nodeSpec or numNodes have changed, or a chosen node has left for good. It is made durable (status.nodes)
before it is in force. One that finds no node is made again in each full round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime

from extender.app.decisions import Performer
from extender.app.keeper import Keeper
from extender.app.node_choice import choose_again, is_same_choice, why_none
from extender.app.objects.in_force import InForce
from extender.app.objects.kind import Identity, KindOfOurs, NotInForce, Status, identity
from extender.app.objects.marks import digest_of
from extender.app.ports import EphemeralResource, MadeChoice, ResourceStatus
from extender.app.tables import Tables
from extender.core.names import EphemeralName
from extender.kube.names import NodeName, ResourceKey


def _reconcile(resource: EphemeralResource, former: EphemeralResource | None) -> EphemeralResource | NotInForce:
    """The object, if it can be understood. Capacity that nobody can say more of is not kept."""
    return NotInForce("Invalid", resource.problem, keeps_former=False) if resource.problem else resource


KIND = KindOfOurs("EphemeralResource", _reconcile, holds_until_gone=True)
"""Until it is gone an object has its key, though on no node: another could not be told from it there."""


class Capacities:
    """The ledger has the capacity of what is in force. `tell` is called with whom the ledger treats otherwise now."""

    def __init__(
        self,
        keeper: Keeper,
        performer: Performer,
        in_force: InForce[EphemeralResource, EphemeralResource],
        tell: Callable[[Identity], None],
    ) -> None:
        self._keeper = keeper
        self._performer = performer
        self._objects = in_force
        self._tell = tell
        self._by_key: dict[ResourceKey, dict[Identity, None]] = {}
        self._in_ledger: dict[ResourceKey, dict[NodeName, int]] = {}
        self._crowded_out: dict[ResourceKey, frozenset[NodeName]] = {}
        """Keys for which a node has no room, and the nodes on which they are not in force for that."""
        in_force.followers.append(self._follow)

    # -- reading -------------------------------------------------------------------------------------------------

    def key_of(self, name: EphemeralName) -> ResourceKey:
        return name.key(self._keeper.tables.ledger.capacity.domain)

    def holder_of(self, key: ResourceKey) -> EphemeralName | None:
        """The object whose capacity is in force under this key."""
        winner = self._winner(key)
        return None if winner is None else winner.name

    def has_key(self, name: EphemeralName) -> bool:
        """Whether the object has its key, and is not one that waits for another to let go of it."""
        return self.holder_of(self.key_of(name)) == name

    def rival_of(self, name: EphemeralName) -> EphemeralName | None:
        """The other object that has this one's key."""
        holder = self.holder_of(self.key_of(name))
        return None if holder is None or identity(holder) == identity(name) else holder

    def first_full(
        self, key: ResourceKey, nodes: Iterable[NodeName], beside: Mapping[NodeName, Collection[ResourceKey]] = {}
    ) -> NodeName | None:
        """The first of the nodes that has its most keys, without this one. `beside`: keys that are about to come."""
        for node in nodes:
            row, seen = self._keeper.tables.ledger.rows.get(node), self._keeper.tables.nodes.get(node)
            there = row.ephemeral if row is not None else {}
            # What the node says already makes it no larger: an earlier life of ours may have had a higher limit.
            is_new = key not in there and (seen is None or key not in seen.capacity)
            more = sum(each not in there and each != key for each in beside.get(node, ()))
            if is_new and len(there) + more >= self._keeper.tables.rules.keys_per_node:
                return node
        return None

    def in_force(self, name: EphemeralName) -> Mapping[NodeName, int]:
        """Units by node that the ledger has for the object."""
        return self._granted(self.key_of(name)) if self.has_key(name) else {}

    def crowded_out(self, name: EphemeralName) -> str:
        """Why the object is not in force on all of its nodes, as they have no room for its key; empty if it is."""
        nodes = self._crowded_out.get(self.key_of(name), frozenset()) if self.has_key(name) else frozenset[NodeName]()
        full = self.first_full(self.key_of(name), sorted(nodes)) or min(nodes, default=None)
        return "" if full is None else self.too_many(full)

    def too_many(self, node: NodeName) -> str:
        """That the node has its most keys, with numbers."""
        row, most = self._keeper.tables.ledger.rows.get(node), self._keeper.tables.rules.keys_per_node
        count = 0 if row is None else len(row.ephemeral)
        return f"node {node} has {count} ephemeral resources, and may have {most} (ephemeral_keys_per_node)"

    def expected(self) -> dict[ResourceKey, dict[NodeName, int]]:
        """What should be in the ledger, computed from the objects: the slow twin."""
        found = {key: self._granted(key) for key in self._by_key}
        return {key: nodes for key, nodes in found.items() if nodes}

    def repair(self) -> int:
        """Nothing in the ledger differs from `expected`. How many resources did: none, unless there is a defect."""
        expected, found = self.expected(), self._found()
        keys = [key for key in {**expected, **found} if expected.get(key) != found.get(key)]
        for key in keys:
            self._in_ledger[key] = found.get(key, {})
            self._enforce(key)
        self._performer.do(self._keeper.settle())
        return len(keys)

    def _found(self) -> dict[ResourceKey, dict[NodeName, int]]:
        found: dict[ResourceKey, dict[NodeName, int]] = {}
        for node, row in self._keeper.tables.ledger.rows.items():
            for key, units in row.ephemeral.items():
                found.setdefault(key, {})[node] = units
        return found

    # -- writing -------------------------------------------------------------------------------------------------

    def _follow(
        self, name: Identity, before: EphemeralResource | None, after: EphemeralResource | None
    ) -> list[Identity]:
        """The ledger follows. The rivals of the object, who may have its key now, or have lost it."""
        keys = dict.fromkeys(self.key_of(each.name) for each in (before, after) if each is not None)
        if before is not None:
            names = self._by_key[self.key_of(before.name)]
            del names[name]
            if not names:
                del self._by_key[self.key_of(before.name)]
        if after is not None:
            self._by_key.setdefault(self.key_of(after.name), {})[name] = None
        for key in keys:
            self._enforce(key)
        return [rival for key in keys for rival in self._by_key.get(key, ()) if rival != name]

    def _winner(self, key: ResourceKey) -> EphemeralResource | None:
        claiming = [each for name in self._by_key.get(key, ()) if (each := self._objects.get(name)) is not None]
        return min(claiming, key=_age, default=None)

    def _desired(self, key: ResourceKey) -> dict[NodeName, int]:
        winner = self._winner(key)
        return {} if winner is None else winner.desired()

    def _enforce(self, key: ResourceKey) -> None:
        before = self._in_ledger.pop(key, {})
        self._crowded_out.pop(key, None)
        new = [node for node in self._desired(key) if node not in before]
        if self.first_full(key, new) is not None:
            self._crowded_out[key] = frozenset(new)
        after = self._granted(key)
        for node in before | after:
            if before.get(node, 0) != after.get(node, 0):
                self._performer.do(self._keeper.set_capacity(node, key, after.get(node, 0)))
        if after:
            self._in_ledger[key] = after
        if self._crowded_out and (left := before.keys() - after.keys()):
            self._let_in(left)

    def _granted(self, key: ResourceKey) -> dict[NodeName, int]:
        without = self._crowded_out.get(key, frozenset())
        return {node: units for node, units in self._desired(key).items() if node not in without}

    def _let_in(self, nodes: AbstractSet[NodeName]) -> None:
        """These nodes have a key less: whoever waits for that comes into force, the oldest first."""
        waiting = [each for key, full in self._crowded_out.items() if full & nodes and (each := self._winner(key))]
        for each in sorted(waiting, key=_age):
            self._enforce(self.key_of(each.name))
            self._tell(identity(each.name))


def _age(resource: EphemeralResource) -> tuple[float, Identity]:
    return (resource.created, identity(resource.name))


# -- what the status says ----------------------------------------------------------------------------------------


class Placements:
    """`conditions.Reports`: where each object is, or why it is nowhere."""

    def __init__(self, tables: Tables, capacities: Capacities) -> None:
        self._tables = tables
        self._capacities = capacities

    def judge(self, item: EphemeralResource) -> ResourceStatus | None:
        if item.intent is not None:
            return None
        if item.problem:
            return ResourceStatus(False, "Invalid", item.problem)
        if rival := self._capacities.rival_of(item.name):
            taken = f"{self._capacities.key_of(item.name)} belongs to the older {rival}"
            return ResourceStatus(False, "NameTaken", f"{taken}; this one is in force when that is gone")
        chosen = item.chosen
        why = ""
        if item.choice is not None:
            nodes = self._choose(item)
            chosen = dict.fromkeys(nodes, item.capacity or 0)
            if not nodes and item.capacity:
                why = why_none(item.choice, self._tables.nodes, self._tables.ledger)
                if not (item.chosen and _is_as_asked(item)):
                    return ResourceStatus(False, "NoNode", why, {})
                chosen = dict(item.chosen)
        if crowded := self._capacities.crowded_out(item.name):
            said = f"{crowded}; this one is in force when one of them is gone"
            return ResourceStatus(False, "TooManyKeys", said, chosen)
        units = {node: number for node, number in {**(chosen or {}), **item.nodes}.items() if number}
        if left := sorted(node for node in units if self._tables.has_left(node)):
            return ResourceStatus(False, "NodeGone", _who_left(left) + (f"; {why}" if why else ""), chosen)
        return ResourceStatus(True, "Set", f"{sum(units.values())} units on {len(units)} nodes", chosen)

    def is_as_said(self, item: EphemeralResource, status: ResourceStatus) -> bool:
        return status.chosen == item.chosen and (not status.chosen or _is_as_asked(item))

    def can_wait(self, item: EphemeralResource) -> bool:
        return item.choice is None

    def may_differ(self, item: EphemeralResource, said: Status | None) -> bool:
        """Choices that have found no node are made again; nodes that have left for good, or are back, are noticed."""
        return (
            (item.choice is not None and not item.chosen)
            or (said is not None and said.reason == "NodeGone")
            or not self._tables.nodes.keys() >= {**item.nodes, **(item.chosen or {})}.keys()
        )

    def _choose(self, resource: EphemeralResource) -> Sequence[NodeName]:
        """The nodes of the object's nodeSpec: those chosen before, as long as it asks for the same; else anew."""
        tables, having = self._tables, resource.chosen or {}
        if not resource.capacity or resource.choice is None:
            return ()
        if resource.choice.node is not None:
            name = resource.choice.node
            return [name] if name in tables.nodes or name in having else []
        before = resource.chosen_for
        if before is None and resource.observed_generation == resource.generation and having:
            # Chosen by an earlier version of us, which did not say for what.
            before = MadeChoice(resource.capacity, resource.choice)
        before = None if before is None or not having else replace(before, nodes=tuple(having))
        wanted = MadeChoice(resource.capacity, resource.choice)
        nodes, _ = choose_again(wanted, before, having, tables.nodes, tables.ledger, tables.has_left)
        return nodes


def _is_as_asked(resource: EphemeralResource) -> bool:
    """Whether `chosen` was chosen for what is asked now."""
    before, choice = resource.chosen_for, resource.choice
    if before is None or choice is None:
        return before is None and choice is None
    return before.capacity == resource.capacity and is_same_choice(before.choice, choice)


def _who_left(left: Sequence[NodeName]) -> str:
    more = f" and {len(left) - 1} others have" if len(left) > 2 else f" and {left[1]} have" if len(left) > 1 else " has"
    return f"{'node' if len(left) == 1 else 'nodes'} {left[0]}{more} left the cluster"


# -- what an object asks for -------------------------------------------------------------------------------------


def is_as_marked(resource: EphemeralResource) -> bool:
    """Whether its spec is what the transaction wrote whose mark it bears."""
    return digest_of(resource.mark) == digest(resource)


def digest(resource: EphemeralResource) -> str:
    """The same for two specs if they ask for the same, and else, but for one chance in 2^48, another."""
    choice, ends = resource.choice, resource.expires_at
    asked = (
        sorted(resource.nodes.items()),
        resource.capacity,
        choice and (choice.node, _sorted(choice.available), _sorted(choice.labels), choice.limit),
        resource.owner and (resource.owner.name, resource.owner.uid),
        # As it comes back from the API server, to the microsecond.
        None if ends is None else datetime.fromtimestamp(ends, UTC).isoformat(),
    )
    return hashlib.blake2b(repr(asked).encode(), digest_size=6).hexdigest()


def _sorted(mapping: object) -> object:
    return sorted(mapping.items()) if isinstance(mapping, dict) else mapping


def is_same_state(one: EphemeralResource | None, other: EphemeralResource | None) -> bool:
    """Whether nobody has written the spec between the two: status, labels and the like may differ."""
    if one is None or other is None:
        return one is other
    return (one.mark, one.deleting, digest(one)) == (other.mark, other.deleting, digest(other))
