"""Jobs and garbage, as their controllers on a real control plane have it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubesim.controllers.jobs import INDEX, TRACKING
from kubesim.kinds import CONFIG_MAP, JOB, NAMESPACE, NODE, POD, Json, Kind
from lab.simulation import Simulation
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio


def job(name: str = "work", *, seconds: float | None = 1.0, **spec: Any) -> Json:
    annotations = {} if seconds is None else {"escher.dev/run-seconds": str(seconds)}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]},
    }
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


def there(simulation: Simulation, kind: Kind = POD) -> list[Json]:
    return simulation.cluster.api.store.list(kind, "default")


def only(simulation: Simulation, kind: Kind = JOB) -> Json:
    [found] = there(simulation, kind)
    return found


def condition(found: Json, kind: str) -> bool:
    said = (found.get("status") or {}).get("conditions") or ()
    return any(each["type"] == kind and each["status"] == "True" for each in said)


def path(kind: Kind, name: str) -> str:
    return kind.path("default", name)


class TestAJob:
    async def test_runs_as_many_at_a_time_as_it_says_until_enough_have_succeeded(self) -> None:
        async with Simulation(nodes=2) as simulation:
            await simulation.create(job(parallelism=2, completions=5), JOB)
            most = 0
            while not condition(only(simulation), "Complete"):
                most = max(most, sum(pod["status"]["phase"] in ("Pending", "Running") for pod in there(simulation)))
                await asyncio.sleep(0.05)
            assert most == 2
            status = only(simulation)["status"]
            assert (status["succeeded"], status.get("active"), status.get("failed")) == (5, None, None)
            assert {pod["status"]["phase"] for pod in there(simulation)} == {"Succeeded"}

    async def test_owns_its_pods_which_bear_its_labels_and_are_counted_before_they_may_go(self) -> None:
        async with Simulation(nodes=1) as simulation:
            await simulation.create(job(seconds=None), JOB)
            await until(lambda: there(simulation))
            [pod], uid = there(simulation), only(simulation)["metadata"]["uid"]
            [owner] = pod["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Job", "work", uid, True)
            assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "work"
            assert pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == uid
            assert pod["metadata"]["finalizers"] == [TRACKING]
            assert pod["metadata"]["name"].startswith("work-")

    async def test_that_is_indexed_gives_each_index_once_and_again_to_a_successor(self) -> None:
        async with Simulation(nodes=1) as simulation:
            await simulation.create(job(seconds=None, parallelism=3, completions=3, completionMode="Indexed"), JOB)

            def indexes() -> list[str]:
                living = (pod for pod in there(simulation) if not pod["metadata"].get("deletionTimestamp"))
                return sorted(pod["metadata"]["annotations"][INDEX] for pod in living)

            await until(lambda: indexes() == ["0", "1", "2"])
            [second] = [pod for pod in there(simulation) if pod["metadata"]["annotations"][INDEX] == "1"]
            await simulation.ask("DELETE", path(POD, second["metadata"]["name"]))
            await until(lambda: indexes() == ["0", "1", "2"] and second not in there(simulation))

    async def test_that_is_suspended_has_no_pods_until_it_is_resumed(self) -> None:
        async with Simulation(nodes=1) as simulation:
            await simulation.create(job(suspend=True), JOB)
            await asyncio.sleep(5)
            assert there(simulation) == []
            assert condition(only(simulation), "Suspended")
            patch = {"spec": {"suspend": False}}
            await simulation.ask("PATCH", path(JOB, "work"), patch, content_type="application/merge-patch+json")
            await until(lambda: condition(only(simulation), "Complete"))

    async def test_takes_its_pods_with_it_when_it_is_deleted(self) -> None:
        async with Simulation(nodes=1) as simulation:
            await simulation.create(job(seconds=None, parallelism=3, completions=3), JOB)
            await until(lambda: len(there(simulation)) == 3)
            await simulation.ask("DELETE", path(JOB, "work"), {"propagationPolicy": "Background"})
            await until(lambda: not there(simulation) and not there(simulation, JOB))

    async def test_stays_until_its_pods_are_gone_where_that_is_asked_for(self) -> None:
        async with Simulation(nodes=1) as simulation:
            await simulation.create(job(seconds=None), JOB)
            await until(lambda: there(simulation))
            await simulation.ask("DELETE", path(JOB, "work"), {"propagationPolicy": "Foreground"})
            assert there(simulation, JOB)
            await until(lambda: not there(simulation, JOB))
            assert there(simulation) == []

    async def test_leaves_its_pods_behind_where_that_is_asked_for(self) -> None:
        async with Simulation(nodes=1) as simulation:
            await simulation.create(job(seconds=None), JOB)
            await until(lambda: there(simulation))
            await simulation.ask("DELETE", path(JOB, "work"), {"propagationPolicy": "Orphan"})
            await until(lambda: not there(simulation, JOB))
            await asyncio.sleep(5)
            assert not only(simulation, POD)["metadata"].get("ownerReferences")

    async def test_is_gone_as_long_after_its_end_as_it_says(self) -> None:
        async with Simulation(nodes=1) as simulation:
            await simulation.create(job(ttlSecondsAfterFinished=10), JOB)
            await until(lambda: condition(only(simulation), "Complete"))
            await asyncio.sleep(9)
            assert there(simulation, JOB)
            await until(lambda: not there(simulation, JOB) and not there(simulation), within=5)


class TestGarbage:
    async def test_pods_of_a_node_that_is_gone_go_too_after_a_while(self) -> None:
        async with Simulation(nodes=1) as simulation:
            await simulation.create(job(seconds=None), JOB)
            await until(lambda: there(simulation) and there(simulation)[0]["spec"].get("nodeName"))
            lost = there(simulation)[0]["metadata"]["uid"]
            await simulation.ask("DELETE", NODE.path("", "node-0"))
            await asyncio.sleep(30)
            assert lost in {pod["metadata"]["uid"] for pod in there(simulation)}
            await asyncio.sleep(15)
            assert lost not in {pod["metadata"]["uid"] for pod in there(simulation)}

    async def test_what_is_owned_by_nobody_who_lives_goes(self) -> None:
        async with Simulation() as simulation:
            owner = await simulation.create({"metadata": {"name": "owner"}}, CONFIG_MAP)
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
            await simulation.create({"metadata": {"name": "owned", "ownerReferences": [reference]}}, CONFIG_MAP)
            stray = {**reference, "name": "never", "uid": "00000000-0000-0000-0000-000000000000"}
            await simulation.create({"metadata": {"name": "stray", "ownerReferences": [stray]}}, CONFIG_MAP)

            def names() -> list[str]:
                return [each["metadata"]["name"] for each in there(simulation, CONFIG_MAP)]

            await until(lambda: names() == ["owned", "owner"])
            await simulation.ask("DELETE", path(CONFIG_MAP, "owner"))
            await until(lambda: names() == [])

    async def test_a_namespace_ends_with_all_that_is_in_it(self) -> None:
        async with Simulation(nodes=1) as simulation:
            await simulation.create({"metadata": {"name": "mine"}}, NAMESPACE)
            body = job(seconds=None)
            body["metadata"]["namespace"] = "mine"
            await simulation.create(body, JOB)
            store = simulation.cluster.api.store
            await until(lambda: store.list(POD, "mine"))
            await simulation.ask("DELETE", NAMESPACE.path("", "mine"))
            await until(lambda: store.get(NAMESPACE, "", "mine") is None)
            assert store.list(POD, "mine") == []
            assert store.list(JOB, "mine") == []
