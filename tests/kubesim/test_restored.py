"""An etcd restored from a backup, whatever its versions: Escher's picture of every kind is what the API server says.

Each kind x each restore (versions go on, go back, stay the same) x what the service does meanwhile (leads, follows,
starts) x whether the API server was away. Virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from extender.bootstrap import Application
from extender.core.ledger import HoldingKind
from extender.kube.errors import Away
from extender.simulated_service import ServiceLife
from kubesim.apiserver.in_process import InProcess
from kubesim.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    DISRUPTION_BUDGET,
    JOB,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    Json,
    Kind,
)
from kubesim.store import Store
from kubesim.virtual_time import VirtualTimeLoop
from loadtests.life.hands import Hands
from loadtests.life.people import GROUP_DEFINITION
from loadtests.life.policies import HARMLESS, POLICY
from loadtests.life.seeing import name, uid
from loadtests.life.works import POD_GROUP
from loadtests.month.agreement import ephemeral_resources, units_of
from loadtests.pods import pod
from loadtests.replicas import NAMESPACE as LEASES
from loadtests.replicas import Replicas

OTHERS = "another-scheduler"
KEY = "escher.dev/default.data"
BUMPED_BY = 1_000_000_000
AWAY = 1.5
"""Seconds for which the API server is: less than the leader may be without its Lease."""
_MENDED_WITHIN = 130.0
"""Seconds: a watch that ended before its time leads to a list within a minute, a silent one is noticed in 90 s."""
Picture = dict[str, Any]

KINDS: dict[str, tuple[Callable[[Application], Any], Callable[[Store, Kind], Any]]] = {
    "nodes": (
        lambda it: {str(each.name): each.labels.get("test/zone") for each in it.keeper.tables.nodes.values()},
        lambda store, _: {name(each): each["metadata"]["labels"].get("test/zone") for each in store.list(NODE)},
    ),
    "node status": (
        lambda it: {
            str(node): row.ephemeral.get(KEY, 0)  # type: ignore[call-overload]  # a plain text for a ResourceKey
            for node, row in it.keeper.tables.ledger.rows.items()
        },
        lambda store, _: {name(each): int(each["status"]["allocatable"].get(KEY, 0)) for each in store.list(NODE)},
    ),
    "pods": (
        lambda it: {each.name: (each.uid, each.node, each.deleting) for each in it.keeper.tables.pods.values()},
        lambda store, _: {
            name(each): (uid(each), each["spec"].get("nodeName"), "deletionTimestamp" in each["metadata"])
            for each in store.list(POD)
            if each["status"].get("phase") not in ("Succeeded", "Failed")
        },
    ),
    "what is held": (
        lambda it: sorted(
            (str(held.holder), str(held.node))
            for held in it.keeper.tables.ledger.rows.holdings()
            if held.kind is HoldingKind.BOUND
        ),
        lambda store, _: sorted(
            (uid(each), each["spec"]["nodeName"])
            for each in store.list(POD)
            if each["spec"].get("nodeName") and each["status"].get("phase") not in ("Succeeded", "Failed")
        ),
    ),
    "PodGroups": (
        lambda it: {each.name: each.min_member for each in it.keeper.population.groups.known()},
        lambda store, _: {name(each): each["spec"]["minMember"] for each in store.list(POD_GROUP)},
    ),
    "Jobs": (
        lambda it: {each.controller: each.pods for each in it.keeper.tables.around.promises.known()},
        lambda store, _: {uid(each): each["spec"]["parallelism"] for each in store.list(JOB)},
    ),
    "budgets": (
        lambda it: {each.name: each.labels["app"] for each in it.keeper.tables.around.budgets.all()},
        lambda store, _: {
            name(each): each["spec"]["selector"]["matchLabels"]["app"] for each in store.list(DISRUPTION_BUDGET)
        },
    ),
    "namespaces": (
        lambda it: sorted(it.keeper.tables.brake.labelled),
        lambda store, _: sorted(
            name(each) for each in store.list(NAMESPACE) if (each["metadata"].get("labels") or {}).get(BRAKE)
        ),
    ),
    "EphemeralResources": (
        lambda it: {str(each.name): dict(each.desired()) for each in it.resources.all()},
        lambda store, kind: {f"default/{name(each)}": units_of(each) for each in store.list(kind)},
    ),
    "EscherPolicies": (
        lambda it: {
            str(each): policy.selector[0].values[0]
            for each, policy in it.keeper.tables.governing.in_force("default").items()
        },
        lambda store, _: {name(each): each["spec"]["selector"]["matchLabels"]["app"] for each in store.list(POLICY)},
    ),
}
BRAKE = "escher.dev/preempt"


def _policy(called: str, app: str) -> Json:
    spec = {**HARMLESS, "selector": {"matchLabels": {"app": app}}}
    return {"metadata": {"name": called}, "spec": spec}


def _job(parallelism: int) -> Json:
    template = {"spec": {**pod("any", OTHERS)["spec"], "restartPolicy": "Never"}}
    return {"metadata": {"name": "job"}, "spec": {"parallelism": parallelism, "completions": 9, "template": template}}


class Story:
    """A cluster in which everything changes after a backup was made, and that is restored then."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.store = replicas.cluster.api.store
        self.resource = ephemeral_resources(replicas)
        self.hands = Hands(InProcess(replicas.cluster.api, latency=0.001, rng=replicas._drawn("hands"), user="hands"))

    async def create(self, kind: Kind, body: Json) -> None:
        if kind.namespaced:
            body["metadata"]["namespace"] = "default"
        said = {"apiVersion": kind.api_version, "kind": kind.name, **body}
        assert await self.hands.create(kind, said) is not None, body

    def got(self, kind: Kind, called: str) -> Json:
        found = self.store.get(kind, "default" if kind.namespaced else "", called)
        assert found is not None
        return found

    async def merge(self, kind: Kind, called: str, patch: Json) -> None:
        assert await self.hands.merge(kind, self.got(kind, called), patch)

    async def delete(self, kind: Kind, called: str) -> None:
        assert await self.hands.delete(kind, self.got(kind, called))

    async def before(self) -> None:
        await self.create(CUSTOM_RESOURCE_DEFINITION, GROUP_DEFINITION)
        await asyncio.sleep(2)
        await self.create(POD_GROUP, {"metadata": {"name": "group"}, "spec": {"minMember": 2}})
        await self.create(NAMESPACE, {"metadata": {"name": "team", "labels": {BRAKE: "off"}}})
        await self.create(JOB, _job(2))
        await self.create(DISRUPTION_BUDGET, _budget("budget", "a"))
        await self.create(POLICY, _policy("policy", "a"))
        await self.create(self.resource, {"metadata": {"name": "data"}, "spec": {"nodes": {"node-0": 4}}})
        for called, grace in (("waits", 0), ("goes", 0), ("leaves", 600), ("ends", 0)):
            await self.create(POD, pod(called, OTHERS, grace=grace, cpu="100m"))
        for called in ("leaves", "ends"):
            await self.hands.bind(self.got(POD, called), "node-1")
        await asyncio.sleep(130)

    async def after(self) -> None:
        await self.merge(POD_GROUP, "group", {"spec": {"minMember": 5}})
        await self.merge(NAMESPACE, "team", {"metadata": {"labels": {BRAKE: None}}})
        await self.merge(JOB, "job", {"spec": {"parallelism": 3}})
        await self.delete(DISRUPTION_BUDGET, "budget")
        await self.create(DISRUPTION_BUDGET, _budget("later", "b"))
        await self.delete(POLICY, "policy")
        await self.create(POLICY, _policy("later", "b"))
        await self.merge(self.resource, "data", {"spec": {"nodes": {"node-0": 9}}})
        await self.create(self.resource, {"metadata": {"name": "later"}, "spec": {"nodes": {"node-2": 5}}})
        await self.merge(NODE, "node-2", {"metadata": {"labels": {"test/zone": "b"}}})
        await self.hands.bind(self.got(POD, "waits"), "node-0")
        await self.delete(POD, "goes")
        await self.delete(POD, "leaves")
        await self.merge_status(POD, "ends", {"phase": "Succeeded"})
        await self.create(POD, pod("later", OTHERS, cpu="100m"))
        await asyncio.sleep(130)

    async def merge_status(self, kind: Kind, called: str, status: Json) -> None:
        assert await self.hands.merge(kind, self.got(kind, called), {"status": status}, "status")

    def lives(self) -> list[ServiceLife]:
        return list(self.replicas.by_port.values())

    def known(self) -> Picture | None:
        """What the service that leads has; None: there is none that does."""
        leader = self.replicas.leader
        if leader is None or not leader.application.ready():
            return None
        return {kind: known(leader.application) for kind, (known, _) in KINDS.items()}

    def said(self) -> Picture:
        return {kind: said(self.store, self.resource) for kind, (_, said) in KINDS.items()}


def _budget(called: str, app: str) -> Json:
    return {"metadata": {"name": called}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": app}}}}


async def _tell(how: str, role: str, away: bool) -> tuple[Picture, Picture, Picture]:
    """What the service had before, what it has some time after, and what the API server says then."""
    async with Replicas(nodes=3) as replicas:
        story = Story(replicas)
        await story.before()
        backup = story.store.back_up()
        await story.after()
        before = story.known()
        assert before is not None
        leader, version = replicas.leader, story.store.version
        if role == "starts":
            for life in story.lives():
                life.kill(losing=True)
            # The Lease runs out, and another has begun to list.
            await _until(lambda: replicas.leader not in (None, leader))
            await asyncio.sleep(0.003)
        if away:
            for life in story.lives():
                life.line.turn_away(Away("connection refused"))
        replicas.restore(backup, {"on": version + BUMPED_BY, "back": None, "same": version}[how])
        if away:
            await asyncio.sleep(AWAY)
            for life in story.lives():
                life.line.let_in()
        if role == "follows":
            assert leader is not None
            leader.kill(losing=True)
            await _until(lambda: replicas.leader not in (None, leader))
        await _until(lambda: story.known() == story.said(), complains=False)
        after = story.known()
        assert after is not None
        assert (replicas.leader is leader) == (role == "leads")
        return before, after, story.said()


async def _until(holds: Callable[[], bool], *, complains: bool = True) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _MENDED_WITHIN
    while not holds() and loop.time() < deadline:
        await asyncio.sleep(0.5 if not complains else 0.001)
    assert not complains or holds()


@cache
def _told(how: str, role: str, away: bool) -> tuple[Picture, Picture, Picture]:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_tell(how, role, away))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("away", [True, False], ids=["away", "there"])
@pytest.mark.parametrize("role", ["leads", "follows", "starts"])
@pytest.mark.parametrize("how", ["on", "back", "same"])
def test_what_is_known_is_what_a_restored_api_server_says(how: str, role: str, away: bool, kind: str) -> None:
    before, after, said = _told(how, role, away)
    assert before[kind] != said[kind], "the restore changes something"
    assert after[kind] == said[kind]
