"""Who goes first under shares and priorities: the order is that of a twin that counts everything anew, whatever
happens."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.core.cluster import Pod
from extender.core.gangs.state.gang import WakePod
from extender.core.policies.policy_matching import PolicyMatching
from extender.core.policies.policy_types import FairShare, PolicyInForce, Priority
from extender.core.policy import Facts
from extender.filters.escher_policies.fair_share import PolicyFairShare
from extender.filters.escher_policies.priority import PolicyPriority
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import NOW, ledger_of, node, pod
from tests.filters.escher_policies.world import PolicyWorld, naming

SHARES = {"team": "", "alice": "team", "bob": "team", "carol": "bob", "rest": ""}
"""Each share, and the one that it is in."""


class ShareMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.policy = PolicyFairShare()
        self.table = PolicyMatching()
        self.facts = Facts(ledger_of({"n0": {"cpu": 32_000, "memory": 400}}), {})
        self.weights = dict.fromkeys(SHARES, 1)
        self.pods: dict[str, Pod] = {}
        self.held: set[PodUid] = set()
        self.seen: dict[str, float] = {}
        self.version = 0
        for name in SHARES:
            self.weigh(name, 1)

    def know(self, told: Pod) -> None:
        self.policy.observe(self.table.resolved(told), NOW)

    @rule(name=st.sampled_from(sorted(SHARES)), weight=st.integers(1, 4))
    def weigh(self, name: str, weight: int) -> None:
        self.weights[name] = weight
        policy = PolicyInForce(FairShare(weight, SHARES[name]))
        if self.table.put("default", name, policy):
            for told in list(self.table.told()):
                self.know(told)

    @rule(
        number=st.integers(0, 7),
        share=st.sampled_from([*SHARES, ""]),
        cpu=st.sampled_from([1000, 4000]),
        memory=st.sampled_from([0, 50]),
        bound=st.booleans(),
    )
    def see(self, number: int, share: str, cpu: int, memory: int, bound: bool) -> None:
        name, said = f"p{number}", naming(share) if share else {}
        seen = pod(name, {"cpu": cpu, "memory": memory}, node=NodeName("n0") if bound else None, annotations=said)
        self.pods[name] = seen
        if bound:
            self.held.discard(seen.uid)
        self.table.remember(seen)
        self.know(seen)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        gone = self.pods.pop(data.draw(st.sampled_from(sorted(self.pods))))
        self.policy.forget(self.table.resolved(gone))
        self.table.forget(gone.uid)
        self.held.discard(gone.uid)
        self.policy.hold({gone.uid: False})

    @rule(number=st.integers(0, 7), held=st.booleans())
    def hold(self, number: int, held: bool) -> None:
        """A place is held for the pod, or no more; it may not be known yet."""
        uid, seen = PodUid(f"uid-p{number}"), self.pods.get(f"p{number}")
        if seen is None or seen.node is None:
            (self.held.add if held else self.held.discard)(uid)
            self.policy.hold({uid: held})

    @rule()
    def a_node_changes(self) -> None:
        self.policy.observe(node("n0"), NOW)

    @invariant()
    def the_order_is_that_of_a_twin(self) -> None:
        asked = {share: self.table.resolved(pod("m", annotations=naming(share))) for share in SHARES}
        # One that was not asked about before gives others another number, which the version tells: all are asked again.
        for _ in range(2):
            orders = {share: self.policy.order([one], self.facts) for share, one in asked.items()}
        used = {share: self.used(share) for share in SHARES}
        for one in SHARES:
            for other in SHARES:
                assert (orders[one] < orders[other]) == (used[one] < used[other]), (one, other, used)
            assert (orders[one] == 0) == (not any(used[one])), "who uses nothing is as who has no share"
        if self.policy.order_version == self.version:
            assert not self.seen or self.seen == orders
        self.seen, self.version = orders, self.policy.order_version

    def used(self, share: str) -> tuple[Fraction, ...]:
        """What the shares that it is in, and it itself, use for their weights; without those at the end that use
        nothing."""
        chain = self.chain(share)
        parts = [self.part(each) / self.weights[each] for each in chain]
        last = max((number for number, part in enumerate(parts, 1) if part), default=0)
        return tuple(parts[:last])

    def chain(self, share: str) -> list[str]:
        return [*self.chain(SHARES[share]), share] if share else []

    def part(self, share: str) -> Fraction:
        own = [each for each in self.pods.values() if self.uses(each) and self.is_in(each, share)]
        total = {"cpu": 32_000, "memory": 400}
        return max(
            Fraction(sum(each.requests.get(ResourceKey(name), 0) for each in own), most) for name, most in total.items()
        )

    def uses(self, one: Pod) -> bool:
        return one.node is not None or one.uid in self.held

    def is_in(self, one: Pod, share: str) -> bool:
        return bool(one.annotations) and share in self.chain(next(iter(one.annotations.values())))


class PriorityMachine(RuleBasedStateMachine):
    """Gangs of one member each that wait, as time passes at the `Scheduler`'s own alarms."""

    ageing: ClassVar[dict[str, tuple[int, int]]] = {"low": (0, 60), "high": (3, 60), "slow": (1, 600)}

    def __init__(self) -> None:
        super().__init__()
        self.policy, self.table = PolicyPriority(), PolicyMatching()
        self.facts = Facts(ledger_of({}), {})
        self.now = NOW
        self.waiting: dict[str, tuple[str, float]] = {}
        self.count = 0
        self.seen: dict[str, float] = {}
        self.version = 0
        for name, (priority, seconds) in self.ageing.items():
            self.table.put("default", name, PolicyInForce(Priority(priority, seconds)))

    @rule(policy=st.sampled_from(["low", "high", "slow"]))
    def come(self, policy: str) -> None:
        self.count += 1
        self.waiting[f"p{self.count}"] = (policy, self.now)
        self.policy.observe(self.table.resolved(self.pod_of(f"p{self.count}")), self.now)

    def pod_of(self, name: str) -> Pod:
        return pod(name, annotations=naming(self.waiting[name][0]))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), bound=st.booleans())
    def end(self, data: st.DataObject, bound: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.waiting)))
        gone = self.table.resolved(self.pod_of(name))
        del self.waiting[name]
        self.seen.pop(name, None)
        if bound:
            self.policy.observe(pod(name, node=NodeName("n0"), annotations=gone.annotations), self.now)
        else:
            self.policy.forget(gone)

    @rule(seconds=st.sampled_from([1.0, 59.0, 60.0, 601.0]))
    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := self.policy.next_deadline()) is not None and due <= until:
            self.now = max(due, self.now)
            self.policy.tick(self.now)
            again = self.policy.next_deadline()
            assert again is None or again > self.now, "the alarm rings for ever"
        self.now = until

    @invariant()
    def the_order_is_that_of_a_twin(self) -> None:
        orders = {
            name: self.policy.order([self.table.resolved(self.pod_of(name))], self.facts) for name in self.waiting
        }
        for name, (policy, since) in self.waiting.items():
            priority, seconds = self.ageing[policy]
            assert orders[name] == -(priority + (self.now - since) // seconds)
        if self.version == self.policy.order_version:
            assert all(self.seen[name] == orders[name] for name in self.seen)
        self.seen, self.version = orders, self.policy.order_version


@pytest.mark.parametrize("names", [("old", "young"), ("young", "old")])
def test_a_new_life_goes_by_when_pods_were_created(names: tuple[str, str]) -> None:
    policy, table, created = PolicyPriority(), PolicyMatching(), {"old": 1000.0, "young": 1119.0}
    table.put("default", "low", PolicyInForce(Priority(0, ageing_seconds=60)))
    pods = {name: table.resolved(pod(name, annotations=naming("low"), created=when)) for name, when in created.items()}
    for name in names:
        policy.observe(pods[name], NOW)
    facts = Facts(ledger_of({}), {})
    assert [policy.order([pods[name]], facts) for name in ("old", "young")] == [-1.0, 0.0]
    assert policy.next_deadline() == NOW + 1
    policy.tick(NOW + 1)
    assert [policy.order([pods[name]], facts) for name in ("old", "young")] == [-2.0, 0.0]


def test_single_pods_that_wait_are_woken_in_their_order() -> None:
    world = PolicyWorld(zones="a", cpu=1000)
    world.govern("low", Priority(1))
    world.govern("high", Priority(2))
    world.create(pod("filler", {"cpu": 1000}))
    world.schedule()
    licence = ResourceKey("escher.dev/default.licence")
    names = [("a", "low"), ("b", "high"), ("c", "low")]
    for name, policy in names:
        asks = pod(name, {licence: 1}, annotations=naming(policy))
        world.create(asks)
        assert not world.filter(asks, [NodeName("n0")]).passed
    decided = world.scheduler.set_capacity(NodeName("n0"), licence, 3)
    assert [effect.pod.name for effect in decided.effects if isinstance(effect, WakePod)] == ["b", "a", "c"]


TestShares = ShareMachine.TestCase
TestPriorities = PriorityMachine.TestCase
TestShares.settings = TestPriorities.settings = settings(max_examples=50, deadline=None)
