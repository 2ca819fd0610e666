"""An etcd restored from a backup, whatever its versions: Escher's picture of every kind is what the API server says.

Each kind x each restore (versions go on, go back, stay the same) x what the service does meanwhile (leads, follows,
starts) x whether the API server was away. Virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import cache

import pytest

from extender.kube.errors import Away
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    DAEMON_SET,
    DISRUPTION_BUDGET,
    JOB,
    NAMESPACE,
    NODE,
    POD,
    Json,
    Kind,
)
from kubesim.virtual_time import VirtualTimeLoop
from lab.simulated_service import ServiceLife
from loadtests.life.actors.hands import Hands
from loadtests.life.actors.people import GROUP_DEFINITION
from loadtests.life.policies import HARMLESS, POLICY
from loadtests.life.works import POD_GROUP
from loadtests.month.agreement import ephemeral_resources
from loadtests.picture import PREEMPT_LABEL, Picture, known, said
from loadtests.shared.pods import pod
from loadtests.shared.replicas import Replicas
from tests.kubesim.until import until

OTHERS = "another-scheduler"
BUMPED_BY = 1_000_000_000
AWAY = 1.5
"""Seconds for which the API server is: less than the leader may be without its Lease."""
_MENDED_WITHIN = 130.0
"""Seconds: a watch that ended before its time leads to a list within a minute, a silent one is noticed in 90 s."""


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
        await self.create(NAMESPACE, {"metadata": {"name": "team", "labels": {PREEMPT_LABEL: "off"}}})
        await self.create(JOB, _job(2))
        await self.create(DAEMON_SET, _daemons("agents"))
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
        await self.merge(NAMESPACE, "team", {"metadata": {"labels": {PREEMPT_LABEL: None}}})
        await self.merge(JOB, "job", {"spec": {"parallelism": 3}})
        await self.delete(DAEMON_SET, "agents")
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
        return known(leader.application)

    def said(self) -> Picture:
        return said(self.store, self.resource)


def _daemons(called: str) -> Json:
    labels = {"app": called}
    template = {"metadata": {"labels": labels}, "spec": {**pod("any", OTHERS)["spec"], "restartPolicy": "Always"}}
    return {"metadata": {"name": called}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


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
            await until(lambda: replicas.leader not in (None, leader), every=0.001)
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
            await until(lambda: replicas.leader not in (None, leader), every=0.001)
        with contextlib.suppress(AssertionError):
            await until(lambda: story.known() == story.said(), within=_MENDED_WITHIN, every=0.5)
        after = story.known()
        assert after is not None
        assert (replicas.leader is leader) == (role == "leads")
        return before, after, story.said()


@cache
def _told(how: str, role: str, away: bool) -> tuple[Picture, Picture, Picture]:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_tell(how, role, away))


KINDS = (
    "nodes",
    "node status",
    "pods",
    "what is held",
    "PodGroups",
    "Jobs",
    "DaemonSets",
    "budgets",
    "namespaces",
    "EphemeralResources",
    "EscherPolicies",
)


def test_no_kind_is_left_out() -> None:
    assert set(_told("on", "leads", False)[2]) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("away", [True, False], ids=["away", "there"])
@pytest.mark.parametrize("role", ["leads", "follows", "starts"])
@pytest.mark.parametrize("how", ["on", "back", "same"])
def test_what_is_known_is_what_a_restored_api_server_says(how: str, role: str, away: bool, kind: str) -> None:
    before, after, said = _told(how, role, away)
    assert before[kind] != said[kind], "the restore changes something"
    assert after[kind] == said[kind]
