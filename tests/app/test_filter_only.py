"""An extender entry that filters alone: pods that do not ask for the mark are neither scored nor bound by us."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from extender.app.contracts.extender_api import Verdict
from extender.app.cycle.filter import UNMANAGED
from extender.core.cluster import Pod
from extender.core.policies.policy_types import AntiAffinity, DataLocality
from extender.core.safety_switches import Switches
from extender.kube.names import NodeName, ResourceKey
from tests.builders import gang_pods, pod
from tests.filters.escher_policies.world import PolicyWorld, naming

GPU = ResourceKey("escher.dev/default.gpu")


@pytest.fixture
def world() -> PolicyWorld:
    return PolicyWorld(zones="aabb")


def asked(world: PolicyWorld, each: Pod, *, alone: bool = True) -> Verdict:
    world.create(each)
    return world.do(world.scheduler.filter(each, list(world.nodes), alone=alone))


def everywhere(world: PolicyWorld) -> Sequence[NodeName]:
    return list(world.nodes)


def test_an_ordinary_pod_passes_as_ever(world: PolicyWorld) -> None:
    assert list(asked(world, pod("plain")).passed) == everywhere(world)


def test_a_gang_whose_binds_would_not_come_to_us_is_let_nowhere_and_holds_nothing(world: PolicyWorld) -> None:
    for member in gang_pods("train", 3):
        verdict = asked(world, member)
        assert (list(verdict.passed), set(verdict.unresolvable.values())) == ([], {UNMANAGED})
    assert not list(world.scheduler.cache.ledger.rows.holdings())
    # The same by an entry that binds them.
    assert world.do(world.scheduler.filter(member, everywhere(world))).passed


def test_nor_is_who_asks_for_an_ephemeral_resource(world: PolicyWorld) -> None:
    world.do(world.scheduler.set_capacity(NodeName("n1"), GPU, 1))
    verdict = asked(world, pod("user", {"cpu": 100, GPU: 1}))
    assert set(verdict.unresolvable.values()) == {UNMANAGED}


def test_room_that_is_reserved_for_a_gang_is_not_for_it(world: PolicyWorld) -> None:
    member, *_ = gang_pods("train", 2, {"cpu": 4000})
    [held] = asked(world, member, alone=False).passed
    verdict = asked(world, pod("plain", {"cpu": 1000}))
    assert held not in verdict.passed
    assert verdict.passed


def test_a_policy_that_came_later_governs_a_pod_that_was_made_before(world: PolicyWorld) -> None:
    """No admission policy has marked it."""
    world.create(here := pod("here", annotations=naming("apart"), node=NodeName("n0")))
    late = pod("late", annotations=naming("apart"))
    world.create(late)
    world.govern("apart", AntiAffinity())
    verdict = world.do(world.scheduler.filter(late, everywhere(world), alone=True))
    assert here.node not in verdict.passed
    assert verdict.passed


def test_whom_nobody_asks_about_for_the_best_node_gets_the_best_alone(world: PolicyWorld) -> None:
    for name in ("n2", "n3"):
        world.do(world.scheduler.set_capacity(NodeName(name), ResourceKey("escher.dev/default.data"), 1))
    world.govern("prefers", DataLocality(("data",), required=False))
    [one] = asked(world, pod("one", annotations=naming("prefers"))).passed
    assert one in ("n2", "n3")


def test_where_we_only_observe_everybody_passes() -> None:
    world = PolicyWorld(switches=Switches(observe_only=True))
    member, *_ = gang_pods("train", 3)
    assert list(asked(world, member).passed) == everywhere(world)


@pytest.mark.parametrize("reserve_at_filter", [True, False])
def test_who_is_kept_from_nodes_holds_one_for_nobody_judges_its_bind(reserve_at_filter: bool) -> None:
    world = PolicyWorld(zones="ab", reserve_at_filter=reserve_at_filter)
    world.govern("apart", AntiAffinity())
    [first] = asked(world, pod("one", annotations=naming("apart"))).passed
    [second] = asked(world, pod("other", annotations=naming("apart"))).passed
    assert first != second
    assert not asked(world, pod("third", annotations=naming("apart"))).passed
