"""Evictions carried out: a unit as a whole or not at all, as far as can be known; one after the other; at a rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise

import pytest

from extender.app.cache.cache import Rules
from extender.app.cache.staleness import Staleness
from extender.app.contracts.effects import Decided
from extender.app.contracts.extender_api import Victims
from extender.app.cycle.scheduler import Scheduler
from extender.app.effects.eviction import UNFINISHED_SECONDS
from extender.app.observability.flight_recorder import FlightRecorder
from extender.core.budgets import Budget
from extender.core.cluster import Pod
from extender.core.gangs.preemption.preemption import PREEMPTS_EVERY
from extender.core.gangs.preemption.preemption_limits import Bounds
from extender.core.gangs.state.eviction_orders import LetRoomGo
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.kube.errors import Gone, Refused
from extender.kube.names import NodeName, PodUid
from tests.app.fakes import Fault, LoopClock, PodApi, unavailable
from tests.app.wired import Wired
from tests.builders import gang_pods, node, pod
from tests.performing import replaced
from tests.reachable import sizes

pytestmark = pytest.mark.anyio

FULL = {"cpu": 8000}
LOW, TOP = GangKey("default", "low"), GangKey("default", "top")


class Stage(Wired):
    """Eight nodes, full of pods of low priority; a gang of higher priority comes."""

    def __init__(self, per_second: float = 5.0) -> None:
        self.clock, self.api = LoopClock(), PodApi()
        self.destroyed: list[tuple[str, str]] = []
        super().__init__(
            Scheduler(self.clock, Rules(preemption=Bounds())),
            self.api,
            FlightRecorder(self.clock),
            evictions_per_second=per_second,
            destroyed=lambda kind, pod, why: self.destroyed.append((kind.value, pod.name)),
        )
        for number in range(8):
            self.do(self.scheduler.observe(node(f"n{number}")))

    def runs(self, *pods: Pod) -> list[Pod]:
        """They are bound, one a node."""
        bound = [
            replace(each, node=NodeName(f"n{index}"), labels={"app": "low"}, created=float(index), bound_at=100.0)
            for index, each in enumerate(pods)
        ]
        for each in bound:
            self.api.bound[each.uid] = each.node or NodeName("")
            self.do(self.scheduler.observe(each))
        return bound

    def comes(self, size: int = 8, priority: int = 5) -> list[Pod]:
        members = [replace(each, priority=priority) for each in gang_pods("top", size, FULL)]
        for each in members:
            self.do(self.scheduler.observe(each))
        self.scheduling.filter(members[0], list(self.scheduler.cache.nodes))
        return members

    def guard(self, allowed: int) -> None:
        """A budget for all of them, as the API server has it and as we know it."""
        self.api.guards = [Budget("default", "guard", allowed, {"app": "low"})]
        self.do(replaced(self.scheduler, Budget, self.api.guards))

    def evicted(self) -> list[str]:
        return [name for kind, name in self.destroyed if kind.startswith("preempted")]

    def tried(self, what: str = "evict") -> list[str]:
        return [call for _, call in self.api.calls if call.startswith(what)]

    def told(self, reason: str) -> list[str]:
        return [each.note for each in self.api.notices if each.reason == reason]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    await made.effects.close()
    assert made.scheduler.cache.violations() == []


class TestAUnit:
    async def test_is_tried_as_a_whole_before_the_first_of_it_goes(self, stage: Stage) -> None:
        stage.runs(*gang_pods("low", 8, FULL))
        stage.comes()
        await asyncio.sleep(5)
        calls = [call for _, call in stage.api.calls]
        first = calls.index(next(call for call in calls if call.startswith("evict ")))
        assert len([call for call in calls[:first] if call.startswith("try to evict")]) == 8
        assert len(stage.evicted()) == 8

    async def test_is_not_begun_while_a_list_of_pods_is_being_taken_in(self, stage: Stage) -> None:
        """What it would leave for may have a place, as the rest of the list says."""
        low = stage.runs(*gang_pods("low", 8, FULL))
        members = stage.comes()
        stage.scheduler.cache.whole = False
        await asyncio.sleep(30)
        assert stage.evicted() == []
        for index, each in enumerate(members):
            stage.do(stage.scheduler.observe(replace(each, node=NodeName(f"n{index}"))))
        stage.scheduler.cache.whole = True
        await asyncio.sleep(5)
        assert stage.evicted() == []
        assert all(each.uid in stage.scheduler.cache.pods for each in low)

    async def test_is_not_begun_while_pods_cannot_be_followed(self, stage: Stage) -> None:
        """Whoever takes the room that it would leave is not seen."""
        stage.runs(*gang_pods("low", 8, FULL))
        lost = {"pods": 3.0}
        stage.scheduler.cache.staleness = Staleness(lost_for=lambda: lost)
        stage.comes()
        await asyncio.sleep(25)
        assert stage.evicted() == []
        lost["pods"] = 0.0
        await asyncio.sleep(PREEMPTS_EVERY + 5)
        assert len(stage.evicted()) == 8

    async def test_stays_where_the_api_server_says_that_one_of_it_is_not_bound(self, stage: Stage) -> None:
        """A restore of etcd has taken its Binding back, and our watch has not told of it yet."""
        low = stage.runs(*gang_pods("low", 8, FULL))
        del stage.api.bound[low[-1].uid]
        stage.comes()
        await asyncio.sleep(30)
        assert stage.evicted() == []

    async def test_of_one_pod_stays_where_the_api_server_says_that_it_is_not_bound(self, stage: Stage) -> None:
        low = stage.runs(*(pod(f"low-{number}", FULL) for number in range(8)))
        for each in low:
            del stage.api.bound[each.uid]
        stage.comes(size=1)
        await asyncio.sleep(30)
        assert stage.evicted() == []

    async def test_of_several_no_pod_leaves_where_the_api_server_says_that_one_of_them_is_not_bound(
        self, stage: Stage
    ) -> None:
        """All of them are needed: who leaves first would leave in vain."""
        low = stage.runs(*(pod(f"low-{number}", FULL) for number in range(8)))
        del stage.api.bound[low[4].uid]
        stage.comes()
        await asyncio.sleep(30)
        assert stage.evicted() == []

    async def test_is_asked_about_again_before_it_is_gone_on_with(self, stage: Stage) -> None:
        """A restore of etcd may have come in between."""
        low = stage.runs(*gang_pods("low", 8, FULL))
        stage.comes()
        while not stage.evicted():  # noqa: ASYNC110 -- virtual time
            await asyncio.sleep(0.01)
        rest = [each for each in low if each.name not in stage.evicted()]
        stage.api.faults.append(unavailable(of="evict "))
        while stage.api.faults:  # noqa: ASYNC110 -- virtual time
            await asyncio.sleep(0.01)
        tried = len(stage.tried("evict "))
        del stage.api.bound[rest[0].uid]
        await asyncio.sleep(2 * UNFINISHED_SECONDS)
        assert len(stage.tried("evict ")) == tried
        assert any("default/low-" in each and "is not bound" in each for each in stage.told("PreemptionUnfinished"))

    async def test_goes_on_when_all_is_known(self, stage: Stage) -> None:
        stage.runs(*gang_pods("low", 8, FULL))
        stage.comes()
        stage.scheduler.cache.whole = False
        await asyncio.sleep(3)
        stage.scheduler.cache.whole = True
        await asyncio.sleep(5)
        assert len(stage.evicted()) == 8

    async def test_stays_where_one_of_it_may_not_go(self, stage: Stage) -> None:
        stage.api.faults = [unavailable(of="try to evict low-5")]
        stage.runs(*gang_pods("low", 8, FULL))
        stage.comes()
        await asyncio.sleep(60)
        assert stage.tried("evict") == []
        assert stage.tried("nominate") == []
        assert stage.destroyed == []
        assert stage.scheduler.cache.gangs.waiting.preempting.victims.unfinished == {}, "it is whole"

    async def test_of_two_is_tried_as_a_whole_and_one_that_is_gone_meanwhile_hides_nobody(self, stage: Stage) -> None:
        stage.api.faults = [
            Fault(Gone(404, "not found"), of="try to evict low-1"),
            unavailable(of="try to evict low-0"),
        ]
        stage.runs(*gang_pods("low", 2, FULL))
        for number in range(2, 8):
            stage.do(stage.scheduler.forget(node(NodeName(f"n{number}"))))
        stage.comes(size=2)
        await asyncio.sleep(60)
        assert stage.tried("try to evict") == ["try to evict low-1", "try to evict low-0"]
        assert stage.destroyed == []

    async def test_stays_where_the_budget_that_the_api_server_has_now_lets_fewer_go(self, stage: Stage) -> None:
        """Ours is older news: each alone may go, and all eight may not."""
        stage.guard(8)
        stage.api.guards = [Budget("default", "guard", 7, {"app": "low"})]
        stage.runs(*gang_pods("low", 8, FULL))
        stage.comes()
        await asyncio.sleep(60)
        assert stage.destroyed == []
        assert stage.tried("evict") == stage.tried("try to evict") == []

    async def test_stays_where_the_budgets_cannot_be_read(self, stage: Stage) -> None:
        stage.api.faults = [Fault(Refused(403, "forbidden"), of="budgets")]
        stage.runs(*gang_pods("low", 8, FULL))
        stage.comes()
        await asyncio.sleep(60)
        assert stage.destroyed == []

    async def test_of_which_the_third_is_refused_waits_for_that_one_and_then_goes_on(self, stage: Stage) -> None:
        victims = stage.runs(*gang_pods("low", 8, FULL))
        order = [each.name for each in sorted(victims, key=lambda each: -each.created)]
        stage.api.faults = [unavailable(of=f"evict {order[2]}")] * 3
        stage.comes()
        await asyncio.sleep(2.5)
        assert stage.evicted() == order[:2], "nobody else goes meanwhile"
        await asyncio.sleep(30)
        assert stage.evicted() == order

    async def test_of_which_the_third_is_refused_for_good_keeps_the_others_and_says_so(self, stage: Stage) -> None:
        victims = stage.runs(*gang_pods("low", 8, FULL))
        order = [each.name for each in sorted(victims, key=lambda each: -each.created)]
        stage.api.faults = [unavailable(of=f"evict {order[2]}")] * 100
        stage.comes()
        await asyncio.sleep(2 * UNFINISHED_SECONDS)
        assert stage.evicted() == order[:2]
        [note] = set(stage.told("PreemptionUnfinished"))
        assert note.startswith("2 of 8 members of its gang were evicted for gang default/top of higher priority")
        unfinished = stage.scheduler.cache.gangs.waiting.preempting.victims.unfinished[LOW]
        assert (unfinished.left, unfinished.size, unfinished.by) == (2, 8, "gang default/top")
        assert unfinished.why == "connection refused"
        await asyncio.sleep(600)
        assert stage.evicted() == order[:2]

    async def test_of_which_one_was_refused_is_left_alone_when_nobody_wants_it_any_more(self, stage: Stage) -> None:
        victims = stage.runs(*gang_pods("low", 8, FULL))
        order = [each.name for each in sorted(victims, key=lambda each: -each.created)]
        stage.api.faults = [unavailable(of=f"evict {order[2]}")]
        members = stage.comes()
        await asyncio.sleep(0.5)
        for each in members:
            stage.do(stage.scheduler.forget(each))
        await asyncio.sleep(60)
        assert stage.evicted() == order[:2]
        assert (
            stage.scheduler.cache.gangs.waiting.preempting.victims.unfinished[LOW].why
            == "the eviction is no longer needed"
        )

    async def test_of_which_the_api_server_has_one_no_more_goes_on(self, stage: Stage) -> None:
        """Its deletion is news that is still on its way to us."""
        victims = stage.runs(*gang_pods("low", 8, FULL))
        order = [each.name for each in sorted(victims, key=lambda each: -each.created)]
        stage.api.faults = [Fault(Gone(404, "not found"), of=f"evict {order[2]}")]
        stage.comes()
        await asyncio.sleep(10)
        assert stage.evicted() == [name for name in order if name != order[2]]
        assert stage.scheduler.cache.gangs.waiting.preempting.victims.unfinished == {}

    async def test_of_which_the_next_is_gone_of_itself_goes_on(self, stage: Stage) -> None:
        victims = stage.runs(*gang_pods("low", 8, FULL))
        in_order = sorted(victims, key=lambda each: -each.created)
        third = in_order[2]
        stage.api.faults = [unavailable(of=f"evict {third.name}")]
        stage.comes()
        await asyncio.sleep(0.5)
        stage.do(stage.scheduler.forget(third))
        await asyncio.sleep(10)
        assert stage.evicted() == [each.name for each in in_order if each is not third]
        assert len(stage.tried("try to evict")) == 8, "it was begun once"

    async def test_goes_on_though_those_it_leaves_for_have_room_before_its_last_has_gone(self, stage: Stage) -> None:
        """Half a gang is of no use to anybody."""
        victims = stage.runs(*gang_pods("low", 8, FULL))
        stage.api.latency = 1.0
        stage.comes(size=2)
        for _ in range(60):
            await asyncio.sleep(0.5)
            for each in victims:
                if each.name in stage.evicted():
                    stage.do(stage.scheduler.forget(each))
            if len(stage.evicted()) == 4:
                assert stage.scheduler.cache.gangs.by_key[TOP].holds_a_plan
        assert len(stage.evicted()) == 8

    async def test_of_one_pod_is_not_tried_before(self, stage: Stage) -> None:
        stage.runs(*(pod(f"low-{number}", FULL) for number in range(8)))
        stage.comes()
        await asyncio.sleep(5)
        assert len(stage.evicted()) == 8
        assert stage.tried("try to evict") == []


class TestAsALastResort:
    """The budget lets some of eight pods go, and the gang needs the room of all of them."""

    async def test_those_that_a_budget_protects_are_deleted_after_the_others(self, stage: Stage) -> None:
        stage.runs(*gang_pods("low", 8, FULL))
        stage.guard(3)
        stage.comes()
        await asyncio.sleep(10)
        assert len(stage.tried("evict ")) == 3
        assert len(stage.tried("delete ")) == 5
        done = [call for _, call in stage.api.calls if call.startswith(("evict ", "delete "))]
        assert [call.startswith("evict") for call in done] == [True] * 3 + [False] * 5
        assert sum("despite disruption budget default/guard" in note for note in stage.told("PreemptedByGang")) == 5

    async def test_no_pod_leaves_where_it_may_not_be_deleted(self, stage: Stage) -> None:
        """Not even those that no budget protects."""
        stage.api.faults = [Fault(Refused(403, "forbidden"), of="try to delete")]
        pods = [pod(f"low-{number}", FULL) for number in range(8)]
        stage.runs(*pods)
        stage.guard(7)
        stage.comes()
        await asyncio.sleep(60)
        assert stage.destroyed == []
        assert stage.tried("evict ") == stage.tried("delete ") == []

    async def test_one_that_others_have_spent_the_budget_of_meanwhile_is_deleted(self, stage: Stage) -> None:
        stage.runs(*gang_pods("low", 8, FULL))
        stage.guard(7)
        stage.api.faults = [unavailable(of="evict low-3")]
        stage.comes()
        await asyncio.sleep(0.5)
        stage.api.guards = [replace(stage.api.guards[0], allowed=0)]
        await asyncio.sleep(30)
        assert len(stage.evicted()) == 8
        assert "delete low-3" in stage.tried("delete ")

    async def test_no_budget_is_broken_where_it_allows_enough_by_the_time_that_they_leave(self, stage: Stage) -> None:
        stage.runs(*gang_pods("low", 8, FULL))
        stage.guard(3)
        stage.api.guards = [replace(stage.api.guards[0], allowed=8)]
        stage.comes()
        await asyncio.sleep(10)
        assert (len(stage.tried("evict ")), stage.tried("delete ")) == (8, [])

    async def test_a_pod_under_two_budgets_is_deleted(self, stage: Stage) -> None:
        """The API server evicts no such pod."""
        stage.runs(*gang_pods("low", 8, FULL))
        stage.api.guards = [Budget("default", name, 8, {"app": "low"}) for name in ("a", "b")]
        stage.do(replaced(stage.scheduler, Budget, stage.api.guards))
        stage.comes()
        await asyncio.sleep(10)
        assert (stage.tried("evict "), len(stage.tried("delete "))) == ([], 8)


class TestUnits:
    async def test_follow_each_other_at_a_rate(self, stage: Stage) -> None:
        stage.runs(*(pod(f"low-{number}", FULL) for number in range(8)))
        stage.comes()
        await asyncio.sleep(0.9)
        assert len(stage.evicted()) == 5
        await asyncio.sleep(5)
        assert len(stage.evicted()) == 8
        times = [when for when, call in stage.api.calls if call.startswith("evict ")]
        assert all(later - earlier >= 0.19 for earlier, later in pairwise(times))

    async def test_are_not_judged_by_a_list_that_began_while_one_waited_for_its_turn(self, stage: Stage) -> None:
        """Who is ready, and whom a budget is about, may be known only when it is whole."""
        stage.runs(*(pod(f"low-{number}", FULL) for number in range(8)))
        stage.comes()
        await asyncio.sleep(0.9)
        assert len(stage.evicted()) == 5
        stage.scheduler.cache.whole = False
        before = len(stage.tried("budgets"))
        await asyncio.sleep(5)
        assert len(stage.tried("budgets")) == before
        stage.guard(0)
        stage.scheduler.cache.whole = True
        await asyncio.sleep(5)
        assert len(stage.tried("budgets")) == before + 1
        assert len(stage.evicted()) == 5

    async def test_after_one_that_could_not_go_stay(self, stage: Stage) -> None:
        stage.api.faults = [unavailable(of="evict low-")]
        stage.runs(*(pod(f"low-{number}", FULL) for number in range(8)))
        stage.comes()
        await asyncio.sleep(5)
        assert stage.destroyed == []

    async def test_are_not_begun_when_nobody_wants_them_any_more(self, stage: Stage) -> None:
        stage.runs(*(pod(f"low-{number}", FULL) for number in range(8)))
        members = stage.comes()
        await asyncio.sleep(0.5)
        for each in members:
            stage.do(stage.scheduler.forget(each))
        gone = len(stage.evicted())
        assert 0 < gone < 8
        await asyncio.sleep(10)
        assert len(stage.evicted()) == gone

    @pytest.mark.parametrize("what", ["gone", "unreadable"])
    async def test_are_not_begun_where_the_members_are_not_seen_to_be_there(self, stage: Stage, what: str) -> None:
        """The watch that would tell of their end may be silent."""
        stage.runs(*(pod(f"low-{number}", FULL) for number in range(8)))
        if what == "gone":
            stage.api.gone = {each.uid for each in gang_pods("top", 8, FULL)}
        else:
            stage.api.faults = [unavailable(of="ask about ") for _ in range(8)]
        stage.comes()
        await asyncio.sleep(0.5)
        assert (stage.evicted(), stage.tried("evict ")) == ([], [])
        stage.api.gone = set()
        await asyncio.sleep(120)
        stage.scheduling.filter(next(iter(stage.scheduler.cache.pods.values())), list(stage.scheduler.cache.nodes))
        await asyncio.sleep(30)
        assert len(stage.evicted()) == 8


class TestThoseWhoAreWaitedFor:
    async def test_are_nominated_when_the_first_goes_and_again_when_kube_scheduler_drops_it(self, stage: Stage) -> None:
        stage.runs(*gang_pods("low", 8, FULL))
        members = stage.comes()
        await asyncio.sleep(1)
        assert sorted(stage.tried("nominate")) == [f"nominate top-{number} n{number}" for number in range(8)]
        told = replace(members[0], nominated=NodeName("n0"))
        for _ in range(3):
            stage.do(stage.scheduler.observe(told))
            stage.do(stage.scheduler.observe(members[0]))
        await asyncio.sleep(3)
        assert len(stage.api.times("nominate top-0 n0")) == 1, "not at once"
        for _ in range(100):
            await asyncio.sleep(5)
            stage.do(stage.scheduler.observe(told))
            stage.do(stage.scheduler.observe(members[0]))
        times = stage.api.times("nominate top-0 n0")
        waits = [later - earlier for earlier, later in pairwise(times)]
        late = [wait - least for wait, least in zip(waits, (5, 20, 60), strict=True)]
        assert all(0 <= each <= 6 for each in late), "nor for ever"
        # They are told to let the room go, and later they are waited for again.
        stage.do(Decided(None, [LetRoomGo(TOP, (members[0],))]))
        stage.do(stage.scheduler.observe(told))
        stage.do(stage.scheduler.observe(members[0]))
        await asyncio.sleep(10)
        assert len(stage.api.times("nominate top-0 n0")) == 5

    async def test_are_not_nominated_again_who_are_so_meanwhile(self, stage: Stage) -> None:
        stage.runs(*gang_pods("low", 8, FULL))
        members = stage.comes()
        await asyncio.sleep(1)
        told = replace(members[0], nominated=NodeName("n0"))
        for each in (told, members[0], told):
            stage.do(stage.scheduler.observe(each))
        await asyncio.sleep(60)
        assert len(stage.api.times("nominate top-0 n0")) == 1

    @pytest.mark.parametrize("drops", [1, 2, 5])
    async def test_of_one_that_has_gone_no_nomination_is_counted_nor_awaited(self, stage: Stage, drops: int) -> None:
        stage.runs(*gang_pods("low", 8, FULL))
        members = stage.comes()
        await asyncio.sleep(1)
        counted = []
        for _ in range(drops):
            for each in members:
                stage.do(stage.scheduler.observe(replace(each, nominated=NodeName("n0"))))
                stage.do(stage.scheduler.observe(each))
            counted.append(nominations(stage))
            await asyncio.sleep(70)
        assert counted[0] > 0
        for each in members:
            stage.do(stage.scheduler.forget(each))
        await asyncio.sleep(70)
        assert nominations(stage) == 0

    async def test_every_pod_that_is_evicted_is_told_why(self, stage: Stage) -> None:
        stage.runs(*gang_pods("low", 8, FULL))
        stage.comes()
        await asyncio.sleep(5)
        assert {kind for kind, _ in stage.destroyed} == {"preempted"}
        assert set(stage.told("PreemptedByGang")) == {"evicted for gang default/top of higher priority"}
        assert len(stage.told("PreemptedByGang")) == 8
        assert set(stage.told("GangPreempts")) == {"gang top: 8 pods of lower priority are evicted for it"}


class TestTheRestOfAGang:
    """An ordinary pod has preempted a part of it."""

    def preempts(self, stage: Stage) -> tuple[list[Pod], Pod]:
        victims = stage.runs(*gang_pods("low", 4, FULL))
        urgent = pod("urgent", FULL, priority=9)
        stage.do(stage.scheduler.observe(urgent))
        offered = {NodeName("n0"): Victims([victims[0].uid])}
        assert stage.scheduling.preempt(urgent, offered) == offered
        return victims, urgent

    def is_preempted(self, stage: Stage, victim: Pod) -> None:
        stage.do(stage.scheduler.observe(replace(victim, preempted=True, deleting=True)))
        stage.do(stage.scheduler.forget(victim))

    async def test_follows_when_kube_scheduler_has_evicted_its_part(self, stage: Stage) -> None:
        victims, _ = self.preempts(stage)
        await asyncio.sleep(5)
        assert stage.destroyed == []
        self.is_preempted(stage, victims[0])
        await asyncio.sleep(5)
        assert sorted(stage.evicted()) == ["low-0", "low-1", "low-2", "low-3"]
        assert stage.tried("evict low-0") == [], "that one was kube-scheduler's"
        why = "evicted with its gang default/low, for pod default/urgent of higher priority"
        assert {kind for kind, _ in stage.destroyed} == {"preempted_by_pod"}
        assert stage.told("GangPreempted") == [why] * 3
        assert stage.told("PreemptedByGang") == []
        assert all(stage.scheduler.cache.pods[each.uid].deleting for each in victims[1:]), "they count no more"

    async def test_stays_when_the_pod_is_gone_that_it_was_for(self, stage: Stage) -> None:
        victims, urgent = self.preempts(stage)
        stage.do(stage.scheduler.forget(urgent))
        self.is_preempted(stage, victims[0])
        await asyncio.sleep(60)
        assert stage.evicted() == ["low-0"]
        assert stage.scheduler.cache.gangs.waiting.preempting.victims.unfinished[LOW].left == 1
        [note] = set(stage.told("PreemptionUnfinished"))
        assert note.endswith("this one could not be evicted: the eviction is no longer needed")

    async def test_stays_and_nothing_is_told_where_its_gang_is_whole_again_when_the_pod_is_gone(
        self, stage: Stage
    ) -> None:
        others, low = [gang_pods(name, 4, FULL) for name in ("other", "low")]
        victims = stage.runs(*others, *low)
        first, second = victims[0], victims[4]
        urgent = [pod(f"urgent-{number}", FULL, priority=9) for number in range(2)]
        for preemptor, victim in zip(urgent, (first, second), strict=True):
            stage.do(stage.scheduler.observe(preemptor))
            assert victim.node is not None
            assert stage.scheduling.preempt(preemptor, {victim.node: Victims([victim.uid])})
            self.is_preempted(stage, victim)
        # The rest of the first gang is before it, at that rate. Meanwhile it gets a member anew.
        stage.do(stage.scheduler.observe(replace(second, uid=PodUid("uid-low-again"), name="low-again")))
        stage.do(stage.scheduler.forget(urgent[1]))
        await asyncio.sleep(60)
        assert sorted(stage.evicted()) == ["low-0", "other-0", "other-1", "other-2", "other-3"]
        assert stage.scheduler.cache.gangs.by_key[LOW].phase is Phase.BOUND
        assert stage.scheduler.cache.gangs.waiting.preempting.victims.unfinished == {}
        assert stage.told("PreemptionUnfinished") == []

    async def test_that_is_refused_is_tried_again_and_then_stays(self, stage: Stage) -> None:
        victims, _ = self.preempts(stage)
        stage.api.faults = [unavailable(of="evict low-3")] * 100
        self.is_preempted(stage, victims[0])
        await asyncio.sleep(2 * UNFINISHED_SECONDS)
        assert stage.evicted() == ["low-0"]
        waits = [later - earlier for earlier, later in pairwise(stage.api.times("evict low-3"))]
        assert [round(each) for each in waits] == [1, 2, 4, 8, 16, 20, 20, 20, 20], "as long as there is time"
        [note] = set(stage.told("PreemptionUnfinished"))
        assert note == (
            "1 of 4 members of its gang were evicted with its gang default/low, for pod default/urgent of higher "
            "priority; this one could not be evicted: connection refused"
        )


def nominations(stage: Stage) -> int:
    found = sizes(stage.effects)
    return found["Evicting._nominated"] + found["Evicting._to_nominate"]
