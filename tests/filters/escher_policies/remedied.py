"""Situations in which somebody waits, drawn from a seed; and what is told as a remedy carried out in earnest.

A cluster of a few nodes with policies, pods, gangs, claims and data, and a scheduler that knows nothing of policies.
The same seed is the same situation, down to the last holding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

from extender.app.contracts.explanation import Explanation, Remedy
from extender.app.contracts.simulation_changes import (
    Added,
    Ended,
    Offered,
    PolicySet,
    QuorumSet,
    Released,
    SimulationChange,
    Uncordoned,
)
from extender.app.explain.explain import Explain
from extender.app.explain.remedy_search import RemedySearch, Simulate
from extender.app.explain.simulate import simulate_on
from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.ledger.ledger import Holder, Holding, HoldingKind
from extender.core.names import GangKey
from extender.core.policies.policy_types import HOSTNAME, AntiAffinity, Balance, CoLocation, DataLocality, Parameters
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.node_match import accepts
from tests.builders import gang_pods, node, pod, units
from tests.filters.escher_policies.world import ZONE, PolicyWorld, naming, selecting

T = TypeVar("T")
DATA = ResourceKey("escher.dev/default.data1")
TARGET = GangKey("default", "target")


@dataclass
class Situation(PolicyWorld):
    """`target`: the members of the gang, or the one pod, that came last. No resource of ours is told to kube-scheduler:
    the ledger alone has them, as for the profile escher-ledger."""

    target: list[Pod] = field(default_factory=list)

    def offer(self, pod: Pod) -> list[NodeName]:
        outside = [(each, number) for each, number in pod.requests.items() if not each.startswith("escher.dev/")]
        return [
            name
            for name, there in self.nodes.items()
            if accepts(there, pod) and all(number <= self.free(name, each) for each, number in outside)
        ]

    def pending(self) -> list[Pod]:
        return sorted(super().pending(), key=lambda each: -each.priority)

    def schedule(self) -> None:
        """One pod after the other, each bound, or at its barrier, before the next is tried."""
        for _ in range(200):
            tried = [each for each in self.pending() if each in self.pending() and self._try(each)]
            self.catch_up()
            if not tried:
                return
        raise AssertionError("it never comes to rest: a hot loop")

    def _try(self, pod: Pod) -> bool:
        if not (sent := self.offer(pod)) or not self.filter(pod, sent).passed:
            return False
        self.bind(pod.uid)
        for uid in list(self.opened):
            self.write(uid)
        self.catch_up()
        return True

    @property
    def is_placed(self) -> bool:
        there = [self.pods[each.uid] for each in self.target]
        placed = sum(each.node is not None for each in there)
        return placed >= (there[0].gang.quorum if isinstance(there[0].gang, GangAsk) else 1)

    async def explain(self, seed: int) -> Explanation:
        helping = RemedySearch(self.scheduler.cache, Explain(self.scheduler.cache), Here(), elsewhere(seed))
        if self.target[0].gang is None:
            return await helping.pod("default", self.target[0].name)
        return await helping.gang(TARGET)

    # -- a remedy in earnest -------------------------------------------------------------------------------------

    def carry_out(self, remedy: Remedy) -> None:
        for each in remedy.changes:
            self._do_it(each)
        self.catch_up()
        self.schedule()

    def _do_it(self, change: SimulationChange) -> None:
        match change:
            case Uncordoned(name):
                self.add_node(replace(self.nodes[name], unschedulable=False))
            case Added(like, count, own):
                for number in range(count):
                    name = NodeName(f"{like}-new-{number}")
                    labels = {**self.nodes[like].labels, **dict.fromkeys((*own, HOSTNAME), name)}
                    self.add_node(replace(self.nodes[like], name=name, labels=labels, unschedulable=False, uid=name))
            case Ended(_, name):
                self.finish(next(uid for uid, each in self.pods.items() if each.name == name))
                self.catch_up()
            case Offered(resource, name, capacity):
                self.do(self.scheduler.set_capacity(name, resource.key(), capacity))
            case Released(namespace, holder):
                self.do(self.scheduler.commit([], given_up=[Holder(f"claim:{namespace}/{holder}")]))
            case QuorumSet(key, quorum):
                for uid, each in list(self.pods.items()):
                    if isinstance(each.gang, GangAsk) and each.gang.key == key:
                        self.change(uid, gang=replace(each.gang, quorum=quorum))
            case PolicySet(_, name, None):
                self.lift(name)
            case PolicySet(_, name, policy) if policy is not None:
                self.govern(name, policy.parameters, policy.selector)
            case _:
                raise AssertionError(f"nobody can do {change}")


class Here:
    """No copy at all, for work that changes nothing."""

    async def in_a_copy(self, work: Callable[[], T], namespace: str = "") -> T:
        return work()

    def within_a_copy(self, work: Callable[[], T]) -> T:
        return work()


def elsewhere(seed: int) -> Simulate:
    """What would be, found out in a situation of the same seed: as in a copy of the process."""
    return lambda request: simulate_on(situation(seed).scheduler, request)


def situation(seed: int) -> Situation:
    """A cluster that has come to rest, in which the target was tried last."""
    random = Random(seed)
    world = Situation(zones="")
    for number in range(random.randint(2, 5)):
        world.add_node(
            node(
                f"n{number}",
                {"cpu": random.choice((2000, 4000))},
                labels={HOSTNAME: f"n{number}", ZONE: random.choice("abc")},
                unschedulable=random.random() < 0.15,
            )
        )
        if random.random() < 0.5:
            world.do(world.scheduler.set_capacity(NodeName(f"n{number}"), DATA, random.randint(1, 2)))
    for number in range(random.randint(1, 3)):
        world.govern(f"p{number}", _parameters(random), selecting(app=f"a{number}"))
    for number in range(random.randint(0, 6)):
        world.create(_pod(random, f"pod-{number}"))
        world.schedule()
    for name in ("first", "second")[: random.randint(0, 2)]:
        world.create(*_gang(random, name))
        world.schedule()
    if random.random() < 0.4:
        _claim(random, world)
    world.target = _gang(random, TARGET.name) if random.random() < 0.5 else [_pod(random, "target")]
    world.create(*world.target)
    world.schedule()
    return world


def _parameters(random: Random) -> Parameters:
    key = random.choice((HOSTNAME, ZONE))
    return random.choice(
        (
            AntiAffinity(topology_key=key),
            AntiAffinity(("p0",), key),
            Balance(random.choice((0, 0, 2, 4)), random.randint(1, 2), key),
            CoLocation(random.choice((0, 2, 3)), key),
            DataLocality(("data1",)),
        )
    )


def _pod(random: Random, name: str) -> Pod:
    asks = {"cpu": random.choice((500, 1000, 2000, 3000))}
    if random.random() < 0.25:
        asks[DATA] = 1
    labels = {"app": f"a{random.randint(0, 3)}"}
    annotations = naming(f"p{random.randint(0, 1)}") if random.random() < 0.2 else {}
    return pod(name, asks, labels=labels, annotations=annotations, priority=random.choice((0, 0, 0, 5)), preempts=False)


def _gang(random: Random, name: str) -> list[Pod]:
    like = replace(_pod(random, name), uid=PodUid(""), priority=0)
    members = gang_pods(name, random.randint(2, 4))
    return [replace(like, uid=each.uid, name=each.name, gang=each.gang) for each in members]


def _claim(random: Random, world: Situation) -> None:
    """An agent of another namespace holds what is free of the data somewhere, or some cpu."""
    name = random.choice(sorted(world.nodes))
    free = world.scheduler.cache.ledger.rows.free(name, DATA)
    holds = units({DATA: free}) if free > 0 else units({"cpu": 500})
    owner = GangKey("team-b", "claim:agent")
    until = world.clock.steady() + 100_000
    claim = Holding(Holder("claim:team-b/agent"), name, holds, HoldingKind.RESERVATION, owner, until)
    world.do(world.scheduler.commit([claim]))
