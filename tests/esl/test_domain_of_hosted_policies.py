"""Policies that the service hosts stay in their namespace's scheduling domain and quota."""

from __future__ import annotations

import asyncio

from extender.core.names import DOMAIN
from extender.esl.policies.anti_affinity import AntiAffinity
from extender.settings.settings import Settings
from tests.esl.policy_stage import PolicyStage
from tests.esl.stage import play


async def story(isolation: object) -> tuple[list[str | None], list[str]]:
    """Of three tasks that keep apart where each is, the last with a node less in the domain; and which nodes have
    something of the policy's then."""
    settings = Settings.model_validate({"isolation": {"namespaces": {"default": isolation}}})
    stage = PolicyStage(nodes=3, settings=settings)
    apart = AntiAffinity("apart", domain=DOMAIN, scheduler="escher")
    async with stage.simulation as simulation:
        for name in ("node-0", "node-1"):
            await label(stage, name, "a")
        async with simulation.application.hosting.space([apart], namespace="default") as space:
            for name in ("t0", "t1", "t2"):
                await stage.ask(space, apart, name, "web")
            await asyncio.sleep(30)
            await label(stage, "node-1", "b")
            await asyncio.sleep(5)
            nodes = sorted({node for units in stage.units().values() for node in units})
            return stage.where("t0", "t1", "t2"), nodes


async def label(stage: PolicyStage, node: str, pool: str) -> None:
    body = {"metadata": {"labels": {"pool": pool}}}
    await stage.simulation.ask("PATCH", f"/api/v1/nodes/{node}", body, content_type="application/merge-patch+json")


def test_a_policy_works_on_the_nodes_of_its_domain_alone_and_what_stands_on_one_that_leaves_it_stays() -> None:
    where, nodes = play(story({"nodes": {"pool": "a"}}))
    assert sorted(map(str, where)) == ["None", "node-0", "node-1"]
    assert nodes == ["node-0", "node-1"]


def test_a_policy_has_no_more_units_than_the_quota() -> None:
    where, nodes = play(story({"units": 2}))
    assert sum(node is not None for node in where) == 2
    assert len(nodes) == 2
