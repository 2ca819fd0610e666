"""How played kubelets end pods: never more kindly than real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from extender.kube.client.requests import MERGE_PATCH
from extender.kube.errors import Gone
from kubesim.apiserver.machinery.store import Change
from kubesim.apiserver.validation.pod_rules import MIRROR
from kubesim.controllers.following import Following
from kubesim.controllers.garbage import QUARANTINE
from kubesim.controllers.pod_ends import USUAL_STOP
from kubesim.kinds import NODE, POD, Json
from lab.controlplane import nodes
from lab.controlplane.nodes import NodeShape
from lab.simulation import Simulation
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio

HOLD = "tests.escher.dev/hold"
[NODE_1] = nodes.plain(1, NodeShape())
HERE = NODE_1["metadata"]["name"]
AT = POD.path("default", "a")

RUNNING = ("Running", False)
TOLD_TO_END = ("Running", True)
FAILED = ("Failed", True)
SUCCEEDED = ("Succeeded", True)
GONE = None


def pod(*, grace: int = 30, finalizers: tuple[str, ...] = (), restart: str = "Always", **annotations: str) -> Json:
    """A pod of two containers that is on its node already."""
    keys = {
        "stop": "escher.dev/stop-seconds",
        "code": "escher.dev/stop-exit-code",
        "run": "escher.dev/run-seconds",
        "mirror": MIRROR,
    }
    return {
        "metadata": {
            "name": "a",
            "annotations": {keys[key]: value for key, value in annotations.items()},
            "finalizers": list(finalizers),
        },
        "spec": {
            "nodeName": HERE,
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "main", "image": "none"}, {"name": "other", "image": "none"}],
        },
    }


class Told(list[tuple[float, Json | None]]):
    """What a watch tells of the pod: seconds since the test began to look, and what it is then, or None at its end."""

    @property
    def steps(self) -> list[tuple[str, bool] | None]:
        """Phase, and whether it is being deleted; what is told twice in a row once."""
        found = [None if each is None else phase(each) for _, each in self]
        return [each for at, each in enumerate(found) if not at or each != found[at - 1]]

    def when(self, step: tuple[str, bool] | None) -> float:
        return next(at for at, each in self if (None if each is None else phase(each)) == step)

    @property
    def last(self) -> Json:
        """As it was before its end."""
        return next(each for _, each in reversed(self) if each is not None)


def phase(found: Json) -> tuple[str, bool]:
    return found["status"]["phase"], "deletionTimestamp" in found["metadata"]


def condition(found: Json, kind: str) -> Json:
    return next((each for each in found["status"]["conditions"] if each["type"] == kind), {})


@contextmanager
def looking(simulation: Simulation) -> Iterator[Told]:
    told, loop = Told(), asyncio.get_running_loop()
    began = loop.time()

    def hear(change: Change) -> None:
        told.append((round(loop.time() - began, 2), None if change.type == "DELETED" else change.object))

    following = Following(simulation.cluster.api.store, (POD,), hear)
    following.start()
    try:
        yield told
    finally:
        following.stop()


@asynccontextmanager
async def running(body: Json) -> AsyncIterator[tuple[Simulation, Told]]:
    """One node and one pod that runs there."""
    async with Simulation(node_objects=[NODE_1]) as simulation:
        await simulation.create(body, POD)
        await until(lambda: phase(found(simulation)) == RUNNING)
        with looking(simulation) as told:
            yield simulation, told


def found(simulation: Simulation) -> Json:
    there = simulation.cluster.api.store.get(POD, "default", "a")
    assert there is not None
    return there


async def delete(simulation: Simulation, grace: int | None = None) -> None:
    await simulation.ask("DELETE", AT, {} if grace is None else {"gracePeriodSeconds": grace})


def codes(found: Json) -> list[int]:
    return [each["state"]["terminated"]["exitCode"] for each in found["status"]["containerStatuses"]]


class TestAPodThatIsDeleted:
    @pytest.mark.parametrize("restart", ["Always", "OnFailure", "Never"])
    async def test_ends_in_three_steps_and_its_phase_is_written_before_it_is_gone(self, restart: str) -> None:
        async with running(pod(restart=restart)) as (simulation, told):
            await delete(simulation)
            await asyncio.sleep(10)
            assert told.steps == [RUNNING, TOLD_TO_END, FAILED, GONE]
            assert told.when(FAILED) == pytest.approx(USUAL_STOP, abs=0.02)
            assert told.when(GONE) == pytest.approx(USUAL_STOP, abs=0.04)

    async def test_says_how_each_container_exited_and_is_not_ready_any_more(self) -> None:
        async with running(pod()) as (simulation, told):
            await delete(simulation)
            await asyncio.sleep(10)
            assert codes(told.last) == [143, 143]
            for kind in ("Ready", "ContainersReady"):
                said = condition(told.last, kind)
                assert (said["status"], said["reason"]) == ("False", "PodFailed")
            [first, _] = told.last["status"]["containerStatuses"]
            assert (first["ready"], first["state"]["terminated"]["reason"]) == (False, "Error")

    async def test_has_succeeded_if_its_containers_end_well_when_they_are_told_to(self) -> None:
        async with running(pod(code="0")) as (simulation, told):
            await delete(simulation)
            await asyncio.sleep(10)
            assert told.steps == [RUNNING, TOLD_TO_END, SUCCEEDED, GONE]
            assert codes(told.last) == [0, 0]
            assert condition(told.last, "Ready")["reason"] == "PodCompleted"

    async def test_takes_as_long_as_its_containers_need(self) -> None:
        async with running(pod(stop="12.5", code="7")) as (simulation, told):
            await delete(simulation)
            await asyncio.sleep(20)
            assert told.steps == [RUNNING, TOLD_TO_END, FAILED, GONE]
            assert told.when(FAILED) == pytest.approx(12.5, abs=0.02)
            assert codes(told.last) == [7, 7]

    async def test_is_killed_when_its_grace_is_over(self) -> None:
        async with running(pod(stop="300", code="0", grace=5)) as (simulation, told):
            await delete(simulation)
            await asyncio.sleep(20)
            assert told.steps == [RUNNING, TOLD_TO_END, FAILED, GONE]
            assert told.when(FAILED) == pytest.approx(5, abs=0.02)
            assert codes(told.last) == [137, 137]

    async def test_is_killed_earlier_when_a_later_deletion_says_so_and_never_later(self) -> None:
        async with running(pod(stop="300", grace=60)) as (simulation, told):
            await delete(simulation)
            await asyncio.sleep(2)
            await delete(simulation, 5)
            await asyncio.sleep(1)
            await delete(simulation, 40)
            await asyncio.sleep(20)
            # The containers are told once more, and have so long from then on.
            assert told.when(FAILED) == pytest.approx(2 + 5, abs=0.02)

    async def test_goes_on_towards_its_end_whatever_else_changes_about_it(self) -> None:
        async with running(pod(stop="20")) as (simulation, told):
            await delete(simulation)
            for at in range(6):
                await asyncio.sleep(3)
                patch = {"metadata": {"labels": {"at": str(at)}}}
                await simulation.ask("PATCH", AT, patch, content_type=MERGE_PATCH)
            await asyncio.sleep(10)
            assert told.when(FAILED) == pytest.approx(20, abs=0.1)

    async def test_does_not_end_its_work_on_the_way_out(self) -> None:
        async with running(pod(run="5", stop="10")) as (simulation, told):
            await delete(simulation)
            await asyncio.sleep(20)
            assert told.steps == [RUNNING, TOLD_TO_END, FAILED, GONE]

    async def test_without_grace_is_gone_at_once_and_nobody_learns_how_it_ended(self) -> None:
        async with running(pod(stop="10")) as (simulation, told):
            await delete(simulation, 0)
            assert told.steps[-1] in (RUNNING, GONE)
            await asyncio.sleep(0.1)
            assert told.steps == [RUNNING, ("Running", True), GONE]
            assert told.when(GONE) < 0.05

    async def test_that_had_ended_before_is_only_removed(self) -> None:
        async with running(pod(run="1", stop="10")) as (simulation, told):
            await until(lambda: found(simulation)["status"]["phase"] == "Succeeded")
            await delete(simulation)
            await asyncio.sleep(1)
            assert told.steps == [RUNNING, ("Succeeded", False), SUCCEEDED, GONE]
            assert told.when(GONE) == pytest.approx(1, abs=0.05)

    async def test_keeps_the_reason_for_which_it_was_evicted(self) -> None:
        async with running(pod(stop="3")) as (simulation, told):
            await simulation.ask("POST", f"{AT}/eviction", {"metadata": {"name": "a"}})
            await asyncio.sleep(10)
            assert told.steps[-2:] == [FAILED, GONE]
            assert condition(told.last, "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"

    async def test_with_a_finalizer_has_ended_and_stays(self) -> None:
        async with running(pod(finalizers=(HOLD,))) as (simulation, told):
            await delete(simulation)
            await asyncio.sleep(10)
            assert told.steps == [RUNNING, TOLD_TO_END, FAILED]
            assert found(simulation)["metadata"]["deletionGracePeriodSeconds"] == 0
            await simulation.ask("PATCH", AT, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
            await asyncio.sleep(0.1)
            assert told.steps == [RUNNING, TOLD_TO_END, FAILED, GONE]

    async def test_with_a_finalizer_and_without_grace_has_a_second(self) -> None:
        async with running(pod(finalizers=(HOLD,), stop="10")) as (simulation, told):
            await delete(simulation, 0)
            await asyncio.sleep(10)
            assert told.steps == [RUNNING, TOLD_TO_END, FAILED]
            assert told.when(FAILED) == pytest.approx(1, abs=0.02)
            assert codes(told.last) == [137, 137]


class TestAPodThatNeverBegan:
    async def test_has_failed_and_none_of_its_containers_has_ended(self) -> None:
        async with Simulation() as simulation:
            # There is no kubelet yet: the pod is bound, and pending.
            await simulation.create(pod(), POD)
            with looking(simulation) as told:
                await delete(simulation)
                await asyncio.sleep(5)
                assert told.steps == [("Pending", False), ("Pending", True)]
                await simulation.create(NODE_1, NODE)
                await asyncio.sleep(5)
            assert told.steps == [("Pending", False), ("Pending", True), FAILED, GONE]
            assert "containerStatuses" not in told.last["status"]


class TestAPodWhoseNodeIsGone:
    async def test_has_nobody_to_end_it_until_the_garbage_collector_comes(self) -> None:
        async with running(pod(run="20")) as (simulation, told):
            await simulation.ask("DELETE", NODE.path("", HERE))
            await asyncio.sleep(10)
            await delete(simulation)
            await asyncio.sleep(QUARANTINE - 11)
            assert told.steps == [RUNNING, TOLD_TO_END]
            await asyncio.sleep(5)
            assert told.steps == [RUNNING, TOLD_TO_END, FAILED, GONE]
            assert condition(told.last, "DisruptionTarget")["reason"] == "DeletionByPodGC"

    async def test_ends_when_its_node_is_back(self) -> None:
        async with running(pod()) as (simulation, told):
            await simulation.ask("DELETE", NODE.path("", HERE))
            await delete(simulation)
            await asyncio.sleep(10)
            await simulation.create(NODE_1, NODE)
            await asyncio.sleep(1)
            assert told.steps == [RUNNING, TOLD_TO_END, FAILED, GONE]
            assert told.when(FAILED) == pytest.approx(10 + USUAL_STOP, abs=0.05)


class TestAMirrorPod:
    async def test_comes_back_as_another_object_and_never_has_an_end(self) -> None:
        async with running(pod(mirror="0f3a")) as (simulation, told):
            before = found(simulation)["metadata"]["uid"]
            await simulation.ask("POST", f"{AT}/eviction", {"metadata": {"name": "a"}})
            await asyncio.sleep(1)
            assert told.steps == [RUNNING, TOLD_TO_END, GONE, ("Pending", False), RUNNING]
            after = found(simulation)["metadata"]
            assert (after["uid"] == before, after["annotations"]) == (False, {MIRROR: "0f3a"})

    async def test_stays_away_when_it_is_deleted_by_force(self) -> None:
        async with running(pod(mirror="0f3a")) as (simulation, told):
            await delete(simulation, 0)
            await asyncio.sleep(1)
            with pytest.raises(Gone):
                await simulation.ask("GET", AT)
            assert told.steps[-1] is GONE
