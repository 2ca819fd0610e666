"""Days of a cluster in which a gang waits that never can run: the others run, and hardly anything is idle for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from extender.core.ledger.ledger import HoldingKind
from extender.kube.names import CPU
from extender.settings.settings import Settings
from kubesim.kinds import JOB, POD, Json
from kubesim.virtual_time import VirtualTimeLoop
from lab.controlplane.nodes import NodeShape
from lab.simulation import Simulation
from loadtests.shared.pods import pod
from tests.kubesim.until import until


def in_virtual_time(story: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(story)


def bound(simulation: Simulation, prefix: str) -> int:
    pods = simulation.cluster.api.store.list(POD, "default")
    return sum(each["metadata"]["name"].startswith(prefix) and bool(each["spec"].get("nodeName")) for each in pods)


def saved(simulation: Simulation) -> int:
    holdings = simulation.application.scheduler.cache.ledger.rows.holdings()
    return sum(held.units.get(CPU, 0) for held in holdings if held.kind is HoldingKind.SAVING)


async def half_a_day(*, static: bool) -> tuple[int, int, int]:
    """Of gangs that come every ten minutes, how many ran; minutes in which more than the share was saved; the longest
    such time."""
    settings = Settings.model_validate({"backfill_after_seconds": 60.0})
    async with Simulation(nodes=4, node_shape=NodeShape(cpu="8"), settings=settings) as simulation:
        for number, node in enumerate(list(simulation.application.scheduler.cache.nodes)):
            # Not static: something small that does not end, though nobody can know.
            small = pod(f"small-thing-{number}", cpu="100m")
            small["spec"]["nodeName"] = node
            if static:
                uid = simulation.application.scheduler.cache.nodes[node].uid
                owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
                small["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "m"
                small["metadata"] |= {"namespace": "kube-system", "ownerReferences": [owner]}
            await simulation.create(small, POD)
        for number in range(4):
            await simulation.create(pod(f"whole-{number}", gang="whole", quorum=4, cpu=8), POD)
        ran = over = longest = run = 0
        for minute in range(12 * 60):
            if minute % 10 == 0:
                for number in range(2):
                    name = f"g{minute}"
                    await simulation.create(pod(f"{name}-{number}", gang=name, quorum=2, run_seconds=30), POD)
            await asyncio.sleep(60)
            run = run + 1 if saved(simulation) > 8000 else 0
            over, longest = over + (run > 0), max(longest, run)
            if minute % 10 == 9:
                ran += bound(simulation, f"g{minute - 9}-") == 2
        assert simulation.application.scheduler.cache.violations() == []
        assert bound(simulation, "whole") == 0
        return ran, over, longest


def test_a_gang_that_does_not_fit_beside_static_pods_holds_up_nobody() -> None:
    assert in_virtual_time(half_a_day(static=True)) == (72, 0, 0)


def test_a_gang_that_could_fit_and_never_does_holds_up_others_ever_more_seldom() -> None:
    ran, over, longest = in_virtual_time(half_a_day(static=False))
    assert longest <= 10
    assert 10 <= over <= 80
    assert ran >= 62


def test_a_job_is_placed_though_its_first_pod_is_asked_about_before_the_others_exist() -> None:
    async def story() -> None:
        async with Simulation(nodes=4, node_shape=NodeShape(cpu="8")) as simulation:
            template = pod("none", gang="train", quorum=16)
            job: Json = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "train"},
                "spec": {
                    "parallelism": 16,
                    "completions": 16,
                    "template": {"metadata": template["metadata"] | {"name": ""}, "spec": template["spec"]},
                },
            }
            await simulation.create(job, JOB)
            await until(lambda: bound(simulation, "train") == 16)

    in_virtual_time(story())
