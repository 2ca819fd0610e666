"""All kinds of gangs on the real control plane: members that differ, share a node, come late or in excess, one, 500.

Each kind is shown twice: where it does not fit none is bound and nothing is held, and it is bound when room comes. More
kinds are in test_gang_life.py (from a Job, more members than the quorum) and test_pod_groups.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from loadtests.shared.pods import EXTENDER, Json
from tests.controlplane.deadline import eventually
from tests.e2e.workload import GANG_APPROACHES, Arena, Field, stays

pytestmark = pytest.mark.timeout(300)

both = pytest.mark.parametrize("scheduler", GANG_APPROACHES)


def held_for(arena: Arena, gang: str) -> list[str]:
    """What the ledger has for the gang, on any node: the kind of each holding."""
    told = arena.service.cluster_state().values()
    return [each["kind"] for node in told for each in node["holders"] if each["gang"] == f"{arena.namespace}/{gang}"]


def none_is_bound(arena: Arena, members: Iterable[str], gang: str = "train") -> None:
    """And nothing is held for the gang, and it stays so."""
    eventually(lambda: not held_for(arena, gang), what="the end of what is held")
    now = stays(lambda: (arena.bound(members), held_for(arena, gang)), during=1.0, what="(bound, held)")
    assert now == ({}, [])


def member(arena: Arena, name: str, quorum: int, scheduler: str = EXTENDER, **more: Any) -> Json:
    return arena.pod(name, scheduler, gang="train", quorum=quorum, **more)


def with_affinity(pod: Json, key: str, operator: str, *values: str) -> Json:
    """The pod goes only to nodes whose labels meet that requirement."""
    wanted = {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    pod["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return pod


def label(arena: Arena, node: str, **labels: str) -> None:
    arena.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})


class TestMembersThatAskForDifferentThings:
    @both
    def test_a_launcher_and_its_workers(self, arena: Arena, scheduler: str) -> None:
        arena.nodes(3)
        launcher = member(arena, "launcher", 4, scheduler, cpu=1)
        workers = [member(arena, f"worker-{number}", 4, scheduler, cpu=8) for number in range(3)]
        names = [*arena.create(*workers), *arena.create(launcher)]
        arena.until_rejected(names)
        none_is_bound(arena, names)
        [small] = arena.nodes(1, cpu=1)
        placed = arena.until_bound(names)
        assert placed["launcher"] == small
        assert len(set(placed.values())) == 4

    def test_a_driver_that_is_there_before_its_larger_executors(self, arena: Arena) -> None:
        """A driver alone promises nobody: it is planned with its executors, as large as they are."""
        nodes = arena.nodes(3)
        others = [arena.pod(f"other-{number}", cpu=1) for number in range(3)]
        for each, node in zip(others, nodes, strict=True):
            each["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        arena.until_bound(arena.create(*others))
        driver = arena.create(member(arena, "driver", 4, timeout=1, cpu="500m"))
        arena.until_rejected(driver)
        none_is_bound(arena, driver)
        ask = {"cpu": "7", "memory": "24Gi"}
        executors = [member(arena, f"executor-{number}", 4, timeout=1, **ask) for number in range(3)]
        names = [*driver, *arena.create(*executors)]
        none_is_bound(arena, names)
        arena.delete("other-1")
        placed = arena.until_bound(names)
        assert placed["driver"] == nodes[1]
        assert len({placed[f"executor-{number}"] for number in range(3)}) == 3


class TestSeveralMembersOnOneNode:
    @both
    def test_share_its_cpu_and_its_number_of_pods(self, arena: Arena, scheduler: str) -> None:
        """Four members of 2 CPU where 7 are free; then 8 are, but for three pods."""
        [node] = arena.nodes(1, pods=4)
        [other] = arena.create(arena.pod("other", scheduler, cpu=1))
        arena.until_bound([other])
        names = arena.create(*arena.gang("train", 4, scheduler, cpu=2))
        arena.until_rejected(names)
        none_is_bound(arena, names)
        arena.patch_status(node, {"pods": "3"}, {"pods": "3"})
        arena.delete(other)
        none_is_bound(arena, names)
        arena.patch_status(node, {"pods": "4"}, {"pods": "4"})
        assert set(arena.until_bound(names).values()) == {node}

    def test_on_each_of_two_nodes(self, arena: Arena) -> None:
        first = arena.nodes(2, cpu=6)
        names = arena.create(*arena.gang("train", 7, cpu=2))
        arena.until_rejected(names)
        none_is_bound(arena, names)
        second = arena.nodes(1, cpu=2)
        placed = list(arena.until_bound(names).values())
        assert sorted(map(placed.count, [*first, *second])) == [1, 3, 3]


class TestMoreMembersThanTheQuorum:
    def test_the_smallest_are_the_quorum_and_the_others_join_as_they_fit(self, arena: Arena) -> None:
        arena.nodes(1, cpu=3)
        large = arena.create(*(member(arena, f"large-{number}", 2, cpu=6) for number in range(2)))
        small = arena.create(*(member(arena, f"small-{number}", 2, cpu=2) for number in range(3)))
        arena.until_rejected([*large, *small])
        none_is_bound(arena, [*large, *small])

        def become(count: int) -> set[str]:
            eventually(lambda: len(arena.bound()) == count, what=f"{count} members bound")
            return set(stays(arena.bound, during=1.0, what="the members bound"))

        arena.nodes(1, cpu=2)
        assert become(2) <= set(small)
        arena.nodes(1, cpu=8)
        assert len(become(4) & set(large)) == 1
        # Whoever finds no room beside the quorum holds none either.
        assert set(held_for(arena, "train")) == {"bound"}
        arena.nodes(1, cpu=6)
        arena.until_bound([*large, *small])


class TestMembersThatComeOverTime:
    """Minutes are in tests/app/test_slow_gangs.py, on a clock of its own."""

    def test_leave_their_room_to_others_until_the_last_is_there(self, arena: Arena) -> None:
        [node] = arena.nodes(1)
        members = arena.gang("train", 4, cpu=2, timeout=1)
        early = []
        for each in members[:3]:
            early += arena.create(each)
            arena.until_rejected(early)
            none_is_bound(arena, early)
        assert arena.gang_state("train")["phase"] == "gathering"
        task = arena.create(arena.pod("task", cpu=8))
        arena.until_bound(task)
        names = [*early, *arena.create(members[3])]
        eventually(lambda: arena.gang_state("train")["phase"] == "waiting", what="the gang's wait for room")
        none_is_bound(arena, names)
        arena.delete(*task)
        assert set(arena.until_bound(names).values()) == {node}

    def test_join_a_quorum_that_runs(self, arena: Arena) -> None:
        arena.nodes(3)
        members = arena.gang("train", 4, quorum=2, cpu=8)
        first = arena.create(members[0])
        assert stays(lambda: arena.bound(first), what="the members bound") == {}
        arena.until_bound([*first, *arena.create(members[1])])
        arena.until_bound(arena.create(members[2]))
        last = arena.create(members[3])
        arena.until_rejected(last)
        assert stays(lambda: (arena.bound(last), held_for(arena, "train"))) == ({}, ["bound"] * 3)
        arena.nodes(1)
        arena.until_bound(last)


class TestAQuorumThatChanges:
    def test_lowered_while_the_gang_waits_counts_when_the_last_member_says_so(self, arena: Arena) -> None:
        arena.nodes(3)
        names = arena.create(*arena.gang("train", 4, cpu=8))
        arena.until_rejected(names)
        for name in names[:3]:
            arena.annotate(name, gang_min_member="3")
        none_is_bound(arena, names)
        assert arena.gang_state("train")["quorum"] == 4
        arena.annotate(names[3], gang_min_member="3")
        eventually(lambda: len(arena.bound(names)) == 3, what="the quorum")
        assert len(stays(lambda: arena.bound(names), what="the members bound")) == 3
        arena.nodes(1)
        arena.until_bound(names)

    def test_raised_while_the_gang_waits_keeps_it_waiting_where_it_would_have_fitted(self, arena: Arena) -> None:
        arena.nodes(1)
        names = arena.create(*arena.gang("train", 4, quorum=2, cpu=8))
        arena.until_rejected(names)
        arena.annotate(names[2], gang_min_member="4")
        eventually(lambda: arena.gang_state("train")["quorum"] == 4, what="the service seeing the quorum")
        arena.nodes(1)
        none_is_bound(arena, names)
        for name in names:
            arena.annotate(name, gang_min_member="4")
        arena.nodes(2)
        assert len(set(arena.until_bound(names).values())) == 4

    def test_raised_at_the_barrier_makes_those_who_stand_there_wait_for_more(self, arena: Arena) -> None:
        arena.nodes(5)
        members = arena.gang("train", 5, quorum=4, cpu=8)
        names = arena.bring_to_barrier(*members[:3])
        for name in names:
            arena.annotate(name, gang_min_member="5")
        names += arena.create(members[3])
        eventually(lambda: arena.at_barrier() == 4, what="four at the barrier")
        assert stays(lambda: arena.bound(names), what="the members bound") == {}
        names += arena.create(members[4])
        assert len(set(arena.until_bound(names).values())) == 5

    def test_lowered_to_those_who_stand_at_the_barrier_opens_it(self, arena: Arena) -> None:
        arena.nodes(4)
        names = arena.bring_to_barrier(*arena.gang("train", 3, quorum=4, cpu=8))
        for name in names[:2]:
            arena.annotate(name, gang_min_member="3")
        assert stays(lambda: arena.bound(names), during=0.5, what="the members bound") == {}
        arena.annotate(names[2], gang_min_member="3")
        arena.until_bound(names)
        # The place of the fourth is free again.
        arena.until_bound(arena.create(arena.pod("other", cpu=8)))


class TestNodesThatDifferByMember:
    @both
    def test_selectors_and_affinity_are_each_met(self, arena: Arena, scheduler: str) -> None:
        fast, east, west, plain = arena.nodes(4)
        label(arena, fast, disk="ssd", zone="east")
        label(arena, east, zone="east")
        label(arena, plain, zone="south")
        members = {
            west: with_affinity(member(arena, "west", 4, scheduler, cpu=8), "zone", "In", "west"),
            east: with_affinity(member(arena, "east", 4, scheduler, cpu=8), "zone", "In", "east", "north"),
            fast: member(arena, "fast", 4, scheduler, cpu=8, selector={**arena.pool, "disk": "ssd"}),
            plain: member(arena, "anywhere", 4, scheduler, cpu=8),
        }
        names = [name for each in members.values() for name in arena.create(each)]
        arena.until_rejected(names)
        none_is_bound(arena, names)
        label(arena, west, zone="west")
        assert arena.until_bound(names) == {each["metadata"]["name"]: node for node, each in members.items()}

    def test_room_counts_only_where_the_member_may_go(self, arena: Arena) -> None:
        """A node that comes is no room for the one member that may not go there."""
        *_, ssd = arena.nodes(3)
        label(arena, ssd, disk="ssd")
        blocker = arena.pod("blocker", cpu=8, selector={**arena.pool, "disk": "ssd"})
        arena.until_bound(arena.create(blocker))
        easy = [with_affinity(each, "disk", "DoesNotExist") for each in arena.gang("train", 2, quorum=3, cpu=8)]
        picky = with_affinity(member(arena, "picky", 3, cpu=8), "disk", "Exists")
        names = arena.create(*easy, picky)
        arena.until_rejected(names)
        none_is_bound(arena, names)
        arena.nodes(1)
        none_is_bound(arena, names)
        arena.delete("blocker")
        placed = arena.until_bound(names)
        assert placed["picky"] == ssd
        assert len(set(placed.values())) == 3


@both
def test_a_gang_of_one(arena: Arena, scheduler: str) -> None:
    [node] = arena.nodes(1)
    other = arena.create(arena.pod("other", scheduler, cpu=1))
    arena.until_bound(other)
    names = arena.create(*arena.gang("train", 1, scheduler, cpu=8))
    arena.until_rejected(names)
    none_is_bound(arena, names)
    state = arena.gang_state("train")
    assert (state["phase"], state["quorum"], len(state["members"])) == ("waiting", 1, 1)
    arena.delete(*other)
    assert arena.until_bound(names) == {"train-0": node}
    # The API server tells others of the Binding before the service has its answer.
    eventually(lambda: arena.gang_state("train")["phase"] == "bound", what="the gang bound")


@pytest.fixture
def wide_arena(field: Field) -> Iterator[Arena]:
    """Judged like any other, but for the time from the first Binding to the last: 500 calls take their time."""
    made = field.arena("gang-of-500")
    try:
        yield made
        report = made.report()
        assert report.gaps == 0
        assert not report.partly_bound(longer_than=30)
        assert not report.over_allocated()
        field.assert_sound()
    finally:
        made.clear()


def test_a_gang_of_500(wide_arena: Arena) -> None:
    """Four nodes with room for 125 members each; but one place is taken."""
    arena, size = wide_arena, 500
    arena.nodes(4, cpu=125, pods=200)
    other = arena.create(arena.pod("other"))
    arena.until_bound(other)
    began = time.monotonic()
    names = arena.create(*arena.gang("train", size))
    created = time.monotonic() - began

    def waits() -> bool:
        state = arena.gang_state("train")
        return state["phase"] == "waiting" and len(state["members"]) == size

    eventually(waits, what="the gang's wait for room")
    none_is_bound(arena, names)
    freed = time.monotonic()
    arena.delete(*other)
    # Asked of the service, for a list of 500 pods again and again would be a load of its own.
    eventually(lambda: arena.service.metric("escher_gang_phase", phase="bound"), within=60, what="the gang being bound")
    placed = list(arena.until_bound(names).values())
    assert sorted(map(placed.count, arena.own_nodes)) == [size // 4] * 4
    seen = arena.report().gangs[f"{arena.namespace}/train"]
    assert (seen.peak, len(seen.bursts)) == (size, 1)
    assert seen.bound_at is not None
    arena.field.measured.append(
        f"{size} members on 4 nodes: created in {created:.1f} s; bound {seen.bound_at - freed:.2f} s after the last "
        f"place came free, burst of {1000 * seen.bursts[0]:.0f} ms"
    )
