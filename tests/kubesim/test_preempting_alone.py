"""A pod of no gang that lacks what only Escher matches: pods of lower priority are evicted for it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from extender.app.contracts.extender_api import Victims
from extender.app.contracts.simulation_changes import Ended
from extender.app.contracts.simulation_request import PodThere, SimulationRequest
from extender.app.explain.explain import Explain
from extender.app.explain.remedies import Remedies
from extender.app.explain.simulate import simulate_on
from extender.core.cluster import Pod
from extender.core.gangs.state.gang import QUARANTINE
from extender.kube.names import PODS, NodeName, PodUid, ResourceKey
from extender.settings.settings import Settings
from kubesim.kinds import DISRUPTION_BUDGET, EVENT, NODE, PRIORITY_CLASS, Json
from lab.controlplane.nodes import NodeShape
from lab.simulation import Simulation
from loadtests.shared.pods import disruption_budget, pod
from tests.kubesim.test_preempting import HALF_AN_HOUR, Stage
from tests.kubesim.until import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

FIT, LEDGER = "escher", "escher-ledger"
LICENCE = "escher.dev/default.lic"
RESOURCES = "/apis/escher.dev/v1alpha1/namespaces/default/ephemeralresources"
POLICIES = "/apis/escher.dev/v1alpha1/namespaces/default/escherpolicies"
PRIORITIES = {"low": 10, "middle": 100, "high": 1000}


class Alone(Stage):
    """A stage whose pods ask for licences."""

    async def begin(self, licences: Mapping[str, int]) -> None:
        for name, value in PRIORITIES.items():
            await self.sim.create(_class(name, value), PRIORITY_CLASS)
        never = {**_class("high-never", 1000), "preemptionPolicy": "Never"}
        await self.sim.create(never, PRIORITY_CLASS)
        body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": "lic"}}
        await self.sim.ask("POST", RESOURCES, {**body, "spec": {"nodes": dict(licences)}})
        await until(lambda: all(self._has(node, units) for node, units in licences.items()))

    def _has(self, node: str, units: int) -> bool:
        return bool(self.node(node)["status"]["allocatable"].get(LICENCE) == str(units))

    async def lows(self, scheduler: str, count: int = 2, **more: Any) -> None:
        for number in range(count):
            await self.create(licensed(f"low-{number}", scheduler, "low", **more))
        await until(lambda: self.runs("low-") == count)

    def why(self, name: str) -> str:
        found = Explain(self.sim.application.scheduler.cache).pod("default", name)
        return f"{found.summary} {found.remedies}"

    def told(self, reason: str) -> list[str]:
        return [each["message"] for each in self.store.list(EVENT, "default") if each["reason"] == reason]

    def came_before(self, name: str) -> bool:
        """Whether another has what was kept for the pod, as it may: a gang before it in turn, which was made no later,
        or one of higher priority that came since."""
        [waits] = self.pods(name)
        made, priority = waits["metadata"]["creationTimestamp"], waits["spec"]["priority"]

        def may(other: Json) -> bool:
            its, rank = other["metadata"], other["spec"]["priority"]
            is_gang = "escher.dev/gang" in its.get("labels", {})
            is_later = its["creationTimestamp"] >= made
            is_before = is_gang and rank >= priority and its["creationTimestamp"] <= made
            return bool(is_before or (is_later and rank > priority))

        return any(each["spec"].get("nodeName") and may(each) for each in self.pods(""))

    def node(self, name: str) -> Json:
        found = self.store.get(NODE, "", name)
        assert found is not None
        return found


def _class(name: str, value: int) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"alone-{name}"},
        "value": value,
    }


def licensed(name: str, scheduler: str, priority: str, units: int = 1, **more: Any) -> Json:
    asks: dict[str, Any] = {LICENCE: units, **more}
    return pod(name, scheduler, priority_class=f"alone-{priority}", cpu="100m", **asks)


@asynccontextmanager
async def alone(
    nodes: int = 2, licences: int = 2, more: Mapping[str, int] | None = None, **settings: Any
) -> AsyncIterator[Alone]:
    chosen = Settings.model_validate(settings)
    async with Simulation(nodes=nodes, node_shape=NodeShape(), settings=chosen) as sim:
        made = Alone(sim)
        await made.begin({"node-0": licences, **(more or {})})
        try:
            yield made
        finally:
            made.stop()
        assert sim.application.scheduler.cache.violations() == []


@pytest.mark.parametrize("scheduler", [FIT, LEDGER])
async def test_a_pod_runs_in_place_of_one_of_lower_priority_that_holds_the_unit_which_it_lacks(scheduler: str) -> None:
    async with alone() as made:
        await made.lows(scheduler)
        await made.create(licensed("high", scheduler, "high"))
        await until(lambda: made.runs("high") == 1)
        assert made.runs("low-") == 1
        await asyncio.sleep(HALF_AN_HOUR)
        assert (made.runs("low-"), made.runs("high")) == (1, 1)


@pytest.mark.parametrize("scheduler", [FIT, LEDGER])
async def test_a_gang_runs_in_place_of_both(scheduler: str) -> None:
    async with alone() as made:
        await made.lows(scheduler)
        await made.create(*(licensed(f"top-{n}", scheduler, "high", gang="top", quorum=2) for n in range(2)))
        await until(lambda: made.runs("top-") == 2)
        assert made.runs("low-") == 0


# -- who leaves, and what is told ------------------------------------------------------------------------------------


async def test_the_fewest_and_the_lowest_leave_and_all_are_told() -> None:
    """On one node two would have to leave, on another one, and on a third one of a higher priority."""
    async with alone(3, more={"node-1": 2, "node-2": 2}) as made:
        on = {f"node-{n}": {"kubernetes.io/hostname": f"node-{n}"} for n in range(3)}
        await made.create(
            licensed("small-0", LEDGER, "low", selector=on["node-0"]),
            licensed("small-1", LEDGER, "low", selector=on["node-0"]),
            licensed("large", LEDGER, "low", units=2, selector=on["node-1"]),
            licensed("middle", LEDGER, "middle", units=2, selector=on["node-2"]),
        )
        await until(lambda: len(made.pods("")) == 4 == made.runs(""))
        await made.create(licensed("high", LEDGER, "high", units=2))
        await until(lambda: made.runs("high") == 1)
        assert list(made.evicted.values()) == ["large"]
        assert made.told("PodPreempts") == ["pod high: 1 pods of lower priority are evicted for it"]
        assert made.told("PreemptedByPod") == ["evicted for pod default/high of higher priority"]
        assert not any("gang" in note for reason in ("PodWaiting", "GangWaiting") for note in made.told(reason))


@pytest.mark.parametrize("scheduler", [FIT, LEDGER])
async def test_nobody_of_the_same_or_a_higher_priority_leaves_and_explain_says_so(scheduler: str) -> None:
    async with alone() as made:
        for number, priority in enumerate(("high", "middle")):
            await made.create(licensed(f"holder-{number}", scheduler, priority))
        await until(lambda: made.runs("holder-") == 2)
        await made.create(licensed("waits", scheduler, "middle"))
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.evicted == {}
        assert made.runs("holder-") == 2
        assert "Escher evicts no pod for it: no pod of lower priority is bound" in made.why("waits")


async def test_of_those_that_hold_no_unit_nobody_leaves_and_explain_says_so() -> None:
    async with alone() as made:
        await made.create(*(licensed(f"holder-{number}", LEDGER, "middle") for number in range(2)))
        await until(lambda: made.runs("holder-") == 2)
        await made.create(pod("bare", LEDGER, priority_class="alone-low"))
        await until(lambda: made.runs("bare") == 1)
        await made.create(licensed("waits", LEDGER, "middle"))
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.evicted == {}
        assert "no pod of lower priority holds the units that it lacks" in made.why("waits")


async def test_nobody_leaves_for_a_pod_whose_policy_is_never_to_preempt_and_explain_says_so() -> None:
    async with alone() as made:
        await made.lows(LEDGER)
        await made.create(licensed("waits", LEDGER, "high-never"))
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.evicted == {}
        assert "its preemptionPolicy is Never" in made.why("waits")


async def test_nobody_leaves_for_a_pod_that_requires_what_cannot_be_planned_and_explain_says_so() -> None:
    async with alone() as made:
        await made.lows(LEDGER)
        waits = licensed("waits", LEDGER, "high")
        waits["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        await made.create(waits)
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.evicted == {}
        assert "it has requirements that Escher cannot plan (volume claims)" in made.why("waits")


@pytest.mark.parametrize("switch", ["gang_preemption", "backfill_reservation"])
async def test_nobody_leaves_where_that_is_switched_off_and_explain_says_so(switch: str) -> None:
    switched: dict[str, Any] = {switch: False}
    async with alone(**switched) as made:
        await made.lows(LEDGER)
        await made.create(licensed("waits", LEDGER, "high"))
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.evicted == {}
        assert "is switched off (safety switches: GET /v1/safety-switches)" in made.why("waits")


async def _label(made: Alone, **labels: str | None) -> None:
    body = {"metadata": {"labels": {key.replace("_", "-"): value for key, value in labels.items()}}}
    labelled = {f"escher.dev/{key}": value for key, value in body["metadata"]["labels"].items()}
    patch = {"metadata": {"labels": labelled}}
    await made.sim.ask("PATCH", "/api/v1/namespaces/default", patch, content_type="application/merge-patch+json")


async def test_a_namespace_that_switches_it_off_keeps_its_pods_and_when_it_is_on_again_they_leave() -> None:
    async with alone() as made:
        await _label(made, preempt="off")
        await made.lows(LEDGER)
        await made.create(licensed("high", LEDGER, "high"))
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.evicted == {}
        assert "is switched off (safety switches: GET /v1/safety-switches)" in made.why("high")
        await _label(made, preempt=None)
        await until(lambda: made.runs("high") == 1)
        assert made.evictions("low-") == 1


async def test_where_escher_only_observes_nobody_leaves() -> None:
    async with alone(observe_only=True) as made:
        await made.lows(LEDGER)
        await made.create(licensed("high", LEDGER, "high"))
        await asyncio.sleep(60)
        assert made.evicted == {}


async def test_pods_of_other_schedulers_leave_only_where_a_setting_says_so() -> None:
    for allowed in (False, True):
        async with alone(preempt_foreign_pods=allowed) as made:
            await made.lows("default-scheduler")
            await made.create(licensed("high", LEDGER, "high"))
            await asyncio.sleep(HALF_AN_HOUR)
            assert made.evictions("low-") == int(allowed)
            assert (
                allowed or "of another scheduler" in made.why("high") or "pods of other schedulers" in made.why("high")
            )


@pytest.mark.parametrize("scheduler", [FIT, LEDGER])
async def test_a_gang_leaves_as_a_whole(scheduler: str) -> None:
    async with alone() as made:
        await made.create(*(licensed(f"low-{n}", scheduler, "low", gang="low", quorum=2) for n in range(2)))
        await until(lambda: made.runs("low-") == 2)
        await made.create(licensed("high", scheduler, "high"))
        await until(lambda: made.runs("high") == 1)
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.pods("low-") == []


async def test_what_is_short_besides_is_made_room_for_at_once() -> None:
    """kube-scheduler would evict for the cores alone, where the unit is held by another."""
    async with alone(1, 1) as made:
        asks: dict[str, Any] = {LICENCE: 1}
        await made.create(pod("holder", LEDGER, priority_class="alone-low", cpu="1", **asks))
        await made.create(pod("bulk", LEDGER, priority_class="alone-low", cpu="7"))
        await until(lambda: made.runs("") == 2)
        await made.create(pod("high", LEDGER, priority_class="alone-high", cpu="1", **asks))
        await until(lambda: made.runs("high") == 1)
        await asyncio.sleep(60)
        assert (made.runs("holder"), made.runs("bulk")) == (0, 1)


async def test_what_if_shows_whose_end_would_place_the_pod_as_for_a_gang() -> None:
    async with alone(1) as made:
        await made.lows("default-scheduler")
        await made.create(licensed("high", LEDGER, "high"))
        await asyncio.sleep(60)
        scheduler = made.sim.application.scheduler
        [waits] = (each for each in scheduler.cache.pods.values() if each.name == "high")
        told = [ladder.rung(1).said for family in Remedies(scheduler.cache).for_pod(waits) for ladder in family]
        assert "end pod default/low-0 on node-0" in told
        there = PodThere("default", "high")
        assert simulate_on(scheduler, SimulationRequest([Ended("default", "low-0")], there)).fits


async def test_a_gang_of_one_is_no_gang_to_those_who_look_at_gangs() -> None:
    async with alone(1) as made:
        await made.lows("default-scheduler")
        await made.create(licensed("high", LEDGER, "high"))
        await asyncio.sleep(5)
        cache = made.sim.application.scheduler.cache
        assert len(cache.gangs.by_key) == 1
        assert list(made.sim.application.management.gangs.gangs("default")) == []
        assert all("gang" not in note.removeprefix("pod high: ") for note in made.told("PodWaiting"))


async def test_the_quota_of_gang_places_says_nothing_of_a_pod() -> None:
    async with alone(isolation={"namespaces": {"default": {"gang_places": 0}}}) as made:
        await made.lows(LEDGER)
        await made.create(licensed("high", LEDGER, "high"))
        await until(lambda: made.runs("high") == 1)


# -- the room is the pod's -------------------------------------------------------------------------------------------


async def test_what_a_victim_leaves_is_kept_for_the_pod_while_the_victim_takes_its_time() -> None:
    """Another pod of the same priority waits, and one that the victim's controller makes again."""
    async with alone(2, 1) as made:
        made.keep("low-", 1, lambda name: licensed(name, LEDGER, "low", grace=20))
        await until(lambda: made.runs("low-") == 1)
        await made.create(licensed("high", LEDGER, "high"))
        await asyncio.sleep(5)
        await made.create(licensed("late", LEDGER, "middle"))
        await until(lambda: made.runs("high") == 1)
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.evictions("low-") == 1
        assert (made.runs("high"), made.runs("late"), made.runs("low-")) == (1, 0, 0)


async def test_when_the_pod_is_deleted_while_its_victim_leaves_the_unit_is_anybodys() -> None:
    async with alone(2, 1) as made:
        await made.create(licensed("low-0", LEDGER, "low", grace=20))
        await until(lambda: made.runs("low-") == 1)
        await made.create(licensed("high", LEDGER, "high"))
        await until(lambda: made.evicted)
        await made.sim.ask("DELETE", "/api/v1/namespaces/default/pods/high")
        await made.create(licensed("next", LEDGER, "low"))
        await until(lambda: made.runs("next") == 1)
        assert made.evictions("low-") == 1


async def test_pods_that_are_made_again_do_not_evict_each_other_in_a_loop() -> None:
    async with alone(2, 1) as made:
        made.keep("low-", 1, lambda name: licensed(name, LEDGER, "low"))
        await until(lambda: made.runs("low-") == 1)
        made.keep("high-", 1, lambda name: licensed(name, LEDGER, "high"))
        await until(lambda: made.runs("high-") == 1)
        await asyncio.sleep(HALF_AN_HOUR)
        assert len(made.evicted) == 1


async def test_one_after_the_other_each_has_its_unit() -> None:
    async with alone(2, 4) as made:
        await made.lows(LEDGER, 4)
        await made.create(*(licensed(f"high-{n}", LEDGER, "high") for n in range(3)))
        await until(lambda: made.runs("high-") == 3)
        await asyncio.sleep(HALF_AN_HOUR)
        assert (made.runs("low-"), made.evictions("low-")) == (1, 3)


@pytest.mark.parametrize("killed_after", [0.0, 0.3, 2.0, 10.0])
async def test_a_service_that_is_killed_in_the_middle_evicts_no_second_victim(killed_after: float) -> None:
    async with alone() as made:
        for number in range(2):
            await made.create(licensed(f"low-{number}", LEDGER, "low", grace=8))
        await until(lambda: made.runs("low-") == 2)
        await made.create(licensed("high", LEDGER, "high"))
        await asyncio.sleep(killed_after)
        made.sim.kill()
        await made.sim.restart(5)
        await until(lambda: made.runs("high") == 1, within=400)
        await asyncio.sleep(60)
        assert made.evictions("low-") == 1


# -- places of policies ----------------------------------------------------------------------------------------------

POLICY = "escher.dev/policy"


async def _policy(made: Alone, kind: str, name: str = "web") -> None:
    spec = {"type": kind, "parameters": {}}
    body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": name}, "spec": spec}
    await made.sim.ask("POST", POLICIES, body)
    await asyncio.sleep(1)


def apart(name: str, scheduler: str, priority: str, policy: str = "web", **more: Any) -> Json:
    about = {"priority_class": f"alone-{priority}", "annotations": {POLICY: policy}, **more}
    return pod(name, scheduler, cpu="100m", **about)


@pytest.mark.parametrize("scheduler", [FIT, LEDGER])
async def test_a_place_that_a_policy_keeps_it_from_is_made_free_where_the_setting_says_so(scheduler: str) -> None:
    for allowed in (False, True):
        async with alone(2, preempts_for_policies=allowed) as made:
            await _policy(made, "anti-affinity")
            await made.create(apart("low", scheduler, "low"), apart("middle", scheduler, "middle"))
            await until(lambda: made.runs("low") + made.runs("middle") == 2)
            await made.create(apart("high", scheduler, "high"))
            if not allowed:
                await asyncio.sleep(HALF_AN_HOUR)
                assert made.evicted == {}
                assert "the setting preempts_for_policies is off" in made.why("high")
                continue
            await until(lambda: made.runs("high") == 1)
            await asyncio.sleep(HALF_AN_HOUR)
            assert list(made.evicted.values()) == ["low"]
            assert (made.runs("low"), made.runs("middle"), made.runs("high")) == (0, 1, 1)


async def test_for_a_unit_nobody_leaves_who_is_only_in_the_policys_way_where_the_setting_is_off() -> None:
    """Where the unit is, one of lower priority keeps the pod away by the policy, and another one holds the unit."""
    async with alone(2, 1) as made:
        await _policy(made, "anti-affinity")
        here = {"kubernetes.io/hostname": "node-0"}
        near = apart("near", LEDGER, "low")
        near["spec"]["nodeSelector"] = here
        await made.create(near, licensed("low-0", LEDGER, "low"))
        await until(lambda: made.runs("near") + made.runs("low-") == 2)
        await made.create(licensed("high", LEDGER, "high", annotations={POLICY: "web"}))
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.evicted == {}
        assert made.runs("high") == 0


async def test_a_gang_has_the_places_that_a_policy_keeps_it_from_whatever_the_setting_says() -> None:
    async with alone(2) as made:
        await _policy(made, "anti-affinity")
        await made.create(*(apart(f"low-{number}", LEDGER, "low") for number in range(2)))
        await until(lambda: made.runs("low-") == 2)
        await made.create(*(apart(f"top-{n}", LEDGER, "high", gang="top", quorum=2) for n in range(2)))
        await until(lambda: made.runs("top-") == 2)
        assert made.evictions("low-") == 2


async def test_who_has_alternatives_evicts_nobody_and_explain_says_so() -> None:
    async with alone(1, preempts_for_policies=True) as made:
        await _policy(made, "anti-affinity")
        await _policy(made, "anti-affinity", "other")
        await made.create(*(apart(f"low-{name}", LEDGER, "low", name) for name in ("web", "other")))
        await until(lambda: made.runs("low") == 2)
        await made.create(apart("high", LEDGER, "high", "web|other"))
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.evicted == {}
        assert "its policies have alternatives, and these are tried instead" in made.why("high")


# -- whatever comes --------------------------------------------------------------------------------------------------


async def _whatever(seed: int) -> int:
    """Pods and gangs of all priorities come for few licences, and some go. How many were evicted for single pods."""
    chance = random.Random(seed)
    async with alone(3, 2, more={"node-1": 3}) as made:
        priority: dict[str, str] = {}
        for number in range(14):
            rank, scheduler = chance.choice(list(PRIORITIES)), chance.choice([LEDGER, LEDGER, FIT])
            more: dict[str, Any] = {"units": chance.choice([1, 1, 2]), "grace": chance.choice([0, 4])}
            more |= chance.choice([{}, {}, {"gang": f"g{number}", "quorum": 2}])
            for member in range(2 if "gang" in more else 1):
                name = f"{rank}-{number}-{member}"
                priority[name] = rank
                await made.create(licensed(name, scheduler, rank, **more))
            await asyncio.sleep(chance.choice([0.0, 0.5, 3.0, 20.0]))
            if chance.random() < 0.15:
                gone = chance.choice([each["metadata"]["name"] for each in made.pods("")])
                await made.sim.ask("DELETE", f"/api/v1/namespaces/default/pods/{gone}")
        await asyncio.sleep(HALF_AN_HOUR)
        left = {each["metadata"]["name"] for each in made.pods("")}
        single = 0
        for event in made.store.list(EVENT, "default"):
            if event["reason"] != "PreemptedByPod":
                continue
            single += 1
            victim, preemptor = event["involvedObject"]["name"], event["message"].split("/")[1].split(" ")[0]
            assert PRIORITIES[priority[victim]] < PRIORITIES[priority[preemptor]], event["message"]
            # It runs for that, or is gone: deleted, or evicted by one that is higher still.
            runs = made.runs(preemptor) == 1 or preemptor not in left
            assert runs or made.came_before(preemptor), made.why(preemptor)
        for name in left:
            if not made.runs(name):
                assert made.why(name)
        return single


async def test_whatever_comes_nobody_leaves_in_vain_nor_for_one_of_no_higher_priority() -> None:
    assert sum([await _whatever(seed) for seed in range(8)]) > 4


@pytest.mark.longer
@pytest.mark.timeout(600)
async def test_whatever_comes_many_times() -> None:
    assert sum([await _whatever(seed) for seed in range(100, 140)]) > 20


async def test_a_budget_is_broken_as_a_last_resort_alone_and_explain_names_it_where_it_is_never() -> None:
    for despite, evicted in (("never", 0), ("last-resort", 1)):
        async with alone(1, preempts_despite_budgets=despite) as made:
            await made.sim.create(disruption_budget("low", {"app": "low"}, maxUnavailable=0), DISRUPTION_BUDGET)
            await made.lows(LEDGER, labels={"app": "low"})
            await asyncio.sleep(5)
            await made.create(licensed("high", LEDGER, "high"))
            await asyncio.sleep(HALF_AN_HOUR)
            assert made.runs("low-") == 2 - evicted
            assert evicted or "2 under a disruption budget" in made.why("high")


async def test_of_one_that_escher_cannot_handle_explain_says_so() -> None:
    async with alone(1) as made:
        await made.lows("default-scheduler")
        await made.create(licensed("high", LEDGER, "high"))
        await asyncio.sleep(5)
        gangs = made.sim.application.scheduler.cache.gangs
        [key] = gangs.by_key
        with gangs.quarantine.containing(key):
            raise RuntimeError("planted")
        assert QUARANTINE in made.why("high")


# -- what is told late, or never -------------------------------------------------------------------------------------


async def test_a_pod_of_which_no_watch_tells_is_forgotten_though_kube_scheduler_would_evict_for_it() -> None:
    async with alone(1) as made:
        await made.lows(LEDGER)
        scheduler = made.sim.application.scheduler
        key = ResourceKey(LICENCE)
        unseen = Pod(PodUid("u"), "default", "unseen", {key: 1, PODS: 1}, scheduler=LEDGER, priority=1000)
        assert scheduler.preempt(unseen, {NodeName("node-0"): Victims([PodUid("none")])}).answer == {}
        assert len(scheduler.cache.gangs.by_key) == 1
        await asyncio.sleep(300)
        assert unseen.uid not in scheduler.cache.pods
        assert scheduler.cache.gangs.by_key == {}
