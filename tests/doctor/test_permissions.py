"""What the service needs to be allowed stands once; the page for people and the code that asks agree with it."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import bootstrap
from extender.adapters.kubernetes.codecs.policies import Policies
from extender.adapters.kubernetes.election.leader_lease import LeaderLease
from extender.adapters.kubernetes.election.leader_slice import LeaderSlice
from extender.app.admin.authorization import Caller, Right
from extender.app.contracts.kind import Declared, Identity, Replacement, Standing
from extender.app.contracts.ports import (
    EphemeralResource,
    EventType,
    Former,
    Intent,
    Notice,
    PodRef,
    ResourceChange,
    ResourceStatus,
)
from extender.bootstrap import Cluster
from extender.core.election import Record
from extender.core.names import EphemeralName
from extender.core.policies.policy_types import PolicySpec
from extender.doctor.permissions import IN_OWN_NAMESPACE, NEEDED, TO_LEAD, Permission
from extender.kube.errors import Gone, Refused, Unavailable
from extender.kube.names import NodeName, PodUid
from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION
from lab.simulation import Simulation
from tests.doctor.called import Called, Noted, permission_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


ROOT = Path(__file__).parents[2]
ASKED = {(each.group, each.resource, each.verb) for each in (*NEEDED, *IN_OWN_NAMESPACE)}
ASKED_TO_LEAD = {(each.group, each.resource, each.verb) for each in TO_LEAD}


@pytest.mark.parametrize(
    ("page", "section", "asked"),
    [("operations.md", "Permissions", ASKED), ("availability.md", "What is needed", ASKED_TO_LEAD)],
)
def test_the_table_for_people_says_the_same(page: str, section: str, asked: set[Called]) -> None:
    text = (ROOT / "docs" / page).read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    said: set[Called] = set()
    for group, resources, verbs in re.findall(r"^\| ([\w.-]+) \| ([\w/]+) \| ([^|]+) \|$", text, re.MULTILINE):
        named = verbs.partition(";")[0]
        said |= {("" if group == "core" else group, resources, verb.strip()) for verb in named.split(",")}
    assert said == asked


def test_nothing_is_said_twice_and_what_the_service_cannot_do_without_is_not_excused() -> None:
    assert [each for each, times in Counter(map(str, NEEDED)).items() if times > 1] == []
    assert {str(each) for each in NEEDED if not each.without} == {
        *("list nodes", "watch nodes", "get pods", "list pods", "watch pods"),
        *(f"{verb} ephemeralresources.escher.dev" for verb in ("get", "list", "watch", "create", "patch", "delete")),
    }
    assert str(Permission("", "pods/binding", "create")) == "create pods/binding"


POD = PodRef("team", "a", PodUid("u"))
RESOURCE = EphemeralResource(EphemeralName("team", "a"), {NodeName("n1"): 1}, uid="u")
POLICY = Declared(Identity("team", "a"), PolicySpec("balance", {}), uid="u")
GIVEN: dict[str, Any] = {
    "pod": POD,
    "node": NodeName("n1"),
    "token": "t",
    "why": "a gang has no other room",
    "caller": Caller("bob"),
    "right": Right(verb="list", resource="gangs"),
    "notice": Notice(POD, EventType.NORMAL, "GangWaiting", "one has no room"),
    "desired": {},
    "absent": (),
    "resources": (),
    "namespace": "team",
    "name": RESOURCE.name,
    "item": RESOURCE,
    "change": ResourceChange({NodeName("n1"): 2}),
    "status": ResourceStatus(True, "Set", ""),
}
"""What is given to a method that writes, by the name of its parameter."""
OF_POLICIES: dict[str, Any] = {
    "name": POLICY.name,
    "item": POLICY,
    "change": Replacement(POLICY.spec, PolicySpec("balance", {"spread": 2})),
    "status": Standing(True, "InForce", ""),
}


INTENT = Intent((Former(Identity("team", "a"), RESOURCE),))
OF_INTENTS: dict[str, Any] = {
    "name": Identity("escher-system", "transaction-1"),
    "item": Declared(Identity("escher-system", "transaction-1"), INTENT),
    "change": Replacement(INTENT, INTENT),
}


async def called_by_each_method(adapter: Any, noted: Noted, given: dict[str, Any]) -> None:
    methods = inspect.getmembers(adapter, inspect.iscoroutinefunction)
    for name, method in methods:
        if name.startswith("_"):
            continue
        needed = [each.name for each in inspect.signature(method).parameters.values() if each.default is each.empty]
        with suppress(Refused, Unavailable):
            await method(*(given[each] for each in needed))


async def everything_that_adapters_ask() -> set[Called]:
    noted = Noted()
    classes: dict[str, Any] = {name: each for name, each in vars(bootstrap).items() if name.startswith("Api")}
    assert len(classes) >= 10
    for name, each in classes.items():
        if name == "ApiObjectStore":
            await called_by_each_method(each(noted, Policies()), noted, GIVEN | OF_POLICIES)
        elif name == "ApiIntentStore":
            store = each(noted)
            await store.create(OF_INTENTS["item"])
            for method in (store.get, store.delete):
                await method(OF_INTENTS["name"])
            await store.merge(OF_INTENTS["name"], OF_INTENTS["change"])
        else:
            await called_by_each_method(each(noted), noted, GIVEN)
    return noted.called


class NotedSimulation(Simulation):
    noted: Noted

    def connection_of_service(self) -> Cluster:
        self.noted = Noted(super().connection_of_service())
        return self.noted


async def everything_that_is_followed() -> set[Called]:
    definition = yaml.safe_load((ROOT / "lab" / "compare" / "coscheduling" / "podgroups.yaml").read_text())
    async with NotedSimulation(nodes=1) as simulation:
        await simulation.create(definition, CUSTOM_RESOURCE_DEFINITION)
        await asyncio.sleep(130)
        return simulation.noted.called


async def test_what_the_code_calls_is_what_is_needed() -> None:
    called = await everything_that_adapters_ask() | await everything_that_is_followed()
    assert called - ASKED == set(), "extender/doctor/permissions.py and docs/operations.md lack these"
    assert ASKED - called == set(), "nobody calls these"


class Absent(Noted):
    """Nothing is there, and nothing can be made."""

    async def request(self, method: str, path: str, *args: Any, **more: Any) -> bytes:
        await super().request(method, path, *args, **more)
        raise Gone(404, "not there") if method == "GET" else Unavailable("not now")


class Other(Noted):
    """What is there is of another kind of addresses, or says something else."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    async def request(self, method: str, path: str, *args: Any, **more: Any) -> bytes:
        await super().request(method, path, *args, **more)
        return b'{"metadata": {"resourceVersion": "1"}, "addressType": "%s", "endpoints": []}' % self._kind.encode()


async def test_who_leads_calls_what_is_needed_to_lead() -> None:
    called: set[Called] = set()
    for noted in (Absent(), Other("IPv6"), Other("IPv4")):
        lease = LeaderLease(noted, "a", "escher", within=1.0, now=lambda: 0.0)
        route = LeaderSlice(noted, "a", "escher-leader", "escher", "192.0.2.1", 8443, "https")
        with suppress(Gone, Unavailable):
            await lease.look()
        for version in ("", "1"):
            with suppress(Gone, Unavailable):
                await lease.write(Record("me", version=version), changes_hands=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(route.run(), 1.0)
        called |= noted.called
    assert called == ASKED_TO_LEAD


@pytest.mark.parametrize(
    ("method", "path", "asked"),
    [
        ("GET", "/api/v1/pods?limit=500", ("", "pods", "list")),
        ("GET", "/api/v1/namespaces?limit=1", ("", "namespaces", "list")),
        ("GET", "/api/v1/namespaces/team", ("", "namespaces", "get")),
        ("GET", "/api/v1/namespaces/team/pods/a", ("", "pods", "get")),
        ("POST", "/api/v1/namespaces/team/pods/a/binding", ("", "pods/binding", "create")),
        ("PATCH", "/api/v1/nodes/n1/status", ("", "nodes/status", "patch")),
        (
            "DELETE",
            "/apis/escher.dev/v1alpha1/namespaces/t/escherpolicies/p",
            ("escher.dev", "escherpolicies", "delete"),
        ),
        ("GET", "/version", None),
        ("GET", "/apis/scheduling.x-k8s.io/v1alpha1", None),
    ],
)
def test_a_request_is_a_permission(method: str, path: str, asked: Called | None) -> None:
    assert permission_of(method, path) == asked
