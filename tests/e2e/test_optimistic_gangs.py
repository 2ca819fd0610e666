"""`reserve_at_filter: false` on the real control plane: room is free for others until a member comes to be bound."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.deadline import eventually
from tests.e2e.conftest import REAL_ONLY, fresh_arena, shared_field
from tests.e2e.workload import TO_COME, Arena, Field, stays

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SEED = 26


@pytest.fixture(scope="module")
def optimistic_field(state_folder: Path, where: str) -> Iterator[Field]:
    yield from shared_field(where, nodes=8, settings="reserve_at_filter: false\n")


@pytest.fixture
def arena(optimistic_field: Field, request: pytest.FixtureRequest) -> Iterator[Arena]:
    yield from fresh_arena(optimistic_field, request.node.name)


@REAL_ONLY
def test_room_that_a_member_is_to_have_is_free_until_it_comes(arena: Arena) -> None:
    """kube-scheduler comes when all are there: a gang that had to wait for members holds its plan as a whole."""
    [node] = arena.nodes(1)
    cluster = arena.field.cluster
    cluster.kill("kube-scheduler")
    try:
        members = arena.gang("train", 4, cpu=2)
        to_come = arena.create(arena.pod("to-come", TO_COME, gang="train", quorum=4, cpu=2))
        early = arena.create(*members[:3])
        eventually(lambda: len(arena.gang_state("train")["members"]) == 4, what="the service seeing the four")
    finally:
        cluster.start_component("kube-scheduler")
    eventually(lambda: arena.at_barrier() == 3, what="three at the barrier")
    assert arena.service.cluster_state(node=node)[node]["available"]["cpu"] == 2
    assert stays(lambda: arena.bound(early), during=1.0) == {}
    arena.delete(*to_come)
    late = arena.create(members[3])
    arena.until_bound([*early, *late])
    assert arena.service.cluster_state(node=node)[node]["available"]["cpu"] == 0


def test_a_node_that_fills_under_the_plan_is_found_out_when_the_barrier_would_open(arena: Arena) -> None:
    crowded, _ = arena.nodes(2)
    members = arena.gang("train", 2, cpu=8)
    [first] = arena.bring_to_barrier(members[0])
    # A DaemonSet's pod, or another scheduler's: nobody asks us.
    there = arena.gang_state("train")["members"][0]["node"]
    foreign = arena.pod("foreign", "escher-resources", cpu=8)
    foreign["spec"] |= {"nodeName": there}
    arena.create(foreign)
    [second] = arena.create(members[1])
    assert stays(lambda: arena.bound([first, second]), during=2.0, what="the members bound") == {}
    arena.delete("foreign")
    assert set(arena.until_bound([first, second]).values()) == set(arena.own_nodes)
    assert crowded in arena.own_nodes


def test_gangs_and_pods_that_compete_for_the_same_room_all_run_in_the_end(arena: Arena) -> None:
    """Three times as much as has room at a time, created at once; what runs ends when it is bound."""
    draw = random.Random(SEED)
    nodes = arena.nodes(12)
    made = [
        pod
        for number in range(24)
        for pod in [
            *arena.gang(f"g{number}", draw.randint(2, 10), cpu=draw.choice((1, 2, 4))),
            arena.pod(f"plain-{number}", cpu=2),
        ]
    ]
    waiting = set(arena.create(*made))

    def all_ran() -> bool:
        placed = arena.bound(waiting)
        whole = {name for name in placed if name.startswith("plain")}
        for gang in {name.rsplit("-", 1)[0] for name in waiting if not name.startswith("plain")}:
            members = {name for name in waiting if name.rsplit("-", 1)[0] == gang}
            if members <= placed.keys():
                whole |= members
        if whole:
            arena.delete(*sorted(whole))
            waiting.difference_update(whole)
        return not waiting

    eventually(all_ran, within=120, what="the end of all gangs and pods")
    told = arena.service.cluster_state()
    assert all(told[node]["available"]["cpu"] == 8 for node in nodes)
