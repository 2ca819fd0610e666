"""Tasks that a policy launches, cancels and stops: exactly what it wants is done, also when a Binding crosses it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from escher_k8s.esl import PolicySpace
from extender.core.cluster import Node
from extender.esl.base import (
    CancelTask,
    Effect,
    EffectRefused,
    Event,
    EvictMember,
    LaunchTask,
    NodeGone,
    NodeSeen,
    PodGone,
    PodRequirement,
    StopTask,
)
from extender.esl.runtime.policy_asks import PolicyAsks
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.esl.runtime.resource_sync import Wanted
from extender.kube.client.requests import JSON, TIMEOUT
from extender.kube.errors import Refused, Unavailable
from extender.kube.names import CPU, NodeName, PodUid
from extender.kube.node_match import Taint
from extender.kube.quantities import Vector
from kubesim.kinds import NODE, POD, Json
from tests.esl.policy_stage import PolicyStage, pod, staged
from tests.esl.stage import Door, play

SPACES = ("AppSpace on a port", "AppSpace")
every_space = pytest.mark.parametrize("space", SPACES)


class Told(PolicyEsl):
    """Its tasks ask for a resource that is nowhere, until `there`; notes what it is told."""

    def __init__(self) -> None:
        super().__init__("told")
        self.there = False
        self.told: list[Event] = []

    def requires(self, task: Task) -> Vector:
        return {self.key("r"): 1}

    def capacities(self, now: float) -> Wanted:
        return {node: {self.key("r"): 9} for node in self.view.nodes} if self.there else {}

    def decide(self, event: Event | None, now: float) -> list[Effect]:
        if event is not None:
            self.told.append(event)
        return []

    def refused(self) -> list[EffectRefused]:
        return [event for event in self.told if isinstance(event, EffectRefused)]

    def open(self, now: float) -> list[Effect]:
        self.there = True
        return self._effects(None, now)


def launch(task: str, requirement: PodRequirement, name: str = "") -> LaunchTask:
    return LaunchTask("default", name or f"{task}-1", task, requirement)


async def played(space: str, story: Callable[[PolicyStage, PolicyAsks, Told], Awaitable[None]], **wishes: Any) -> None:
    async with staged(**wishes) as stage:
        told = Told()
        async with stage.space(space, [told], end_within=5) as policies:
            await story(stage, policies, told)


def there(stage: PolicyStage, name: str) -> Json | None:
    return next((each for each in stage.all(POD) if each["metadata"]["name"] == name), None)


async def launched(stage: PolicyStage, policies: PolicyAsks, told: Told, task: str = "t") -> PodUid:
    """A pod of the task waits; its UID."""
    requirement = await policies.ask(told, Task(task), pod("template"))
    await policies.do(lambda now: [launch(task, requirement)])
    await stage.until(lambda: there(stage, f"{task}-1"), 5, "the pod")
    found = there(stage, f"{task}-1")
    assert found is not None
    return PodUid(found["metadata"]["uid"])


@every_space
class TestDone:
    def test_a_task_is_launched_from_the_template_with_what_the_policy_says(self, space: str) -> None:
        async def story(stage: PolicyStage, policies: PolicyAsks, told: Told) -> None:
            await launched(stage, policies, told)
            made = there(stage, "t-1")
            assert made is not None
            assert made["metadata"]["labels"] == {told.label: "t"}
            assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", told.key("r"): "1"}
            assert made["metadata"]["annotations"]["escher.dev/run-seconds"] == "1000"
            assert made["spec"]["schedulerName"] == "escher-resources"

        play(played(space, story))

    def test_launched_again_nothing_happens_and_a_strangers_pod_of_that_name_is_refused(self, space: str) -> None:
        async def story(stage: PolicyStage, policies: PolicyAsks, told: Told) -> None:
            uid = await launched(stage, policies, told)
            again = launch("t", told.requirement(told.tasks["t"]))
            await policies.do(lambda now: [again])
            other = await policies.ask(told, Task("other"), pod("template"))
            stranger = launch("other", other, "t-1")
            await policies.do(lambda now: [stranger])
            await stage.until(told.refused, 5, "the refusal")
            assert [each.effect for each in told.refused()] == [stranger]
            found = there(stage, "t-1")
            assert found is not None
            assert found["metadata"]["uid"] == uid

        play(played(space, story))

    def test_without_a_template_it_is_refused(self, space: str) -> None:
        async def story(stage: PolicyStage, policies: PolicyAsks, told: Told) -> None:
            requirement = await policies.ask(told, Task("t"))
            await policies.do(lambda now: [launch("t", requirement)])
            await stage.until(told.refused, 5, "the refusal")
            assert told.refused()[0].why == "no template is known for task 't'"
            assert stage.all(POD) == []

        play(played(space, story))

    def test_who_waits_is_cancelled_and_who_is_bound_is_not(self, space: str) -> None:
        async def story(stage: PolicyStage, policies: PolicyAsks, told: Told) -> None:
            uid = await launched(stage, policies, told)
            await policies.do(lambda now: [CancelTask("default", "t-1", uid)])
            await stage.until(lambda: PodGone("default", "t-1") in told.told, 5, "the end of the pod")
            assert there(stage, "t-1") is None
            uid = await launched(stage, policies, told)
            await policies.do(told.open)
            await stage.until(lambda: stage.where("t-1") != [None], 20, "the Binding")
            cancel = CancelTask("default", "t-1", uid)
            await policies.do(lambda now: [cancel])
            await stage.until(told.refused, 5, "the refusal")
            assert [each.effect for each in told.refused()] == [cancel]
            assert "bound" in told.refused()[0].why
            assert stage.where("t-1") != [None]

        play(played(space, story))

    def test_who_is_not_there_is_gone_and_a_namesake_is_left_alone(self, space: str) -> None:
        async def story(stage: PolicyStage, policies: PolicyAsks, told: Told) -> None:
            for change in (CancelTask, StopTask):
                told.told.clear()
                await policies.do(lambda now, c=change: [c("default", "nobody", PodUid("u"))])  # type: ignore[misc]
                await stage.until(lambda: PodGone("default", "nobody") in told.told, 5, "the news")
            uid = await launched(stage, policies, told)
            former = PodUid("former")
            await policies.do(lambda now: [CancelTask("default", "t-1", former), StopTask("default", "t-1", former)])
            await asyncio.sleep(5)
            found = there(stage, "t-1")
            assert found is not None
            assert found["metadata"]["uid"] == uid

        play(played(space, story))

    def test_who_runs_is_stopped_with_grace(self, space: str) -> None:
        async def story(stage: PolicyStage, policies: PolicyAsks, told: Told) -> None:
            gently = pod("template")
            gently["spec"]["terminationGracePeriodSeconds"] = 30
            requirement = await policies.ask(told, Task("t"), gently)
            await policies.do(told.open)
            await policies.do(lambda now: [launch("t", requirement)])
            await stage.until(lambda: (there(stage, "t-1") or {"status": {}})["status"].get("phase") == "Running", 20)
            found = there(stage, "t-1")
            assert found is not None
            uid = PodUid(found["metadata"]["uid"])
            await policies.do(lambda now: [StopTask("default", "t-1", uid)])
            await stage.until(lambda: "deletionTimestamp" in (there(stage, "t-1") or {"metadata": {}})["metadata"], 5)
            leaving = there(stage, "t-1")
            assert leaving is not None
            assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30

        play(played(space, story))


class Crossing(Door):
    """Something else happens just before one of the application's requests arrives."""

    def __init__(self, door: Door) -> None:
        super().__init__(door._through)
        self.before: dict[str, Callable[[], Awaitable[object]]] = {}

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        within: float = TIMEOUT,
    ) -> bytes:
        if method in self.before and "/pods/" in path:
            await self.before.pop(method)()
        return await super().request(method, path, body, content_type=content_type, accept=accept, within=within)


class TestCrossing:
    """A cancellation and a Binding at the same moment: one of them comes first, and the other is refused."""

    @staticmethod
    def bind(stage: PolicyStage) -> Callable[[], Awaitable[object]]:
        async def bind() -> None:
            binding = {"metadata": {"name": "t-1"}, "target": {"kind": "Node", "name": "node-0"}}
            await stage.simulation.ask("POST", "/api/v1/namespaces/default/pods/t-1/binding", binding)

        return bind

    @pytest.mark.parametrize("at", ["GET", "DELETE"])
    def test_bound_first_it_runs_and_is_not_cancelled(self, at: str) -> None:
        async def story() -> None:
            async with staged() as stage:
                told, door = Told(), Crossing(stage.door())
                async with stage.over(door, [told]) as policies:
                    uid = await launched(stage, policies, told)
                    door.before[at] = self.bind(stage)
                    cancel = CancelTask("default", "t-1", uid)
                    await policies.do(lambda now: [cancel])
                    await stage.until(told.refused, 5, "the refusal")
                    assert told.refused() == [EffectRefused(cancel, "the pod is bound to node node-0")]
                    await asyncio.sleep(5)
                    assert stage.where("t-1") == ["node-0"]

        play(story())

    def test_cancelled_first_it_is_never_bound(self) -> None:
        async def story() -> None:
            async with staged() as stage:
                told, door = Told(), stage.door()
                async with stage.over(door, [told]) as policies:
                    uid = await launched(stage, policies, told)
                    await policies.do(lambda now: [CancelTask("default", "t-1", uid)])
                    await stage.until(lambda: there(stage, "t-1") is None, 5, "the end of the pod")
                    with pytest.raises(Refused, match="not found"):
                        await self.bind(stage)()
                    assert told.refused() == []

        play(story())

    def test_whatever_else_changes_the_pod_it_is_looked_at_again(self) -> None:
        async def story() -> None:
            async with staged() as stage:
                told, door = Told(), Crossing(stage.door())
                async with stage.over(door, [told]) as policies:
                    uid = await launched(stage, policies, told)
                    times = 0

                    async def annotate() -> None:
                        nonlocal times
                        times += 1
                        if times < 12:
                            door.before["DELETE"] = annotate
                        patch = {"metadata": {"annotations": {"times": str(times)}}}
                        content = "application/merge-patch+json"
                        path = "/api/v1/namespaces/default/pods/t-1"
                        await stage.simulation.ask("PATCH", path, patch, content_type=content)

                    door.before["DELETE"] = annotate
                    await policies.do(lambda now: [CancelTask("default", "t-1", uid)])
                    await stage.until(lambda: there(stage, "t-1") is None, 10, "the end of the pod")
                    assert (times, told.refused()) == (12, [])

        play(story())

    @pytest.mark.parametrize("seed", range(6))
    def test_with_the_scheduler_at_work_exactly_one_of_them_happens(self, seed: int) -> None:
        """The resource comes, and at the same moment, a little earlier or later, the cancellation."""

        async def story() -> None:
            async with staged() as stage:
                told = Told()
                async with stage.over(stage.door(), [told]) as policies:
                    uids = {f"t{n}": await launched(stage, policies, told, f"t{n}") for n in range(8)}
                    await policies.do(told.open)
                    for task, uid in uids.items():
                        await asyncio.sleep(seed * 0.0007)
                        cancel = CancelTask("default", f"{task}-1", uid)
                        await policies.do(lambda now, cancel=cancel: [cancel])  # type: ignore[misc]
                    await asyncio.sleep(30)
                    kept = {each.effect.name for each in told.refused()}  # type: ignore[union-attr]
                    assert kept == {each["metadata"]["name"] for each in stage.all(POD)}
                    assert all(stage.where(*kept))

        play(story())


def test_a_launch_whose_answer_is_lost_is_tried_again_and_there_is_one_pod() -> None:
    async def story() -> None:
        async with staged() as stage:
            told, door = Told(), Crossing(stage.door())
            async with stage.over(door, [told]) as policies:
                requirement = await policies.ask(told, Task("t"), pod("template"))
                made = launch("t", requirement)
                answers: list[Exception] = [Unavailable("no answer")]

                def lose(method: str, path: str, body: Json) -> Exception | None:
                    return answers.pop() if method == "POST" and path.endswith("/pods") and answers else None

                body = msgspec.json.encode(requirement.attach(pod("t-1")))
                await stage.simulation.requests.request("POST", POD.path("default"), body)
                door.refuse = lose
                await policies.do(lambda now: [made])
                await asyncio.sleep(5)
                assert (told.refused(), len(stage.all(POD)), answers) == ([], 1, [])

    play(story())


class TestNodes:
    def test_a_node_is_told_when_it_changes_and_not_with_each_heartbeat(self) -> None:
        async def story() -> None:
            async with staged(1) as stage:
                told = Told()
                async with stage.over(stage.door(), [told]) as policies:
                    await asyncio.sleep(1)
                    await policies.do(told.open)
                    content = "application/merge-patch+json"
                    path = NODE.path("", "node-0")

                    async def change(what: Any, at: str = path) -> None:
                        await stage.simulation.ask("PATCH", at, what, content_type=content)
                        await asyncio.sleep(1)

                    for n in range(5):
                        await change({"metadata": {"annotations": {"heartbeat": str(n)}}})
                    assert stage.units() == {"told--r": {"node-0": "9"}}
                    assert not any(isinstance(event, NodeSeen) for event in told.told)
                    first = told.view.nodes[NodeName("node-0")]
                    assert not any(key.startswith("app.escher.dev/") for key in first.allocatable)
                    await change({"metadata": {"labels": {"disk": "ssd"}}})
                    await change({"status": {"allocatable": {"cpu": "4"}}}, f"{path}/status")
                    await change({"spec": {"unschedulable": True}})
                    seen: list[Node] = [event.node for event in told.told if isinstance(event, NodeSeen)]
                    assert seen[0].labels["disk"] == "ssd"
                    assert seen[1].allocatable[CPU] == 4000
                    assert seen[2].unschedulable
                    assert Taint("node.kubernetes.io/unschedulable", "", "NoSchedule") in seen[-1].taints
                    assert len(seen) <= 4
                    await stage.lose("node-0")
                    await stage.until(lambda: NodeGone(NodeName("node-0")) in told.told, 5, "the news")

        play(story())

    def test_a_port_sees_a_node_as_the_service_sees_it(self) -> None:
        async def story() -> None:
            async with staged(2) as stage:
                by_api, by_port = Told(), Told()
                await stage.simulation.ask(
                    "PATCH",
                    NODE.path("", "node-1"),
                    {"spec": {"unschedulable": True}},
                    content_type="application/merge-patch+json",
                )
                await asyncio.sleep(1)
                async with stage.over(stage.door(), [by_api]), stage.space("AppSpace on a port", [by_port]):
                    assert len(by_api.view.nodes) == 2
                    assert by_api.view.nodes == by_port.view.nodes
                    assert by_api.view.nodes[NodeName("node-1")].unschedulable

        play(story())


def test_a_policy_makes_no_ghosts_and_a_space_on_a_port_says_so() -> None:
    async def story() -> None:
        async with staged() as stage:
            told = Told()
            space = stage.space("AppSpace on a port", [told])
            assert isinstance(space, PolicySpace)
            async with space:
                evict = EvictMember("default", "t", PodUid("u"))
                await space.do(lambda now: [evict])
                await stage.until(told.refused, 5, "the refusal")
                assert told.refused() == [EffectRefused(evict, "a policy has no ghosts and evicts no pods")]

    play(story())
