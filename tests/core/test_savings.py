"""Nobody hoards: saving ends without progress, no more than a share is idle for long, and it is somebody else's turn.

Each world has nodes of 8 CPU and gangs whose members fill a node each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from extender.core.cluster import Pod
from extender.core.gangs.preemption.preemption import PREEMPTS_EVERY
from extender.core.gangs.queue.backfill import BackfillLimits, Savings
from extender.core.gangs.queue.queue import BackfillTrigger
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.audit import Violation
from extender.core.ledger.ledger import Holder, HoldingKind
from extender.core.names import GangKey
from extender.kube.names import CPU, NodeName, PodUid, ResourceKey
from tests.builders import AGENT, NOW, daemon_set, gang_pods, ledger_of, node, pod, slot
from tests.core.gang_world import GangWorld

FULL = {"cpu": 8000}
PATIENCE, SECONDS = 60.0, 600.0


@pytest.fixture
def world() -> Iterator[GangWorld]:
    made = GangWorld(patience=BackfillTrigger(8, PATIENCE))
    yield made
    made.check()


def nodes(world: GangWorld, count: int) -> list[NodeName]:
    for number in range(count):
        world.add_node(node(f"n{number}"))
    return list(world.nodes)


def filler(world: GangWorld, where: NodeName, cpu: int = 8000) -> PodUid:
    """It runs there, and nobody preempts it."""
    made = pod(f"filler-{where}-{cpu}", {"cpu": cpu}, node=where, priority=100)
    world.create(made)
    return made.uid


def waiting(world: GangWorld, name: str, size: int, *, priority: int = 0, created: float = 1.0) -> list[Pod]:
    members = [replace(each, priority=priority, created=created) for each in gang_pods(name, size, FULL)]
    world.create(*members)
    world.filter(members[0], list(world.nodes))
    return members


def saved(world: GangWorld) -> int:
    return sum(
        held.units.get(CPU, 0)
        for held in world.scheduler.cache.ledger.rows.holdings()
        if held.kind is HoldingKind.SAVING
    )


def saved_for(world: GangWorld) -> str | None:
    gang = world.scheduler.cache.gangs.waiting.queue.saved.gang
    return None if gang is None else gang.key.name


def pass_minutes(world: GangWorld, minutes: int) -> None:
    for _ in range(minutes):
        world.pass_time(60)
        world.check()


class TestWhatStays:
    def test_nothing_is_saved_beside_daemons_that_leave_too_little(self, world: GangWorld) -> None:
        for where in nodes(world, 4):
            world.have(daemon_set())
            world.create(pod(f"daemon-{where}", {"cpu": 100}, owner=AGENT, node=where, created=1.0, bound_at=2.0))
        waiting(world, "whole", 4)
        started = 0
        for minute in range(240):
            world.pass_time(60)
            small, plain = gang_pods(f"small{minute}", 2), pod(f"plain{minute}")
            world.create(*small, plain)
            world.schedule()
            started += world.bound(f"small{minute}") == 2 and world.pods[plain.uid].node is not None
            for each in (*small, plain):
                world.delete(each.uid)
        assert (started, saved_for(world)) == (240, None)

    def test_it_is_saved_as_soon_as_they_are_gone(self, world: GangWorld) -> None:
        n0, n1 = nodes(world, 2)
        filler(world, n1)
        world.have(daemon_set())
        daemon = pod("daemon", {"cpu": 100}, owner=AGENT, node=n0)
        world.create(daemon)
        waiting(world, "whole", 2)
        world.pass_time(PATIENCE)
        assert saved_for(world) is None
        world.delete(daemon.uid)
        assert (saved_for(world), saved(world)) == ("whole", 8000)
        world.create(replace(daemon, uid=PodUid("uid-again")))
        assert (saved_for(world), saved(world)) == (None, 0)

    def test_pods_of_other_schedulers_are_not_waited_for(self, world: GangWorld) -> None:
        n0, _ = nodes(world, 2)
        world.create(pod("theirs", node=n0, scheduler="default-scheduler"))
        waiting(world, "whole", 2)
        world.pass_time(PATIENCE)
        assert saved_for(world) is None

    def test_members_of_its_own_that_are_bound_stay(self, world: GangWorld) -> None:
        n0, n1 = nodes(world, 2)
        filler(world, n1)
        first, *_ = gang_pods("train", 3, FULL)
        world.create(replace(first, node=n0), *gang_pods("train", 3, FULL)[1:])
        world.pass_time(PATIENCE)
        assert saved_for(world) is None, "two more would need a node beside n0 each"


class TestProgress:
    def test_without_it_all_is_given_back_after_a_time_and_saved_again_after_longer_and_longer(
        self, world: GangWorld
    ) -> None:
        for where in nodes(world, 8)[1:]:
            filler(world, where)
        waiting(world, "large", 2)
        world.pass_time(PATIENCE)
        history = []
        for _ in range(80):
            history.append(saved_for(world) is not None)
            pass_minutes(world, 1)
        lengths = [len(run) for run in "".join("s" if each else "-" for each in history).split("-") if run]
        pauses = [len(run) for run in "".join("s" if each else "-" for each in history).split("s") if run]
        assert set(lengths[:3]) == {10}
        assert pauses[:2] == [10, 20]

    def test_whoever_gets_further_goes_on(self, world: GangWorld) -> None:
        names = nodes(world, 20)
        fillers = [filler(world, where) for where in names]
        waiting(world, "large", 5)
        world.pass_time(PATIENCE)
        for number, uid in enumerate(fillers[:5]):
            assert (saved_for(world), saved(world)) == ("large", 8000 * number)
            pass_minutes(world, 9)
            world.delete(uid)
        world.schedule()
        assert world.bound("large") == 5

    def test_who_loses_its_turn_goes_behind_those_who_wait_and_before_those_who_come_later(
        self, world: GangWorld
    ) -> None:
        names = nodes(world, 8)
        for where in names[1:]:
            filler(world, where)
        waiting(world, "first", 2, created=1.0)
        world.pass_time(PATIENCE)
        waiting(world, "second", 2, created=2.0)
        assert saved_for(world) == "first"
        pass_minutes(world, 10)
        assert saved_for(world) == "second"
        waiting(world, "third", 2, created=3.0)
        turns = world.scheduler.cache.gangs.by_key
        order = sorted(gang.turn for gang in turns.values())
        assert [turn[-1].name for turn in order] == ["second", "first", "third"]

    def test_it_is_planned_as_before_when_room_comes_free(self, world: GangWorld) -> None:
        names = nodes(world, 8)
        fillers = [filler(world, where) for where in names[1:]]
        waiting(world, "large", 2)
        world.pass_time(PATIENCE)
        pass_minutes(world, 10)
        gang = world.scheduler.cache.gangs.by_key[GangKey("default", "large")]
        assert (saved_for(world), gang.wait.rounds_lost) == (None, 1)
        world.delete(fillers[0])
        world.schedule()
        assert (world.gangs["large"], gang.wait.rounds_lost, gang.wait.behind) == (Phase.BOUND, 0, 0.0)


class TestTheShare:
    """Of four nodes one is a quarter."""

    def test_more_than_the_share_is_saved_for_a_time_and_then_given_back(self, world: GangWorld) -> None:
        names = nodes(world, 4)
        held = filler(world, names[0])
        waiting(world, "large", 4)
        world.pass_time(PATIENCE)
        assert saved(world) == 24_000
        pass_minutes(world, 9)
        assert saved(world) == 24_000
        pass_minutes(world, 1)
        assert (saved(world), saved_for(world)) == (0, None)
        world.delete(held)
        world.schedule()
        assert world.bound("large") == 4

    def test_afterwards_nobody_saves_more_than_the_share_for_as_long(self, world: GangWorld) -> None:
        names = nodes(world, 4)
        filler(world, names[0])
        waiting(world, "first", 4, created=1.0)
        waiting(world, "second", 4, created=2.0)
        world.pass_time(PATIENCE)
        longest = run = over = 0
        for _ in range(300):
            run = run + 1 if saved(world) > 8000 else 0
            longest, over = max(longest, run), over + (run > 0)
            pass_minutes(world, 1)
        assert longest == 10
        assert over <= 150

    def test_what_others_leave_for_a_gang_that_preempts_counts_too(self, world: GangWorld) -> None:
        names = nodes(world, 4)
        lows = [pod(f"low-{where}", FULL, node=where) for where in names]
        world.create(*lows)
        waiting(world, "urgent", 4, priority=1)
        world.evicted.clear()
        for low in lows[:3]:
            world.delete(low.uid)
        assert (saved_for(world), saved(world)) == ("urgent", 24_000)
        pass_minutes(world, 9)
        assert saved(world) == 24_000
        pass_minutes(world, 1)
        assert saved(world) == 0

    def test_nobody_is_evicted_for_what_could_not_be_kept(self, world: GangWorld) -> None:
        names = nodes(world, 4)
        held = filler(world, names[0])
        waiting(world, "first", 4)
        world.pass_time(PATIENCE)
        pass_minutes(world, 10)
        world.create(*(pod(f"low-{where}", FULL, node=where) for where in names[1:]))
        waiting(world, "urgent", 3, priority=1)
        assert world.preempted == []
        pass_minutes(world, 10)
        assert len(world.preempted) == 1
        world.delete(held)

    def test_whoever_had_to_wait_for_that_preempts_as_soon_as_it_may(self, world: GangWorld) -> None:
        names = nodes(world, 4)
        filler(world, names[0])
        waiting(world, "first", 4)
        world.at_its_alarms(PATIENCE + SECONDS)
        world.create(*(pod(f"low-{where}", FULL, node=where) for where in names[1:]))
        waiting(world, "urgent", 3, priority=1)
        world.at_its_alarms(SECONDS - 1)
        assert world.preempted == []
        world.at_its_alarms(1)
        assert [len(victims) for victims in world.preempted] == [3]

    def test_the_search_of_another_gang_is_not_due_meanwhile(self, world: GangWorld) -> None:
        names = nodes(world, 4)
        filler(world, names[0])
        waiting(world, "first", 4)
        world.at_its_alarms(PATIENCE + SECONDS)
        high = [pod(f"high-{where}", FULL, node=where, priority=2) for where in names[1:]]
        world.create(*high)
        waiting(world, "small", 1, priority=1)
        # Searched for already: it is to be searched again for what has changed since, but not at once.
        world.create(pod("news", {"cpu": 0}, node=names[0]))
        soon = world.scheduler.cache.gangs.waiting.preempting.next_deadline()
        assert soon == world.clock.time + PREEMPTS_EVERY
        waiting(world, "urgent", 3, priority=3)
        world.at_its_alarms(PREEMPTS_EVERY)
        assert world.preempted == []

    def test_a_gang_of_the_share_is_saved_for_as_long_as_it_gets_further(self, world: GangWorld) -> None:
        names = nodes(world, 8)
        fillers = [filler(world, where) for where in names]
        waiting(world, "quarter", 2)
        world.pass_time(PATIENCE)
        pass_minutes(world, 9)
        world.delete(fillers[0])
        pass_minutes(world, 9)
        assert saved(world) == 8000
        world.delete(fillers[1])
        world.schedule()
        assert world.bound("quarter") == 2


class TestTheAccount:
    @pytest.fixture
    def savings(self) -> Savings:
        """A place is a quarter of the CPU."""
        ledger = ledger_of({f"n{number}": {"cpu": 1000} for number in range(4)})
        made = Savings(ledger, BackfillLimits(0.25, 100.0))
        made.on_time(NOW)
        made.begin(NOW)
        return made

    @staticmethod
    def save(savings: Savings, *on: str) -> None:
        claims = [replace(slot(f"s-{name}", name, {"cpu": 1000}), kind=HoldingKind.SAVING) for name in on]
        assert not savings.ledger.commit(claims).conflicts

    def test_the_share_itself_is_not_over_it(self, savings: Savings) -> None:
        self.save(savings, "n0")
        savings.on_time(NOW)
        savings.on_time(NOW + 50)
        assert (savings.share, savings.seconds_over, savings.resting) == (0.25, 0.0, False)
        assert savings.next_deadline(saving=False) is None

    def test_one_unit_of_what_no_node_has_any_more_is_over_it(self, savings: Savings) -> None:
        gpu = ResourceKey("nvidia.com/gpu")
        savings.ledger.capacity.set_node(NodeName("n4"), {gpu: 1})
        saving = replace(slot("s", "n4", {gpu: 1}), kind=HoldingKind.SAVING)
        assert not savings.ledger.commit([saving]).conflicts
        savings.ledger.capacity.remove_node(NodeName("n4"))
        savings.on_time(NOW)
        savings.on_time(NOW + 50)
        assert savings.seconds_over == 50.0

    def test_time_over_the_share_adds_up_and_is_paid_back(self, savings: Savings) -> None:
        self.save(savings, "n0", "n1")
        savings.on_time(NOW)
        savings.on_time(NOW + 60)
        savings.ledger.release(Holder("s-n1"))
        savings.on_time(NOW + 60)
        savings.on_time(NOW + 80)
        assert savings.seconds_over == 40.0
        self.save(savings, "n1")
        savings.on_time(NOW + 80)
        assert savings.next_deadline(saving=False) == NOW + 140
        savings.on_time(NOW + 139.5)
        assert savings.next_deadline(saving=False) == NOW + 140
        savings.on_time(NOW + 140)
        assert (savings.resting, savings.must_end()) == (True, True)
        assert savings.limit() == {CPU: 1000}
        asked = [{CPU: 1000}], [{CPU: 500}, {CPU: 501}], [{ResourceKey("gpu"): 1}]
        assert [savings.suffices(places) for places in asked] == [True, False, False]

    def test_whoever_could_get_no_further_has_its_time_when_it_can(self, savings: Savings) -> None:
        self.save(savings, "n0", "n1")
        savings.on_time(NOW)
        savings.on_time(NOW + 100)
        for name in ("n0", "n1"):
            savings.ledger.release(Holder(f"s-{name}"))
        savings.on_time(NOW + 100)
        assert savings.next_deadline(saving=False) == NOW + 200
        savings.begin(NOW + 100)
        assert not savings.on_time(NOW + 199)
        assert savings.on_time(NOW + 200)
        assert not savings.must_end()
        assert savings.next_deadline(saving=True) == NOW + 300

    def test_progress_is_a_new_maximum_by_a_hundredth(self, savings: Savings) -> None:
        for part, at, ends in ((0.5, 0, 100), (0.4, 50, 100), (0.505, 60, 100), (0.51, 70, 170), (1.0, 80, 180)):
            savings.progress(part, NOW + at)
            assert savings.next_deadline(saving=True) == NOW + ends

    def test_the_first_hundredth_is_progress(self, savings: Savings) -> None:
        for part, at, ends in ((0.0, 0, 100), (0.0, 40, 100), (0.01, 50, 150)):
            savings.progress(part, NOW + at)
            assert savings.next_deadline(saving=True) == NOW + ends

    @pytest.mark.parametrize(("rounds", "seconds"), [(1, 600), (2, 1200), (3, 2400), (9, 86_400), (2000, 86_400)])
    def test_pauses_double_up_to_a_day(self, rounds: int, seconds: float) -> None:
        assert BackfillLimits().pause(rounds) == seconds

    def test_the_audit_sees_what_nobody_counts_and_what_lasts_too_long(self, savings: Savings) -> None:
        self.save(savings, "n0", "n1")
        uncounted = "50% of a resource is reserved, and its time is not counted"
        assert list(savings.violations(saving=False)) == [Violation("saved_share", uncounted)]
        for passed in (0, 101):
            savings.on_time(NOW + passed)
            assert list(savings.violations(saving=True)) == []
        savings.on_time(NOW + 102)
        assert list(savings.violations(saving=True)) == [
            Violation("saved_share", "50% of a resource reserved for 102 s"),
            Violation("saved_share", "no progress for 102 s"),
        ]
