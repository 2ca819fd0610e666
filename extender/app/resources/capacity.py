"""Capacities: keeps the ledger's ephemeral capacity in step with the objects in force, key by key.

If two objects claim one key (shared ones of two namespaces), the older has it. An object gets no more than it has while

- the node, or the object's name, is outside of its namespace's scheduling domain; or
- a node has its most keys, because the size of a Node object is limited: then none of the object's new nodes gets the
  resource until all of them have room; or
- its namespace would exceed its quota of resources or of units: then no node gets more.

An object keeps what it has, however quota and domain change. Objects that wait for the quota are admitted oldest first,
if there is room. In the first list after a start, an object has what its status says is set, or else what the nodes
state already. Others get more only when all of that is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass

from extender.app.contracts.effects import Performer
from extender.app.contracts.kind import Identity, identity
from extender.app.contracts.ports import EphemeralResource
from extender.app.cycle.scheduler import Scheduler
from extender.app.objects.effective import Effective
from extender.app.resources.quota import NOTHING, Amount, ResourceQuota, Underway, amount_of
from extender.core.names import EphemeralName
from extender.core.tenancy.isolation import Counted, Over
from extender.kube.names import NodeName, ResourceKey

Units = Mapping[NodeName, int]


@dataclass(frozen=True, slots=True)
class Withheld:
    """Why an object is not wholly in force. `most`: its units on nodes where it asks for more."""

    most: Units
    outside: str = ""
    full: AbstractSet[NodeName] = frozenset()
    over: Over | None = None
    more: Amount = NOTHING
    """What it asks for beyond what it has, if the quota withholds it."""
    crowded: str = ""

    @property
    def reason(self) -> str:
        """The reason, one CamelCase word."""
        return "OutsideDomain" if self.outside else "TooManyKeys" if self.full else "QuotaExceeded"

    @property
    def said(self) -> str:
        return "; ".join(each for each in (self.outside, self.crowded, str(self.over or "")) if each)

    @property
    def until(self) -> str:
        """States when the object comes into force."""
        if self.outside:
            return "it keeps there what it had before, and gets no more"
        return "this one comes into force when " + ("one of them is gone" if self.full else "the quota allows it")


class Capacities:
    """Puts the capacity in force into the ledger. `tell` gets each object whose state changed."""

    def __init__(
        self,
        scheduler: Scheduler,
        performer: Performer,
        in_force: Effective[EphemeralResource, EphemeralResource],
        tell: Callable[[Identity], None],
    ) -> None:
        self.cache = scheduler.cache
        self._scheduler = scheduler
        self._performer = performer
        self._objects = in_force
        self._tell = tell
        self.quota = ResourceQuota(scheduler.cache.isolation, lambda name: amount_of(self.in_force(name)))
        self._by_key: dict[ResourceKey, dict[Identity, None]] = {}
        self._in_ledger: dict[ResourceKey, dict[NodeName, int]] = {}
        self._had_by: dict[ResourceKey, tuple[str, Identity]] = {}
        """The owner of each ledger entry: the object's uid, and its name."""
        self._withheld: dict[ResourceKey, Withheld] = {}
        self._to_admit: dict[ResourceKey, None] = {}
        """Keys that may get more once all objects that arrived together are known."""
        self._begun = False
        """Whether the first list is known."""
        self.on_event: Callable[[ResourceKey, Units], None] = lambda key, units: None
        """Takes the units by node that are in force of a key from now on."""
        in_force.followers.append(self._follow)

    # -- reading -------------------------------------------------------------------------------------------------

    def key_of(self, name: EphemeralName) -> ResourceKey:
        return name.key(self._scheduler.cache.ledger.capacity.domain)

    def holder_of(self, key: ResourceKey) -> EphemeralName | None:
        """Returns the object whose capacity is in force under this key."""
        winner = self._winner(key)
        return None if winner is None else winner.name

    def has_key(self, name: EphemeralName) -> bool:
        """Returns whether the object has its key; if not, it waits until another gives it up."""
        return self.holder_of(self.key_of(name)) == name

    def rival_of(self, name: EphemeralName) -> EphemeralName | None:
        """Returns the other object that has this one's key."""
        holder = self.holder_of(self.key_of(name))
        return None if holder is None or identity(holder) == identity(name) else holder

    def first_full(
        self, key: ResourceKey, nodes: Iterable[NodeName], beside: Mapping[NodeName, Collection[ResourceKey]] = {}
    ) -> NodeName | None:
        """Returns the first of the nodes that has its most keys, not counting `key`, or None.

        `beside`: keys that are about to be added."""
        for node in nodes:
            row, seen = self._scheduler.cache.ledger.rows.get(node), self._scheduler.cache.nodes.get(node)
            there = row.ephemeral if row is not None else {}
            # A key that the node states already makes the Node no larger: a former process may have had a higher limit.
            is_new = key not in there and (seen is None or key not in seen.capacity)
            more = sum(each not in there and each != key for each in beside.get(node, ()))
            if is_new and len(there) + more >= self._scheduler.cache.rules.keys_per_node:
                return node
        return None

    def in_force(self, name: EphemeralName) -> Units:
        """Returns the units by node that the ledger has for the object."""
        return self._granted(self.key_of(name)) if self.has_key(name) else {}

    def withheld(self, name: EphemeralName) -> Withheld | None:
        """Returns why the object is not wholly in force; None if it is, or has no key."""
        return self._withheld.get(self.key_of(name)) if self.has_key(name) else None

    def why_withheld(self, key: ResourceKey) -> str:
        """Returns in words why the key has less than its object asks for; empty if it has not."""
        withheld = self._withheld.get(key)
        return "" if withheld is None else withheld.said

    def too_many(self, node: NodeName) -> str:
        """States, with numbers, that the node has its most keys."""
        row, most = self._scheduler.cache.ledger.rows.get(node), self._scheduler.cache.rules.keys_per_node
        count = 0 if row is None else len(row.ephemeral)
        return f"node {node} has {count} ephemeral resources; the limit is {most} (max_ephemeral_resources_per_node)"

    def outside(self, name: EphemeralName, nodes: Iterable[NodeName]) -> str:
        """Returns why nodes or the name are outside of the namespace's domain; empty if none is."""
        allowance = self._scheduler.cache.isolation.of(name.namespace)
        if not allowance.has_name(name.name):
            allowed = ", ".join(allowance.names or ()) or "none"
            return f"{name} is outside of the scheduling domain of {name.namespace}: its names match {allowed}"
        out = [node for node in nodes if not self._is_inside(name.namespace, node)]
        if not out:
            return ""
        which = f"node {out[0]} is" if len(out) == 1 else f"nodes {out[0]} and {len(out) - 1} others are"
        said = f"{which} outside of the scheduling domain of {name.namespace}"
        return f"{said}: name a node that has {allowance.told_nodes()}"

    def _is_inside(self, namespace: str, node: NodeName) -> bool:
        allowance, seen = self._scheduler.cache.isolation.of(namespace), self._scheduler.cache.nodes.get(node)
        return allowance.nodes is None or (seen is not None and allowance.has_node(seen.labels))

    def more_than(self, name: EphemeralName, units: Units) -> Amount:
        """Returns the amount of `units` beyond what the object has."""
        return amount_of(units).beyond(amount_of(self.in_force(name)))

    def over(self, name: EphemeralName, units: Units) -> Over | None:
        """Returns what exceeds the namespace's quota if the object gets `units`, or None."""
        return self.quota.over(name, self.more_than(name, units))

    def waiting_for_quota(self, namespace: str) -> dict[Counted, int]:
        """Counts the objects of the namespace that wait for its quota, by what they lack."""
        found: dict[Counted, int] = {}
        for key, each in self._withheld.items():
            whose = self.holder_of(key) if each.over is not None else None
            if each.over is not None and whose is not None and whose.namespace == namespace:
                found[each.over.of] = found.get(each.over.of, 0) + 1
        return found

    def expected(self) -> dict[ResourceKey, dict[NodeName, int]]:
        """Returns what the ledger should have, recomputed from the objects (slow, for checks)."""
        found = {key: self._granted(key) for key in self._by_key}
        return {key: nodes for key, nodes in found.items() if nodes}

    def recount(self) -> dict[str, Amount]:
        """Returns the amount of each namespace, recomputed from the ledger (slow, for checks)."""
        found: dict[str, Amount] = {}
        for key, units in self._found().items():
            if (winner := self._winner(key)) is not None:
                found[winner.name.namespace] = found.get(winner.name.namespace, Amount()).and_more(amount_of(units))
        return found

    def repair(self) -> int:
        """Makes the ledger equal to `expected`. Returns the resources that differed (a defect)."""
        expected, found = self.expected(), self._found()
        keys = [key for key in {**expected, **found} if expected.get(key) != found.get(key)]
        for key in keys:
            self._put(key, found.get(key, {}))
            self._enforce(key)
        self._performer.do(self._scheduler.settle())
        return len(keys)

    def _found(self) -> dict[ResourceKey, dict[NodeName, int]]:
        found: dict[ResourceKey, dict[NodeName, int]] = {}
        for node, row in self._scheduler.cache.ledger.rows.items():
            for key, units in row.ephemeral.items():
                found.setdefault(key, {})[node] = units
        return found

    # -- writing -------------------------------------------------------------------------------------------------

    def _follow(
        self, name: Identity, before: EphemeralResource | None, after: EphemeralResource | None
    ) -> list[Identity]:
        """Updates the ledger. Returns the object's rivals, which may have got or lost its key."""
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

    @contextmanager
    def underway(self) -> Iterator[Underway]:
        """While the block lasts, what a call notes there has its room in the quota."""
        try:
            with self.quota.underway() as call:
                yield call
        finally:
            self._look_at_freed()

    def admit(self) -> None:
        """Admits objects that have room in the quota, oldest first. All of a batch are known."""
        keys, self._to_admit = self._to_admit, {}
        first, self._begun = not self._begun, True
        coming = [winner for key in keys if (winner := self._winner(key)) is not None]
        # In the first list, objects get no more than they had. Objects whose status said that they have all come first.
        for each in sorted(coming, key=lambda each: (first and each.said_unready, *_age(each))):
            self._enforce(self.key_of(each.name), told=True)
        self._look_at_freed()

    def _look_at_freed(self) -> None:
        """Gives room that has come free in quotas to the objects that wait for it."""
        while self._begun and (freed := self.quota.take_freed()):
            for key in self._waiting_for_quota(freed):
                self._enforce(key, told=True)

    def _waiting_for_quota(self, namespaces: Collection[str]) -> list[ResourceKey]:
        found = [
            winner
            for key, each in self._withheld.items()
            if each.over is not None
            and (winner := self._winner(key)) is not None
            and winner.name.namespace in namespaces
            and self.quota.over(winner.name, each.more) is None
        ]
        return [self.key_of(each.name) for each in sorted(found, key=_age)]

    def look_again(self, nodes: Collection[NodeName] | None = None) -> None:
        """Gives more where domains, quotas or the labels of `nodes` allow it now."""
        keys = [
            key
            for key, each in self._withheld.items()
            if nodes is None or (each.outside and not each.most.keys().isdisjoint(nodes))
        ]
        winners = [winner for key in keys if (winner := self._winner(key)) is not None]
        for each in sorted(winners, key=_age):
            self._enforce(self.key_of(each.name), told=self._begun)
        self._look_at_freed()

    def _winner(self, key: ResourceKey) -> EphemeralResource | None:
        claiming = [each for name in self._by_key.get(key, ()) if (each := self._objects.get(name)) is not None]
        return min(claiming, key=_age, default=None)

    def _desired(self, key: ResourceKey) -> dict[NodeName, int]:
        winner = self._winner(key)
        return {} if winner is None else winner.desired()

    def _enforce(self, key: ResourceKey, *, told: bool = False) -> None:
        """`told`: all that arrived together is known, so changed objects are reported to `tell`."""
        before, was = self._in_ledger.get(key, {}), self._withheld.pop(key, None)
        winner = self._winner(key)
        withheld = None if winner is None else self._withhold(key, winner, before, admitting=told)
        if withheld is not None:
            self._withheld[key] = withheld
        after = self._granted(key)
        if self.cache.tenancy.export(key, () if winner is None else winner.exports):
            for node in after:
                self.cache.ledger.capacity.reconsider(node)
        if before != after:
            self.on_event(key, after)
        changed = {node: after.get(node, 0) for node in before | after if before.get(node, 0) != after.get(node, 0)}
        if changed:
            self._performer.do(self._scheduler.set_capacities(key, changed))
        self._put(key, after)
        if told and winner is not None and (withheld != was or after != before):
            self._tell(identity(winner.name))
        if self._withheld and (left := before.keys() - after.keys()):
            self._let_in(left)

    def _put(self, key: ResourceKey, units: dict[NodeName, int]) -> None:
        """Puts the units into the ledger's record, and counts them for the key's present owner."""
        before, whose = amount_of(self._in_ledger.pop(key, {})), self._had_by.pop(key, None)
        after, winner = amount_of(units), self._winner(key)
        if winner is not None:
            self._had_by[key] = winner.uid, identity(winner.name)
        if whose is not None and winner is not None and whose[1].namespace == winner.name.namespace:
            self.quota.changes(winner.name.namespace, before, after)
        else:
            if whose is not None:
                self.quota.changes(whose[1].namespace, before, NOTHING)
            if winner is not None:
                self.quota.changes(winner.name.namespace, NOTHING, after)
        if units:
            self._in_ledger[key] = units

    def _withhold(
        self, key: ResourceKey, winner: EphemeralResource, before: dict[NodeName, int], *, admitting: bool
    ) -> Withheld | None:
        name, desired = winner.name, winner.desired()
        is_its_own = self._had_by.get(key) == (winner.uid, identity(name))
        has = before if is_its_own else self._had_before(key, winner)
        more = [node for node, units in desired.items() if units > has.get(node, 0)]
        most: dict[NodeName, int] = {}
        outside = self.outside(name, more)
        if outside:
            named = self._scheduler.cache.isolation.of(name.namespace).has_name(name.name)
            out = [node for node in more if not (named and self._is_inside(name.namespace, node))]
            most |= {node: has.get(node, 0) for node in out}
        new = [node for node in desired if node not in before and node not in most]
        full = self.first_full(key, new)
        if full is not None:
            most |= dict.fromkeys(new, 0)
        wanted = {node: min(units, most.get(node, units)) for node, units in desired.items()}
        kept = amount_of({node: min(has.get(node, 0), units) for node, units in wanted.items()})
        # A move between nodes is not an increase.
        asked = amount_of(wanted).beyond(kept.at_least(amount_of(before)) if is_its_own else kept)
        over = self.quota.over(name, asked)
        if self.quota.limits(name.namespace) and not admitting:
            self._to_admit[key] = None
            over = over or self.quota.not_yet(name.namespace, asked)
        if over is not None:
            most |= {node: min(has.get(node, 0), most.get(node, desired[node])) for node in more}
        if not most:
            return None
        crowded = "" if full is None else self.too_many(full)
        return Withheld(most, outside, frozenset(new if full else ()), over, asked, crowded)

    def _had_before(self, key: ResourceKey, winner: EphemeralResource) -> Units:
        """Returns what the object had of the key in a former process, and keeps."""
        if self._begun:
            return {}
        if winner.observed_generation == winner.generation and winner.generation and not winner.said_unready:
            return winner.desired()
        nodes = self._scheduler.cache.nodes
        said = {node: nodes[node].capacity.get(key, 0) for node in winner.desired() if node in nodes}
        return {node: units for node, units in said.items() if units}

    def _granted(self, key: ResourceKey) -> dict[NodeName, int]:
        withheld = self._withheld.get(key)
        most: Units = {} if withheld is None else withheld.most
        found = {node: min(units, most.get(node, units)) for node, units in self._desired(key).items()}
        return {node: units for node, units in found.items() if units}

    def _let_in(self, nodes: AbstractSet[NodeName]) -> None:
        """These nodes have a key less: admits the objects that wait for that, the oldest first."""
        full = [key for key, each in self._withheld.items() if each.full & nodes]
        for each in sorted((winner for key in full if (winner := self._winner(key)) is not None), key=_age):
            self._enforce(self.key_of(each.name), told=self._begun)
            self._tell(identity(each.name))


def _age(resource: EphemeralResource) -> tuple[float, Identity]:
    return (resource.created, identity(resource.name))
