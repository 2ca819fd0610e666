"""Why pods and gangs wait is told on them once for each change of reason, however often they are tried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.app.cache.wait_reasons import TOLD_AGAIN_AFTER, WaitReasons
from extender.app.contracts.extender_api import Verdict
from extender.app.cycle.scheduler import Scheduler
from extender.app.observability.flight_recorder import FlightRecorder
from extender.core.cluster import Pod
from extender.core.policies.policy_matching import POLICY
from extender.core.policies.policy_types import AntiAffinity, DataLocality, Parameters, PolicyInForce
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.app.fakes import LoopClock, PodApi
from tests.app.wired import Wired
from tests.builders import gang_pods, node, pod

P = PodUid("p")


class TestWhatIsNews:
    def test_the_same_reasons_are_told_once_for_ever(self) -> None:
        waits = WaitReasons()
        assert [waits.turned_away(P, ["a"], float(now)) for now in range(0, 100_000, 500)].count(True) == 1

    def test_another_reason_is_told_and_a_part_of_what_was_told_is_not(self) -> None:
        waits = WaitReasons()
        tries = ["a", "ab", "b", "a", "ab", "c"]
        assert [waits.turned_away(P, reasons, 1.0 + at) for at, reasons in enumerate(tries)] == [
            True,
            True,
            False,
            False,
            False,
            True,
        ]

    def test_reasons_that_take_turns_are_told_again_only_after_a_while(self) -> None:
        waits = WaitReasons()
        told = [waits.turned_away(P, "ab"[at % 2], 5.0 * at) for at in range(1000)]
        assert 2 * 5000 / TOLD_AGAIN_AFTER <= told.count(True) <= 2 * (5000 / TOLD_AGAIN_AFTER + 1)
        assert told[:2] == [True, True]

    def test_who_passed_and_came_back_is_told_nothing_new(self) -> None:
        waits = WaitReasons()
        waits.turned_away(P, ["a"], 1.0)
        waits.passed(P)
        assert waits.since(P) is None
        assert not waits.turned_away(P, ["a"], 9.0)
        assert waits.since(P) == 9.0

    def test_since_is_the_change_to_reasons_that_were_not_there(self) -> None:
        waits = WaitReasons()
        for now, reasons in enumerate(("ab", "a", "ab", "cb", "c"), 1):
            waits.turned_away(P, reasons, float(now))
        assert waits.since(P) == 4.0
        waits.forget(P)
        assert waits.since(P) is None

    @settings(max_examples=60, deadline=None)
    @given(tries=st.lists(st.tuples(st.sampled_from(["a", "b", "c", "ab", "bc"]), st.integers(1, 400)), max_size=60))
    def test_each_reason_is_told_at_most_once_in_ten_minutes_and_the_first_at_once(
        self, tries: list[tuple[str, int]]
    ) -> None:
        waits, now, told = WaitReasons(), 0.0, list[tuple[float, str]]()
        for reasons, seconds in tries:
            now += seconds
            if waits.turned_away(P, reasons, now):
                told.append((now, reasons))
        assert bool(told) == bool(tries)
        assert len(told) <= 3 * (now / TOLD_AGAIN_AFTER + 1)
        # Whatever it waits for now was told at some time.
        assert {each for reasons, _ in tries for each in reasons} <= {each for _, reasons in told for each in reasons}


class Stage(Wired):
    """Scheduling over an API server in memory, with policies; kube-scheduler's calls are the test's."""

    def __init__(self, api: PodApi) -> None:
        self.clock = LoopClock()
        super().__init__(Scheduler(self.clock), api, FlightRecorder(self.clock))
        self.api = api

    def govern(self, name: str, parameters: Parameters) -> None:
        self.do(self.scheduler.govern("default", name, PolicyInForce(parameters)))

    def see(self, *pods: Pod) -> None:
        for each in pods:
            self.do(self.scheduler.observe(each))

    def ask(self, each: Pod) -> Verdict:
        return self.scheduling.filter(each, list(self.scheduler.cache.nodes))

    async def notes(self, reason: str = "PolicyWaiting") -> list[tuple[str, str]]:
        await asyncio.sleep(1)
        return [(each.pod.name, each.note) for each in self.api.notices if each.reason == reason]


@pytest.fixture
def api() -> PodApi:
    return PodApi()


@pytest.fixture
async def stage(api: PodApi) -> AsyncIterator[Stage]:
    made = lived(api)
    yield made
    await made.effects.close()
    assert made.scheduler.cache.violations() == []


def lived(api: PodApi) -> Stage:
    """A life of the service, which has listed nodes and policies."""
    made = Stage(api)
    for name in ("n1", "n2"):
        made.do(made.scheduler.observe(node(name, labels={"kubernetes.io/hostname": name})))
    made.govern("apart", AntiAffinity())
    made.govern("data", DataLocality(("data1",)))
    return made


def naming(*names: str) -> Mapping[str, str]:
    return {POLICY: ", ".join(names)}


def third() -> Pod:
    return pod("third", annotations=naming("apart"))


def standing() -> list[Pod]:
    return [pod(f"on-{name}", annotations=naming("apart"), node=NodeName(name)) for name in ("n1", "n2")]


@pytest.mark.anyio
class TestEvents:
    async def test_a_governed_pod_is_told_once_which_policy_keeps_it_from_how_many_nodes(self, stage: Stage) -> None:
        stage.see(*standing(), third())
        for _ in range(50):
            stage.ask(third())
            await asyncio.sleep(60)
        told = "policy apart (anti-affinity): a pod that must stay apart from this one is in the same topology domain"
        assert await stage.notes() == [("third", f"{told} (2 of 2 nodes)")]

    async def test_it_is_told_again_when_another_policy_is_in_its_way(self, stage: Stage) -> None:
        stage.see(*standing(), third())
        stage.ask(third())
        both = replace(third(), annotations=naming("apart", "data"))
        stage.see(both)
        for _ in range(3):
            stage.ask(both)
        stage.do(stage.scheduler.set_capacity(NodeName("n1"), ResourceKey("escher.dev/default.data1"), 1))
        stage.ask(both)
        names = [note.partition(":")[0] for _, note in await stage.notes()]
        assert names == ["policy apart (anti-affinity)", "policy data (data-locality)"]

    async def test_an_ungoverned_pod_is_left_to_kube_schedulers_own_events(self, stage: Stage) -> None:
        stage.see(asks := pod("asks", {"escher.dev/default.data1": 1}))
        assert not stage.ask(asks).passed
        assert await stage.notes() == []

    async def test_who_passes_is_told_nothing(self, stage: Stage) -> None:
        stage.see(standing()[0], third())
        assert stage.ask(third()).passed == [NodeName("n2")]
        assert await stage.notes() == []

    async def test_a_new_life_tells_it_once_more_at_most_and_the_same_event_is_there_once(
        self, stage: Stage, api: PodApi
    ) -> None:
        stage.see(*standing(), third())
        stage.ask(third())
        await stage.notes()
        after = lived(api)
        after.see(*standing(), third())
        for _ in range(5):
            after.ask(third())
        notes = await after.notes()
        assert len(notes) == 2
        assert len(set(notes)) == 1  # And so stored once: what an event says is its name.
        await after.effects.close()

    async def test_a_governed_gang_is_told_whose_rule_it_is_once_while_numbers_flutter(self, stage: Stage) -> None:
        stage.do(stage.scheduler.observe(node("n3", labels={"kubernetes.io/hostname": "n3"})))
        members = [replace(each, annotations=naming("apart")) for each in gang_pods("train", 3)]
        others = standing()
        stage.see(others[1], *members)
        for number in range(6):
            for each in members:
                stage.ask(each)
            # One of the two places is taken, and free again: room for 1 of 4, room for 2 of 4.
            if number % 2:
                stage.do(stage.scheduler.forget(others[0]))
            else:
                stage.see(others[0])
        [(_, note)] = await stage.notes("GangWaiting")
        assert "required pod anti-affinity of policy apart excludes the next" in note

    async def test_a_gang_is_told_again_when_what_it_lacks_is_another_thing(self, stage: Stage) -> None:
        full = [pod(f"full-{name}", {"cpu": 8000}, node=NodeName(name)) for name in ("n1", "n2")]
        members = [replace(each, annotations=naming("apart")) for each in gang_pods("train", 2)]
        stage.see(*full, *members)
        for each in members:
            stage.ask(each)
        stage.see(standing()[0])
        for each in full:
            stage.do(stage.scheduler.forget(each))
        for each in members:
            stage.ask(each)
        told = [note for _, note in await stage.notes("GangWaiting")]
        assert len(told) == 2
        assert "cpu" in told[0]
        assert "policy apart" in told[1]

    async def test_of_a_gang_made_anew_people_are_told_anew(self, stage: Stage) -> None:
        for life in ("a", "b"):
            members = [replace(each, uid=PodUid(f"{each.uid}-{life}")) for each in gang_pods("train", 3, {"cpu": 8000})]
            stage.see(*members)
            for each in members:
                stage.ask(each)
            for each in members:
                stage.do(stage.scheduler.forget(each))
        assert [name for name, _ in await stage.notes("GangWaiting")] == ["train-0", "train-0"]
