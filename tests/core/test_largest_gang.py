"""A gang whose members could not all wait at its barrier is refused with the limit, and holds nothing up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.app.cache.cache import Rules
from extender.app.cycle.scheduler import Scheduler
from extender.app.explain.explain import Explain
from extender.core.gang_ask import GroupAsk
from extender.core.gangs.state.pod_groups import PodGroup
from extender.core.gangs.state.state_machine import Phase
from tests.builders import gang_pods, node, pod
from tests.core.gang_world import GangWorld
from tests.performing import replaced


@pytest.fixture
def world() -> GangWorld:
    """Four nodes of 8 CPU, and at most three binds can wait."""
    made = GangWorld()
    made.scheduler = Scheduler(made.clock, Rules(most_together=3))
    for number in range(4):
        made.add_node(node(f"n{number}"))
    return made


def test_a_gang_of_the_limit_is_bound(world: GangWorld) -> None:
    world.create(*gang_pods("train", 3))
    world.schedule()
    assert world.gangs == {"train": Phase.BOUND}


def test_a_larger_one_is_refused_with_the_limit_and_told_so_once_for_each_pod(world: GangWorld) -> None:
    members = gang_pods("train", 4)
    world.create(*members)
    reasons = {why for each in members for why in world.filter(each, list(world.nodes)).unresolvable.values()}
    assert len(reasons) == 1
    assert "more than 3 members together" in reasons.pop()
    assert len(world.refused) == 4
    assert "RLIMIT_NOFILE" in world.refused[0].ask.reason
    assert not world.gangs
    assert not list(world.scheduler.cache.ledger.rows.holdings())
    told = Explain(world.scheduler.cache).pod("default", "train-0")
    assert told.waits
    assert "more than 3 members together" in told.summary
    assert "raise connections_limit" in told.remedies[0]


def test_one_at_our_gate_is_told_of_though_no_filter_comes(world: GangWorld) -> None:
    world.create(*(replace(each, at_our_gate=True) for each in gang_pods("train", 4)))
    assert len(world.refused) == 4


def test_only_members_that_must_be_there_together_count(world: GangWorld) -> None:
    world.create(*gang_pods("elastic", 4, quorum=2))
    world.schedule()
    assert world.bound("elastic") == 4


def test_a_gang_that_runs_since_the_limit_was_higher_stays_one(world: GangWorld) -> None:
    where = list(world.nodes)
    world.create(*(replace(each, node=name) for each, name in zip(gang_pods("train", 4), where, strict=True)))
    assert world.gangs == {"train": Phase.BOUND}


def test_members_of_a_pod_group_are_woken_when_it_asks_for_less(world: GangWorld) -> None:
    members = [pod(f"mpi-{index}", gang=GroupAsk("default", "mpi", 60.0)) for index in range(4)]
    world.do(replaced(world.scheduler, PodGroup, [PodGroup("default", "mpi", 4)]))
    world.create(*members)
    world.schedule()
    assert len(world.asleep) == 4
    world.do(world.scheduler.observe(PodGroup("default", "mpi", 3)))
    world.schedule()
    assert world.bound("podgroup.mpi") == 0
    assert all(each.node for each in world.pods.values())
