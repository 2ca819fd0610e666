"""A tenant decides how many policies govern a pod, and how many places are held: neither makes a filter call long."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from extender.core.cluster import Pod
from extender.core.ledger.holdings import HoldingKind
from extender.core.ledger.ledger import Ledger
from extender.core.policies.matched_policy import MatchedPolicy
from extender.core.policies.policy_matching import MOST_GOVERNING, POLICY
from extender.core.policies.policy_types import HOSTNAME, AntiAffinity, Balance, CoLocation, DataLocality, Parameters
from extender.core.policy import Facts
from extender.filters.escher_policies.balance import PolicyBalance
from extender.filters.escher_policies.standing import Standing
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import NOW, gang_ask, ledger_of, node, pod
from tests.filters.escher_policies.world import ZONE, PolicyWorld

NODES = 300
SENT = [NodeName(f"n{number}") for number in range(NODES)]
KINDS: Sequence[Callable[[int], Parameters]] = (
    lambda _: Balance(topology_key=HOSTNAME),
    lambda number: Balance(tasks=1000 + number, topology_key=ZONE),
    lambda _: AntiAffinity(topology_key="absent"),
    lambda _: CoLocation(topology_key=ZONE),
    lambda number: CoLocation(size=2 + number, topology_key=ZONE),
    lambda _: DataLocality(("data1",)),
)


def world_of(policies: int, kind: Callable[[int], Parameters]) -> PolicyWorld:
    """Policies that govern all pods, of which each node has one, and none leaves any."""
    world = PolicyWorld(zones="z" * NODES, cpu=100_000)
    for number in range(policies):
        world.govern(f"all-{number}", kind(number), ())
    for name in SENT:
        world.do(world.scheduler.observe(pod(f"on-{name}", {"cpu": 1}, node=name)))
        world.do(world.scheduler.set_capacity(name, ResourceKey("escher.dev/default.data1"), 1))
    return world


def calls_of(step: Callable[[], object]) -> int:
    """How many calls it makes."""
    calls = 0

    def hear(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(hear)
    try:
        step()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policies", [MOST_GOVERNING, 200])
def test_what_filter_does_for_a_node_does_not_depend_on_how_many_policies_govern_the_pod(
    kind: Callable[[int], Parameters], policies: int
) -> None:
    world = world_of(policies, kind)
    asks = pod("asks", {"cpu": 1})
    world.create(asks)
    assert calls_of(lambda: world.scheduler.filter(asks, SENT)) < 350 * MOST_GOVERNING + 40 * NODES


@pytest.mark.parametrize("kind", KINDS)
def test_nor_on_how_many_alternatives_it_has(kind: Callable[[int], Parameters]) -> None:
    world = world_of(MOST_GOVERNING, kind)
    asks = pod("asks", {"cpu": 1}, annotations={POLICY: "|".join(f"not-there-{number}" for number in range(32))})
    world.create(asks)
    assert calls_of(lambda: world.scheduler.filter(asks, SENT)) < 1_000 * MOST_GOVERNING + 40 * NODES


class TestTheLimit:
    def test_one_more_is_refused_with_the_number_and_waits_until_there_are_fewer(self) -> None:
        world = PolicyWorld(zones="ab")
        for number in range(MOST_GOVERNING + 1):
            world.govern(f"all-{number}", Balance(topology_key=ZONE), ())
        assert world.place("one") is None
        assert (
            world.reason("one")
            == f"{MOST_GOVERNING + 1} policies match the pod (escher.dev/policy, selectors); limit: {MOST_GOVERNING}"
        )
        world.lift("all-7")
        world.schedule()
        assert world.node_of("one") == "n0"

    def test_an_alternative_that_is_one_too_many_is_passed_over(self) -> None:
        world = PolicyWorld(zones="ab")
        for number in range(MOST_GOVERNING - 1):
            world.govern(f"all-{number}", Balance(topology_key=ZONE), ())
        for name in ("x", "y"):
            world.govern(name, Balance(topology_key=ZONE))
        assert world.place("one", annotations={POLICY: "x, y | y"}) == "n0"
        assert "x" not in {each.name for each in world.known("one").governed}

    def test_a_member_of_a_gang_is_refused_too(self) -> None:
        world = PolicyWorld(zones="ab")
        for number in range(MOST_GOVERNING + 1):
            world.govern(f"all-{number}", Balance(topology_key=ZONE), ())
        world.create(pod("member", {"cpu": 1}, gang=gang_ask("g", 1)))
        world.schedule()
        assert world.node_of("member") is None


class TestHeldPlaces:
    def governed(self, name: str, policies: int = 8, **facts: Any) -> Pod:
        of = tuple(MatchedPolicy(f"p{number}", Balance(topology_key=ZONE)) for number in range(policies))
        return replace(pod(name, {"cpu": 1}), governed=of, **facts)

    def test_to_ask_again_looks_at_none_of_them(self) -> None:
        """They are counted once, when they are held."""
        asked = {held: self.calls_with(held) for held in (10, 1_000)}
        assert asked[1_000] <= asked[10]

    def test_of_policies_that_nobody_has_nothing_is_kept(self) -> None:
        ledger, standing = ledger_of({"n0": {"cpu": 100_000}}), Standing()
        facts, asks = Facts(ledger, {NodeName("n0"): node("n0", {"cpu": 100_000})}), self.governed("asks")
        standing.observe(replace(self.governed("stands"), node=NodeName("n0")), NOW)
        kept = standing.column("p0", asks, facts)
        assert not any(any(standing.column(f"nobody-{number}", asks, facts)) for number in range(2_000))
        assert standing.column("p0", asks, facts) is kept

    def calls_with(self, held: int) -> int:
        ledger = ledger_of({"n0": {"cpu": 100_000}})
        facts = Facts(ledger, {NodeName("n0"): node("n0", {"cpu": 100_000}, labels={ZONE: "a"})})
        standing = Standing()
        for number in range(held):
            each = self.governed(f"held-{number}")
            standing.observe(each, NOW)
            ledger.assume(each.uid, on=NodeName("n0"), units={}, until=None)
        rule, asks = PolicyBalance(standing), self.governed("asks")
        rule.filter(asks, facts)
        return calls_of(lambda: rule.filter(asks, facts))

    @pytest.mark.parametrize("seed", range(20))
    def test_counts_are_those_of_a_walk_over_all(self, seed: int) -> None:
        rng, names = random.Random(seed), [NodeName(f"n{number}") for number in range(5)]
        ledger = ledger_of({name: {"cpu": 100_000} for name in names})
        nodes = {name: node(name, {"cpu": 100_000}, labels={ZONE: "a"}) for name in names}
        facts, standing, pods = Facts(ledger, nodes), Standing(), dict[PodUid, Pod]()
        ledger.changes.holders_for_policies.most = rng.choice((2, 4_096))
        for _ in range(300):
            each = self.governed(f"p{rng.randrange(12)}", rng.randrange(4))
            what, on = rng.randrange(6), rng.choice(names)
            if what == 0:
                pods.pop(each.uid, None)
                standing.forget(each)
                ledger.forget(each.uid)
            elif what == 1:
                each = pods[each.uid] = replace(each, node=on, deleting=rng.random() < 0.3)
                ledger.confirm(each.uid, on=on, units={})
                standing.observe(each, NOW)
            elif what == 2:
                ledger.release(each.uid)
            elif what == 3 and (each.uid not in pods or pods[each.uid].node is None):
                ledger.assume(each.uid, on=on, units={}, until=None)
            elif each.uid not in pods or pods[each.uid].node is None:
                pods[each.uid] = each
                standing.observe(each, NOW)
            asks = self.governed(f"p{rng.randrange(12)}")
            living, policy = rng.random() < 0.5, f"p{rng.randrange(3)}"
            found = standing.of(policy, asks, facts, living=living)
            assert found == walked(policy, asks, pods, ledger, living=living)
            column = standing.column(policy, asks, facts, living=living).tolist()
            assert {name: number for name, number in zip(names, column, strict=True) if number} == found


def walked(policy: str, asks: Pod, pods: dict[PodUid, Pod], ledger: Ledger, *, living: bool) -> dict[NodeName, int]:
    found: dict[NodeName, int] = {}
    for each in pods.values():
        on, held = each.node, ledger.holding(each.uid)
        if on is not None and living and each.deleting:
            on = None
        elif on is None and held is not None and held.kind is not HoldingKind.BOUND and each.uid != asks.uid:
            on = held.node
        if on is not None and any(one.name == policy for one in each.governed):
            found[on] = found.get(on, 0) + 1
    return found


def test_whose_node_is_gone_for_a_while_still_keeps_the_others_from_other_places() -> None:
    world = PolicyWorld(zones="ab")
    world.govern("near", CoLocation(topology_key=ZONE), ())
    assert world.place("one") == "n0"
    gone_for_a_while = world.nodes[NodeName("n0")]
    world.remove_node(NodeName("n0"))
    assert world.place("two") is None
    world.add_node(gone_for_a_while)
    world.schedule()
    assert world.node_of("two") == "n0"
