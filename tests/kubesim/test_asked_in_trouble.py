"""Policies that are asked, when something goes wrong: crashes, a silent API server, quotas, names that are taken."""

from __future__ import annotations

import asyncio
import random

import pytest

from extender.app.contracts.errors import NotYet
from extender.app.contracts.kind import Identity
from extender.app.escher_policies import esl_controller as asked
from extender.app.escher_policies.esl_controller import EslController
from extender.app.escher_policies.esl_host import EslHost
from extender.core.policies import policy_types
from extender.core.policies.policy_types import PolicyInForce
from extender.esl import hosted
from extender.esl.policies.queue import Queue
from extender.esl.runtime.policy_esl import Task
from extender.kube.client.requests import MERGE_PATCH
from extender.kube.errors import Refused, Unavailable
from extender.settings.settings import Settings
from kubesim.apiserver.serving.faults import Fault
from tests.adapters.http.told import problem
from tests.kubesim.asking import EPHEMERAL_RESOURCE, TEAM, asking

pytestmark = pytest.mark.anyio

POLICIES = "/apis/escher.dev/v1alpha1/namespaces/team/escherpolicies"
OBJECTS = EPHEMERAL_RESOURCE.path(TEAM)


# -- an end


async def test_what_a_policy_has_set_goes_with_it_and_what_runs_is_left_alone() -> None:
    async with asking() as cluster:
        await cluster.put("slots", "queue")
        await cluster.run("slots", task="a")
        await cluster.run("slots", task="b")
        await cluster.until(cluster.running, what="the first")
        [ran] = cluster.running()
        await cluster.ok("DELETE", "/slots")
        await cluster.until(lambda: not cluster.objects() and not cluster.units("slots--unit"), what="nothing of it")
        await asyncio.sleep(120)
        assert (cluster.running(), cluster.phase(ran)) == ({ran}, "Running")
        problem(await cluster.ask("POST", "/slots:ask", {"task": {"name": "c"}}), 404, "name")
        await cluster.put("slots", "queue", capacity=2)
        await cluster.until(lambda: cluster.running() == {"a", "b"}, what="both, when it is there again")


async def test_a_policy_that_becomes_another_type_leaves_nothing_of_the_former() -> None:
    async with asking() as cluster:
        await cluster.put("x", "queue")
        await cluster.run("x", task="a")
        await cluster.until(cluster.running, what="the task")
        await cluster.put("x", "shares", users=[{"name": "unit"}, {"name": "web"}])
        await cluster.until(lambda: set(cluster.objects()) == {"x--unit", "x--web"}, what="marks of users")
        assert {len(nodes) for nodes in cluster.objects().values()} <= {1, 2}
        await cluster.put("x", "bin-packing")
        await cluster.until(lambda: not cluster.objects(), what="nothing of it")
        assert cluster.running() == {"a"}


async def test_what_is_refused_of_a_change_leaves_the_policy_at_work_as_it_was() -> None:
    async with asking() as cluster:
        await cluster.put("graph", "signal", successors=[{"name": "b", "after": ["a"]}])
        spec = {"type": "signal", "parameters": {"successors": [{"name": "b", "after": ["b"]}]}}
        await cluster.simulation.ask("PATCH", f"{POLICIES}/graph", {"spec": spec}, content_type=MERGE_PATCH)
        await asyncio.sleep(5)
        state = await cluster.ok("GET", "/graph")
        assert (state["ready"], state["reason"]) == (False, "Invalid")
        assert "parameters.successors: policy 'graph': b would wait" in state["message"]
        assert (await cluster.told("graph", "b"))["requirement"] == {"escher.dev/team.graph--a": "1"}
        await cluster.simulation.restart()
        await asyncio.sleep(2)
        assert (await cluster.told("graph", "b"))["requirement"] == {"escher.dev/team.graph--a": "1"}


async def test_one_that_was_never_in_force_cannot_be_asked_and_says_why() -> None:
    async with asking(nodes=1) as cluster:
        spec = {"type": "signal", "parameters": {"successors": [{"name": "b", "after": ["b"]}]}}
        body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": "graph"}}
        await cluster.simulation.ask("POST", POLICIES, {**body, "spec": spec})
        await asyncio.sleep(5)
        refused = await cluster.ask("POST", "/graph:ask", {"task": {"name": "b"}})
        problem(refused, 409, "name")
        assert refused.json()["type"].endswith(":not-in-force")
        assert "b would wait for each other" in refused.json()["detail"]


# -- crashes


async def test_after_a_crash_it_goes_on_and_who_was_answered_before_is_known_when_its_pod_comes() -> None:
    async with asking() as cluster:
        await cluster.put("slots", "queue", capacity=2)
        await cluster.run("slots", task="a")
        await cluster.until(cluster.running, what="the first")
        answers = [await cluster.told("slots", name) for name in "bc"]
        await asyncio.sleep(5)
        await cluster.simulation.restart()
        await asyncio.sleep(10)
        assert cluster.running() == {"a"}
        for name, answer in zip("bc", answers, strict=True):
            await cluster.create(name, answer)
        await cluster.until(lambda: len(cluster.running()) == 2, what="the second")
        await asyncio.sleep(60)
        assert len(cluster.running()) == 2
        for name in cluster.running():
            await cluster.delete(name)
        await cluster.until(cluster.running, what="the third")


async def test_what_has_succeeded_is_known_after_a_crash_when_its_pods_are_gone() -> None:
    async with asking() as cluster:
        await cluster.put("graph", "signal", successors=[{"name": "last", "after": ["a", "b"]}])
        await cluster.run("graph", task="a", seconds="5")
        await cluster.until(lambda: cluster.phase("a") == "Succeeded", what="a")
        await asyncio.sleep(5)
        await cluster.delete("a")
        await asyncio.sleep(600)
        await cluster.simulation.restart()
        await cluster.run("graph", task="last")
        await cluster.run("graph", task="b", seconds="5")
        await cluster.until(lambda: cluster.node_of("last"), what="the successor")


async def test_a_policy_that_goes_while_the_service_is_away_leaves_nothing() -> None:
    async with asking() as cluster:
        await cluster.by_hand("slots--mine", **{"node-0": 3})
        await cluster.put("slots2", "queue")
        await cluster.put("graph", "queue")
        for name in ("slots2", "graph"):
            await cluster.told(name, "a")
        await cluster.until(lambda: len(cluster.objects()) == 3, what="both")
        cluster.simulation.kill()
        await cluster.simulation.ask("DELETE", f"{POLICIES}/slots2")
        spec = {"spec": {"type": "bin-packing", "parameters": {"capacity": None}}}
        await cluster.simulation.ask("PATCH", f"{POLICIES}/graph", spec, content_type=MERGE_PATCH)
        await cluster.simulation.restart()
        await cluster.until(lambda: set(cluster.objects()) == {"slots--mine"}, what="nothing of theirs")
        assert cluster.objects()["slots--mine"] == {"node-0": 3}


@pytest.mark.parametrize("seed", range(4))
async def test_whenever_it_crashes_no_more_run_than_the_queue_says_and_nothing_is_left(seed: int) -> None:
    chance = random.Random(seed)
    async with asking(nodes=2) as cluster:
        await cluster.put("slots", "queue", capacity=2)
        for number in range(6):
            match chance.randrange(3):
                case 0:
                    await cluster.simulation.restart(after=chance.choice([0.0, 1.0]))
                    await asyncio.sleep(1.5)
                case 1:
                    cluster.simulation.cluster.api.faults.add(
                        Fault(Unavailable("away"), path="ephemeralresources", times=chance.randrange(1, 4))
                    )
                case _:
                    await asyncio.sleep(chance.random() * 10)
            await cluster.run("slots", task=f"t{number}", seconds=str(chance.randrange(5, 40)))
        for _ in range(400):
            await asyncio.sleep(1)
            assert len(cluster.running()) <= 2
        assert {cluster.phase(name) for name in cluster.pods()} == {"Succeeded"}
        await cluster.ok("DELETE", "/slots")
        if chance.random() < 0.5:
            cluster.simulation.kill()
            await cluster.simulation.restart()
        await cluster.until(lambda: not cluster.objects(), what="nothing of it")


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_put_and_deleted_in_whatever_trouble_only_what_is_in_force_has_anything(seed: int) -> None:
    chance = random.Random(seed)
    async with asking(nodes=2) as cluster:
        await cluster.by_hand("one--mine", **{"node-1": 3})
        for _ in range(14):
            name = chance.choice(["one", "two"])
            match chance.randrange(7):
                case 0:
                    await cluster.ask("PUT", f"/{name}", {"type": "queue", "parameters": {"capacity": 1}})
                case 1:
                    await cluster.ask(
                        "PUT", f"/{name}", {"type": "shares", "parameters": {"users": [{"name": "unit"}]}}
                    )
                case 2:
                    await cluster.ask("PUT", f"/{name}", {"type": "bin-packing"})
                case 3:
                    await cluster.ask("DELETE", f"/{name}")
                case 4:
                    cluster.simulation.cluster.api.faults.add(
                        Fault(Unavailable("away"), path="ephemeralresources", times=chance.randrange(1, 4))
                    )
                case 5:
                    await cluster.simulation.restart()
                case _:
                    await cluster.ask("POST", f"/{name}:ask", {"task": {"name": "a", "group": "unit"}})
            await asyncio.sleep(chance.choice([0.0, 0.001, 0.01, 1.0]))
        await asyncio.sleep(120)
        in_force = {each["name"]: each["type"] for each in (await cluster.ok("GET", ""))["items"]}
        objects = cluster.objects()
        assert objects.pop("one--mine") == {"node-1": 3}
        of_shares = {f"{name}--unit" for name, kind in in_force.items() if kind == "shares"}
        of_queues = {f"{name}--unit" for name, kind in in_force.items() if kind == "queue"}
        assert of_shares <= objects.keys() <= of_shares | of_queues
        assert all(objects[name] == {"node-0": 1_000_000, "node-1": 1_000_000} for name in of_shares)
        if in_force.get("two") in ("queue", "shares"):
            await cluster.run("two", task="t", group="unit")
            await cluster.until(lambda: cluster.node_of("t"), what="a task of what is in force")


@pytest.mark.parametrize("where", ["change", "take", "release_all", "handle_all"])
async def test_a_defect_is_the_policys_own_which_begins_anew(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking() as cluster:
        await cluster.put("slots", "queue")
        await cluster.put("other", "queue")
        await cluster.run("other", task="fine")
        await cluster.told("slots", "never")

        def defect(*_: object) -> None:
            monkeypatch.undo()
            raise KeyError("a defect")

        monkeypatch.setattr(hosted if where == "change" else Queue, where, defect)
        match where:
            case "change":
                await cluster.ok("PATCH", "/slots", {"parameters": {"capacity": 2}})
            case "take":
                with pytest.raises(KeyError):
                    await cluster.ask("POST", "/slots:ask", {"task": {"name": "a"}})
            case "release_all":
                await asyncio.sleep(700)
            case _:
                await cluster.create("news")
        await asyncio.sleep(5)
        await cluster.run("slots", task="b")
        await cluster.until(lambda: {"fine", "b"} <= cluster.running(), what="both policies at work")


# -- the API server


async def test_an_ask_is_answered_while_nothing_can_be_stored_and_comes_about_afterwards() -> None:
    async with asking() as cluster:
        await cluster.put("slots", "queue")
        away = Fault(Unavailable("away"), path="ephemeralresources", times=None)
        cluster.simulation.cluster.api.faults.add(away)
        await cluster.run("slots", task="a")
        await asyncio.sleep(60)
        assert cluster.node_of("a") is None
        cluster.simulation.cluster.api.faults.remove(away)
        await cluster.until(lambda: cluster.node_of("a"), what="the task")
        cluster.simulation.cluster.api.faults.add(away)
        await cluster.ok("DELETE", "/slots")
        await asyncio.sleep(60)
        assert cluster.objects()
        cluster.simulation.cluster.api.faults.remove(away)
        await cluster.until(lambda: not cluster.objects(), what="nothing of it")


async def test_what_a_quota_refuses_is_told_and_tried_again() -> None:
    async with asking() as cluster:
        await cluster.put("slots", "queue")
        full = Fault(Refused(403, "exceeded quota: objects"), method="POST", path="ephemeralresources", times=None)
        cluster.simulation.cluster.api.faults.add(full)
        assert (await cluster.told("slots", "a"))["notices"] == []
        await asyncio.sleep(5)
        [notice] = (await cluster.told("slots", "a"))["notices"]
        assert notice.startswith("escher.dev/team.slots--unit cannot be set: ")
        assert "exceeded quota: objects" in notice
        assert "exceeded quota: objects" in (await cluster.ok("GET", "/slots"))["message"]
        await cluster.run("slots", task="a")
        cluster.simulation.cluster.api.faults.remove(full)
        await cluster.until(lambda: cluster.node_of("a"), what="the task, when there is room")
        assert (await cluster.told("slots", "a"))["notices"] == []


async def test_a_node_that_can_have_no_more_keys_is_told() -> None:
    async with asking(nodes=1, settings=Settings.model_validate({"max_ephemeral_resources_per_node": 1})) as cluster:
        await cluster.by_hand("other", **{"node-0": 1})
        await cluster.put("slots", "queue")
        await cluster.told("slots", "a")
        await asyncio.sleep(5)
        [notice] = (await cluster.told("slots", "a"))["notices"]
        assert "node-0 has 1 ephemeral resources; the limit is 1" in notice


async def test_a_name_that_is_taken_is_left_alone_and_nobody_is_told_to_wait_for_it() -> None:
    async with asking() as cluster:
        await cluster.by_hand("slots--unit", **{"node-0": 7})
        await cluster.put("slots", "queue")
        refused = await cluster.ask("POST", "/slots:ask", {"task": {"name": "a"}})
        problem(refused, 409, "name")
        said = "team/slots--unit already exists and belongs to no policy: delete it, or give the policy another name"
        assert said in refused.json()["detail"]
        assert said in (await cluster.ok("GET", "/slots"))["message"]
        await cluster.ok("DELETE", "/slots")
        await asyncio.sleep(120)
        assert cluster.objects() == {"slots--unit": {"node-0": 7}}
        await cluster.put("slots", "queue")
        await cluster.simulation.ask("DELETE", f"{OBJECTS}/slots--unit")
        await asyncio.sleep(1)
        await cluster.run("slots", task="a")
        await cluster.until(lambda: cluster.node_of("a"), what="the task, when the name is free")


async def test_a_name_that_is_taken_while_it_waits_for_its_unit_is_tried_when_it_is_free() -> None:
    async with asking() as cluster:
        await cluster.put("slots", "queue")
        away = Fault(Unavailable("away"), method="POST", path="ephemeralresources", user="escher", times=None)
        cluster.simulation.cluster.api.faults.add(away)
        await cluster.run("slots", task="a")
        await cluster.by_hand("slots--unit", **{"node-9": 7})
        cluster.simulation.cluster.api.faults.remove(away)
        await asyncio.sleep(20)
        assert cluster.objects() == {"slots--unit": {"node-9": 7}}
        await cluster.simulation.ask("DELETE", f"{OBJECTS}/slots--unit")
        await cluster.until(lambda: cluster.node_of("a"), within=10, what="the task, when the name is free")


async def test_a_policy_that_goes_while_it_is_asked_is_told_to_who_asks() -> None:
    async with asking() as cluster:
        await cluster.put("slots", "queue")
        asks = cluster.simulation.application.asked
        [host] = asks._hosts.values()
        assert host.at_work is not None
        space, _ = host.at_work
        space._work._pace.not_before = asyncio.get_running_loop().time() + 10
        waiting = asyncio.create_task(asks.ask_policy(Identity(TEAM, "slots"), Task("a")))
        await asyncio.sleep(1)
        await cluster.ok("DELETE", "/slots")
        with pytest.raises(NotYet, match="restarts; ask again"):
            await waiting
        await asyncio.sleep(60)
        assert cluster.objects() == {}


# -- what is remembered


async def test_an_ask_without_a_pod_is_forgotten_in_the_end_and_its_answer_stays_good() -> None:
    async with asking() as cluster:
        await cluster.put("slots", "queue", capacity=5)
        answer = await cluster.told("slots", "never")
        await cluster.run("slots", task="runs", seconds="5000")
        await asyncio.sleep(60)
        assert cluster.units("slots--unit").total() == 2
        await asyncio.sleep(700)
        assert cluster.units("slots--unit").total() == 1
        await cluster.create("never", answer)
        await cluster.until(lambda: cluster.running() == {"runs", "never"}, what="the task after all")


async def test_more_tasks_than_a_policy_remembers_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "MOST_TASKS", 2)
    async with asking(nodes=1) as cluster:
        await cluster.put("slots", "queue")
        for name in "aba":
            await cluster.told("slots", name)
        refused = await cluster.ask("POST", "/slots:ask", {"task": {"name": "c"}})
        problem(refused, 503, "name")
        assert refused.headers["retry-after"] == "30"
        assert "has 2 unfinished tasks" in refused.json()["detail"]


async def test_a_policy_that_is_not_at_work_yet_is_asked_again() -> None:
    async with asking(nodes=1) as cluster:
        # It begins when all of the service's other work does.
        asks = EslController(
            EslHost(cluster.simulation.application.scheduler.cache, cluster.simulation.application.resources, never),
            NobodyHeeds(),
            lambda name: PolicyInForce(policy_types.Queue()),
            lambda: True,
        )
        asks.put(Identity(TEAM, "slots"), PolicyInForce(policy_types.Queue()))
        running = asyncio.create_task(asks.run())
        began = asyncio.get_running_loop().time()
        with pytest.raises(NotYet, match="policy team/slots has not started yet; ask again"):
            await asks.ask_policy(Identity(TEAM, "slots"), Task("a"))
        assert asyncio.get_running_loop().time() == began + 2
        running.cancel()


async def never() -> None:
    await asyncio.Event().wait()


class NobodyHeeds:
    def put(self, name: Identity, policy: PolicyInForce) -> None: ...

    def drop(self, name: Identity) -> None: ...
