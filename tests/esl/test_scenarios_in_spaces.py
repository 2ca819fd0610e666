"""Scenarios 7, 9, 10 and 16 on a whole cluster, in virtual time, in every space."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from extender.esl.compositions.composed import AllOf
from extender.esl.policies.anti_affinity import PairedAntiAffinity
from extender.esl.policies.balance import Balance, DynamicBalance
from extender.esl.policies.co_location import CoLocation
from extender.esl.policies.fair_share import FairShare
from extender.esl.policies.signal import Signal
from tests.esl.policy_stage import SPACES, PolicyStage, of, on_stage

every_space = pytest.mark.parametrize("space", SPACES)


@every_space
def test_four_tasks_on_two_nodes_are_two_and_two(space: str) -> None:
    async def story(stage: PolicyStage) -> None:
        even = of(space, Balance, "even", tasks=4)
        async with stage.space(space, [even]) as policies:
            askers = stage.askers(space, policies)
            names = [f"t{n}" for n in range(4)]
            for n, name in enumerate(names):
                await stage.ask(askers[n % 2], even, name)
            await stage.until(lambda: None not in stage.where(*names), 30, "all four")
            assert Counter(stage.where(*names)) == {"node-0": 2, "node-1": 2}

    on_stage(story, nodes=2)


@every_space
def test_ten_tasks_of_an_unknown_number_all_run_and_nodes_differ_by_one_at_most(space: str) -> None:
    async def story(stage: PolicyStage) -> None:
        even = of(space, DynamicBalance, "even")
        async with stage.space(space, [even]) as policies:
            askers = stage.askers(space, policies)
            names = [f"t{n}" for n in range(10)]
            for n, name in enumerate(names):
                await stage.ask(askers[n % 2], even, name)
            await stage.until(lambda: None not in stage.where(*names), 120, "all ten")
            assert Counter(stage.where(*names)) == {"node-0": 5, "node-1": 5}

    on_stage(story, nodes=2)


@every_space
def test_each_of_two_pairs_is_together_and_no_node_has_both(space: str) -> None:
    async def story(stage: PolicyStage) -> None:
        parts = of(space, CoLocation, "together"), of(space, PairedAntiAffinity, "apart", pairs=[("p", "q")])
        both = of(space, AllOf, "both", *parts)
        async with stage.space(space, [both]) as policies:
            askers = stage.askers(space, policies)
            for n, group in enumerate("pqpq"):
                await stage.ask(askers[n % 2], both, f"{group}{n}", group)
            await stage.until(lambda: None not in stage.where("p0", "q1", "p2", "q3"), 60, "both pairs")
            first, second, third, fourth = stage.where("p0", "q1", "p2", "q3")
            assert first == third != second == fourth

    on_stage(story, nodes=2)


@every_space
def test_a_successor_of_three_starts_only_after_all_three_have_succeeded(space: str) -> None:
    async def story(stage: PolicyStage) -> None:
        graph = of(space, Signal, "graph", after={"last": ["a", "b", "c"]})
        async with stage.space(space, [graph]) as policies:
            one, other = stage.askers(space, policies)
            await stage.ask(other, graph, "last")
            for name, seconds in (("a", "5"), ("b", "20"), ("c", "60")):
                await stage.ask(one, graph, name, seconds=seconds)
            await asyncio.sleep(50)
            assert None not in stage.where("a", "b", "c")
            assert stage.where("last") == [None]
            await stage.until(lambda: stage.where("last") != [None], 60, "the successor")

            def phase(name: str) -> str:
                return next(str(pod["status"]["phase"]) for pod in stage.all_pods() if pod["metadata"]["name"] == name)

            assert [phase(name) for name in "abc"] == ["Succeeded"] * 3

    on_stage(story)


@every_space
def test_users_have_their_weights_part_as_they_come_and_idle_and_what_runs_is_left_alone(space: str) -> None:
    async def story(stage: PolicyStage) -> None:
        fair = of(space, FairShare, "fair")

        def shares() -> dict[str, int]:
            units = stage.units()
            return {user: len(units.get(f"fair--{user}", {})) for user in "abc"}

        async with stage.space(space, [fair]) as policies:
            one, _ = stage.askers(space, policies)

            async def comes(user: str, weight: int, parent: str | None = None) -> None:
                await policies.do(lambda now: fair.create_user(user, weight, parent, now=now))

            await comes("p", 1)
            await comes("a", 2, "p")
            await stage.until(lambda: shares() == {"a": 10, "b": 0, "c": 0}, 30, "all for the one who is there")
            await stage.ask(one, fair, "runs", "a")
            await stage.until(lambda: stage.where("runs") != [None], 30, "the task")
            there = stage.where("runs")
            await comes("b", 3, "p")
            await stage.until(lambda: shares() == {"a": 4, "b": 6, "c": 0}, 30, "two to three")
            await comes("q", 1)
            await comes("c", 1, "q")
            await stage.until(lambda: shares() == {"a": 2, "b": 3, "c": 5}, 30, "parents alike")
            await policies.do(lambda now: fair.set_idle("b", now=now))
            await stage.until(
                lambda: shares() == {"a": 5, "b": 0, "c": 5}, 30, "what who is idle leaves to its sibling"
            )
            assert stage.where("runs") == there

    on_stage(story, nodes=10)
