"""Policies for applications at work in the service: objects instead of node status, and a life that ends with its own.

What they do there as anywhere else: test_policy_spaces.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from extender.esl.base import Effect, EffectRefused, Event, NodeSeen, Notice, StopTask
from extender.esl.policies.anti_affinity import AntiAffinity
from extender.esl.runtime.policy_esl import PolicyEsl, Task
from extender.kube.errors import Unavailable
from extender.kube.names import PodUid
from extender.settings.settings import Settings
from kubesim.kinds import Kind
from tests.esl.policy_stage import Furnished, Near, PolicyStage, of, on_stage

EPHEMERAL_RESOURCE = Kind("escher.dev", "v1alpha1", "EphemeralResource", "ephemeralresources")


def test_each_key_is_one_object_with_all_of_its_nodes_and_few_writes() -> None:
    async def story(stage: PolicyStage) -> None:
        apart = of("extender", AntiAffinity, "apart")
        async with stage.space("extender", [apart]) as policies:
            await policies.ask(apart, Task("a", "web"))
            await stage.until(lambda: len(stage.units().get("apart--web", {})) == 30, 10)
            [made] = stage.all(EPHEMERAL_RESOURCE)
            assert made["metadata"]["name"] == "apart--web"
            assert made["spec"]["nodes"] == {f"node-{n}": 1 for n in range(30)}
            assert made["metadata"]["generation"] == 1
        assert stage.all(EPHEMERAL_RESOURCE) == []

    on_stage(story, nodes=30)


def test_a_node_that_is_lost_is_struck_off_and_begins_anew_when_it_comes_back() -> None:
    async def story(stage: PolicyStage) -> None:
        near = of("extender", Near)
        async with stage.space("extender", [near]):
            await stage.until(lambda: stage.units() == {"near--data-1": {"node-0": "100"}}, 5)
            await stage.lose("node-0")
            await stage.until(lambda: nodes_of(stage) == {"node-1": 100}, 5, "the object")
            await stage.add("node-0")
            await stage.until(lambda: nodes_of(stage) == {"node-0": 100}, 5, "the object")

    def nodes_of(stage: PolicyStage) -> dict[str, int] | None:
        found = stage.all(EPHEMERAL_RESOURCE)
        return found[0]["spec"]["nodes"] if found else None

    on_stage(story, nodes=2)


def test_what_somebody_else_changes_is_set_again_and_a_deletion_too() -> None:
    async def story(stage: PolicyStage) -> None:
        apart = of("extender", AntiAffinity, "apart")
        async with stage.space("extender", [apart]) as policies:
            await policies.ask(apart, Task("a", "web"))
            whole = {"apart--web": dict.fromkeys(("node-0", "node-1", "node-2"), "1")}
            await stage.until(lambda: stage.units() == whole, 5)
            path = EPHEMERAL_RESOURCE.path("default", "apart--web")
            content = "application/merge-patch+json"
            await stage.simulation.ask("PATCH", path, {"spec": {"nodes": {"node-1": 7}}}, content_type=content)
            await stage.until(lambda: stage.units() != whole, 5, "their change")
            await stage.until(lambda: stage.units() == whole, 10, "what the policy wants")
            await stage.simulation.ask("DELETE", path)
            await stage.until(lambda: stage.units() != whole, 5, "their deletion")
            await stage.until(lambda: stage.units() == whole, 10, "what the policy wants")

    on_stage(story)


def test_the_service_dies_and_the_next_adopts_what_there_is() -> None:
    async def story(stage: PolicyStage) -> None:
        first = of("extender", AntiAffinity, "apart")
        async with stage.space("extender", [first], keep=True) as policies:
            await stage.ask(policies, first, "a", "web")
            await stage.until(lambda: stage.where("a") != [None], 20)
            stage.simulation.kill()
        await stage.simulation.restart()
        second = of("extender", Furnished)
        async with stage.space("extender", [second]) as policies:
            await asyncio.sleep(10)
            assert (second.wanted, list(second.tasks)) == ([], ["a"])
            await stage.ask(policies, second, "b", "web")
            await stage.until(lambda: stage.where("b") != [None], 20)
            assert max(stage.together(second.group_label).values()) == 1
        await stage.until(lambda: stage.units() == {}, 5)

    on_stage(story)


def test_the_store_is_away_for_a_while_and_it_comes_about_afterwards() -> None:
    async def story(stage: PolicyStage) -> None:
        apart = of("extender", AntiAffinity, "apart")
        async with stage.space("extender", [apart]) as policies:
            store = stage.simulation.application.resources.writing._store
            create, failures = store.create, [Unavailable("away")] * 3

            async def away(*given: Any, **more: Any) -> Any:
                if failures:
                    raise failures.pop()
                return await create(*given, **more)

            store.create = away  # type: ignore[method-assign]
            await policies.ask(apart, Task("a", "web"))
            await stage.until(lambda: len(stage.units().get("apart--web", {})) == 3, 10)
            assert failures == []

    on_stage(story)


def test_what_cannot_be_there_is_told() -> None:
    async def story(stage: PolicyStage) -> None:
        told: list[Notice] = []
        apart = of("extender", AntiAffinity, "apart")
        with pytest.raises(ValueError, match=r"has domain 'app\.escher\.dev'; here it must be 'escher\.dev'"):
            stage.space("extender", [AntiAffinity("apart")])
        async with stage.space("extender", [apart], on_notice=told.append) as policies:
            for n in range(3):
                await policies.ask(apart, Task(f"t{n}", f"g{n}"))
            await stage.until(lambda: told, 5)
            await asyncio.sleep(30)
            assert len(stage.units()) == 2
            [notice] = told
            assert "node-0 has 2 ephemeral resources; the limit is 2 (max_ephemeral_resources_per_node)" in notice.text

    on_stage(story, nodes=1, settings=Settings.model_validate({"max_ephemeral_resources_per_node": 2}))


class Told(Furnished):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.heard: list[Event | None] = []

    def decide(self, event: Event | None, now: float) -> list[Effect]:
        self.heard.append(event)
        return []


def test_a_policy_that_launches_by_itself_is_refused_that() -> None:
    async def story(stage: PolicyStage) -> None:
        told = of("extender", Told)
        async with stage.space("extender", [told]) as policies:
            stop = StopTask("default", "t", PodUid("u"))
            await policies.do(lambda now: [stop])
            await stage.until(lambda: isinstance(told.heard[-1], EffectRefused), 5)
            assert "run this policy in the application" in str(told.heard[-1])

    on_stage(story)


def test_a_defect_of_a_policy_is_its_own_and_the_service_goes_on() -> None:
    class Defect(Told):
        def decide(self, event: Event | None, now: float) -> list[Effect]:
            if isinstance(event, NodeSeen) and event.node.name == "node-9":
                raise KeyError("a defect")
            return []

    async def hosted(stage: PolicyStage, defect: PolicyEsl) -> None:
        async with stage.space("extender", [defect]) as policies:
            await stage.add("node-9")
            await asyncio.sleep(1)
            await policies.ask(defect, Task("a", "web"))

    async def story(stage: PolicyStage) -> None:
        with pytest.raises(KeyError, match="a defect"):
            await hosted(stage, of("extender", Defect))
        apart = of("extender", AntiAffinity, "sound")
        async with stage.space("extender", [apart]) as policies:
            await stage.ask(policies, apart, "a", "web")
            await stage.until(lambda: stage.where("a") != [None], 20)
            assert len(stage.units()["sound--web"]) == 4

    on_stage(story)


def test_an_object_that_is_being_deleted_is_waited_for_and_made_anew() -> None:
    async def story(stage: PolicyStage) -> None:
        apart, path = of("extender", AntiAffinity, "apart"), EPHEMERAL_RESOURCE.path("default")
        held = {
            "apiVersion": "escher.dev/v1alpha1",
            "kind": "EphemeralResource",
            "metadata": {"name": "apart--web", "finalizers": ["example.com/held"]},
            "spec": {"nodes": {"node-0": 1}},
        }
        await stage.simulation.ask("POST", path, held)
        await stage.until(lambda: stage.units() == {"apart--web": {"node-0": "1"}}, 5)
        async with stage.space("extender", [apart], end_within=30) as policies:
            # Nobody asks for it yet: it is deleted, and its finalizer holds it.
            await stage.until(lambda: stage.units() == {}, 5)
            await policies.ask(apart, Task("a", "web"))
            await asyncio.sleep(10)
            assert stage.units() == {}
            free = {"metadata": {"finalizers": None}}
            content = "application/merge-patch+json"
            await stage.simulation.ask("PATCH", f"{path}/apart--web", free, content_type=content)
            await stage.until(lambda: len(stage.units().get("apart--web", {})) == 3, 10)

    on_stage(story)


def test_what_a_rule_of_somebody_elses_chose_in_its_name_is_made_as_the_policy_wants_it() -> None:
    async def story(stage: PolicyStage) -> None:
        near = of("extender", Near, holder="node-2")
        ruled = {
            "apiVersion": "escher.dev/v1alpha1",
            "kind": "EphemeralResource",
            "metadata": {"name": "near--data-1"},
            "spec": {"capacity": 5, "nodeSpec": {}},
        }
        await stage.simulation.ask("POST", EPHEMERAL_RESOURCE.path("default"), ruled)
        await stage.until(lambda: len(stage.units().get("near--data-1", {})) == 3, 10)
        async with stage.space("extender", [near]):
            await stage.until(lambda: stage.units() == {"near--data-1": {"node-2": "100"}}, 10)

    on_stage(story)
