"""Snapshot: the whole state of a `Scheduler` as values, and a `Scheduler` that starts from them.

A state dump is made of these: facts as the core has them, the settings that decide, and decisions that no fact shows.
The facts hold nothing that no decision reads (no environment, no volumes, no annotations of others). The clock of the
restored `Scheduler` does not move: it is for questions (`explain`, `simulate`), not for decisions.

Not in it: binds that wait for room on a node or for a policy. Victims that kube-scheduler was offered within the last
seconds are missing too, and so are policies of others (`Circumstances.foreign_policies` names them).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from extender.app.cache.cache import Rules
from extender.app.cache.staleness import Staleness
from extender.app.contracts.ports import EphemeralResource, PodOwner
from extender.app.cycle.scheduler import Scheduler
from extender.app.resources.capacity import Capacities
from extender.core.budgets import Budget
from extender.core.cluster import Node, Pod
from extender.core.daemons import DaemonSet
from extender.core.gang_ask import MalformedAsk
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.gangs.memory import GangMemory, TurnsMemory, recall, remembered
from extender.core.gangs.state.pod_groups import PodGroup
from extender.core.ledger.ledger import Holding, HoldingKind
from extender.core.names import EphemeralName, GangKey
from extender.core.policies.policy_types import PolicyInForce
from extender.core.safety_switches import Switches
from extender.kube.names import NodeName, PodUid, ResourceKey

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What exists once. `now` and `steady`: the clock's. `schedulers`: schedulers that call Escher.

    `ages`: seconds since the last news of each watch; `stale_after`: the age beyond which nothing new is planned."""

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
    """The node's units of ephemeral resources, by the ledger."""

    node: NodeName
    units: Mapping[ResourceKey, int]


@dataclass(frozen=True, slots=True)
class ResourceKept:
    """An EphemeralResource. `desired`: its units by node. `withheld`: why it is not all in force."""

    name: EphemeralName
    desired: Mapping[NodeName, int]
    owner: PodOwner | None = None
    expires_at: float | None = None
    problem: str = ""
    withheld: str = ""
    exports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsMemory:
    """Knowledge of pods that no fact shows. `turns`: how often a pod took its next alternative.

    `left_out`: pods that kube-scheduler would bind without Escher. `asleep`: unschedulable pods, not woken since.
    `not_asked_about`: pods that have waited since this process began. `of_one`: pods that are a gang each."""

    turns: Mapping[PodUid, Mapping[str, int]] = field(default_factory=dict)
    left_out: Mapping[PodUid, MalformedAsk] = field(default_factory=dict)
    asleep: tuple[PodUid, ...] = ()
    not_asked_about: tuple[PodUid, ...] = ()
    of_one: tuple[PodUid, ...] = ()
    waits: Mapping[PodUid | GangKey, float] = field(default_factory=dict)
    """Since when each waits for the reasons of its last refusal."""


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
    scheduler: Scheduler,
    resources: Iterable[EphemeralResource] = (),
    capacities: Capacities | None = None,
    foreign_policies: Sequence[str] = (),
) -> Iterator[Record]:
    """Yields all records. They share values with the `Scheduler`: write them before it goes on."""
    cache, around = scheduler.cache, scheduler.cache.around
    yield _circumstances(scheduler, foreign_policies)
    yield from cache.nodes.values()
    for node, row in cache.ledger.rows.items():
        if row.ephemeral:
            yield CapacityKept(node, row.ephemeral)
    for each in resources:
        withheld = None if capacities is None else capacities.withheld(each.name)
        said = "" if withheld is None else withheld.said
        yield ResourceKept(each.name, each.desired(), each.owner, each.expires_at, each.problem, said, each.exports)
    for namespace in cache.policy_matching.namespaces():
        for name, policy in cache.policy_matching.in_force(namespace).items():
            yield PolicyKept(namespace, name, policy)
    yield from scheduler.pod_events.groups.known()
    yield from around.promises.known()
    yield from around.budgets.all()
    yield from around.daemons.all()
    yield from scheduler.pod_events.told()
    yield from cache.gangs.members.ended_well.pods()
    for holding in cache.ledger.rows.holdings():
        if not _follows(holding, cache.pods.get(PodUid(holding.holder))):
            yield holding
    pod_events = scheduler.pod_events
    yield PodsMemory(
        turns=cache.policy_matching.turns,
        left_out=pod_events.invalid_pods.left_out,
        asleep=tuple(scheduler.asleep()),
        not_asked_about=tuple(sorted(pod_events.not_asked_about)),
        of_one=tuple(sorted(cache.of_one.uids)),
        waits=cache.waits.all_since(),
    )
    gangs, turns = remembered(cache.gangs)
    yield from gangs
    yield turns


def _circumstances(scheduler: Scheduler, foreign_policies: Sequence[str]) -> Circumstances:
    cache = scheduler.cache
    allowances = (cache.isolation.default, dict(cache.isolation.namespaces))
    return Circumstances(
        now=cache.clock.now(),
        steady=cache.clock.steady(),
        rules=replace(cache.rules, switches=cache.safety_switches.everywhere, allowances=allowances),
        schedulers=tuple(sorted(cache.foreign_pods.ours)),
        labelled=cache.safety_switches.labelled,
        ages=dict(cache.staleness.ages()),
        stale_after=cache.staleness.limit,
        budgets_known=cache.around.budgets.known,
        daemon_sets_known=cache.around.daemons.known,
        pod_groups_installed=scheduler.pod_events.groups.installed,
        foreign_policies=tuple(foreign_policies),
    )


def _follows(holding: Holding, pod: Pod | None) -> bool:
    """Returns whether the holding follows from the pod itself."""
    bound = holding.kind is HoldingKind.BOUND
    return bound and pod is not None and (pod.node, pod.requests) == (holding.node, holding.units)


# -- a restored `Scheduler`


class StandingClock:
    """Implements `ports.Clock`: the time is always the same."""

    def __init__(self, now: float, steady: float) -> None:
        self._now = now
        self._steady = steady

    def now(self) -> float:
        return self._now

    def steady(self) -> float:
        return self._steady


class Incomplete(ValueError):
    """The values are not the whole state of a `Scheduler`; `str()` says what is missing."""


@dataclass(slots=True)
class Reopened:
    """`scheduler`: as the recorded one. `resources`: the EphemeralResources recorded."""

    scheduler: Scheduler
    circumstances: Circumstances
    resources: dict[ResourceKey, ResourceKept] = field(default_factory=dict)

    def why_withheld(self, key: ResourceKey) -> str:
        """Returns why the key has less than its object asks for; empty if it has not."""
        kept = self.resources.get(key)
        return "" if kept is None else kept.withheld


def reopened(told: Iterable[Record]) -> Reopened:
    """Returns a `Scheduler` that answers as the recorded one did then. Raises Incomplete."""
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
    scheduler = Scheduler(StandingClock(there.now, there.steady), there.rules)
    cache = scheduler.cache
    cache.staleness = Staleness(lambda: there.ages, there.stale_after)
    for name in there.schedulers:
        cache.foreign_pods.note_scheduler(name)
    for namespace, switches in there.labelled.items():
        cache.safety_switches.set_labelled(namespace, switches)
    for kept in every(CapacityKept):
        for key, units in kept.units.items():
            cache.ledger.capacity.set(kept.node, key, units)
    found = {each.name.key(cache.ledger.capacity.domain): each for each in every(ResourceKept) if not each.problem}
    for key, resource in found.items():
        cache.tenancy.export(key, resource.exports)
    cache.policy_matching.begin_with(pods.turns)
    for policy in every(PolicyKept):
        cache.policy_matching.put(policy.namespace, policy.name, policy.policy)
    if there.pod_groups_installed:
        scheduler.pod_events.groups.replace(every(PodGroup))
    cache.around.promises.replace(every(Promise))
    cache.around.budgets.replace(every(Budget))
    cache.around.budgets.known = there.budgets_known
    cache.around.daemons.replace(every(DaemonSet))
    cache.around.daemons.known = there.daemon_sets_known
    cache.of_one.uids.update(pods.of_one)
    scheduler.begin(every(Node), every(Pod), pods.left_out, every(Holding))
    recall(cache.gangs, every(GangMemory), turns)
    cache.waits.resume(pods.waits)
    scheduler.resume(pods.asleep, pods.not_asked_about)
    return Reopened(scheduler, there, found)
