"""Remembering: the whole state of a keeper as values, one after the other, and a keeper that begins where another was.

A state dump is made of these: facts as the core has them, which bear nothing that no decision reads (no environment, no
volumes, no annotations that are not ours), the settings that decide, and what was decided and no fact tells. Time
stands still for whoever begins so: it is there to be asked (`explain`, `simulate`), not to decide. Must not know how
the values are written, nor where to.

Not remembered: binds that wait for a node or a policy's leave, victims that kube-scheduler was offered within the last
seconds, and policies that are none of ours (`Circumstances.foreign_policies` names them).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from extender.app.cache.cache import Rules
from extender.app.cache.staleness import Knowledge
from extender.app.contracts.ports import EphemeralResource, PodOwner
from extender.app.cycle.scheduler import Keeper
from extender.app.resources.capacity import Capacities
from extender.core.brake import Switches
from extender.core.budgets import Budget
from extender.core.cluster import Node, Pod
from extender.core.daemons import DaemonSet
from extender.core.gang_ask import MalformedAsk
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.gangs.memory import GangMemory, TurnsMemory, recall, remembered
from extender.core.gangs.state.pod_groups import PodGroup
from extender.core.ledger import Holding, HoldingKind
from extender.core.names import EphemeralName, GangKey
from extender.core.policy_types import PolicyInForce
from extender.kube.names import NodeName, PodUid, ResourceKey

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What there is once. `now` and `steady`: the clock's. `schedulers`: that are ours. `ages`: seconds since each
    watch said anything; `stale_after`: beyond which nothing new is planned."""

    now: float
    steady: float
    rules: Rules
    schedulers: tuple[str, ...] = ()
    labelled: Mapping[str, Switches] = field(default_factory=dict)
    ages: Mapping[str, float] = field(default_factory=dict)
    stale_after: float = 0.0
    budgets_known: bool = True
    daemon_sets_known: bool = True
    pod_groups_installed: bool = False
    foreign_policies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyKept:
    """What is in force of an EscherPolicy."""

    namespace: str
    name: str
    policy: PolicyInForce


@dataclass(frozen=True, slots=True)
class CapacityKept:
    """What the node has of ephemeral resources, by the ledger."""

    node: NodeName
    units: Mapping[ResourceKey, int]


@dataclass(frozen=True, slots=True)
class ResourceKept:
    """An EphemeralResource. `desired`: what it asks for, by node. `withheld`: why it is not wholly in force."""

    name: EphemeralName
    desired: Mapping[NodeName, int]
    owner: PodOwner | None = None
    expires_at: float | None = None
    problem: str = ""
    withheld: str = ""
    exports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsMemory:
    """What is known of pods and no fact tells. `turns`: how often the next of a pod's alternatives has come.
    `left_out`: that kube-scheduler would bind without us. `asleep`: turned away everywhere, and not woken since.
    `not_asked_about`: waiting since this life began. `of_one`: each is a gang by itself."""

    turns: Mapping[PodUid, Mapping[str, int]] = field(default_factory=dict)
    left_out: Mapping[PodUid, MalformedAsk] = field(default_factory=dict)
    asleep: tuple[PodUid, ...] = ()
    not_asked_about: tuple[PodUid, ...] = ()
    of_one: tuple[PodUid, ...] = ()
    waits: Mapping[PodUid | GangKey, float] = field(default_factory=dict)
    """Since when each waits for the reasons for which it was turned away last."""


Record = (
    Circumstances
    | Node
    | CapacityKept
    | ResourceKept
    | PolicyKept
    | PodGroup
    | Promise
    | Budget
    | DaemonSet
    | Pod
    | Holding
    | PodsMemory
    | GangMemory
    | TurnsMemory
)


def records(
    keeper: Keeper,
    resources: Iterable[EphemeralResource] = (),
    capacities: Capacities | None = None,
    foreign_policies: Sequence[str] = (),
) -> Iterator[Record]:
    """All of it; changes nothing. The values are shared with the keeper: write them before it goes on."""
    tables, around = keeper.tables, keeper.tables.around
    yield _circumstances(keeper, foreign_policies)
    yield from tables.nodes.values()
    for node, row in tables.ledger.rows.items():
        if row.ephemeral:
            yield CapacityKept(node, row.ephemeral)
    for each in resources:
        withheld = None if capacities is None else capacities.withheld(each.name)
        said = "" if withheld is None else withheld.said
        yield ResourceKept(each.name, each.desired(), each.owner, each.expires_at, each.problem, said, each.exports)
    for namespace in tables.governing.namespaces():
        for name, policy in tables.governing.in_force(namespace).items():
            yield PolicyKept(namespace, name, policy)
    yield from keeper.population.groups.known()
    yield from around.promises.known()
    yield from around.budgets.all()
    yield from around.daemons.all()
    yield from keeper.population.told()
    yield from tables.gangs.members.ended_well.pods()
    for holding in tables.ledger.rows.holdings():
        if not _follows(holding, tables.pods.get(PodUid(holding.holder))):
            yield holding
    population = keeper.population
    yield PodsMemory(
        turns=tables.governing.turns,
        left_out=population.misunderstood.left_out,
        asleep=tuple(keeper.asleep()),
        not_asked_about=tuple(sorted(population.not_asked_about)),
        of_one=tuple(sorted(tables.of_one.uids)),
        waits=tables.waits.all_since(),
    )
    gangs, turns = remembered(tables.gangs)
    yield from gangs
    yield turns


def _circumstances(keeper: Keeper, foreign_policies: Sequence[str]) -> Circumstances:
    tables = keeper.tables
    allowances = (tables.isolation.default, dict(tables.isolation.namespaces))
    return Circumstances(
        now=tables.clock.now(),
        steady=tables.clock.steady(),
        rules=replace(tables.rules, switches=tables.brake.everywhere, allowances=allowances),
        schedulers=tuple(sorted(tables.strangers.ours)),
        labelled=tables.brake.labelled,
        ages=dict(tables.knowledge.ages()),
        stale_after=tables.knowledge.limit,
        budgets_known=tables.around.budgets.known,
        daemon_sets_known=tables.around.daemons.known,
        pod_groups_installed=keeper.population.groups.installed,
        foreign_policies=tuple(foreign_policies),
    )


def _follows(holding: Holding, pod: Pod | None) -> bool:
    """Whether it is held wherever the same pod is seen."""
    bound = holding.kind is HoldingKind.BOUND
    return bound and pod is not None and (pod.node, pod.requests) == (holding.node, holding.units)


# -- a keeper that begins so


class StandingClock:
    """Implements `ports.Clock`: it is always the same moment."""

    def __init__(self, now: float, steady: float) -> None:
        self._now = now
        self._steady = steady

    def now(self) -> float:
        return self._now

    def steady(self) -> float:
        return self._steady


class Incomplete(ValueError):
    """The values are not the whole state of a keeper; `str()` says what is missing."""


@dataclass(slots=True)
class Reopened:
    """`keeper`: as the other one was. `resources`: the EphemeralResources that there were."""

    keeper: Keeper
    circumstances: Circumstances
    resources: dict[ResourceKey, ResourceKept] = field(default_factory=dict)

    def why_withheld(self, key: ResourceKey) -> str:
        """Why there is less of the key than its object asks for, in words; empty if there is not."""
        kept = self.resources.get(key)
        return "" if kept is None else kept.withheld


def reopened(told: Iterable[Record]) -> Reopened:
    """A keeper that answers as the one whose records these are, at the same moment. Raises Incomplete."""
    by_kind: dict[type, list[Record]] = {}
    for record in told:
        by_kind.setdefault(type(record), []).append(record)

    def every(kind: type[T]) -> list[T]:
        return [each for each in by_kind.get(kind, ()) if isinstance(each, kind)]

    def only(kind: type[T]) -> T:
        found = every(kind)
        if len(found) != 1:
            raise Incomplete(f"{kind.__name__} is there {len(found)} times; once is expected")
        return found[0]

    there, pods, turns = only(Circumstances), only(PodsMemory), only(TurnsMemory)
    keeper = Keeper(StandingClock(there.now, there.steady), there.rules)
    tables = keeper.tables
    tables.knowledge = Knowledge(lambda: there.ages, there.stale_after)
    for name in there.schedulers:
        tables.strangers.learn(name)
    for namespace, switches in there.labelled.items():
        tables.brake.set_labelled(namespace, switches)
    for kept in every(CapacityKept):
        for key, units in kept.units.items():
            tables.ledger.capacity.set(kept.node, key, units)
    found = {each.name.key(tables.ledger.capacity.domain): each for each in every(ResourceKept) if not each.problem}
    for key, resource in found.items():
        tables.tenancy.export(key, resource.exports)
    tables.governing.begin_with(pods.turns)
    for policy in every(PolicyKept):
        tables.governing.put(policy.namespace, policy.name, policy.policy)
    if there.pod_groups_installed:
        keeper.population.groups.replace(every(PodGroup))
    tables.around.promises.replace(every(Promise))
    tables.around.budgets.replace(every(Budget))
    tables.around.budgets.known = there.budgets_known
    tables.around.daemons.replace(every(DaemonSet))
    tables.around.daemons.known = there.daemon_sets_known
    tables.of_one.uids.update(pods.of_one)
    keeper.begin(every(Node), every(Pod), pods.left_out, every(Holding))
    recall(tables.gangs, every(GangMemory), turns)
    tables.waits.resume(pods.waits)
    keeper.resume(pods.asleep, pods.not_asked_about)
    return Reopened(keeper, there, found)
