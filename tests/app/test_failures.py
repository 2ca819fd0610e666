"""docs/failures.md, row by row: whatever fails, in the end a gang is bound as a whole or holds nothing at all.

A gang of four, each member as large as a node, on four nodes unless a test says otherwise. What must hold in the end
is asserted after every test (`Town.come_to_rest`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from extender.core.gangs.state.gang import TOO_LATE
from extender.kube.errors import Gone, Refused, Unavailable
from extender.kube.names import NodeName
from kubesim.apiserver.serving.faults import Fault
from tests.app.town import Job, Town, answers

pytestmark = pytest.mark.anyio

ALL = ["train-0", "train-1", "train-2", "train-3"]


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with Town() as made:
        yield made
        await made.come_to_rest()


async def three_at_the_barrier(town: Town) -> Job:
    """The fourth member is to come; its place is held for the five seconds that it may take."""
    job = town.job("train", 3, quorum=4)
    await town.pass_time(1)
    assert town.at_barrier == 3
    return job


def the_fourth_comes(job: Job) -> None:
    job.size = 4
    job.fill()


class TestAMemberIsDeleted:
    async def test_before_the_plan_and_its_successor_is_waited_for(self, town: Town) -> None:
        town.drop_node("n3")
        job = town.job("train", 4)
        await town.pass_time(1)
        town.delete("train-1")
        await town.pass_time(10)
        assert town.bound() == {}
        town.add_node("n3")
        await town.until_bound(4)
        assert job.made == 5
        assert town.told() == {"GangWaiting": ["train-0"]}

    async def test_after_the_plan_and_its_successor_takes_its_place(self, town: Town) -> None:
        town.job("train", 4)
        await town.pass_time(0.002)
        assert len(list(town.scheduler.cache.ledger.rows.holdings())) == 4
        assert town.at_barrier <= 1
        town.delete("train-2")
        town.create(town.pod("thief"))
        await town.until_bound(4, within=1)
        assert town.named("thief").node is None
        assert town.told() == {}

    async def test_after_the_plan_and_nobody_follows(self, town: Town) -> None:
        town.create(*town.gang("train", 4))
        await town.pass_time(0.002)
        town.delete("train-2")
        await town.pass_time(60)
        assert town.bound() == {}
        assert town.told()["GangTimedOut"] == ["train-0", "train-1", "train-3"]

    async def test_at_the_barrier_and_its_successor_takes_its_place(self, town: Town) -> None:
        job = await three_at_the_barrier(town)
        town.delete("train-0")
        town.create(town.pod("thief"))
        await town.pass_time(0.5)
        assert ("train-0", "the pod has left the gang") in town.refused
        assert town.at_barrier == 3
        the_fourth_comes(job)
        await town.until_bound(4, within=1)
        assert town.named("thief").node is None
        assert town.told() == {}

    async def test_at_the_barrier_and_nobody_follows(self, town: Town) -> None:
        members = town.gang("train", 4, owner=town.promise("promised", 4))
        town.create(*members[:3])
        await town.pass_time(1)
        town.delete("train-0")
        town.create(members[3])
        await town.pass_time(60)
        assert town.bound() == {}
        assert town.told()["GangTimedOut"] == ["train-1", "train-2", "train-3"]

    async def test_after_the_first_binding_and_its_successor_takes_its_place(self, town: Town) -> None:
        town.job("train", 4)
        await town.until_bound(1)
        late = town.pending()[0]
        town.delete(late.name)
        await town.until_bound(4, within=1)
        assert set(town.told()) == {"GangInPart"}

    async def test_after_the_first_binding_and_nobody_follows(self, town: Town) -> None:
        town.create(*town.gang("train", 4))
        await town.until_bound(1)
        late = town.pending()[0]
        town.delete(late.name)
        await town.pass_time(29)
        assert len(town.bound()) == 3
        await town.pass_time(2)
        assert town.bound() == {}
        others = sorted(set(ALL) - {late.name})
        assert town.told() == {"GangInPart": others, "GangEvicted": others}

    async def test_that_is_bound_and_takes_its_time_to_end(self, town: Town) -> None:
        town.stop = 20
        town.job("train", 4)
        await town.until_bound(4)
        town.delete("train-0")
        await town.pass_time(60)
        assert len(town.bound()) == 4
        assert "GangEvicted" not in town.told()


LOST: dict[str, Callable[[Town, str], None]] = {
    "lost": lambda town, name: town.drop_node(name),
    "shrunk": lambda town, name: town.shrink(name),
}
CLOSED: dict[str, Callable[[Town, str], None]] = {
    "cordoned": lambda town, name: town.cordon(name),
    "tainted": lambda town, name: town.taint(name),
}
OPENED: dict[str, Callable[[Town, str], None]] = {
    "cordoned": lambda town, name: town.cordon(name, False),
    "tainted": lambda town, name: town.taint(name, False),
}


def node_of(town: Town, name: str) -> NodeName:
    """Where the member is to go, or is."""
    held = town.scheduler.cache.ledger.holding(town.named(name).uid)
    assert held is not None
    return held.node


def vacant_node(town: Town) -> NodeName:
    """Where the plan has the member that is not there yet."""
    [slot] = [held for held in town.scheduler.cache.ledger.rows.holdings() if held.holder.startswith("slot:")]
    return slot.node


class TestANode:
    @pytest.mark.parametrize("how", LOST)
    async def test_is_lost_under_a_member_at_the_barrier_which_goes_elsewhere(self, town: Town, how: str) -> None:
        town.add_node("n4")
        job = await three_at_the_barrier(town)
        lost = node_of(town, "train-0")
        LOST[how](town, lost)
        the_fourth_comes(job)
        await town.until_bound(4, within=10)
        assert lost not in town.bound().values()
        assert town.told() == {}

    @pytest.mark.parametrize("how", LOST)
    async def test_is_lost_under_a_member_at_the_barrier_and_there_is_no_other(self, town: Town, how: str) -> None:
        job = await three_at_the_barrier(town)
        lost = node_of(town, "train-0")
        LOST[how](town, lost)
        the_fourth_comes(job)
        await town.pass_time(100)
        assert town.bound() == {}
        assert town.at_barrier == 0
        assert "GangWaiting" in town.told()
        town.add_node("n9")
        await town.until_bound(4, within=20)

    @pytest.mark.parametrize("how", [*LOST, *CLOSED])
    async def test_is_lost_or_closed_under_the_place_of_a_member_that_is_to_come(self, town: Town, how: str) -> None:
        town.add_node("n4")
        job = await three_at_the_barrier(town)
        lost = vacant_node(town)
        (LOST | CLOSED)[how](town, lost)
        the_fourth_comes(job)
        await town.until_bound(4, within=10)
        assert lost not in town.bound().values()
        assert town.told() == {}

    @pytest.mark.parametrize("how", CLOSED)
    async def test_is_closed_under_the_place_of_a_member_that_is_to_come_and_there_is_no_other(
        self, town: Town, how: str
    ) -> None:
        job = await three_at_the_barrier(town)
        closed = vacant_node(town)
        CLOSED[how](town, closed)
        the_fourth_comes(job)
        await town.pass_time(100)
        assert town.bound() == {}
        assert town.at_barrier == 0
        OPENED[how](town, closed)
        await town.until_bound(4, within=20)
        assert "GangWaiting" in town.told()

    @pytest.mark.parametrize("how", CLOSED)
    async def test_that_is_closed_under_a_member_at_the_barrier_takes_it_all_the_same(
        self, town: Town, how: str
    ) -> None:
        """As kube-scheduler does with a pod that it has chosen the node for: a cordon keeps away later decisions."""
        job = await three_at_the_barrier(town)
        closed = node_of(town, "train-0")
        CLOSED[how](town, closed)
        the_fourth_comes(job)
        await town.until_bound(4, within=1)
        assert town.bound()["train-0"] == closed

    async def test_lost_while_bindings_are_written_is_a_member_lost_by_a_gang_that_ran(self, town: Town) -> None:
        """The API server binds to a node that is gone; the pod is collected later, and its Job makes another."""
        town.job("train", 4)
        await town.until_bound(1)
        town.drop_node(node_of(town, "train-3"))
        await town.until_bound(4, within=1)
        await town.until_bound(3, within=60)
        town.add_node("n9")
        await town.until_bound(4, within=20)
        assert "GangEvicted" not in town.told()


class TestABinding:
    @pytest.mark.parametrize(
        "met",
        [
            [Fault(Unavailable("slow down", 5.0))],
            [Fault(Unavailable("internal error"))] * 3,
            [Fault(Unavailable("cut off"), after=True)],
            [Fault(Unavailable("cut off"), after=True), Fault(Unavailable("internal error"))],
        ],
        ids=["429 with Retry-After", "5xx", "failed though it was written", "the same, and then 5xx"],
    )
    async def test_that_fails_for_a_while_is_written_and_nobody_notices(self, town: Town, met: list[Fault]) -> None:
        town.faults.add(*answers("train-1", *met))
        town.create(*town.gang("train", 4))
        await town.until_bound(4, within=6)
        await town.pass_time(10)
        assert town.told() == {}
        assert town.refused == []

    @pytest.mark.parametrize("written", [False, True], ids=["and is not written", "and is written"])
    async def test_that_is_never_answered(self, town: Town, written: bool) -> None:
        town.faults.add(*answers("train-1", Fault(Unavailable("no answer for 30 s"), after=written, seconds=30)))
        town.create(*town.gang("train", 4))
        await town.until_bound(4, within=40)
        await town.pass_time(60)
        assert town.told() == ({} if written else {"GangInPart": ["train-0", "train-2", "train-3"]})

    async def test_429_with_a_long_retry_after_is_left_to_kube_scheduler(self, town: Town) -> None:
        town.faults.add(*answers("train-1", Fault(Unavailable("slow down", 40.0))))
        town.create(*town.gang("train", 4))
        await town.until_bound(4, within=10)
        assert town.refused == [("train-1", "the API server cannot be reached: slow down")]
        assert set(town.told()) == {"GangInPart"}

    async def test_429_for_ever_ends_with_none_bound(self, town: Town) -> None:
        town.faults.add(*answers("train-1", *[Fault(Unavailable("slow down", 40.0))] * 20))
        town.create(*town.gang("train", 4))
        await town.pass_time(60)
        assert town.bound() == {}
        assert town.told().keys() >= {"GangInPart", "GangEvicted"}

    async def test_422_once_is_tried_again_by_kube_scheduler_in_the_place_that_is_kept(self, town: Town) -> None:
        town.faults.add(*answers("train-1", Fault(Refused(422, "invalid"))))
        town.create(*town.gang("train", 4))
        await town.until_bound(4, within=3)
        assert town.refused == [("train-1", "the API server refuses the binding: invalid")]
        assert town.told() == {"GangInPart": ["train-0", "train-2", "train-3"]}

    async def test_422_for_ever_ends_with_none_bound(self, town: Town) -> None:
        town.faults.add(*answers("train-1", *[Fault(Refused(422, "invalid"))] * 100))
        town.create(*town.gang("train", 4))
        await town.pass_time(31)
        assert town.bound() == {}
        bound = ["train-0", "train-2", "train-3"]
        assert town.told() == {"GangInPart": bound, "GangEvicted": bound}

    async def test_422_for_a_while_under_a_job_ends_with_all_bound(self, town: Town) -> None:
        town.faults.add(*answers("train-1", *[Fault(Refused(422, "invalid"))] * 7))
        town.job("train", 4)
        await town.pass_time(120)
        assert len(town.bound()) == 4

    async def test_of_all_members_refused_holds_nothing(self, town: Town) -> None:
        town.faults.add(*answers("train-.", Fault(Refused(403, "forbidden"), times=4)))
        town.create(*town.gang("train", 4))
        await town.pass_time(0.5)
        assert town.bound() == {}
        assert list(town.scheduler.cache.ledger.rows.holdings()) == []
        await town.until_bound(4, within=10)
        assert town.told() == {}

    @pytest.mark.parametrize("status", [404, 409], ids=["404", "409 for its UID"])
    async def test_of_a_pod_that_is_gone_leaves_its_place_to_a_successor(self, town: Town, status: int) -> None:
        town.faults.add(*answers("train-1", Fault(Gone(status, "gone"))))
        town.job("train", 4)
        await town.until_bound(3)
        await town.pass_time(0.05)
        assert sorted(held.kind.name for held in town.scheduler.cache.ledger.rows.holdings()) == ["BOUND"] * 3 + [
            "RESERVATION"
        ]
        town.delete("train-1")
        await town.until_bound(4, within=3)
        assert town.told() == {"GangInPart": ["train-0", "train-2", "train-3"]}

    async def test_409_for_another_has_bound_the_pod_counts_for_the_gang(self, town: Town) -> None:
        town.add_node("n4")
        job = await three_at_the_barrier(town)
        free = (town.nodes - {held.node for held in town.scheduler.cache.ledger.rows.holdings()}).pop()
        town.simulation.hold_watches()
        town.bind("train-1", free)
        town.create(*town.gang("train", 1, quorum=4, first=3, owner=job.owner))
        await town.pass_time(1)
        [(name, why)] = town.refused
        assert name == "train-1"
        assert why.startswith("the API server refuses the binding: ")
        assert why.endswith(f'pod train-1 is already assigned to node "{free}"')
        town.simulation.release_watches()
        await town.until_bound(4, within=3)
        await town.pass_time(1)
        assert "GangEvicted" not in town.told()


class TestTheApiServerIsAway:
    @pytest.mark.parametrize("seconds", [1, 60])
    @pytest.mark.parametrize("relist", [False, True], ids=["watches go on", "watches list anew"])
    async def test_with_binds_waiting(self, town: Town, seconds: float, relist: bool) -> None:
        job = await three_at_the_barrier(town)
        town.go_away()
        await town.pass_time(seconds)
        town.come_back(relist=relist)
        the_fourth_comes(job)
        await town.until_bound(4, within=15)
        await town.pass_time(3)
        timed_out = ["train-0", "train-1", "train-2"] if seconds == 60 else []
        assert town.told().get("GangTimedOut", []) == timed_out

    @pytest.mark.parametrize("seconds", [1, 60])
    async def test_just_when_bindings_are_written(self, town: Town, seconds: float) -> None:
        town.create(*town.gang("train", 4))
        await town.until_bound(2)
        town.go_away()
        await town.pass_time(seconds)
        assert len(town.bound()) == 2
        town.come_back()
        await town.until_bound(4, within=15)
        await town.pass_time(3)
        told = set(town.told())
        assert told == ({"GangInPart"} if seconds == 60 else set())

    async def test_before_any_watch_has_told_what_the_bindings_say(self) -> None:
        """What we wrote ourselves is known: its attempt proves a part, and nothing is in doubt."""
        async with Town(watches_open=False) as town:
            town.create(*town.gang("train", 4))
            await town.until_bound(2)
            town.go_away()
            await town.pass_time(60)
            town.come_back()
            await town.until_bound(4, within=15)
            await town.pass_time(3)
            assert set(town.told()) == {"GangInPart"}

    async def test_for_longer_than_the_rest_of_a_gang_may_take_to_follow(self, town: Town) -> None:
        """Members that wait for each other outlast it: whoever could not be evicted meanwhile is whole afterwards."""
        town.create(*town.gang("train", 4))
        await town.until_bound(2)
        town.go_away()
        await town.pass_time(200)
        town.come_back()
        await town.pass_time(120)
        assert len(town.bound()) in (0, 4)


class TestKubeScheduler:
    async def test_is_started_anew_with_binds_waiting(self, town: Town) -> None:
        job = await three_at_the_barrier(town)
        town.restart_scheduler()
        await town.pass_time(1)
        assert town.at_barrier == 3
        the_fourth_comes(job)
        await town.until_bound(4, within=1)
        await town.pass_time(30)
        assert town.refused == []
        assert town.times("create binding") == 4
        assert town.told() == {}

    async def test_is_started_anew_while_bindings_are_written(self, town: Town) -> None:
        town.create(*town.gang("train", 4))
        await town.until_bound(2)
        town.restart_scheduler()
        await town.until_bound(4, within=1)
        await town.pass_time(30)
        assert town.refused == []
        assert town.times("create binding") == 4
        assert town.told() == {}

    async def test_stays_away_for_longer_than_a_plan_is_held(self, town: Town) -> None:
        await three_at_the_barrier(town)
        town.restart_scheduler(after=60)
        await town.pass_time(59)
        assert list(town.scheduler.cache.ledger.rows.holdings()) == []
        town.create(*town.gang("train", 1, quorum=4, first=3))
        await town.until_bound(4, within=15)


class TestTheClientTimesOut:
    """kube-scheduler gives a bind up after 5 s; our handler runs on, and meets the next call."""

    @pytest.fixture
    async def town(self) -> AsyncIterator[Town]:
        async with Town(http_timeout=5) as made:
            yield made
            await made.come_to_rest()

    async def test_at_the_barrier_and_the_next_call_joins_the_first(self, town: Town) -> None:
        members = town.gang("train", 4)
        town.create(*members)
        await town.pass_time(0.002)
        town.delete("train-3")
        await town.pass_time(20)
        assert ("train-0", "context deadline exceeded") in town.refused
        town.create(*town.gang("train", 1, quorum=4, first=4))
        await town.until_bound(4, within=15)
        await town.pass_time(20)
        assert {why for _, why in town.refused} == {"context deadline exceeded"}
        assert town.times("create binding") == 4

    async def test_while_the_binding_is_written_and_the_next_call_joins_the_first(self, town: Town) -> None:
        town.faults.add(*answers("train-1", Fault(Unavailable("no answer for 30 s"), after=True, seconds=30)))
        town.create(*town.gang("train", 4))
        await town.pass_time(60)
        assert set(town.refused) == {("train-1", "context deadline exceeded")}
        assert sorted(town.bound()) == ALL
        assert town.times("create binding train-1") == 1


class TestTheBarriersDeadline:
    @pytest.fixture
    async def town(self) -> AsyncIterator[Town]:
        async with Town(scheduler_names=["escher", "escher-ledger", "idle"]) as made:
            yield made
            await made.come_to_rest()

    async def test_passes_and_those_who_wait_are_told_once_and_hold_nothing(self, town: Town) -> None:
        """The fourth member is there, and no scheduler cares for it: the others are turned back again and again."""
        *members, left_alone = town.gang("train", 4)
        left_alone["spec"]["schedulerName"] = "idle"
        town.create(left_alone, *members)
        await town.pass_time(300)
        assert town.bound() == {}
        assert town.refused.count(("train-0", TOO_LATE)) > 3
        # Once it has been so several times in a row, they wait for longer and longer.
        told = town.told()
        assert told.pop("GangTimedOut") == ["train-0", "train-1", "train-2"]
        assert told.keys() == {"GangWaiting"}
        assert len(set(told["GangWaiting"])) == len(told["GangWaiting"])
        assert town.times("create events") == len(town.notices())
        town.delete("train-3")
        await town.pass_time(60)
        assert list(town.scheduler.cache.ledger.rows.holdings()) == []
        town.create(*town.gang("train", 1, quorum=4, first=4))
        await town.until_bound(4, within=15)


class TestAForeignScheduler:
    async def test_takes_the_place_of_a_member_at_the_barrier_which_goes_elsewhere(self, town: Town) -> None:
        town.add_node("n4")
        job = await three_at_the_barrier(town)
        taken = node_of(town, "train-0")
        self.place(town, taken)
        the_fourth_comes(job)
        await town.until_bound(4, within=10)
        assert taken not in town.bound().values()

    async def test_takes_the_place_of_a_member_and_there_is_no_other(self, town: Town) -> None:
        job = await three_at_the_barrier(town)
        self.place(town, node_of(town, "train-0"))
        the_fourth_comes(job)
        await town.pass_time(100)
        assert town.bound() == {}
        assert town.at_barrier == 0
        assert "GangWaiting" in town.told()
        town.delete("foreign")
        await town.until_bound(4, within=20)

    async def test_binds_a_member_and_it_counts(self, town: Town) -> None:
        job = await three_at_the_barrier(town)
        town.bind("train-0", node_of(town, "train-0"))
        await town.pass_time(0.1)
        assert town.at_barrier == 2
        the_fourth_comes(job)
        await town.until_bound(4, within=1)
        assert town.told() == {}

    async def test_binds_a_member_and_the_others_never_come(self, town: Town) -> None:
        """We have not bound it, so it is not ours to end."""
        town.create(*town.gang("train", 4)[:3])
        await town.pass_time(1)
        town.bind("train-0", "n0")
        await town.pass_time(40)
        assert town.bound() == {"train-0": "n0"}
        assert town.at_barrier == 0
        assert town.told()["GangInDoubt"] == ["train-0"]
        assert "GangEvicted" not in town.told()

    @staticmethod
    def place(town: Town, on: str) -> None:
        town.create(town.pod("foreign", node=on))


class TestTheWatch:
    @pytest.mark.parametrize("seconds", [2, 20])
    async def test_is_late_by_seconds(self, seconds: float) -> None:
        async with Town(watches_late_by=seconds) as town:
            town.job("train", 4)
            await town.until_bound(4, within=60)
            town.delete("train-0")
            await town.until_bound(4, within=60)
            await town.come_to_rest()
            assert "GangEvicted" not in town.told()

    async def test_repeats_events(self, town: Town) -> None:
        assert town.simulation.service is not None
        town.simulation.service.line.twice = True
        job = await three_at_the_barrier(town)
        town.delete("train-1")
        the_fourth_comes(job)
        await town.until_bound(4, within=10)
        await town.pass_time(60)
        assert town.told() == {}
        assert town.times("create binding") == 4

    async def test_says_nothing_for_a_while_and_lists_anew(self, town: Town) -> None:
        """What happened meanwhile has left no event: a member was deleted, its Job made another, a node is gone."""
        town.add_node("n4")
        job = await three_at_the_barrier(town)
        town.simulation.hold_watches()
        town.delete("train-1")
        town.drop_node(node_of(town, "train-0"))
        await town.pass_time(2)
        town.simulation.forget_changes()
        the_fourth_comes(job)
        await town.pass_time(60)
        assert len(town.bound()) == 4
        assert set(town.bound().values()) <= town.nodes

    async def test_lists_anew_with_binds_waiting(self, town: Town) -> None:
        job = await three_at_the_barrier(town)
        town.simulation.forget_changes()
        await town.pass_time(1)
        assert town.at_barrier == 3
        the_fourth_comes(job)
        await town.until_bound(4, within=1)
        assert town.told() == {}
