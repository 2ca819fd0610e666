"""A ledger as one would write it on the back of an envelope: three tables, every total recomputed when needed.

The slow twin of `extender.core.ledger.ledger`, written from its docstrings alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from extender.core.ledger.ledger import Detection, Holder, Holding, HoldingKind, Mode
from extender.kube.names import NodeName, ResourceKey
from extender.kube.quantities import Vector

World = dict[Holder, Holding]


@dataclass
class NaiveLedger:
    facts: dict[NodeName, dict[ResourceKey, int]] = field(default_factory=dict)
    """Nodes that are present."""
    ephemeral: dict[NodeName, dict[ResourceKey, int]] = field(default_factory=dict)
    holdings: World = field(default_factory=dict)
    claims_on: dict[NodeName, int] = field(default_factory=dict)
    """A number that is another one after each claim on a node, and after the node was quite forgotten."""
    counter: int = 0

    def capacity(self, node: NodeName, resource: ResourceKey) -> int:
        if node not in self.facts:
            return 0
        return {**self.facts[node], **self.ephemeral.get(node, {})}.get(resource, 0)

    def held(self, node: NodeName, resource: ResourceKey, world: World | None = None) -> int:
        world = self.holdings if world is None else world
        return sum(h.units.get(resource, 0) for h in world.values() if h.node == node)

    def free(self, node: NodeName, resource: ResourceKey) -> int:
        return self.capacity(node, resource) - self.held(node, resource)

    def fits(self, claim: Holding, world: World) -> bool:
        return all(
            asked == 0 or self.held(claim.node, resource, world) + asked <= self.capacity(claim.node, resource)
            for resource, asked in claim.units.items()
        )

    def is_known(self, node: NodeName) -> bool:
        return (
            node in self.facts or bool(self.ephemeral.get(node)) or any(h.node == node for h in self.holdings.values())
        )

    def forget_unknown(self) -> None:
        for node in [node for node in self.claims_on if not self.is_known(node)]:
            del self.claims_on[node]
        for node in [*self.facts, *self.ephemeral, *(h.node for h in self.holdings.values())]:
            if self.is_known(node) and node not in self.claims_on:
                self.touch(node)

    def touch(self, node: NodeName) -> None:
        self.counter += 1
        self.claims_on[node] = self.counter

    def commit(
        self,
        claims: Sequence[Holding],
        mode: Mode,
        detection: Detection,
        read: Mapping[NodeName, int],
        releasing: Sequence[Holder],
    ) -> tuple[list[Holder], list[Holder]]:
        """The holders whose claims hold now, and those whose claims were refused."""
        intents = {h: held for h, held in self.holdings.items() if held.kind is not HoldingKind.BOUND}
        given_up = [h for h in releasing if h in intents]
        pinned: set[Holder] = set()
        while True:
            world = {h: held for h, held in self.holdings.items() if h not in given_up}
            for claim in claims:
                if claim.holder not in pinned and claim.holder in intents:
                    world.pop(claim.holder, None)
            entering: list[Holding] = []
            met: list[Holder] = []
            refused: list[Holder] = []
            for claim in claims:
                fact = self.holdings.get(claim.holder)
                if fact is not None and fact.kind is HoldingKind.BOUND:
                    same = (fact.node, fact.units) == (claim.node, claim.units)
                    (met if same else refused).append(claim.holder)
                    continue
                stale = detection is Detection.SEQUENCE_NUMBER and (
                    claim.node not in read or read[claim.node] != self.claims_on.get(claim.node)
                )
                if claim.holder in pinned or stale or not self.fits(claim, world):
                    refused.append(claim.holder)
                else:
                    world[claim.holder] = claim
                    entering.append(claim)
            keeping = {h for h in refused if h in intents and h not in given_up}
            if mode is Mode.ALL_OR_NOTHING or keeping <= pinned:
                break
            pinned |= keeping
        if not (entering or met) or (refused and mode is Mode.ALL_OR_NOTHING):
            return [], refused
        self.holdings = world
        for claim in entering:
            self.touch(claim.node)
        return [claim.holder for claim in claims if claim.holder not in refused], refused

    def confirm(self, holder: Holder, node: NodeName, units: Vector) -> None:
        before = self.holdings.get(holder)
        if before is None or (before.node, before.units) != (node, units):
            self.touch(node)
        self.holdings[holder] = Holding(
            holder, node, units, HoldingKind.BOUND, None if before is None else before.owner
        )

    def keep(self, holder: Holder, until: float | None) -> None:
        held = self.holdings.get(holder)
        if held is not None and held.kind is not HoldingKind.BOUND:
            self.holdings[holder] = replace(held, until=until)

    def expire(self, now: float) -> list[Holder]:
        due = [h for h in self.holdings.values() if h.until is not None and h.until <= now]
        for held in due:
            del self.holdings[held.holder]
        return [held.holder for held in sorted(due, key=lambda held: (held.until or 0.0, held.holder))]
