"""Soft constraints on a whole cluster, in virtual time: the space launches the task's pods by itself, from what the
application gave."""

from __future__ import annotations

import asyncio

import pytest

from extender.esl.base import PodRequirement
from extender.esl.policies.soft import Soft
from extender.esl.runtime.policy_esl import Task
from kubesim.kinds import NODE, POD
from tests.esl.policy_stage import PolicyStage, on_stage, pod

NOWHERE = "example.com/data1"


@pytest.mark.parametrize("space", ["AppSpace on a port", "AppSpace", "LibSpace on a port", "LibSpace"])
def test_the_second_wins_when_the_first_cannot_be_had_and_the_task_runs_once(space: str) -> None:
    """In the manner of scenario 11: also when the first becomes possible later."""

    async def story(stage: PolicyStage) -> None:
        loop = asyncio.get_running_loop()
        soft = Soft("soft", lambda task: [PodRequirement({NOWHERE: "1"}), PodRequirement({})], wait=5.0)
        async with stage.space(space, [soft]) as policies:
            began = loop.time()
            one, _ = stage.askers(space, policies)
            await one.ask(soft, Task("t"), pod("template", seconds="20"))
            await stage.until(lambda: any(each["spec"].get("nodeName") for each in stage.all(POD)), 15, "the task")
            assert 4.5 <= loop.time() - began <= 8
            there = {"status": {"capacity": {NOWHERE: "1"}, "allocatable": {NOWHERE: "1"}}}
            content = "application/merge-patch+json"
            await stage.simulation.ask("PATCH", NODE.path("", "node-0", "status"), there, content_type=content)
            await asyncio.sleep(60)
            [ran] = stage.all(POD)
            assert ran["status"]["phase"] == "Succeeded"
            assert NOWHERE not in ran["spec"]["containers"][0]["resources"]["requests"]
            assert ran["metadata"]["annotations"]["escher.dev/run-seconds"] == "20"

    on_stage(story)
