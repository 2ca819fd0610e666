"""The driver: effects in order within a lane, one PATCH for what waits for a node, failures tried again or told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from extender.adapters.kubernetes.appspace.cluster_port import EslDriver
from extender.adapters.kubernetes.appspace.extended_resource_gangs import ExtendedResourceGangs, GangFailed
from extender.app.contracts.ports import PodOwner
from extender.core.names import GangKey
from extender.esl import gang
from extender.esl.base import (
    CapacityConfirmed,
    CreateGhost,
    DeleteGhost,
    Effect,
    EffectRefused,
    Event,
    EvictMember,
    Ghost,
    News,
    PodGone,
    PodSeen,
    RemoveCapacity,
    Report,
    SetCapacity,
    TimePassed,
)
from extender.esl.gangs.ghost_manifest import ghost_manifest
from extender.esl.runtime.facts import PodFacts
from extender.kube.client.requests import JSON, TIMEOUT
from extender.kube.errors import Gone, Occupied, Refused, Unavailable
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests import builders

pytestmark = pytest.mark.anyio

N1 = NodeName("n1")
A, B = ResourceKey("app.escher.dev/default.a-0"), ResourceKey("app.escher.dev/default.b-0")
GHOST = Ghost("default", "train-ghost-1", "train", {"cpu": "4", "nvidia.com/gpu": "1"}, {"nodeSelector": {"zone": "a"}})


class Api:
    """An API server of which only failures are scripted; its watch says nothing. `hold` makes writes wait."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str, Any]] = []
        self.fail: dict[str, list[Exception]] = {}
        self.answers: dict[str, bytes] = {}
        self.hold = asyncio.Event()
        self.hold.set()
        self.wrote = asyncio.Event()

    async def until_posted(self, times: int) -> None:
        while [method for method, _, _ in self.log].count("POST") < times:
            self.wrote.clear()
            await self.wrote.wait()

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
        if "/leases" in path and method != "GET":
            return b'{"metadata":{"name":"escher-ghosts-1","resourceVersion":"1"}}'
        if method == "GET" and self.fail.get("GET") and path.endswith(GHOST.name):
            raise self.fail["GET"].pop(0)
        if method == "GET":
            return self.answers.get(path.partition("?")[0], b'{"metadata":{"resourceVersion":"1"},"items":[]}')
        self.log.append((method, path, None if body is None else json.loads(body)))
        self.wrote.set()
        await self.hold.wait()
        failures = self.fail.get(method)
        if failures:
            raise failures.pop(0)
        return b"{}"

    async def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        await asyncio.Event().wait()
        yield b""


class Noted:
    """An ESL that notes what it is told, and wants what `wants` says."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.heard = asyncio.Event()
        self.due: float | None = None
        self.wants: Callable[[Event], list[Effect]] = lambda event: []

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.told.append(event)
        self.heard.set()
        if isinstance(event, TimePassed):
            self.due = None
        return self.wants(event)

    def next_deadline(self) -> float | None:
        return self.due

    async def until(self, count: int) -> list[Event]:
        while len(self.told) < count:
            self.heard.clear()
            await self.heard.wait()
        return self.told


async def no_wait(seconds: float) -> None:
    await asyncio.sleep(0)


def driver(api: Api, esl: Noted, reports: list[Report] | None = None) -> EslDriver:
    taken: list[Report] = [] if reports is None else reports
    return EslDriver(api, esl, taken.append, namespace="default", sleep=no_wait)


async def test_what_waits_for_a_node_goes_there_in_one_patch_and_the_last_word_counts() -> None:
    api, esl = Api(), Noted()
    async with driver(api, esl) as driving:
        driving.perform([SetCapacity(N1, A, 1)])
        await asyncio.sleep(0)
        api.hold.clear()
        driving.perform([SetCapacity(N1, A, 2), SetCapacity(N1, B, 1), RemoveCapacity(N1, B)])
        driving.perform([SetCapacity(N1, A, 3)])
        api.hold.set()
        await esl.until(2)
    patches = [body["status"]["allocatable"] for method, _, body in api.log if method == "PATCH"]
    assert patches[-1] == {str(A): "3", str(B): None}
    assert len(patches) <= 2
    assert [CapacityConfirmed(N1, A, 3), CapacityConfirmed(N1, B, 0)] == esl.told[-2:]


async def test_a_node_that_is_gone_has_nothing() -> None:
    api, esl = Api(), Noted()
    api.fail["PATCH"] = [Gone(404, "no such node")]
    async with driver(api, esl) as driving:
        driving.perform([SetCapacity(N1, A, 2)])
        assert await esl.until(1) == [CapacityConfirmed(N1, A, 0)]


async def test_what_is_refused_is_told_and_what_got_no_answer_is_tried_again() -> None:
    api, esl = Api(), Noted()
    api.fail["PATCH"] = [Unavailable("busy"), Unavailable("busy", 3.0), Refused(403, "forbidden")]
    api.fail["POST"] = [Unavailable("busy"), Refused(403, "exceeded quota")]
    async with driver(api, esl) as driving:
        driving.perform([SetCapacity(N1, A, 1), CreateGhost(GHOST)])
        told = await esl.until(2)
    assert EffectRefused(SetCapacity(N1, A, 1), "forbidden") in told
    assert EffectRefused(CreateGhost(GHOST), "exceeded quota") in told
    assert [method for method, _, _ in api.log].count("PATCH") == 3


@pytest.mark.parametrize(("labels", "refused"), [({"escher.dev/ghost": "train"}, False), ({}, True), (None, True)])
async def test_a_ghost_that_exists_already_is_ours_only_by_its_label(
    labels: dict[str, str] | None, refused: bool
) -> None:
    api, esl = Api(), Noted()
    api.fail["POST"] = [Occupied(409, "already exists")]
    api.fail["DELETE"] = [Gone(404, "not found")]
    path = "/api/v1/namespaces/default/pods/train-ghost-1"
    api.answers[path] = json.dumps({"metadata": {"labels": labels}}).encode()
    async with driver(api, esl) as driving:
        driving.perform([CreateGhost(GHOST), DeleteGhost("default", "train-ghost-1", "train")])
        told = await esl.until(2 if refused else 1)
    # One lane: the deletion comes after the creation.
    assert [method for method, _, _ in api.log] == ["POST", "DELETE"]
    assert told[-1] == PodGone("default", "train-ghost-1")
    assert [isinstance(event, EffectRefused) for event in told[:-1]] == [True] * refused


async def test_a_write_that_has_met_others_is_tried_again() -> None:
    """A node's status has many writers, and so has a quota in which ghosts are counted."""
    api, esl = Api(), Noted()
    api.fail["PATCH"] = [Occupied(409, "the object has been modified")]
    api.fail["POST"] = [Occupied(409, "Operation cannot be fulfilled on resourcequotas")]
    api.fail["GET"] = [Gone(404, "pods not found")]
    async with driver(api, esl) as driving:
        driving.perform([SetCapacity(N1, A, 1), CreateGhost(GHOST)])
        assert await esl.until(1) == [CapacityConfirmed(N1, A, 1)]
        await api.until_posted(2)
    assert [method for method, _, _ in api.log].count("PATCH") == 2
    assert esl.told == [CapacityConfirmed(N1, A, 1)]


async def test_a_member_that_is_to_go_is_evicted_and_one_that_is_gone_is_no_news() -> None:
    api, esl = Api(), Noted()
    api.fail["POST"] = [Unavailable("a budget does not allow it"), Gone(404, "not found"), Refused(403, "forbidden")]
    one, other = (EvictMember("default", name, PodUid(f"u-{name}")) for name in ("train-0", "train-1"))
    async with driver(api, esl) as driving:
        driving.perform([one])
        await api.until_posted(2)
        driving.perform([other])
        assert await esl.until(1) == [EffectRefused(other, "forbidden")]
    assert [path for _, path, _ in api.log] == [
        *["/api/v1/namespaces/default/pods/train-0/eviction"] * 2,
        "/api/v1/namespaces/default/pods/train-1/eviction",
    ]
    assert api.log[0][2]["deleteOptions"] == {"preconditions": {"uid": "u-train-0"}}


async def test_time_that_is_due_is_told_and_reports_come_at_once() -> None:
    api, esl, reports = Api(), Noted(), list[Report]()
    done = Report(GangKey("default", "train"), News.ENDED)
    esl.wants = lambda event: [done] if isinstance(event, TimePassed) else []
    async with driver(api, esl, reports) as driving:
        esl.due = driving.now() - 1
        driving.perform([])
        await esl.until(1)
    assert reports == [done]


async def test_a_defect_of_the_esl_is_not_swallowed() -> None:
    api, esl = Api(), Noted()

    def defect(event: Event) -> list[Effect]:
        raise KeyError("defect")

    esl.wants = defect

    async def drive() -> None:
        async with driver(api, esl) as driving:
            driving.perform([SetCapacity(N1, A, 1)])
            await esl.until(1)
            await asyncio.sleep(0)

    with pytest.raises(KeyError, match="defect"):
        await drive()


def test_what_a_new_list_no_longer_has_is_gone_and_a_namesake_is_another_pod() -> None:
    told: list[Event] = []
    facts = PodFacts(told.append)
    one, two = builders.pod("one"), builders.pod("two")
    facts.replace([one, two])
    again = builders.pod("one", uid=PodUid("another"))
    facts.replace([again])
    assert told == [PodSeen(one), PodSeen(two), PodGone("default", "one"), PodGone("default", "two"), PodSeen(again)]
    facts.remove(one)
    facts.remove(again)
    assert told[5:] == [PodGone("default", "one")]
    assert facts.known == {}


def test_a_ghost_asks_for_what_it_holds_where_the_members_may_be_and_dies_with_its_owner() -> None:
    made = ghost_manifest(GHOST, PodOwner("app-0", PodUid("u1")))
    assert made["metadata"]["labels"] == {"escher.dev/ghost": "train"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert made["spec"]["schedulerName"] == "escher-resources"
    assert made["spec"]["terminationGracePeriodSeconds"] == 0
    assert made["spec"]["nodeSelector"] == {"zone": "a"}
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "4", "nvidia.com/gpu": "1"},
        "limits": {"cpu": "4", "nvidia.com/gpu": "1"},
    }


def test_a_ghost_says_for_what_it_is_there_so_that_whoever_comes_after_a_crash_knows_it() -> None:
    ghost = Ghost("default", "train-ghost-1", "train", {"cpu": "4"}, key=str(A), run="r1")
    assert ghost_manifest(ghost, instance="abcdef")["metadata"]["labels"] == {
        "escher.dev/ghost": "train",
        "escher.dev/ghost-instance": "abcdef",
        "escher.dev/ghost-run": "r1",
        "escher.dev/ghost-key": "default.a-0",
    }


def test_a_ghost_is_let_in_where_pod_security_is_restricted() -> None:
    """As the Pod Security Standards ask: https://kubernetes.io/docs/concepts/security/pod-security-standards/."""
    spec = ghost_manifest(GHOST)["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] != 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    [container] = spec["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


async def test_a_run_that_is_given_up_cancels_its_gang_and_says_so_to_whoever_waits() -> None:
    api = Api()
    api.fail["DELETE"] = [Gone(404, "not found") for _ in range(3)]
    async with ExtendedResourceGangs(api, seed=1) as gangs:
        waiting = asyncio.create_task(gangs.run(gang("train", 2, {"cpu": "1"})))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        other = gangs.start(gang("other", 1, {"cpu": "1"}))
        other.cancel()
        assert (await other.ended()).news is News.ENDED
        with pytest.raises(GangFailed, match="gang default/other: cancelled"):
            await other.reserved()
        with pytest.raises(ValueError, match="not in namespace 'default'"):
            gangs.start(gang("train", 1, {"cpu": "1"}, namespace="elsewhere"))


async def test_leaving_the_block_waits_no_longer_than_allowed() -> None:
    api = Api()
    async with ExtendedResourceGangs(api, seed=1, end_within=0.01) as gangs:
        gangs.start(gang("train", 1, {"cpu": "1"}))
        api.fail["DELETE"] = [Unavailable("away") for _ in range(1000)]
    assert any(method == "DELETE" for method, _, _ in api.log)
