"""Policies that are asked over HTTP, and carried out in the service: scenarios 6, 10 and 16, and what each answers."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from extender.adapters.policy_models import ASKED, example
from extender.core.policies.policy_types import TYPES
from tests.adapters.http.told import problem
from tests.kubesim.asking import asking

pytestmark = pytest.mark.anyio

USERS = [{"name": "p"}, {"name": "a", "weight": 2, "parent": "p"}]
B = {"name": "b", "weight": 3, "parent": "p"}
OTHERS = [{"name": "q"}, {"name": "c", "parent": "q"}]


async def test_a_successor_of_three_starts_only_after_all_three_have_succeeded() -> None:
    """Scenario 10."""
    async with asking() as cluster:
        await cluster.put("graph", "signal", successors=[{"name": "last", "after": ["a", "b", "c"]}])
        answer = await cluster.run("graph", task="last")
        keys = {f"escher.dev/team.graph--{each}": "1" for each in "abc"}
        assert (answer["requirement"], answer["labels"]) == (keys, {"esl.escher.dev/graph": "last"})
        for name, seconds in (("a", "5"), ("b", "20"), ("c", "60")):
            assert (await cluster.run("graph", task=name, seconds=seconds))["requirement"] == {}
        await asyncio.sleep(50)
        assert [cluster.phase(name) for name in "abc"] == ["Succeeded", "Succeeded", "Running"]
        assert cluster.node_of("last") is None
        await cluster.until(lambda: cluster.node_of("last"), what="the successor")
        assert cluster.phase("c") == "Succeeded"


async def test_what_has_succeeded_otherwise_is_said_in_the_policy() -> None:
    async with asking() as cluster:
        successors = [{"name": "last", "after": ["data"]}]
        await cluster.put("graph", "signal", successors=successors)
        await cluster.run("graph", task="last")
        await asyncio.sleep(20)
        assert cluster.node_of("last") is None
        await cluster.ok("PATCH", "/graph", {"parameters": {"succeeded": ["data"]}})
        await cluster.until(lambda: cluster.node_of("last"), what="the successor")


async def test_as_many_run_as_the_queue_says_now_and_lowering_it_ends_none() -> None:
    async with asking() as cluster:
        await cluster.put("slots", "queue")
        for number in range(4):
            await cluster.run("slots", task=f"t{number}", needs={"cpu": "100m"})
        await cluster.until(cluster.running, what="the first")
        await asyncio.sleep(60)
        assert len(cluster.running()) == 1
        await cluster.ok("PATCH", "/slots", {"parameters": {"capacity": 3}})
        await cluster.until(lambda: len(cluster.running()) == 3, what="three at once")
        ran = cluster.running()
        await cluster.ok("PATCH", "/slots", {"parameters": {"capacity": 1}})
        await asyncio.sleep(30)
        assert cluster.running() == ran
        for name in sorted(ran)[:2]:
            await cluster.delete(name)
        await asyncio.sleep(60)
        assert cluster.running() < ran
        [left] = cluster.running()
        await cluster.delete(left)
        await cluster.until(cluster.running, what="the one that waited")
        assert not cluster.running() & ran


async def test_fifty_who_ask_at_the_same_moment_add_exactly_fifty() -> None:
    """Scenario 6."""
    async with asking() as cluster:
        await cluster.put("slots", "queue", capacity=1000)
        names = [f"t{number}" for number in range(50)]
        answers = await asyncio.gather(*(cluster.told("slots", name) for name in names))
        assert {each["labels"]["esl.escher.dev/slots"] for each in answers} == set(names)
        assert len({tuple(each["effects"]) for each in answers}) == 1, "they are decided together"
        await asyncio.sleep(10)
        assert cluster.units("slots--unit").total() == 50
        await asyncio.gather(*(cluster.told("slots", name) for name in names))
        await asyncio.sleep(10)
        assert cluster.units("slots--unit").total() == 50


async def test_users_have_their_weights_part_of_100_nodes_as_they_come_and_idle() -> None:
    """Scenario 16."""
    async with asking(nodes=100) as cluster:

        def shares() -> list[int]:
            return [len(cluster.objects().get(f"fair--{user}", {})) for user in "abc"]

        await cluster.put("fair", "shares", users=USERS)
        await cluster.until(lambda: shares() == [100, 0, 0], what="all for the one who is there")
        await cluster.run("fair", task="runs", group="a")
        await cluster.until(lambda: cluster.node_of("runs"), what="the task")
        there = cluster.node_of("runs")
        await cluster.put("fair", "shares", users=[*USERS, B])
        await cluster.until(lambda: shares() == [40, 60, 0], what="two to three")
        await cluster.put("fair", "shares", users=[*USERS, B, *OTHERS])
        await cluster.until(lambda: shares() == [20, 30, 50], what="parents alike")
        await cluster.put("fair", "shares", users=[*USERS, {**B, "idle": True}, *OTHERS])
        await cluster.until(lambda: shares() == [50, 0, 50], what="what who is idle leaves")
        assert cluster.node_of("runs") == there
        await cluster.run("fair", task="mine", group="a")
        await cluster.until(lambda: cluster.node_of("mine"), what="a task of a")
        assert cluster.node_of("mine") in cluster.objects()["fair--a"]
        problem(await cluster.ask("POST", "/fair:ask", {"task": {"name": "x", "group": "z"}}), 422, "task.group")


async def test_who_has_a_share_and_is_to_be_near_its_data_is_where_both_are() -> None:
    """Scenario 16."""
    async with asking(nodes=4) as cluster:
        await cluster.put("fair", "shares", users=[{"name": "a"}, {"name": "b"}])
        await cluster.put("near", "data-locality", data=["data1"])
        await cluster.until(lambda: len(cluster.objects()) == 2, what="the shares")
        [_, mine], [theirs, _] = (sorted(cluster.objects()[f"fair--{user}"]) for user in "ab")
        await cluster.by_hand("data1", **{mine: 5, theirs: 5})
        for number in range(3):
            await cluster.run("fair", "near", task=f"t{number}", group="a")
        await cluster.until(lambda: len(cluster.running()) == 3, what="all three")
        assert {cluster.node_of(f"t{number}") for number in range(3)} == {mine}


async def test_two_policies_of_a_namespace_are_both_kept_to() -> None:
    async with asking() as cluster:
        await cluster.put("graph", "signal", successors=[{"name": "b", "after": ["a"]}, {"name": "c", "after": ["a"]}])
        await cluster.put("one", "queue")
        await cluster.run("graph", task="a", seconds="20")
        for name in "bc":
            await cluster.run("graph", "one", task=name, seconds="30")
        await asyncio.sleep(10)
        assert cluster.running() == {"a"}
        await cluster.until(lambda: cluster.running() & {"b", "c"}, what="the first")
        first = cluster.running()
        assert len(first) == 1
        await cluster.until(lambda: cluster.running() and cluster.running() != first, what="the second")
        assert {cluster.phase(name) for name in first} == {"Succeeded"}


async def test_one_that_pods_name_answers_that() -> None:
    async with asking(nodes=1) as cluster:
        for kind in [kind for kind in TYPES if kind not in ASKED]:
            await cluster.put("near", kind, **example(kind))
            answer = await cluster.told("near", "a")
            assert answer == {
                "namespace": "team",
                "policy": "near",
                "type": kind,
                "task": "a",
                "requirement": {},
                "labels": {},
                "annotations": {"escher.dev/policy": "near"},
                "schedulerName": "escher",
                "effects": [],
                "notices": [],
            }


async def test_an_answer_says_what_was_done_for_it_and_a_dry_run_does_nothing() -> None:
    async with asking() as cluster:
        await cluster.put("slots", "queue", capacity=2)
        body = {"task": {"name": "a", "needs": {"cpu": 1}}}
        dry = await cluster.ok("POST", "/slots:ask?dryRun=All", body)
        assert (dry["effects"], cluster.objects()) == ([], {})
        answer = await cluster.ok("POST", "/slots:ask", body)
        assert answer == {**dry, "effects": ["escher.dev/team.slots--unit becomes 1 on node-0"]}
        await cluster.until(cluster.objects, what="the unit")
        assert await cluster.ok("POST", "/slots:ask", body) == dry, "asked again"


async def test_who_only_names_it_is_told_to_ask() -> None:
    async with asking() as cluster:
        await cluster.put("slots", "queue")
        await cluster.create("names", **{"escher.dev/policy": "slots"})
        await cluster.until(lambda: "naming policy slots is not enough" in cluster.reasons("names"), what="the event")
        answer = await cluster.told("slots", "asks")
        await cluster.create("asks", {**answer, "annotations": {"escher.dev/policy": "slots"}})
        await cluster.until(lambda: cluster.node_of("asks"), what="who has asked")
        assert cluster.node_of("names") is None
        assert (await cluster.ok("GET", "/slots"))["pods"] == 1
        await cluster.ok("DELETE", "/slots")
        await cluster.put("slots", "bin-packing")
        await cluster.until(lambda: cluster.node_of("names"), what="who names it, when that is enough")


BAD_ASKS: list[tuple[object, str, str]] = [
    ({}, "task", "task is missing"),
    ({"task": {}}, "task.name", "is missing"),
    ({"task": {"name": "A"}}, "task.name", "'A' is not a DNS label"),
    ({"task": {"name": 4}}, "task.name", "not 4"),
    ({"task": {"name": "a", "group": "b c"}}, "task.group", "'b c' is not a DNS label"),
    ({"task": {"name": "a", "nedes": {}}}, "task.nedes", "is an unknown field"),
    ({"task": {"name": "a", "needs": {"cpu": "x"}}}, "task.needs", "cpu"),
    ({"task": {"name": "a", "node_labels": {"zone": 1}}}, "task.node_labels.zone", "not 1"),
]


async def test_a_bad_ask_is_told_its_field_and_value() -> None:
    async with asking(nodes=1) as cluster:
        await cluster.put("slots", "queue")
        await cluster.put("near", "bin-packing")
        for name, (body, field, said) in itertools.product(("slots", "near"), BAD_ASKS):
            refused = await cluster.ask("POST", f"/{name}:ask", body)
            problem(refused, 422, field)
            assert said in refused.json()["detail"]


@pytest.mark.parametrize(
    ("name", "body", "field", "said"),
    [
        (
            "graph",
            {
                "type": "signal",
                "parameters": {"successors": [{"name": "a", "after": ["b"]}, {"name": "b", "after": ["a"]}]},
            },
            "parameters.successors",
            "a, b would wait for each other forever",
        ),
        (
            "graph",
            {"type": "signal", "parameters": {"successors": [{"name": "a", "after": ["b"]}] * 2}},
            "parameters.successors",
            "'a' is listed twice",
        ),
        (
            "fair",
            {"type": "shares", "parameters": {"users": [{"name": "a", "parent": "b"}]}},
            "parameters.users",
            "parent of user 'a' is 'b', which does not exist",
        ),
        (
            "fair",
            {"type": "shares", "parameters": {"users": [{"name": "x" * 60}]}},
            "parameters.users",
            "has 66 characters; the limit is 63",
        ),
        ("a--b", {"type": "queue"}, "name", "has '--'"),
        ("slots", {"type": "queue", "selector": {}}, "selector", "type queue is asked and selects no pods; remove it"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_it_is_stored(
    name: str, body: object, field: str, said: str
) -> None:
    async with asking(nodes=1) as cluster:
        refused = await cluster.ask("PUT", f"/{name}", body)
        problem(refused, 422, field)
        assert said in refused.json()["detail"]
        problem(await cluster.ask("GET", f"/{name}"), 404, "name")
        problem(await cluster.ask("POST", f"/{name}:ask", {"task": {"name": "a"}}), 404, "name")
