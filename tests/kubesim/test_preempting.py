"""Preemption that ends, on a whole cluster in virtual time: never in vain twice, never in a loop, never half a gang."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from extender.app.explain.explain import Explain
from extender.core.names import GangKey
from extender.settings.settings import Settings
from kubesim.apiserver.machinery.store import Change
from kubesim.kinds import CONFIG_MAP, DAEMON_SET, DISRUPTION_BUDGET, NODE, POD, PRIORITY_CLASS, Json
from lab.controlplane.nodes import NodeShape
from lab.simulation import Simulation
from loadtests.shared.pods import daemon_set, disruption_budget, pod
from tests.kubesim.until import Looks, until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

HALF_AN_HOUR = 1800.0


class Stage:
    """A cluster, who was evicted in it through the Eviction API, and who was made again."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.store = sim.cluster.api.store
        self.evicted: dict[str, str] = {}
        """Name by UID."""
        self.store.subscribe(self._hear)
        self._made: list[asyncio.Task[None]] = []

    def _hear(self, change: Change) -> None:
        if change.kind is POD and "EvictionByEvictionAPI" in str(change.object.get("status", {}).get("conditions")):
            self.evicted[change.object["metadata"]["uid"]] = change.object["metadata"]["name"]

    def pods(self, prefix: str) -> list[Json]:
        return [each for each in self.store.list(POD, "default") if each["metadata"]["name"].startswith(prefix)]

    def runs(self, prefix: str) -> int:
        living = (each for each in self.pods(prefix) if "deletionTimestamp" not in each["metadata"])
        return sum(bool(each["spec"].get("nodeName")) for each in living)

    def evictions(self, prefix: str) -> int:
        return sum(name.startswith(prefix) for name in self.evicted.values())

    async def create(self, *pods: Json) -> None:
        for each in pods:
            await self.sim.create(each, POD)

    async def gang(self, name: str, size: int, *, priority_class: str | None = "high", **more: Any) -> None:
        await self.create(
            *(pod(f"{name}-{n}", gang=name, quorum=size, cpu=8, priority_class=priority_class, **more)
              for n in range(size))
        )  # fmt: skip

    def keep(self, prefix: str, count: int, make: Callable[[str], Json], kind: str = "ReplicaSet") -> None:
        """A controller makes the pods again that end."""

        async def run() -> None:
            name = prefix.rstrip("-")
            if kind == "DaemonSet":
                uid = (await self.sim.create(daemon_set(name), DAEMON_SET))["metadata"]["uid"]
            else:
                # Any object does as their owner: the garbage collector looks for its UID.
                stands_in = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
                uid = (await self.sim.create(stands_in, CONFIG_MAP))["metadata"]["uid"]
            made = 0
            with Looks(self.store, every=0.05) as looks:
                while True:
                    there = [each for each in self.pods(prefix) if "deletionTimestamp" not in each["metadata"]]
                    for _ in range(count - len(there)):
                        body = make(f"{prefix}{made}")
                        owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid}
                        body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
                        await self.sim.create(body, POD)
                        made += 1
                    await looks.next()

        self._made.append(asyncio.ensure_future(run()))

    def stop(self) -> None:
        for task in self._made:
            task.cancel()

    def explained(self, gang: str) -> str:
        found = Explain(self.sim.application.scheduler.cache).gang(GangKey("default", gang))
        return f"{found.summary} {found.remedies}"


@asynccontextmanager
async def stage(nodes: int, **settings: Any) -> AsyncIterator[Stage]:
    chosen = Settings.model_validate(settings)
    async with Simulation(nodes=nodes, node_shape=NodeShape(), settings=chosen) as sim:
        made = Stage(sim)
        await sim.create(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10},
            PRIORITY_CLASS,
        )
        try:
            yield made
        finally:
            made.stop()
        assert sim.application.scheduler.cache.violations() == []


def repelling(name: str) -> Json:
    made = pod(name, gang="top", quorum=2, cpu=8, priority_class="high")
    selects = {"labelSelector": {"matchLabels": {"escher.dev/gang": "top"}}, "topologyKey": "zone"}
    made["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selects]}}
    return made


def with_a_claim(name: str) -> Json:
    made = pod(name, gang="top", quorum=2, cpu=8, priority_class="high")
    made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    return made


async def in_one_zone(made: Stage) -> None:
    for name in made.sim.application.scheduler.cache.nodes:
        labels = {"metadata": {"labels": {"zone": "a"}}}
        path = f"{NODE.path('')}/{name}"
        await made.sim.ask("PATCH", path, labels, content_type="application/merge-patch+json")


async def test_nobody_leaves_for_a_gang_that_asks_for_what_cannot_be_planned_and_explain_says_so() -> None:
    async with stage(4) as made:
        await in_one_zone(made)
        made.keep("low-", 4, lambda name: pod(name, gang="low", quorum=4, cpu=8))
        await until(lambda: made.runs("low-") == 4)
        await made.create(*(with_a_claim(f"top-{number}") for number in range(2)))
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.evicted == {}
        assert made.runs("low-") == 4
        assert "it has requirements that Escher cannot plan (volume claims)" in made.explained("top")


async def test_nobody_leaves_for_a_gang_that_could_be_placed_nowhere() -> None:
    async with stage(4) as made:
        await in_one_zone(made)
        made.keep("low-", 4, lambda name: pod(name, gang="low", quorum=4, cpu=8))
        await until(lambda: made.runs("low-") == 4)
        await made.create(*(repelling(f"top-{number}") for number in range(2)))
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.evicted == {}
        assert made.runs("low-") == 4


async def test_pods_of_other_schedulers_are_victims_only_where_a_setting_says_so_and_not_in_a_loop() -> None:
    for allowed, most in ((False, 0), (True, 4)):
        async with stage(4, preempt_foreign_pods=allowed) as made:
            made.keep("web-", 4, lambda name: pod(name, "default-scheduler", cpu=1))
            await until(lambda: made.runs("web-") == 4)
            await made.gang("top", 4)
            await asyncio.sleep(HALF_AN_HOUR)
            assert made.evictions("web-") <= 4 * most
            assert bool(made.evicted) is allowed
            if not allowed:
                assert "pods of other schedulers" in made.explained("top")


async def test_pods_of_a_daemon_set_never_leave() -> None:
    async with stage(4, preempt_foreign_pods=True) as made:
        for scheduler in ("default-scheduler", "escher"):
            labels = {"of": scheduler}
            made.keep(f"{scheduler}-", 2, partial(pod, scheduler=scheduler, cpu=1, labels=labels), "DaemonSet")
        await until(lambda: made.runs("default-scheduler-") + made.runs("escher-") == 4)
        await made.gang("top", 4)
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.evicted == {}
        assert made.runs("top-") == 4 or "pods of DaemonSets" in made.explained("top")


async def budget(made: Stage, **spec: Any) -> None:
    await made.sim.create(disruption_budget("low", {"escher.dev/gang": "low"}, **spec), DISRUPTION_BUDGET)
    await until(lambda: made.store.list(DISRUPTION_BUDGET, "default")[0].get("status"))


async def test_a_gang_that_its_budget_does_not_let_go_as_a_whole_loses_nobody() -> None:
    async with stage(4, preempts_despite_budgets="never") as made:
        await budget(made, minAvailable=3)
        made.keep("low-", 4, lambda name: pod(name, gang="low", quorum=4, cpu=8))
        await until(lambda: made.runs("low-") == 4)
        await made.gang("top", 4)
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.evicted == {}
        assert made.runs("low-") == 4
        assert "4 under a disruption budget" in made.explained("top")


async def test_a_gang_whose_budget_lets_all_of_it_go_leaves() -> None:
    async with stage(4) as made:
        await budget(made, minAvailable=0)
        await made.gang("low", 4, priority_class=None)
        await until(lambda: made.runs("low-") == 4)
        await asyncio.sleep(5)
        await made.gang("top", 4)
        await until(lambda: made.runs("top-") == 4)
        assert made.evictions("low-") == 4


async def test_a_budget_that_is_gone_soon_after_a_restart_is_heeded_when_the_pause_is_over() -> None:
    """The search is put off by some seconds, and nothing else happens that would set the alarm."""
    async with stage(4, preempts_despite_budgets="never") as made:
        await budget(made, minAvailable=3)
        await made.gang("low", 4, priority_class=None)
        await asyncio.sleep(5)
        await made.gang("top", 4)
        await asyncio.sleep(15)
        made.sim.kill()
        await made.sim.restart(5)
        await asyncio.sleep(4)
        assert (made.runs("low"), made.runs("top")) == (4, 0)
        [found] = made.store.list(DISRUPTION_BUDGET, "default")
        await made.sim.ask(
            "DELETE", f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{found['metadata']['name']}"
        )
        await asyncio.sleep(15)
        assert (made.runs("low"), made.runs("top")) == (0, 4)


async def test_a_gang_made_again_in_the_place_that_it_left_does_not_leave_again_and_again() -> None:
    """The gang of higher priority has its room, runs, and ends; and the next one of its name comes."""
    async with stage(4) as made:
        made.keep("low-", 4, lambda name: pod(name, gang="low", quorum=4, cpu=8))
        await until(lambda: made.runs("low-") == 4)
        await made.gang("top", 4)
        await until(lambda: made.runs("top-") == 4)
        await asyncio.sleep(HALF_AN_HOUR)
        assert made.evictions("low-") == 4
        assert made.runs("top-") == 4


@pytest.mark.parametrize("evicted", [1, 2, 3])
async def test_a_service_that_dies_between_two_evictions_leaves_no_part_of_a_gang_and_the_next_goes_on(
    evicted: int,
) -> None:
    async with stage(4) as made:
        await made.gang("low", 4, priority_class=None)
        await until(lambda: made.runs("low-") == 4)

        first_life = made.sim.service

        def die(change: Change) -> None:
            if len(made.evicted) == evicted and made.sim.service is first_life:
                made.sim.kill()

        made.store.subscribe(die)
        await made.gang("top", 4)
        await until(lambda: made.sim.service is None)
        assert made.evictions("low-") == evicted
        await made.sim.restart(5)
        await until(lambda: made.runs("top-") == 4, within=400)
        assert (made.evictions("low-"), made.runs("low-")) == (4, 0)
