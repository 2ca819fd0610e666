"""Gangs on the real control plane: placed all or none, whatever happens around them."""

from __future__ import annotations

import pytest

from tests.controlplane.deadline import eventually
from tests.e2e.workload import GANG_APPROACHES, Arena, stays

pytestmark = pytest.mark.timeout(300)


@pytest.mark.older
@pytest.mark.parametrize("scheduler", GANG_APPROACHES)
class TestScenario12:
    """32 nodes of 8 CPU, a gang of 8 whose members fill a node each."""

    def test_no_member_is_bound_before_all_can_be_and_cpu_is_counted_once(self, arena: Arena, scheduler: str) -> None:
        fillers = arena.create(*(arena.pod(f"filler-{index}", scheduler, cpu=8) for index in range(25)))
        arena.until_bound(fillers)
        members = arena.create(*arena.gang("train", 8, scheduler, cpu=8))
        arena.until_rejected(members)
        assert stays(lambda: arena.bound(members), what="the members bound") == {}

        arena.delete(fillers[0])
        placed = arena.until_bound(members)

        assert len(set(placed.values())) == 8
        free = {name: node["available"]["cpu"] for name, node in arena.service.cluster_state().items()}
        assert sum(free.values()) == 0, free
        report = arena.assert_witnessed()
        arena.field.measured.append(f"8 full-node members: burst of {1000 * report.longest_burst:.1f} ms")

    def test_members_that_exist_wait_for_those_that_do_not(self, arena: Arena, scheduler: str) -> None:
        members = arena.gang("train", 8, scheduler, cpu=8)
        early = arena.create(*members[:7])
        arena.until_rejected(early)
        assert stays(lambda: arena.bound(early), what="the members bound") == {}
        assert arena.service.metric("escher_ledger_units", state="reserved") == 0, "bare pods promise no others"
        arena.create(members[7])
        assert len(set(arena.until_bound(each["metadata"]["name"] for each in members).values())) == 8


@pytest.mark.parametrize("scheduler", GANG_APPROACHES)
class TestScenario13:
    """Roll-back: 10 CPU free, a gang of 12."""

    def test_a_gang_too_large_holds_nothing_and_a_large_task_runs(self, arena: Arena, scheduler: str) -> None:
        [node] = arena.nodes(1, cpu=10)
        members = arena.create(*arena.gang("large", 12, scheduler))
        arena.until_rejected(members)
        assert arena.bound(members) == {}
        self.nothing_is_held(arena, node, 10)
        task = arena.create(arena.pod("task", scheduler, cpu=10))
        arena.until_bound(task)
        assert arena.bound(members) == {}

    def test_a_gang_whose_members_go_and_never_come_again_gives_back_its_plan(
        self, arena: Arena, scheduler: str
    ) -> None:
        [node] = arena.nodes(1, cpu=12)
        early = arena.bring_to_barrier(*arena.gang("partial", 10, scheduler, quorum=12, timeout=4), lacking=2)
        assert arena.service.cluster_state(node=node)[node]["available"]["cpu"] == 0, "places of those who are gone"
        eventually(lambda: arena.events("GangTimedOut"), what="the gang's time-out")
        assert arena.bound(early) == {}
        eventually(lambda: arena.service.cluster_state(node=node)[node]["available"]["cpu"] == 12)
        self.nothing_is_held(arena, node, 12)
        task = arena.create(arena.pod("task", scheduler, cpu=12))
        arena.until_bound(task)
        assert arena.bound(early) == {}

    @staticmethod
    def nothing_is_held(arena: Arena, node: str, cpu: int) -> None:
        """No reservation, no resource on the node, no ghost pod."""
        told = arena.service.cluster_state(node=node)[node]
        assert (told["available"]["cpu"], told["holders"]) == (cpu, [])
        assert not [key for key in arena.status(node)["allocatable"] if key.startswith("escher.dev/")]
        assert arena.service.metric("escher_ledger_units", state="reserved") == 0
        assert arena.service.metric("escher_ledger_units", state="assumed") == 0


@pytest.mark.parametrize("scheduler", GANG_APPROACHES)
def test_scenario_14_two_gangs_that_do_not_fit_together_never_hold_a_part_each(arena: Arena, scheduler: str) -> None:
    arena.nodes(2, cpu=8)
    one, two = (arena.gang(name, 12, scheduler, run_seconds=2) for name in ("one", "two"))
    names = arena.create(*(each for pair in zip(one, two, strict=True) for each in pair))
    arena.until_bound(names, within=40)
    report = arena.assert_witnessed()
    first, second = sorted(
        (report.gangs[f"{arena.namespace}/{name}"] for name in ("one", "two")), key=lambda gang: gang.bound_at or 0
    )
    assert first.bound_at is not None
    assert second.bound_at is not None
    # The second can only begin when members of the first have ended.
    assert second.bound_at - first.bound_at > 1.5
    arena.field.measured.append(f"contention: {second.bound_at - first.bound_at:.2f} s apart, runs of 2 s")
