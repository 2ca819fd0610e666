"""The verbs, done: barriers wait, Bindings are written together, failures are tried again or told to the
`Scheduler`."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from extender.app.cache.assumed_pods import PLACED_WITHIN
from extender.app.cache.waiting_binds import OVERFULL
from extender.app.contracts.extender_api import Victims
from extender.app.contracts.ports import EventType, PodRef
from extender.app.cycle.scheduler import Scheduler
from extender.app.effects.binding_cycle import CAME_TWICE
from extender.app.observability.flight_recorder import FlightRecorder
from extender.core.attempt import attempts_for, read_attempt
from extender.core.cluster import Pod
from extender.core.common.bounded import Bounded
from extender.core.feedback import SwitchesChanged
from extender.core.gang_ask import MalformedAsk
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.gangs.queue.queue import DEFAULT_PATIENCE
from extender.core.gangs.state.gang import ROOM_TAKEN
from extender.core.gangs.state.state_machine import Phase
from extender.core.names import GangKey
from extender.core.safety_switches import Switches
from extender.filters.ephemeral_fit import ABSENT
from extender.kube.errors import Gone, Refused, Unavailable
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.app.fakes import Fault, LoopClock, PodApi, unavailable
from tests.app.wired import Wired
from tests.builders import JOB, gang_pods, job_pods, node, pod, units
from tests.performing import replaced

pytestmark = pytest.mark.anyio

FULL = {"cpu": 8000}
DATA = ResourceKey("escher.dev/default.data")
N1, N2 = NodeName("n1"), NodeName("n2")


class Stage(Wired):
    """Scheduling over a `Scheduler` and an API server in memory; and kube-scheduler, played by the test."""

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.api = PodApi()
        self.flight_recorder = FlightRecorder(self.clock)
        self.advertised: list[str] = []
        self.ended: list[str] = []
        self.placed: list[float] = []
        super().__init__(
            Scheduler(self.clock),
            self.api,
            self.flight_recorder,
            advertise=self.advertised.append,
            ended=lambda pod: self.ended.append(pod.name),
            placed=self.placed.append,
        )
        self.do(self.scheduler.observe(Promise(JOB.uid, 16)))
        for name in ("n1", "n2", "n3", "n4"):
            self.do(self.scheduler.observe(node(name)))

    def see(self, *pods: Pod) -> None:
        for each in pods:
            self.do(self.scheduler.observe(each))

    def filter(self, each: Pod) -> NodeName:
        """The one node that the pod may go to."""
        [chosen] = self.scheduling.filter(each, list(self.scheduler.cache.nodes)).passed
        return chosen

    def bind(self, each: Pod, on: str) -> asyncio.Task[str]:
        ref = PodRef(each.namespace, each.name, each.uid)
        return asyncio.ensure_future(self.scheduling.bind(ref, NodeName(on)))

    def go(self, *pods: Pod) -> list[asyncio.Task[str]]:
        """Filter and bind, as kube-scheduler does for each."""
        self.see(*pods)
        return [self.bind(each, self.filter(each)) for each in pods]

    def as_bound(self, each: Pod) -> Pod:
        """The pod as the API server has it once its Binding is written."""
        return replace(each, node=self.api.bound[each.uid], attempt=read_attempt(self.api.said[each.uid], each.uid))

    def phase(self, gang: str = "train") -> Phase:
        return self.scheduler.cache.gangs.by_key[GangKey("default", gang)].phase

    def kinds(self) -> dict[str, str]:
        """What is held, by holder."""
        return {held.holder: held.kind.name for held in self.scheduler.cache.ledger.rows.holdings()}

    def told(self, reason: str) -> list[tuple[str, str]]:
        """(pod, note) of the events with that reason."""
        return [(each.pod.name, each.note) for each in self.api.notices if each.reason == reason]


def malformed(reason: str = "wrong", remedy: str = "mend it") -> MalformedAsk:
    return MalformedAsk("escher.dev/gang-min-member", "many", reason, remedy)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    await made.effects.close()
    assert made.scheduler.cache.violations() == []
    assert len(made.gates) == 0


async def test_what_a_slice_of_work_had_no_room_for_is_done_though_nothing_happens(stage: Stage) -> None:
    """And others have their turn on the event loop in between."""
    stage.scheduler.cache.gangs.waiting.queue.fits.work.limit = 1
    fillers = [pod(f"filler-n{number}", FULL, node=NodeName(f"n{number}")) for number in range(1, 5)]
    stage.see(*fillers)
    gangs = [gang_pods(f"g{number}", 2, {"cpu": 8000 - number}) for number in range(2)]
    for members in gangs:
        stage.see(*members)
        assert not stage.scheduling.filter(members[0], list(stage.scheduler.cache.nodes)).passed
    await asyncio.sleep(0.1)
    stage.do(replaced(stage.scheduler, Pod, [member for members in gangs for member in members]))
    assert stage.phase("g1") is Phase.WAITING
    assert stage.scheduler.more_to_do
    passed = asyncio.get_running_loop().time()
    await asyncio.sleep(0.1)
    assert [stage.phase("g0"), stage.phase("g1")] == [Phase.PLANNED, Phase.PLANNED]
    assert not stage.scheduler.more_to_do
    assert stage.scheduler.next_deadline() != stage.clock.steady()
    assert asyncio.get_running_loop().time() == pytest.approx(passed + 0.1)


class TestABarrier:
    async def test_no_binding_is_written_before_the_last_member_is_there_and_then_all_at_once(
        self, stage: Stage
    ) -> None:
        members = job_pods("train", 4, FULL)
        first = stage.go(*members[:3])
        await asyncio.sleep(3)
        assert stage.api.calls == []
        assert len(stage.gates) == 3
        last = stage.go(members[3])
        assert await asyncio.gather(*first, *last) == [""] * 4
        assert {when for when, _ in stage.api.calls} == {3.0}
        assert len(set(stage.api.bound.values())) == 4
        assert stage.phase() is Phase.BOUND
        assert stage.placed == [pytest.approx(3 + stage.api.latency)]

    async def test_members_that_an_ordinary_pod_may_be_in_the_way_of_are_let_through_though_no_call_follows(
        self, stage: Stage
    ) -> None:
        walker = pod("walker", FULL)
        stage.see(walker)
        assert len(stage.scheduling.filter(walker, list(stage.scheduler.cache.nodes)).passed) == 4
        stage.see(*(replace(member, at_our_gate=True) for member in job_pods("train", 4, FULL)))
        await asyncio.sleep(PLACED_WITHIN / 2)
        assert stage.api.calls == []
        await asyncio.sleep(PLACED_WITHIN)
        assert [what for _, what in stage.api.calls] == [f"open train-{number}" for number in range(4)]

    async def test_its_deadline_turns_back_those_who_wait_tells_them_and_frees_the_room(self, stage: Stage) -> None:
        members = job_pods("train", 3, FULL)
        stage.see(*members)
        answers = await asyncio.gather(*stage.go(*members[:2]))
        assert asyncio.get_running_loop().time() == pytest.approx(9, abs=1)
        assert set(answers) == {"the gang's quorum was not complete before its deadline"}
        assert stage.kinds() == {}
        assert stage.api.bound == {}
        await asyncio.sleep(1)
        assert stage.told("GangTimedOut") == [
            (name, "gang train: 2 of 3 members were ready to be bound in time") for name in ("train-0", "train-1")
        ]

    async def test_a_member_deleted_at_it_is_answered_and_the_others_wait_for_a_successor(self, stage: Stage) -> None:
        *members, successor = job_pods("train", 4, FULL, quorum=3)
        one, two = stage.go(*members[:2])
        await asyncio.sleep(1)
        stage.do(stage.scheduler.forget(members[0]))
        assert await one == "the pod has left the gang"
        rest = stage.go(members[2], successor)
        assert await asyncio.gather(two, *rest) == ["", "", ""]
        assert len(stage.api.bound) == 3

    async def test_room_taken_by_others_meanwhile_turns_back_whom_it_concerns(self, stage: Stage) -> None:
        members = job_pods("train", 2, FULL)
        [waiting] = stage.go(members[0])
        await asyncio.sleep(1)
        stage.see(pod("foreign", FULL, node=stage.filter(members[0])))
        last = stage.go(members[1])
        assert await waiting == ROOM_TAKEN
        again = stage.bind(members[0], stage.filter(members[0]))
        assert await asyncio.gather(again, *last) == ["", ""]

    async def test_whoever_waits_is_turned_back_when_a_member_fits_nowhere(self, stage: Stage) -> None:
        members = job_pods("train", 3, FULL)
        stage.see(*members)
        first = stage.filter(members[0])
        waiting = stage.bind(members[0], first)
        await asyncio.sleep(1)
        assert not stage.scheduling.filter(members[1], [first]).passed
        assert await waiting == "a member fits on no node that kube-scheduler offers"
        assert stage.kinds() == {}

    async def test_a_member_that_is_seen_bound_meanwhile_is_answered_and_the_others_wait(self, stage: Stage) -> None:
        members = job_pods("train", 3, FULL)
        one, two = stage.go(*members[:2])
        await asyncio.sleep(1)
        node_of_one = stage.filter(members[0])
        stage.api.bound[members[0].uid] = node_of_one
        stage.see(replace(members[0], node=node_of_one))
        assert await one == ""
        assert not two.done()
        assert len(stage.gates) == 1

    async def test_a_call_that_is_repeated_is_answered_with_the_first(self, stage: Stage) -> None:
        members = job_pods("train", 2, FULL)
        stage.see(*members)
        chosen = stage.filter(members[0])
        both = [stage.bind(members[0], chosen), stage.bind(members[0], chosen)]
        await asyncio.sleep(1)
        assert len(stage.gates) == 1
        assert await asyncio.gather(*both, *stage.go(members[1])) == [""] * 3
        assert [call for _, call in stage.api.calls if call.endswith("train-0")] == ["bind train-0", "where train-0"]

    async def test_its_deadline_is_kept_though_a_later_one_was_there_before(self, stage: Stage) -> None:
        asking = pod("asking", {"cpu": 100, DATA: 1})
        stage.do(stage.scheduler.set_capacity(N1, DATA, 1))
        stage.see(asking)
        assert stage.filter(asking) == N1
        [waiting] = stage.go(job_pods("train", 2, FULL)[0])
        assert "deadline" in await waiting
        assert asyncio.get_running_loop().time() == pytest.approx(4)
        assert stage.kinds() == {asking.uid: "ASSUMPTION"}
        await asyncio.sleep(30)
        assert stage.kinds() == {}

    async def test_a_gang_that_is_woken_and_does_not_come_gives_its_room_back_in_time(self, stage: Stage) -> None:
        """The plan was made when a node came, and no call of kube-scheduler's follows."""
        members = job_pods("train", 5, FULL)
        stage.see(*members)
        assert not stage.scheduling.filter(members[0], list(stage.scheduler.cache.nodes)).passed
        stage.do(stage.scheduler.observe(node("n5")))
        assert list(stage.kinds().values()) == ["RESERVATION"] * 5
        await asyncio.sleep(5)
        assert stage.kinds() == {}

    async def test_a_bind_that_the_gang_has_no_place_for_is_refused(self, stage: Stage) -> None:
        members = job_pods("train", 2, FULL)
        stage.see(*members)
        answer = await stage.bind(members[0], "n1")
        assert "the gang's reservation has ended" in answer
        assert stage.api.calls == []

    async def test_a_bind_that_comes_again_after_it_was_refused_binds_nobody_until_filter_is_called(
        self, stage: Stage
    ) -> None:
        members = job_pods("train", 2, FULL)
        [refused] = stage.go(members[0])
        assert "deadline" in await refused
        late, other = stage.bind(members[0], "n1"), stage.bind(members[1], stage.filter(members[1]))
        assert await late == CAME_TWICE
        assert "deadline" in await other
        assert stage.api.bound == {}
        assert await asyncio.gather(*stage.go(*members)) == ["", ""]

    async def test_when_the_service_stops_those_who_wait_are_told(self, stage: Stage) -> None:
        [waiting] = stage.go(job_pods("train", 2)[0])
        await asyncio.sleep(1)
        late = stage.bind(pod("late"), "n1")
        await stage.effects.close()
        assert set(await asyncio.gather(waiting, late)) == {"Escher is shutting down: the pod is tried again"}
        assert stage.api.calls == []

    async def test_when_the_service_stops_what_is_being_written_is_finished(self, stage: Stage) -> None:
        members = job_pods("train", 2, FULL)
        writing = stage.go(*members)
        await asyncio.sleep(stage.api.latency / 2)
        await stage.effects.close()
        assert await asyncio.gather(*writing) == ["", ""]
        assert stage.phase() is Phase.BOUND

    async def test_what_happens_after_the_service_has_stopped_harms_nothing(self, stage: Stage) -> None:
        members = job_pods("train", 3, FULL)
        waiting = stage.go(*members[:2])
        await asyncio.sleep(1)
        await stage.effects.close()
        await asyncio.gather(*waiting)
        stage.do(stage.scheduler.forget(members[0]))
        await asyncio.sleep(60)
        assert stage.api.calls == []

    async def test_a_wait_that_the_event_loop_cancelled_is_not_answered(self, stage: Stage) -> None:
        """An event loop that ends cancels whatever is left, in any order."""
        before = asyncio.all_tasks()
        members = job_pods("train", 3, FULL)
        calls = stage.go(*members[:2])
        await asyncio.sleep(1)
        for task in asyncio.all_tasks() - before - set(calls):
            task.cancel()
        await asyncio.wait(calls)
        assert all(call.cancelled() for call in calls)
        stage.do(stage.scheduler.forget(members[0]))
        await asyncio.sleep(60)
        assert stage.kinds() == {}


class TestABinding:
    async def test_a_second_call_for_the_same_node_waits_for_the_first_and_asks_the_api_server(
        self, stage: Stage
    ) -> None:
        each = pod()
        stage.see(each)
        assert set(await asyncio.gather(stage.bind(each, "n1"), stage.bind(each, "n1"))) == {""}
        assert [call for _, call in stage.api.calls] == ["bind pod", "where pod"]

    async def test_a_second_call_binds_the_pod_where_a_restored_backup_has_undone_what_the_first_wrote(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        each, answer, bind = pod(), asyncio.Event(), stage.api.bind

        async def late(pod: PodRef, node: NodeName, annotations: Mapping[str, str]) -> None:
            await bind(pod, node, annotations)
            await answer.wait()

        stage.see(each)
        monkeypatch.setattr(stage.api, "bind", late)
        first = stage.bind(each, "n1")
        await asyncio.sleep(1)
        second = stage.bind(each, "n1")
        await asyncio.sleep(1)
        stage.api.bound.clear()
        answer.set()
        assert await first == await second == ""
        assert stage.api.bound == {each.uid: "n1"}

    async def test_a_second_call_proves_nothing_about_a_member_that_ran_and_is_gone(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both are bound, the answers are late, and one is deleted meanwhile: the other is no part of a gang."""
        answers, bind = {"train-0": asyncio.Event(), "train-1": asyncio.Event()}, stage.api.bind

        async def late(pod: PodRef, node: NodeName, annotations: Mapping[str, str]) -> None:
            await bind(pod, node, annotations)
            await answers[pod.name].wait()

        monkeypatch.setattr(stage.api, "bind", late)
        members = gang_pods("train", 2, FULL)
        first = stage.go(*members)
        await asyncio.sleep(1)
        second = stage.bind(members[0], stage.api.bound[members[0].uid])
        await asyncio.sleep(1)
        stage.api.gone.add(members[0].uid)
        ran = replace(members[0], node=stage.api.bound.pop(members[0].uid), finished=True)
        answers["train-0"].set()
        await second
        stage.do(stage.scheduler.observe(ran))
        stage.do(stage.scheduler.forget(ran))
        answers["train-1"].set()
        await asyncio.gather(*first)
        stage.see(stage.as_bound(members[1]))
        await asyncio.sleep(3000)
        assert not [call for _, call in stage.api.calls if "evict" in call]

    async def test_a_second_call_is_refused_with_the_first(self, stage: Stage) -> None:
        each = pod()
        stage.see(each)
        stage.api.gone.add(each.uid)
        first, second = await asyncio.gather(stage.bind(each, "n1"), stage.bind(each, "n1"))
        assert first == second != ""
        assert len(stage.api.times("bind pod")) == 1

    async def test_a_second_call_for_another_node_is_refused_while_the_first_is_under_way(self, stage: Stage) -> None:
        each = pod()
        stage.see(each)
        first, second = stage.bind(each, "n1"), stage.bind(each, "n2")
        assert await second == "an earlier bind of this pod, to another node, is still under way"
        assert await first == ""
        assert await stage.bind(each, "n2") == "the pod is already bound to n1"

    async def test_a_caller_that_hangs_up_does_not_stop_it(self, stage: Stage) -> None:
        """kube-scheduler's client times out; what was begun ends, and its next call finds it done."""
        members = job_pods("train", 2, FULL)
        [hung_up] = stage.go(members[0])
        await asyncio.sleep(1)
        hung_up.cancel()
        [last] = stage.go(members[1])
        assert await last == ""
        assert stage.api.bound.keys() == {member.uid for member in members}
        assert await stage.bind(members[0], stage.api.bound[members[0].uid]) == ""

    async def test_one_that_was_written_though_it_seemed_to_fail_counts(self, stage: Stage) -> None:
        stage.api.faults = [Fault(Unavailable("cut off"), after=True, of="bind")]
        each = pod()
        stage.see(each)
        assert await stage.bind(each, "n1") == ""
        assert [call for _, call in stage.api.calls] == ["bind pod", "bind pod", "where pod"]
        assert stage.kinds() == {each.uid: "BOUND"}

    async def test_whose_it_is_is_asked_again_when_the_api_server_is_away_just_then(self, stage: Stage) -> None:
        stage.api.faults = [
            Fault(Unavailable("cut off"), after=True, of="bind"),
            unavailable(of="where"),
            unavailable(of="where"),
        ]
        each = pod()
        stage.see(each)
        assert await stage.bind(each, "n1") == ""
        assert stage.kinds() == {each.uid: "BOUND"}

    async def test_one_that_somebody_else_wrote_elsewhere_is_refused_and_holds_nothing(self, stage: Stage) -> None:
        each = pod()
        stage.see(each)
        stage.api.bound[each.uid] = NodeName("n4")
        answer = await stage.bind(each, "n1")
        assert answer == "the API server refuses the binding: pod pod is already assigned to node 'n4'"
        assert stage.kinds() == {}

    async def test_is_tried_again_with_growing_pauses_until_the_time_is_up(self, stage: Stage) -> None:
        stage.api.faults = [unavailable(of="bind") for _ in range(100)]
        each = pod()
        stage.see(each)
        answer = await stage.bind(each, "n1")
        assert answer == "the API server cannot be reached: connection refused"
        begun = stage.api.times("bind pod")
        pauses = [later - earlier - stage.api.latency for earlier, later in pairwise(begun)]
        assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8])
        assert asyncio.get_running_loop().time() <= 3.0
        assert stage.kinds() == {"uid-pod": "ASSUMPTION"}
        await asyncio.sleep(30.0)
        assert stage.kinds() == {}

    async def test_waits_as_long_as_the_api_server_asks_for(self, stage: Stage) -> None:
        stage.api.faults = [unavailable(1.5, of="bind")]
        each = pod()
        stage.see(each)
        assert await stage.bind(each, "n1") == ""
        assert stage.api.times("bind pod") == pytest.approx([0, 1.5 + stage.api.latency])

    async def test_does_not_wait_for_longer_than_its_caller_does(self, stage: Stage) -> None:
        stage.api.faults = [unavailable(3.5, of="bind")]
        each = pod()
        stage.see(each)
        assert await stage.bind(each, "n1") == "the API server cannot be reached: connection refused"
        assert asyncio.get_running_loop().time() == stage.api.latency
        assert stage.kinds() == {"uid-pod": "ASSUMPTION"}

    async def test_that_was_refused_leaves_the_pod_free_to_go_elsewhere(self, stage: Stage) -> None:
        stage.api.faults = [Fault(Refused(403, "forbidden"), of="bind")]
        each = pod()
        stage.see(each)
        assert await stage.bind(each, "n1") == "the API server refuses the binding: forbidden"
        assert await stage.bind(each, "n2") == ""
        assert stage.api.bound == {each.uid: "n2"}

    async def test_of_a_pod_that_is_gone_leaves_nothing(self, stage: Stage) -> None:
        each = pod()
        stage.see(each)
        stage.api.gone.add(each.uid)
        assert await stage.bind(each, "n1") == "the API server refuses the binding: pods 'pod' not found"
        assert stage.kinds() == {}
        assert len(stage.api.times("bind pod")) == 1

    async def test_of_a_member_that_fails_keeps_its_place_for_its_next_try(self, stage: Stage) -> None:
        members = job_pods("train", 3, FULL)
        stage.api.faults = [Fault(Refused(422, "no"), of="bind train-1")]
        answers = await asyncio.gather(*stage.go(*members))
        assert [bool(answer) for answer in answers] == [False, True, False]
        assert stage.kinds()[members[1].uid] == "ASSUMPTION"
        assert await stage.bind(members[1], stage.filter(members[1])) == ""
        assert stage.phase() is Phase.BOUND

    async def test_of_a_member_that_cannot_be_written_in_time_keeps_its_place_too(self, stage: Stage) -> None:
        members = job_pods("train", 3, FULL)
        stage.api.faults = [unavailable(of="bind train-1") for _ in range(100)]
        answers = await asyncio.gather(*stage.go(*members))
        assert [bool(answer) for answer in answers] == [False, True, False]
        assert stage.kinds()[members[1].uid] == "ASSUMPTION"

    async def test_of_a_member_that_is_gone_keeps_its_place_for_a_successor(self, stage: Stage) -> None:
        *members, successor = job_pods("train", 4, FULL, quorum=3)
        stage.api.gone.add(members[1].uid)
        answers = await asyncio.gather(*stage.go(*members))
        assert [bool(answer) for answer in answers] == [False, True, False]
        stage.do(stage.scheduler.forget(members[1]))
        assert sorted(stage.kinds().values()) == ["BOUND", "BOUND", "RESERVATION"]
        assert await asyncio.gather(*stage.go(successor)) == [""]

    @pytest.mark.parametrize("gone", [False, True])
    async def test_of_a_member_that_nobody_comes_for_again_frees_its_place_in_time(
        self, stage: Stage, gone: bool
    ) -> None:
        members = job_pods("train", 3, FULL)
        error = Gone(404, "not found") if gone else Refused(422, "no")
        stage.api.faults = [Fault(error, of="bind train-1")]
        await asyncio.gather(*stage.go(*members))
        assert sorted(stage.kinds().values()) == sorted(["BOUND", "BOUND", "RESERVATION" if gone else "ASSUMPTION"])
        await asyncio.sleep(5)
        assert list(stage.kinds().values()) == ["BOUND", "BOUND"]

    async def test_where_none_of_a_gang_can_be_written_nothing_is_left(self, stage: Stage) -> None:
        members = job_pods("train", 2, FULL)
        stage.api.faults = [Fault(Refused(403, "forbidden"), of="bind") for _ in members]
        assert all(await asyncio.gather(*stage.go(*members)))
        assert stage.kinds() == {}

    async def test_to_a_node_that_is_full_waits_for_room_and_is_refused_if_there_is_none(self, stage: Stage) -> None:
        leaving, staying = pod("leaving", FULL, node=N1), pod("staying", FULL, node=N2)
        first, second = pod("first", FULL), pod("second", FULL)
        stage.see(leaving, staying, first, second)
        binds = [stage.bind(first, "n1"), stage.bind(second, "n2")]
        await asyncio.sleep(0.5)
        assert stage.api.calls == []
        stage.do(stage.scheduler.forget(leaving))
        assert await binds[0] == ""
        assert await binds[1] == OVERFULL
        assert asyncio.get_running_loop().time() == pytest.approx(2.0)
        assert stage.api.bound == {first.uid: N1}

    async def test_of_an_ordinary_pod_does_not_take_what_a_gang_has_reserved(self, stage: Stage) -> None:
        members = job_pods("train", 4, FULL)
        late = pod("late", FULL)
        stage.see(*members, late)
        chosen = stage.filter(members[0])
        assert await stage.bind(late, chosen) != ""
        assert stage.api.calls == []


def waiting_for_data(stage: Stage) -> Pod:
    """A pod that was turned away, and is woken: what it waited for is there now."""
    waiting = pod("waiting", {"cpu": 100, DATA: 1})
    stage.see(waiting)
    assert not stage.scheduling.filter(waiting, list(stage.scheduler.cache.nodes)).passed
    stage.do(stage.scheduler.set_capacity(N1, DATA, 1))
    return waiting


class TestWaking:
    async def test_is_tried_until_it_succeeds(self, stage: Stage) -> None:
        stage.api.faults = [unavailable(of="wake"), unavailable(2.0, of="wake")]
        members = job_pods("train", 5, FULL)
        stage.see(*members)
        assert not stage.scheduling.filter(members[0], list(stage.scheduler.cache.nodes)).passed
        stage.do(stage.scheduler.observe(node("n5")))
        await asyncio.sleep(10)
        assert stage.api.times("wake train-0") == pytest.approx([0, 0.06, 2.07])

    async def test_never_pauses_for_long(self, stage: Stage) -> None:
        stage.api.faults = [unavailable(of="wake") for _ in range(9)]
        waiting = waiting_for_data(stage)
        await asyncio.sleep(30)
        pauses = [later - earlier for earlier, later in pairwise(stage.api.times(f"wake {waiting.name}"))]
        assert max(pauses) == pytest.approx(2 + stage.api.latency)
        assert len(pauses) == 9

    async def test_twice_says_something_new_each_time(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        """An annotation that stays the same is no change, and kube-scheduler would hear of nothing."""
        tokens: list[str] = []

        async def noting(ref: PodRef, token: str) -> None:
            tokens.append(token)

        monkeypatch.setattr(stage.api, "wake", noting)
        waiting = waiting_for_data(stage)
        await asyncio.sleep(1)
        stage.do(stage.scheduler.set_capacity(N1, DATA, 0))
        assert not stage.scheduling.filter(waiting, list(stage.scheduler.cache.nodes)).passed
        stage.do(stage.scheduler.set_capacity(N1, DATA, 1))
        await asyncio.sleep(1)
        assert len(tokens) == len(set(tokens)) == 2

    async def test_of_a_member_at_our_gate_opens_that_and_is_tried_until_it_has(self, stage: Stage) -> None:
        stage.api.faults = [unavailable(of="open train-0"), unavailable(2.0, of="open train-0")]
        members = [replace(member, at_our_gate=True) for member in job_pods("train", 2, FULL)]
        stage.see(*members)
        await asyncio.sleep(10)
        assert stage.api.times("open train-0") == pytest.approx([0, 0.06, 2.07])
        assert (len(stage.api.times("open train-1")), stage.api.times("wake train-1")) == (1, [])

    async def test_ends_when_the_pod_is_gone(self, stage: Stage) -> None:
        stage.api.faults = [Fault(Refused(404, "not found"), of="wake")]
        waiting_for_data(stage)
        await asyncio.sleep(10)
        assert len(stage.api.times("wake waiting")) == 1
        assert stage.advertised == ["n1"]

    async def test_that_is_under_way_ends_with_the_service(self, stage: Stage) -> None:
        before = asyncio.all_tasks()
        stage.api.faults = [unavailable(of="wake") for _ in range(100)]
        waiting = job_pods("train", 5, FULL)
        stage.see(*waiting)
        stage.scheduling.filter(waiting[0], list(stage.scheduler.cache.nodes))
        stage.do(stage.scheduler.observe(node("n5")))
        await asyncio.sleep(0.5)
        await stage.effects.close()
        assert asyncio.all_tasks() <= before
        tries = len(stage.api.times("wake train-0"))
        await asyncio.sleep(10)
        assert len(stage.api.times("wake train-0")) == tries


class TestEvents:
    async def test_say_once_why_a_gang_waits(self, stage: Stage) -> None:
        members = job_pods("train", 5, FULL)
        stage.see(*members)
        for _ in range(3):
            for member in members:
                stage.scheduling.filter(member, list(stage.scheduler.cache.nodes))
        await asyncio.sleep(1)
        [(name, note)] = stage.told("GangWaiting")
        assert name == "train-0"
        assert note.startswith("gang train: gang does not fit now")
        assert "4 of 5" in note
        assert stage.api.notices[0].type is EventType.WARNING

    async def test_of_a_gang_whose_members_are_missing_do_not_speak_of_room(self, stage: Stage) -> None:
        [first, *_] = job_pods("train", 3, FULL)
        stage.see(first)
        stage.filter(first)
        await asyncio.sleep(60)
        assert not stage.scheduling.filter(first, list(stage.scheduler.cache.nodes)).passed
        await asyncio.sleep(1)
        assert stage.told("GangWaiting") == [("train-0", "gang train: gang waits for members that do not exist yet")]

    async def test_tell_members_and_victims_of_a_preemption(self, stage: Stage) -> None:
        victims = [pod(f"low-{name}", FULL, node=name) for name in stage.scheduler.cache.nodes]
        stage.see(*victims)
        stage.api.bound |= {each.uid: each.node for each in victims if each.node is not None}
        members = [replace(each, priority=1) for each in job_pods("train", 2, FULL)]
        stage.see(*members)
        stage.scheduling.filter(members[0], list(stage.scheduler.cache.nodes))
        await asyncio.sleep(1)
        evicted = [victim.name for victim in victims if stage.api.times(f"evict {victim.name}")]
        assert len(evicted) == 2
        assert stage.told("GangPreempts") == [
            (member.name, "gang train: 2 pods of lower priority are evicted for it") for member in members
        ]
        assert sorted(stage.told("PreemptedByGang")) == [
            (name, "evicted for gang default/train of higher priority") for name in sorted(evicted)
        ]
        kinds = {each.reason: each.type for each in stage.api.notices}
        assert (kinds["GangPreempts"], kinds["PreemptedByGang"]) == (EventType.NORMAL, EventType.WARNING)
        [entry] = [entry for entry in stage.flight_recorder.tell() if "EvictFor" in entry]
        assert entry.partition(" ")[2].startswith("EvictFor default/train default/low-")

    async def test_tell_members_that_room_is_saved_for_them(self, stage: Stage) -> None:
        stage.see(pod("there", FULL, node=N1))
        members = job_pods("train", 4, FULL)
        stage.see(*members)
        stage.scheduling.filter(members[0], list(stage.scheduler.cache.nodes))
        await asyncio.sleep(DEFAULT_PATIENCE.seconds + 1)
        note = "gang train: it has a backfill reservation for its 4 places"
        assert sorted(stage.told("GangRoomSaved")) == [(member.name, note) for member in members]
        assert {each.type for each in stage.api.notices if each.reason == "GangRoomSaved"} == {EventType.NORMAL}

    async def test_say_once_how_to_mend_an_ask(self, stage: Stage) -> None:
        wrong = pod("wrong", gang=malformed("escher.dev/gang-min-member is no whole number", "write 8"))
        for _ in range(3):
            assert stage.scheduling.filter(wrong, [N1]).unresolvable
        await asyncio.sleep(1)
        assert stage.told("InvalidGang") == [("wrong", "escher.dev/gang-min-member is no whole number; write 8")]

    async def test_that_are_refused_do_no_harm(self, stage: Stage) -> None:
        stage.api.faults = [Fault(Refused(403, "forbidden"), of="tell one")]
        for name in ("one", "two"):
            stage.scheduling.filter(pod(name, gang=malformed()), [N1])
        await asyncio.sleep(60)
        assert stage.told("InvalidGang") == [("two", "wrong; mend it")]
        assert len(stage.api.times("tell one")) == 1

    async def test_are_told_later_where_the_api_server_is_away(self, stage: Stage) -> None:
        stage.api.faults = [unavailable(of="tell"), unavailable(20.0, of="tell")]
        stage.scheduling.filter(pod("one", gang=malformed()), [N1])
        await asyncio.sleep(60)
        assert stage.told("InvalidGang") == [("one", "wrong; mend it")]
        assert stage.api.times("tell one") == pytest.approx([0, 0.06, 20.07])

    async def test_are_given_up_when_the_api_server_is_away_for_minutes(self, stage: Stage) -> None:
        stage.api.faults = [unavailable(of="tell") for _ in range(1000)]
        stage.scheduling.filter(pod("one", gang=malformed()), [N1])
        await asyncio.sleep(600)
        assert 110 < stage.api.times("tell one")[-1] < 120

    async def test_remembered_as_told_are_bounded(self, stage: Stage) -> None:
        stage.effects._telling._told = Bounded(2)
        for name in ("one", "two", "one", "three", "three", "one"):
            stage.scheduling.filter(pod(name, gang=malformed()), [N1])
        await asyncio.sleep(1)
        assert sorted(name for name, _ in stage.told("InvalidGang")) == ["one", "one", "three", "two"]


async def test_whoever_counts_on_a_pod_hears_of_its_end_once(stage: Stage) -> None:
    each = pod()
    stage.see(each, replace(each, finished=True))
    stage.do(stage.scheduler.forget(each))
    assert stage.ended == ["pod"]


async def test_scores_and_victims_are_the_keepers(stage: Stage) -> None:
    asking = pod("asking", {"cpu": 100, DATA: 1})
    stage.do(stage.scheduler.set_capacity(N1, DATA, 2))
    assert stage.scheduling.prioritize(asking, [N1, N2]) == {"n1": 10}
    victims = {N1: Victims([PodUid("uid-some")])}
    assert stage.scheduling.preempt(pod("urgent", priority=5), victims) == victims


async def test_what_was_assumed_for_a_pod_that_never_binds_is_free_again_in_time(stage: Stage) -> None:
    stage.do(stage.scheduler.set_capacity(N1, DATA, 1))
    first, second = (pod(name, {"cpu": 100, DATA: 1}) for name in ("first", "second"))
    stage.see(first, second)
    assert stage.filter(first) == "n1"
    assert not stage.scheduling.filter(second, list(stage.scheduler.cache.nodes)).passed
    await asyncio.sleep(31)
    assert stage.api.times("wake second") == [30.0]
    assert stage.filter(second) == "n1"


class TestAGangBoundInPart:
    """One of its Bindings is written, and another cannot be."""

    async def halved(self, stage: Stage) -> list[Pod]:
        """A gang of three of which two are bound; the third is deleted just when its Binding is to be written."""
        members = job_pods("train", 3, FULL)
        stage.api.gone.add(members[2].uid)
        await asyncio.gather(*stage.go(*members))
        stage.do(stage.scheduler.forget(members[2]))
        stage.see(*map(stage.as_bound, members[:2]))
        return members[:2]

    async def test_tells_so_and_keeps_the_place_for_a_successor(self, stage: Stage) -> None:
        await self.halved(stage)
        await asyncio.sleep(1)
        assert stage.told("GangInPart") == [
            (f"train-{index}", "gang train: 2 of 3 members are bound; the others have 4 s to be bound")
            for index in (0, 1)
        ]
        successor = replace(job_pods("train", 3, FULL)[2], uid=PodUid("uid-successor"))
        assert await asyncio.gather(*stage.go(successor)) == [""]
        await asyncio.sleep(60)
        assert stage.phase() is Phase.BOUND
        assert not stage.told("GangEvicted")

    async def test_is_evicted_when_nobody_follows_in_time_and_then_holds_nothing(self, stage: Stage) -> None:
        bound = await self.halved(stage)
        await asyncio.sleep(5)
        assert [stage.api.times(f"evict {member.name}") for member in bound] == [[pytest.approx(4.0, abs=0.1)]] * 2
        assert stage.told("GangEvicted")[0] == (
            "train-0",
            "gang train: the rest of 3 were not bound in time; this one is evicted",
        )
        assert set(stage.kinds().values()) == {"BOUND"}
        for member in bound:
            stage.do(stage.scheduler.forget(member))
        assert stage.kinds() == {}
        await asyncio.sleep(60)
        assert len(stage.api.times("evict train-0")) == 1

    async def test_is_evicted_again_when_that_was_not_possible(self, stage: Stage) -> None:
        stage.api.faults = [unavailable(of="evict"), Fault(Refused(403, "forbidden"), of="evict")]
        await self.halved(stage)
        await asyncio.sleep(9)
        assert stage.api.times("evict train-0") == pytest.approx([4.0, 8.0], abs=0.1)

    async def test_that_has_run_as_a_whole_is_left_alone_when_it_loses_a_member(self, stage: Stage) -> None:
        members = job_pods("train", 3, FULL)
        await asyncio.gather(*stage.go(*members))
        stage.see(*map(stage.as_bound, members[:2]))
        stage.do(stage.scheduler.forget(members[2]))
        await asyncio.sleep(60)
        assert not [call for _, call in stage.api.calls if call.startswith("evict")]


class TestAGangBoundInPartBeforeARestart:
    """What is known of it is what its pods say of their Bindings."""

    def listed(self, stage: Stage, *, together: int) -> None:
        """Two of three are bound, in one attempt with `together` members, and the third waits."""
        members = job_pods("train", 3, {"cpu": 2000})
        said = attempts_for("earlier", [each.uid for each in members[:together]], needed=together)
        bound = [replace(each, node=NodeName("n1"), attempt=said[each.uid]) for each in members[:2]]
        waiting = replace(members[2], requests=units(cpu=32000))
        stage.api.bound.update((each.uid, N1) for each in members[:2])
        stage.do(replaced(stage.scheduler, Pod, [bound[0], waiting, bound[1]]))

    async def test_is_evicted_when_the_rest_cannot_follow(self, stage: Stage) -> None:
        self.listed(stage, together=3)
        await asyncio.sleep(5)
        assert stage.api.times("evict train-0") == pytest.approx([4.0], abs=0.1)
        assert stage.api.times("evict train-2") == []

    async def test_is_left_alone_where_the_missing_member_was_not_to_be_bound_with_them(self, stage: Stage) -> None:
        self.listed(stage, together=2)
        await asyncio.sleep(60)
        assert {call.split()[0] for _, call in stage.api.calls} == {"tell"}
        assert stage.told("GangInDoubt")

    async def test_is_left_alone_where_the_api_server_says_that_the_missing_member_is_bound(self, stage: Stage) -> None:
        """Our watch has not told of it yet."""
        self.listed(stage, together=3)
        stage.api.bound[PodUid("uid-train-2")] = N2
        await asyncio.sleep(60)
        assert not [call for _, call in stage.api.calls if call.startswith("evict")]
        assert not stage.told("GangEvicted")

    async def test_is_left_alone_where_the_api_server_says_that_it_is_not_bound(self, stage: Stage) -> None:
        """A restore of etcd has taken its Binding back, and our watch has not told of it yet."""
        self.listed(stage, together=3)
        del stage.api.bound[PodUid("uid-train-0")]
        await asyncio.sleep(60)
        assert not [call for _, call in stage.api.calls if call.startswith("evict")]
        assert not stage.told("GangEvicted")

    async def test_is_left_alone_where_the_switches_is_put_on_while_the_api_server_is_asked(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def meanwhile(member: PodRef) -> NodeName | None:
            stage.scheduler.cache.safety_switches.set_everywhere(Switches(evict_partial_gangs=False))
            stage.do(stage.scheduler.on_event(SwitchesChanged()))
            return None

        monkeypatch.setattr(stage.api, "node_of", meanwhile)
        self.listed(stage, together=3)
        await asyncio.sleep(60)
        assert not [call for _, call in stage.api.calls if call.startswith("evict")]
        [gang] = stage.scheduler.cache.gangs.by_key.values()
        assert not gang.roster.leaving

    async def test_that_turns_out_to_be_whole_in_the_same_list_is_not_told_of(self, stage: Stage) -> None:
        pods = [
            replace(member, node=NodeName("n1"), created=100, bound_at=110)
            for member in job_pods("train", 4, {"cpu": 1000}, quorum=3)
        ]
        stage.do(replaced(stage.scheduler, Pod, [pods[0], replace(pods[3], node=None), *pods[1:3]]))
        await asyncio.sleep(60)
        assert not stage.told("GangInPart")
        assert not stage.told("GangEvicted")


async def test_what_led_to_a_moment_can_be_told(stage: Stage) -> None:
    members = job_pods("train", 2, FULL)
    await asyncio.gather(*stage.go(*members))
    too_large = job_pods("large", 9, FULL)
    stage.see(*too_large)
    stage.scheduling.filter(too_large[0], list(stage.scheduler.cache.nodes))
    stage.do(stage.scheduler.forget(members[0]))
    told = [entry.partition(" ")[2] for entry in stage.flight_recorder.tell()]
    assert "filter default/train-0 uid-train-0 4 n1" in told
    assert "bind default/train-1 uid-train-1 n2" in told
    assert "bound default/train-1 uid-train-1 n2" in told
    assert "OpenBarrier default/train uid-train-0 uid-train-1" in told
    assert told.index("OpenBarrier default/train uid-train-0 uid-train-1") < told.index("GangBound default/train")
    assert "GangTurnedAway default/large" in told
    assert told[-1] == "PodEnded default/train-0 uid-train-0"


async def test_why_a_pod_was_not_bound_can_be_told(stage: Stage) -> None:
    stage.see(member := job_pods("train", 2)[0])
    refusal = await stage.bind(member, "n1")
    assert refusal
    told = [entry.partition(" ")[2] for entry in stage.flight_recorder.tell()]
    assert told[-2:] == ["bind default/train-0 uid-train-0 n1", f"not bound default/train-0 uid-train-0 {refusal}"]


async def test_what_kube_scheduler_asked_and_was_answered_can_be_told(stage: Stage) -> None:
    victims = {N1: Victims([PodUid("uid-some")]), N2: Victims([PodUid("uid-other")])}
    urgent = pod("urgent", priority=5)
    stage.scheduling.preempt(urgent, victims)
    told = [entry.partition(" ")[2] for entry in stage.flight_recorder.tell()]
    assert told[-1] == f"preempt default/urgent uid-urgent 2 {(N1, N2)}"


async def test_what_fails_for_long_is_told_to_people_once(stage: Stage) -> None:
    stage.api.faults = [unavailable(of="wake") for _ in range(30)]
    with capture_logs() as logs:
        waiting_for_data(stage)
        await asyncio.sleep(120)
    levels = Counter(each["log_level"] for each in logs if each["event"] == "tried again")
    assert levels == {"info": 29, "warning": 1}


async def test_how_many_nodes_passed_a_filter_can_be_told(stage: Stage) -> None:
    nodes = list(stage.scheduler.cache.nodes)
    stage.scheduling.filter(pod("plain"), nodes)
    stage.scheduling.filter(pod("plain"), [])
    stage.scheduling.filter(pod("asking", {DATA: 1}), nodes)
    told = [entry.partition(" ")[2] for entry in stage.flight_recorder.tell()]
    assert told[0] == "filter default/plain uid-plain 4 4 nodes"
    assert told[1] == "filter default/plain uid-plain 0 no node"
    assert told[2] == f"filter default/asking uid-asking 4 {ABSENT}"


async def test_what_is_tried_again_is_logged_with_what_it_is_and_for_whom(stage: Stage) -> None:
    stage.api.faults = [unavailable(of=call) for call in ("bind", "wake", "tell")]
    with capture_logs() as logs:
        stage.see(each := pod())
        assert await stage.bind(each, "n1") == ""
        waiting_for_data(stage)
        stage.scheduling.filter(pod("wrong", gang=malformed()), [N1])
        await asyncio.sleep(1)
    again = [{**each, "event": "", "log_level": ""} for each in logs if each["event"] == "tried again"]
    about = {"event": "", "log_level": "", "why": "connection refused"}
    assert again == [
        {**about, "what": "bind", "pod": "default/pod", "node": "n1"},
        {**about, "what": "wake", "pod": "default/waiting"},
        {**about, "what": "tell", "pod": "default/wrong"},
    ]


async def test_entries_tell_the_time_of_day_in_utc(stage: Stage) -> None:
    began = datetime.fromtimestamp(stage.clock.now(), UTC)
    stage.flight_recorder.note("gang seen")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        [entry] = stage.flight_recorder.tell()
    time.tzset()
    assert entry == f"{began:%H:%M:%S.%f} gang seen"


async def test_only_so_much_is_remembered(stage: Stage) -> None:
    flight_recorder = FlightRecorder(stage.clock, remembered=2)
    for number in range(5):
        flight_recorder.note("filter", number)
    assert [entry.partition(" ")[2] for entry in flight_recorder.tell()] == ["filter 3", "filter 4"]
