"""What is read of a cluster: the embedded one with the service in it, whole, spoilt, forbidden in part, and away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from extender.core.names import MANAGED
from extender.doctor import from_files, from_service, lists
from extender.doctor.checks import CHECKS
from extender.doctor.facts import Cluster, Facts, Part
from extender.doctor.findings import examine
from extender.doctor.from_cluster import PARTS, ServiceAccount, read_cluster
from extender.doctor.permissions import IN_OWN_NAMESPACE, NEEDED, TO_LEAD, Election
from extender.doctor.rules.pod_checks import needs_us
from extender.kube.client.requests import JSON, MERGE_PATCH, TIMEOUT, Requests
from extender.kube.errors import Away, Refused
from extender.settings.settings import Settings
from extender.shipped import places
from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, MUTATING_POLICY, MUTATING_POLICY_BINDING, NODE, POD, Json
from lab.simulation import Simulation
from loadtests.shared.pods import pod
from tests.doctor.set_up import VERSION

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


@pytest.fixture
async def simulation() -> AsyncIterator[Simulation]:
    """A gang runs, another waits at the gate, and n1 has an ephemeral resource."""
    async with Simulation(nodes=2) as made:
        for number in range(2):
            await made.create(pod(f"train-{number}", gang="train", quorum=2), POD)
            await made.create(pod(f"late-{number}", gang="late", quorum=3, gated=True), POD)
        await made.ask("POST", RESOURCES, RESOURCE)
        # After five the service says that the resource is well.
        await asyncio.sleep(8)
        yield made


RESOURCES = "/apis/escher.dev/v1alpha1/namespaces/default/ephemeralresources"
RESOURCE = {
    "apiVersion": "escher.dev/v1alpha1",
    "kind": "EphemeralResource",
    "metadata": {"name": "data1"},
    "spec": {"nodes": {"node-0": 4}},
}
KEY = "escher.dev/default.data1"


async def read(simulation: Simulation, requests: Requests | None = None) -> tuple[Cluster, dict[Part, str]]:
    def now() -> datetime:
        return datetime.fromtimestamp(simulation.clock.now(), UTC)

    return await read_cluster(requests or simulation.requests, now)


async def found(simulation: Simulation) -> set[str]:
    cluster, unread = await read(simulation)
    shipped = places.shipped("scheduler-config")
    files = [
        file for name in ("escher.yaml", "escher-resources.yaml") for file in from_files.scheduler_files(shipped / name)
    ]
    facts = Facts(
        now=datetime.fromtimestamp(simulation.clock.now(), UTC),
        shipped=from_files.shipped(VERSION),
        settings=Settings.model_validate({}),
        schedulers=tuple(files),
        cluster=cluster,
        unread=unread | dict.fromkeys(from_service.PARTS, "not asked"),
    )
    return {each.check for each in examine(facts, CHECKS).findings}


async def test_a_sound_cluster_is_read_whole_and_has_no_findings(simulation: Simulation) -> None:
    cluster, unread = await read(simulation)
    assert unread == {}
    assert (cluster.minor, len(cluster.nodes), len(cluster.pods), cluster.denied) == (36, 2, 4, ())
    assert abs(cluster.ahead) <= 0.5
    assert cluster.account
    assert {each["metadata"]["name"] for each in cluster.definitions} == {
        "ephemeralresources.escher.dev",
        "escherpolicies.escher.dev",
        "transactionintents.escher.dev",
    }
    assert cluster.bound == {"mark-pods.escher.dev"}
    assert await found(simulation) == set()


async def test_of_many_objects_every_page_is_read_and_what_nobody_looks_at_is_not_kept(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "_PAGE", 3)
    for number in range(6):
        await simulation.create(pod(f"many-{number}", cpu="100"), POD)
    cluster, _ = await read(simulation)
    assert len(cluster.pods) == 10
    assert {key for each in cluster.pods for key in each["spec"]} == {
        *("schedulerName", "nodeName", "schedulingGates", "containers", "initContainers")
    }
    assert {key for each in cluster.nodes for key in each["status"]} == {"capacity", "allocatable"}


async def remove_definition(simulation: Simulation) -> None:
    await simulation.ask("DELETE", CUSTOM_RESOURCE_DEFINITION.path(name="escherpolicies.escher.dev"))


async def change_definition(simulation: Simulation) -> None:
    path = CUSTOM_RESOURCE_DEFINITION.path(name="ephemeralresources.escher.dev")
    definition = await simulation.ask("GET", path)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["numNodes"]["maximum"] = 10
    await simulation.ask("PUT", path, definition)


async def remove_marking(simulation: Simulation) -> None:
    await simulation.ask("DELETE", MUTATING_POLICY.path(name="mark-pods.escher.dev"))
    # Nobody marks this one, and it is left to itself.
    await simulation.create(pod("lost-0", gang="lost", quorum=2), POD)


async def unbind_marking(simulation: Simulation) -> None:
    await simulation.ask("DELETE", MUTATING_POLICY_BINDING.path(name="mark-pods.escher.dev"))


async def reset_by_a_kubelet(simulation: Simulation) -> None:
    simulation.kill()
    gone: dict[str, Any] = {"status": {"capacity": {KEY: None}, "allocatable": {KEY: None}}}
    await simulation.ask("PATCH", NODE.path("", "node-0", "status"), gone, content_type=MERGE_PATCH)


async def leave_keys_over(simulation: Simulation) -> None:
    simulation.kill()
    await simulation.ask("DELETE", f"{RESOURCES}/data1")


async def write_capacity_alone(simulation: Simulation) -> None:
    simulation.kill()
    await simulation.ask(
        "PATCH", NODE.path("", "node-0", "status"), {"status": {"allocatable": {KEY: "3"}}}, content_type=MERGE_PATCH
    )


async def send_gated_pods_elsewhere(simulation: Simulation) -> None:
    await simulation.create(pod("lost-0", "default-scheduler", gang="lost", quorum=2, gated=True), POD)


async def have_nobody_heed_resources(simulation: Simulation) -> None:
    simulation.kill()
    await simulation.ask("POST", RESOURCES, RESOURCE | {"metadata": {"name": "data2"}})
    await asyncio.sleep(90)


@pytest.mark.parametrize(
    ("spoil", "checks"),
    [
        (remove_definition, {"definition-missing"}),
        (change_definition, {"definition-differs"}),
        (remove_marking, {"mark-missing", "pod-unmarked"}),
        (unbind_marking, {"mark-unbound"}),
        (reset_by_a_kubelet, {"status-reset"}),
        (leave_keys_over, {"left-over"}),
        (write_capacity_alone, {"status-half"}),
        (send_gated_pods_elsewhere, {"gate-of-nobody"}),
        (have_nobody_heed_resources, {"resource-unheeded"}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_a_cluster_that_is_spoilt_is_read_as_it_is(simulation: Simulation, spoil: Any, checks: set[str]) -> None:
    await spoil(simulation)
    await asyncio.sleep(0.1)
    assert await found(simulation) == checks


class Spoilt:
    """Implements `Requests`: paths with any of these texts fail so; reviews of access are answered by `may`."""

    def __init__(self, inner: Requests, fails: dict[str, Exception] | None = None, may: Any = None) -> None:
        self.reviewed: list[Json] = []
        self._inner, self._fails, self._may = inner, fails or {}, may

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
        for text, error in self._fails.items():
            if text in path:
                raise error
        if "accessreviews" in path and self._may is not None:
            spec = msgspec.json.decode(body or b"")["spec"]
            self.reviewed.append({"path": path, **spec})
            return msgspec.json.encode({"status": {"allowed": self._may(spec["resourceAttributes"])}})
        return await self._inner.request(method, path, body, content_type=content_type, accept=accept, within=within)

    def lines(self, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        raise AssertionError("nothing is watched")


FORBIDDEN = Refused(403, "forbidden")


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/version", Part.VERSION),
        ("/selfsubjectreviews", Part.CLOCK),
        ("/nodes", Part.NODES),
        ("/pods", Part.PODS),
        ("/ephemeralresources", Part.RESOURCES),
        ("/customresourcedefinitions", Part.DEFINITIONS),
        ("/mutatingadmissionpolicybindings", Part.MARKING),
        ("/deviceclasses", Part.CLASSES),
        ("/selfsubjectaccessreviews", Part.PERMISSIONS),
    ],
)
async def test_a_part_that_may_not_be_read_is_told_and_the_others_are_read(
    simulation: Simulation, path: str, part: Part
) -> None:
    cluster, unread = await read(simulation, Spoilt(simulation.requests, {path: FORBIDDEN}))
    # Whose permissions they are is asked in the same way as the time.
    also = {Part.PERMISSIONS: "forbidden"} if part is Part.CLOCK else {}
    assert unread == {part: "forbidden"} | also
    assert cluster.unreachable == ""


async def test_an_api_server_that_is_away_is_a_finding_and_nothing_of_it_is_known(simulation: Simulation) -> None:
    cluster, unread = await read(simulation, Spoilt(simulation.requests, {"/": Away("connection refused")}))
    assert cluster.unreachable == "connection refused"
    assert set(unread) == set(PARTS)


async def test_a_clock_that_is_behind_is_read_so(simulation: Simulation) -> None:
    def now() -> datetime:
        return datetime.fromtimestamp(simulation.clock.now(), UTC) - timedelta(seconds=40)

    cluster, _ = await read_cluster(simulation.requests, now)
    assert 39 <= cluster.ahead <= 41


async def test_permissions_are_asked_about_one_by_one_and_what_is_denied_is_known(simulation: Simulation) -> None:
    def may(asked: Json) -> bool:
        return bool(asked["subresource"] != "binding")

    spoilt = Spoilt(simulation.requests, may=may)
    cluster, _ = await read(simulation, spoilt)
    assert [str(each) for each in cluster.denied] == ["create pods/binding"]
    asked = [each["resourceAttributes"] for each in spoilt.reviewed]
    # PodGroups are not installed here.
    assert len(asked) == len(NEEDED) - 2 + len(IN_OWN_NAMESPACE)
    assert {"group": "", "resource": "nodes", "subresource": "status", "verb": "patch"} in asked
    assert {each["path"] for each in spoilt.reviewed} == {"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}


async def test_of_a_service_account_that_is_named_its_permissions_are_asked_about(simulation: Simulation) -> None:
    spoilt = Spoilt(simulation.requests, may=lambda asked: True)
    account = ServiceAccount("escher-system", "escher")
    cluster, _ = await read_cluster(spoilt, lambda: datetime.now(UTC), account=account)
    assert cluster.account == "system:serviceaccount:escher-system:escher"
    assert {each["path"] for each in spoilt.reviewed} == {"/apis/authorization.k8s.io/v1/subjectaccessreviews"}
    assert {(each["user"], *each["groups"]) for each in spoilt.reviewed} == {
        (
            *("system:serviceaccount:escher-system:escher", "system:serviceaccounts"),
            *("system:serviceaccounts:escher-system", "system:authenticated"),
        )
    }


async def test_what_it_takes_to_lead_is_asked_of_the_lease_and_the_slice_in_their_namespace(
    simulation: Simulation,
) -> None:
    def may(asked: Json) -> bool:
        return bool(asked["resource"] != "leases" or asked["verb"] != "patch")

    spoilt = Spoilt(simulation.requests, may=may)
    election = Election("escher-system", "escher", by_service=True)
    cluster, _ = await read_cluster(spoilt, lambda: datetime.now(UTC), election=election)
    assert [str(each) for each in cluster.denied] == ["patch leases.coordination.k8s.io"]
    asked = [each["resourceAttributes"] for each in spoilt.reviewed]
    own = [each for each in asked if each.get("namespace") and each["resource"] == "transactionintents"]
    assert {(each["namespace"], each["verb"]) for each in own} == {("escher-system", e.verb) for e in IN_OWN_NAMESPACE}
    led = [each for each in asked if each.get("namespace") and each not in own]
    assert len(led) == len(TO_LEAD)
    assert {each["namespace"] for each in led} == {"escher-system"}
    names = {(each["resource"], each["verb"] == "create"): each.get("name", "") for each in led}
    assert names == {
        ("leases", True): "",
        ("leases", False): "escher",
        ("endpointslices", True): "",
        ("endpointslices", False): "escher-leader",
    }
    assert {each.resource for each in election._replace(by_service=False).needed} == {"leases"}


ASKS: dict[str, Json] = {
    "nothing": {},
    "gang": {"gang": "train", "quorum": 1},
    "annotation": {"quorum": 2},
    "gate": {"gated": True},
    "label": {"labels": {"escher.dev/tier": "a"}},
    "pod group": {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
    "another's label": {"labels": {"example.com/gang": "a"}},
    "played kubelet": {"run_seconds": 5.0},
    "resource": {"escher.dev/default.data1": 1},
    "another's resource": {"example.com/gpu": 1},
}


@pytest.mark.parametrize("ask", ASKS)
async def test_who_needs_the_mark_is_who_the_admission_policy_marks(simulation: Simulation, ask: str) -> None:
    """The policy is CEL in deploy/policies/mark-pods.yaml, and carried out by the API server."""
    sent = pod("asks", **ASKS[ask])
    stored = await simulation.ask("POST", f"{POD.path('default')}?dryRun=All", sent)
    marked = any(MANAGED in each["resources"].get("requests", {}) for each in stored["spec"]["containers"])
    assert needs_us(sent) is marked
