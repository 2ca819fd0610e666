"""A kube-scheduler that has us score and bind those pods alone that ask for `escher.dev/managed`, as shipped."""

from __future__ import annotations

from collections import defaultdict

import pytest

from extender.app.cycle.filter import UNMANAGED
from extender.core.names import MANAGED
from kubesim.kinds import MUTATING_POLICY, POD, PRIORITY_CLASS
from kubesim.scheduler.extender_client import CallableExtender, ExtenderClient
from lab.controlplane.nodes import NodeShape
from lab.simulation import Simulation
from loadtests.shared.pods import pod
from tests.kubesim.test_simulation import bound, pods
from tests.kubesim.until import until


class Overheard(Simulation):
    def extender_client(self) -> ExtenderClient:
        self.asked: dict[str, list[bytes]] = defaultdict(list)
        inner = super().extender_client()

        async def call(verb: str, body: bytes) -> bytes:
            self.asked[verb].append(body)
            return await inner.call(verb, body)

        return CallableExtender(call)

    def verbs_about(self, name: str) -> set[str]:
        return {verb for verb, bodies in self.asked.items() if any(name.encode() in body for body in bodies)}


@pytest.mark.anyio
async def test_a_gang_bears_the_mark_and_who_asks_for_nothing_costs_one_call() -> None:
    async with Overheard(nodes=2) as simulation:
        for number in range(3):
            await simulation.create(pod(f"train-{number}", gang="train", quorum=3, cpu=4), POD)
        await simulation.create(pod("ordinary", cpu=1), POD)
        await until(lambda: bound(simulation, "train") == 3 and bound(simulation, "ordinary") == 1, within=10)
        assert simulation.verbs_about("ordinary") == {"filter-only"}
        assert simulation.verbs_about("train-0") == {"filter-only", "bind"}
        cache = simulation.application.scheduler.cache
        assert {each.name for each in cache.pods.values()} == {"train-0", "train-1", "train-2", "ordinary"}
        # It is no resource of theirs: no node has it.
        assert MANAGED not in {key for each in cache.pods.values() for key, _ in each.requests.items()}
        assert not cache.violations()


@pytest.mark.anyio
async def test_a_gang_that_was_missed_waits_and_is_told_why() -> None:
    async with Overheard(nodes=2) as simulation:
        [policy] = simulation.cluster.api.store.list(MUTATING_POLICY)
        await simulation.ask("DELETE", MUTATING_POLICY.path() + "/" + policy["metadata"]["name"])
        for number in range(3):
            await simulation.create(pod(f"train-{number}", gang="train", quorum=3, cpu=4), POD)

        def told() -> bool:
            waiting = pods(simulation, "train").values()
            said = [each["message"] for body in waiting for each in body["status"].get("conditions", ())]
            return len(said) == 3 and all(UNMANAGED in each for each in said)

        await until(told, within=10)
        assert bound(simulation, "train") == 0
        assert not simulation.application.scheduler.cache.violations()


@pytest.mark.anyio
async def test_where_the_api_server_marks_nobody_one_entry_asks_about_every_pod() -> None:
    async with Overheard(nodes=2, marks=False) as simulation:
        for number in range(3):
            await simulation.create(pod(f"train-{number}", gang="train", quorum=3, cpu=4), POD)
        await simulation.create(pod("ordinary", cpu=1), POD)
        await until(lambda: bound(simulation, "train") == 3 and bound(simulation, "ordinary") == 1, within=10)
        assert simulation.verbs_about("ordinary") >= {"filter", "bind"}


@pytest.mark.anyio
async def test_a_pod_without_the_mark_preempts_no_part_of_a_gang() -> None:
    """One node could hold it if one member left: then both leave."""
    async with Overheard(nodes=2, node_shape=NodeShape(cpu="4")) as simulation:
        await simulation.create({"metadata": {"name": "urgent"}, "value": 1000}, PRIORITY_CLASS)
        for number in range(2):
            await simulation.create(pod(f"train-{number}", gang="train", quorum=2, cpu=4), POD)
        await until(lambda: bound(simulation, "train") == 2, within=10)
        await simulation.create(pod("urgent", cpu=4, priority_class="urgent"), POD)
        await until(lambda: bound(simulation, "urgent") == 1, within=30)
        assert simulation.verbs_about("urgent") == {"filter-only", "preempt"}
        await until(lambda: not pods(simulation, "train"), within=30)
        assert not simulation.application.scheduler.cache.violations()
