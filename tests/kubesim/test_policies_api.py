"""EscherPolicy objects on the embedded cluster: what HTTP writes and what kubectl writes is one and the same, a bad one
changes nothing, and a restart forgets nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from extender.adapters.http.api import create_api
from extender.adapters.policy_models import example
from extender.app.contracts.kind import Identity
from extender.core.policies.policy_types import TYPES, Balance, FairShare, PolicyInForce
from extender.kube.client.requests import MERGE_PATCH
from extender.kube.errors import Refused
from extender.kube.label_match import LabelRequirement
from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, NAMESPACE, POD, Json
from lab.simulation import Simulation
from tests.adapters.http.told import problem

pytestmark = pytest.mark.anyio

OBJECTS = "/apis/escher.dev/v1alpha1/namespaces/team/escherpolicies"
BALANCE: Json = {"type": "balance", "parameters": {"tasks": 4}, "selector": {"match_labels": {"app": "web"}}}
AS_KUBECTL: Json = {"type": "balance", "parameters": {"tasks": 4}, "selector": {"matchLabels": {"app": "web"}}}
DRY: Any = {"params": {"dryRun": "All"}}


@dataclass
class Cluster:
    simulation: Simulation

    async def ask(self, method: str, path: str, body: object = None, **more: Any) -> httpx.Response:
        """One call of the management API, below the namespace's policies."""
        service = self.simulation.application
        transport = httpx.ASGITransport(create_api(service.management, service.ready, CollectorRegistry()))
        async with httpx.AsyncClient(transport=transport, base_url="http://escher.invalid") as client:
            return await client.request(method, f"/v1/namespaces/team/policies{path}", json=body, **more)

    async def ok(self, method: str, path: str, body: object = None, **more: Any) -> Json:
        answer = await self.ask(method, path, body, **more)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def kubectl(self, name: str, spec: Json) -> None:
        """The object is as somebody else writes it; the service has had its time."""
        body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": name}, "spec": spec}
        try:
            await self.simulation.ask("POST", OBJECTS, body)
        except Refused as error:
            if error.status != 409:
                raise
            await self.simulation.ask("PATCH", f"{OBJECTS}/{name}", {"spec": spec}, content_type=MERGE_PATCH)
        await asyncio.sleep(1)

    async def stored(self, name: str) -> Json:
        return await self.simulation.ask("GET", f"{OBJECTS}/{name}")

    async def ready(self, name: str) -> tuple[str, str, str]:
        said = await self.stored(name)
        [condition] = said["status"]["conditions"]
        assert said["status"]["observedGeneration"] == condition["observedGeneration"] == said["metadata"]["generation"]
        return condition["status"], condition["reason"], condition["message"]

    def heeded(self, name: str) -> PolicyInForce | None:
        """What those who heed policies were told of this one."""
        found = self.simulation.application.policies.tending.in_force.get(Identity("team", name))
        assert self.simulation.application.scheduler.cache.policy_matching.in_force("team").get(name) == found
        return found

    async def finalizers(self, name: str, *those: str) -> None:
        body = {"metadata": {"finalizers": list(those)}}
        await self.simulation.ask("PATCH", f"{OBJECTS}/{name}", body, content_type=MERGE_PATCH)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Simulation(nodes=2) as simulation:
        await simulation.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}, NAMESPACE)
        yield Cluster(simulation)
        assert simulation.application.scheduler.cache.violations() == []
        assert len(simulation.application.policies.tending.writing.locks) == 0


# -- over HTTP -----------------------------------------------------------------------------------------------------


async def test_a_policy_is_put_read_listed_changed_and_deleted(cluster: Cluster) -> None:
    made = await cluster.ask("PUT", "/a", BALANCE)
    told = made.json()
    assert (told["namespace"], told["name"], told["type"], told["parameters"]) == ("team", "a", "balance", {"tasks": 4})
    assert (told["ready"], told["reason"], told["pods"], told["finalizers"]) == (True, "InForce", 0, [])
    assert told["selector"] == {"match_labels": {"app": "web"}}
    assert told["in_force"] == {
        "type": "balance",
        "parameters": {"tasks": 4, "max_skew": 1, "topology_key": "kubernetes.io/hostname"},
        "selector": [{"key": "app", "operator": "In", "values": ["web"]}],
    }
    assert made.headers["etag"] == f'"{told["version"]}"'
    assert cluster.heeded("a") == PolicyInForce(Balance(4), (LabelRequirement("app", "In", ("web",)),))
    assert await cluster.ok("GET", "/a") == told
    assert (await cluster.ok("GET", ""))["items"] == [told]
    changed = await cluster.ok("PATCH", "/a", {"parameters": {"max_skew": 2, "tasks": None}, "selector": None})
    assert (changed["parameters"], changed["selector"]) == ({"max_skew": 2}, None)
    assert cluster.heeded("a") == PolicyInForce(Balance(0, 2))
    assert (await cluster.ask("DELETE", "/a")).status_code == 204
    assert cluster.heeded("a") is None
    problem(await cluster.ask("GET", "/a"), 404, "name")
    assert (await cluster.ask("DELETE", "/a")).status_code == 204


@pytest.mark.parametrize("kind", TYPES)
async def test_the_example_of_every_type_can_be_put(cluster: Cluster, kind: str) -> None:
    told = await cluster.ok("PUT", "/a", {"type": kind, "parameters": dict(example(kind))})
    assert (told["type"], told["parameters"], told["ready"]) == (kind, example(kind), True)
    policy = cluster.heeded("a")
    assert policy is not None
    assert type(policy.parameters) is TYPES[kind]


async def test_a_put_replaces_all_and_a_repeated_one_changes_nothing(cluster: Cluster) -> None:
    await cluster.ok("PUT", "/a", BALANCE)
    told = await cluster.ok("PUT", "/a", {"type": "co-location"})
    assert (await cluster.stored("a"))["spec"] == {"type": "co-location"}
    await asyncio.sleep(5)
    version = (await cluster.stored("a"))["metadata"]["resourceVersion"]
    assert (await cluster.ok("PUT", "/a", {"type": "co-location"}))["version"] == told["version"]
    assert (await cluster.stored("a"))["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({}, "type", "type is missing"),
        ({"type": 4}, "type", "not 4"),
        ({"type": "anti-affinty"}, "type", "'anti-affinty' does not exist; write one of anti-affinity, balance"),
        ({"type": "balance", "parameter": {}}, "parameter", "is an unknown field"),
        ({"type": "balance", "parameters": []}, "parameters", "not []"),
        ({"type": "balance", "parameters": {"maxSkew": 1}}, "parameters.maxSkew", "it may have tasks, max_skew"),
        ({"type": "bin-packing", "parameters": {"size": 1}}, "parameters.size", "it has none"),
        ({"type": "balance", "parameters": {"max_skew": 0}}, "parameters.max_skew", "equal to 1, not 0"),
        ({"type": "balance", "parameters": {"tasks": 1_000_001}}, "parameters.tasks", "to 1000000, not 1000001"),
        ({"type": "balance", "parameters": {"tasks": "4"}}, "parameters.tasks", "not '4'"),
        ({"type": "balance", "parameters": {"tasks": True}}, "parameters.tasks", "not True"),
        ({"type": "balance", "parameters": {"tasks": 1.5}}, "parameters.tasks", "not 1.5"),
        ({"type": "balance", "parameters": {"topology_key": "a b"}}, "parameters.topology_key", "not 'a b'"),
        ({"type": "data-locality"}, "parameters.data", "is missing"),
        ({"type": "data-locality", "parameters": {"data": []}}, "parameters.data", "at least 1 item"),
        ({"type": "data-locality", "parameters": {"data": ["A"]}}, "parameters.data[0]", "not 'A'"),
        ({"type": "data-locality", "parameters": {"data": ["a"], "required": 1}}, "parameters.required", "not 1"),
        ({"type": "objective", "parameters": {"label": "a", "prefer": "best"}}, "parameters.prefer", "not 'best'"),
        ({"type": "priority", "parameters": {"priority": -1001}}, "parameters.priority", "-1000, not -1001"),
        ({"type": "soft", "parameters": {"preferences": ["a"] * 33}}, "parameters.preferences", "at most 32"),
        ({"type": "balance", "selector": {"labels": {}}}, "selector.labels", "is an unknown field"),
        (
            {"type": "balance", "selector": {"match_labels": {"a b": "c"}}},
            "selector.match_labels['a b']",
            "not a label key",
        ),
        ({"type": "balance", "selector": {"match_labels": {"a": "b c"}}}, "selector.match_labels['a']", "'b c'"),
        (
            {"type": "balance", "selector": {"match_labels": {"/a": ""}}},
            "selector.match_labels['/a']",
            "not a label prefix",
        ),
        (
            {"type": "balance", "selector": {"match_expressions": [{"key": "a", "operator": "Is"}]}},
            "selector.match_expressions[0].operator",
            "'Is' does not exist; write one of In, NotIn",
        ),
        (
            {"type": "balance", "selector": {"match_expressions": [{"key": "a", "operator": "In"}]}},
            "selector.match_expressions[0].values",
            "In needs at least one value",
        ),
    ],
)
async def test_a_bad_value_is_refused_with_its_field_and_the_last_good_one_stays(
    cluster: Cluster, body: Json, field: str, said: str
) -> None:
    before = await cluster.ok("PUT", "/a", BALANCE)
    policy = cluster.heeded("a")
    told = problem(await cluster.ask("PUT", "/a", body), 422, field)
    assert said in told["detail"]
    assert field in told["detail"]
    problem(await cluster.ask("POST", ":validate", body), 422, field)
    assert await cluster.ok("GET", "/a") == before
    assert cluster.heeded("a") == policy


async def test_a_patch_is_checked_as_a_whole(cluster: Cluster) -> None:
    problem(await cluster.ask("PATCH", "/a", {"parameters": {"tasks": 8}}), 404, "name")
    await cluster.ok("PUT", "/a", BALANCE)
    told = problem(await cluster.ask("PATCH", "/a", {"type": "co-location"}), 422, "parameters.tasks")
    assert told["detail"] == "parameters.tasks: type co-location has no such parameter; it may have size, topology_key"
    problem(await cluster.ask("PATCH", "/a", {"type": None}), 422, "type")
    problem(await cluster.ask("PATCH", "/a", {"selector": {"match_labels": {"a": 1}}}), 422)
    problem(await cluster.ask("PATCH", "/a", {"tasks": 8}), 422, "tasks")
    kept = await cluster.ok("PATCH", "/a", {"selector": {"match_labels": {"tier": "front"}}})
    assert kept["selector"] == {"match_labels": {"app": "web", "tier": "front"}}
    merged = await cluster.ask(
        "PATCH", "/a", None, content=b'{"parameters": null}', headers={"Content-Type": MERGE_PATCH}
    )
    assert merged.json()["parameters"] == {}


async def test_a_version_that_does_not_hold_is_refused_by_every_write(cluster: Cluster) -> None:
    problem(await cluster.ask("PUT", "/a", BALANCE, headers={"If-Match": "1"}), 412)
    made = await cluster.ask("PUT", "/a", BALANCE)
    stale = {"If-Match": made.headers["etag"]}
    await asyncio.sleep(5)
    assert (await cluster.ask("PATCH", "/a", {"parameters": {"tasks": 5}}, headers=stale)).status_code == 200
    for method, body in (("PUT", BALANCE), ("PATCH", {"parameters": {"tasks": 6}}), ("DELETE", None)):
        problem(await cluster.ask(method, "/a", body, headers=stale), 412, "If-Match")
    policy = cluster.heeded("a")
    assert policy is not None
    assert policy.parameters == Balance(5)
    fresh = {"If-Match": (await cluster.ask("GET", "/a")).headers["etag"]}
    assert (await cluster.ask("DELETE", "/a", headers=fresh)).status_code == 204


async def test_a_dry_run_says_what_would_be_and_changes_nothing(cluster: Cluster) -> None:
    told = await cluster.ok("PUT", "/a", BALANCE, **DRY)
    assert (told["version"], told["ready"], told["in_force"]["parameters"]["tasks"]) == ("", True, 4)
    problem(await cluster.ask("GET", "/a"), 404)
    before = await cluster.ok("PUT", "/a", BALANCE)
    assert (await cluster.ok("PUT", "/a", {"type": "bin-packing"}, **DRY))["type"] == "bin-packing"
    assert (await cluster.ok("PATCH", "/a", {"parameters": {"tasks": 9}}, **DRY))["parameters"] == {"tasks": 9}
    assert (await cluster.ask("DELETE", "/a", **DRY)).status_code == 204
    problem(await cluster.ask("PUT", "/a", {"type": "objective"}, **DRY), 422, "parameters.label")
    problem(await cluster.ask("PUT", "/a", BALANCE, headers={"If-Match": "1"}, **DRY), 412)
    assert await cluster.ok("GET", "/a") == before


async def test_validating_needs_no_name_and_stores_nothing(cluster: Cluster) -> None:
    told = await cluster.ok("POST", ":validate", {"type": "soft", "parameters": {"preferences": ["near"]}})
    assert (told["name"], told["version"], told["ready"]) == ("", "", True)
    assert told["message"].endswith("it names near, which does not exist")
    assert (await cluster.ok("GET", ""))["items"] == []
    problem(await cluster.ask("POST", ":validate", {**BALANCE, "name": "A"}), 422, "name")


async def test_lists_come_in_pages_in_the_order_of_names(cluster: Cluster) -> None:
    for name in ("c", "a", "b"):
        await cluster.ok("PUT", f"/{name}", {"type": "bin-packing"})
    first = await cluster.ok("GET", "", params={"limit": 2})
    assert [each["name"] for each in first["items"]] == ["a", "b"]
    rest = await cluster.ok("GET", "", params={"limit": 2, "continue": first["continue"]})
    assert ([each["name"] for each in rest["items"]], rest["continue"]) == (["c"], None)
    problem(await cluster.ask("GET", "", params={"continue": "?"}), 422, "continue")


async def test_a_name_or_a_namespace_that_can_not_be_is_refused(cluster: Cluster) -> None:
    problem(await cluster.ask("PUT", "/A", BALANCE), 422, "name")
    problem(await cluster.ask("PUT", "/" + "x" * 64, BALANCE), 422, "name")
    problem(await cluster.ask("PUT", "/../../nowhere/policies/a", BALANCE), 404, "namespace")


async def test_what_finalizers_hold_is_in_force_no_more(cluster: Cluster) -> None:
    await cluster.ok("PUT", "/a", BALANCE)
    await cluster.finalizers("a", "x.io/keep")
    left = await cluster.ask("DELETE", "/a")
    assert (left.status_code, left.json()["finalizers"], left.json()["ready"]) == (202, ["x.io/keep"], False)
    assert cluster.heeded("a") is None
    assert (await cluster.ok("GET", "/a"))["reason"] == "BeingDeleted"
    problem(await cluster.ask("PUT", "/a", BALANCE), 409)
    await cluster.finalizers("a")
    await asyncio.sleep(1)
    await cluster.ok("PUT", "/a", BALANCE)
    assert cluster.heeded("a") is not None


# -- with kubectl --------------------------------------------------------------------------------------------------


async def test_what_kubectl_writes_and_what_http_writes_is_the_same(cluster: Cluster) -> None:
    await cluster.ok("PUT", "/a", BALANCE)
    await cluster.kubectl("b", AS_KUBECTL)
    one, other = await cluster.ok("GET", "/a"), await cluster.ok("GET", "/b")
    assert {**one, "name": "", "version": ""} == {**other, "name": "", "version": ""}
    assert cluster.heeded("a") == cluster.heeded("b")
    by_http, by_kubectl = await cluster.stored("a"), await cluster.stored("b")
    assert by_http["spec"] == by_kubectl["spec"] == AS_KUBECTL
    assert (await cluster.ready("a"))[:2] == (await cluster.ready("b"))[:2] == ("True", "InForce")
    assert by_http["status"]["inForce"] == by_kubectl["status"]["inForce"] == AS_KUBECTL
    everything = {
        "type": "anti-affinity",
        "parameters": {"awayFrom": ["a"], "topologyKey": "zone"},
        "selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
    }
    await cluster.kubectl("c", everything)
    told = await cluster.ok("GET", "/c")
    said = {name: told[name] for name in ("type", "parameters", "selector")}
    await cluster.ok("PUT", "/d", said)
    assert (await cluster.stored("d"))["spec"] == (await cluster.stored("c"))["spec"] == everything


async def test_after_a_bad_kubectl_apply_the_last_good_one_stays_in_force(cluster: Cluster) -> None:
    await cluster.kubectl("a", AS_KUBECTL)
    policy = cluster.heeded("a")
    bad = {**AS_KUBECTL, "selector": {"matchLabels": {"a b": "c"}}}
    await cluster.kubectl("a", bad)
    assert cluster.heeded("a") == policy
    status, reason, message = await cluster.ready("a")
    assert (status, reason) == ("False", "Invalid")
    assert message.startswith("spec.selector.matchLabels['a b']: 'a b' is not a label key; write letters")
    assert "the former spec stays in force" in message
    assert (await cluster.stored("a"))["status"]["inForce"] == AS_KUBECTL
    told = await cluster.ok("GET", "/a")
    assert (told["ready"], told["in_force"]["parameters"]["tasks"]) == (False, 4)
    assert told["selector"] == {"match_labels": {"app": "web", "a b": "c"}}, "what its author says now"
    await cluster.simulation.restart()
    assert cluster.heeded("a") == policy
    await cluster.ok("PUT", "/a", {**BALANCE, "parameters": {"tasks": 5}})
    assert (await cluster.stored("a"))["spec"] == {**AS_KUBECTL, "parameters": {"tasks": 5}}


async def test_what_was_never_good_is_not_in_force(cluster: Cluster) -> None:
    await cluster.kubectl("a", {**AS_KUBECTL, "selector": {"matchLabels": {"a": "b c"}}})
    assert cluster.heeded("a") is None
    told = await cluster.ok("GET", "/a")
    assert (told["ready"], told["in_force"], told["pods"]) == (False, None, None)


async def test_what_is_in_force_is_so_after_a_restart_and_nothing_is_written_for_it(cluster: Cluster) -> None:
    await cluster.ok("PUT", "/a", BALANCE)
    await cluster.kubectl("b", {"type": "fair-share", "parameters": {"parent": "later"}})
    await asyncio.sleep(5)
    policies, versions = [cluster.heeded(each) for each in "ab"], [await cluster.stored(each) for each in "ab"]
    await cluster.simulation.restart()
    await asyncio.sleep(200)
    assert [cluster.heeded(each) for each in "ab"] == policies
    assert [await cluster.stored(each) for each in "ab"] == versions


# -- policies that name others -------------------------------------------------------------------------------------


async def test_who_names_what_is_not_there_is_in_force_and_told_until_it_comes(cluster: Cluster) -> None:
    await cluster.ok("PUT", "/a", {"type": "soft", "parameters": {"preferences": ["near", "far"]}})
    await asyncio.sleep(1)
    status, _, message = await cluster.ready("a")
    assert status == "True"
    assert message.endswith("it names near, which does not exist, and far, which does not exist")
    await cluster.ok("PUT", "/near", {"type": "bin-packing"})
    await asyncio.sleep(1)
    assert (await cluster.ready("a"))[2].endswith("it names far, which does not exist")
    await cluster.kubectl("far", {"type": "bin-packing"})
    assert "names" not in (await cluster.ready("a"))[2]
    await cluster.ask("DELETE", "/near")
    await asyncio.sleep(1)
    assert (await cluster.ready("a"))[2].endswith("it names near, which does not exist")


async def test_a_parent_that_is_no_fair_share_is_told(cluster: Cluster) -> None:
    await cluster.ok("PUT", "/all", {"type": "bin-packing"})
    told = await cluster.ok("PUT", "/a", {"type": "fair-share", "parameters": {"parent": "all"}})
    assert told["message"].endswith("it names all, which is not a fair share")


async def test_one_that_is_named_twice_is_no_matter(cluster: Cluster) -> None:
    for preferences in (["near", "near"], ["near"], ["far", "near", "far"]):
        await cluster.ok("PUT", "/a", {"type": "soft", "parameters": {"preferences": preferences}})
    assert (await cluster.ask("DELETE", "/a")).status_code == 204
    await cluster.ok("PUT", "/near", {"type": "bin-packing"})


async def test_of_a_long_circle_both_ends_are_told(cluster: Cluster) -> None:
    for number in range(12):
        await cluster.ok("PUT", f"/p{number}", share(f"p{number + 1}"))
    told = problem(await cluster.ask("PUT", "/p12", share("p0")), 422, "parameters.parent")
    assert told["detail"] == (
        "parameters.parent: p12 -> p0 -> p1 -> p2 -> p3 -> p4 -> ... -> p11 -> p12 is a cycle; name another"
    )


def share(parent: str, weight: int = 1) -> Json:
    return {"type": "fair-share", "parameters": {"parent": parent, "weight": weight}}


async def test_whoever_closes_a_circle_of_parents_is_refused(cluster: Cluster) -> None:
    problem(await cluster.ask("PUT", "/a", share("a")), 422, "parameters.parent")
    await cluster.ok("PUT", "/a", share("b"))
    await cluster.ok("PUT", "/b", share("c"))
    told = problem(await cluster.ask("PUT", "/c", share("a")), 422, "parameters.parent")
    assert told["detail"] == "parameters.parent: c -> a -> b -> c is a cycle; name another"
    problem(await cluster.ask("POST", ":validate", {**share("a"), "name": "c"}), 422, "parameters.parent")
    await cluster.ok("PUT", "/c", {"type": "fair-share"})
    await cluster.kubectl("c", share("a", 7))
    assert await cluster.ready("c") == (
        "False",
        "Circle",
        "parameters.parent: c -> a -> b -> c is a cycle; name another; the former spec stays in force; "
        "it matches 0 pods",
    )
    policy = cluster.heeded("c")
    assert policy is not None
    assert policy.parameters == FairShare()


async def test_preferences_that_lead_back_are_refused(cluster: Cluster) -> None:
    await cluster.ok("PUT", "/a", {"type": "soft", "parameters": {"preferences": ["other", "b"]}})
    body = {"type": "soft", "parameters": {"preferences": ["another", "a"]}}
    problem(await cluster.ask("PUT", "/b", body), 422, "parameters.preferences")


async def test_a_circle_that_opens_lets_in_whoever_was_refused_for_it(cluster: Cluster) -> None:
    await cluster.ok("PUT", "/a", share("b"))
    await cluster.kubectl("b", share("a"))
    assert cluster.heeded("b") is None
    await cluster.ok("PUT", "/a", share(""))
    await asyncio.sleep(1)
    assert (await cluster.ready("b"))[0] == "True"
    policy = cluster.heeded("b")
    assert policy is not None
    assert policy.parameters == FairShare(parent="a")


async def test_of_a_circle_the_same_one_is_refused_after_a_restart(cluster: Cluster) -> None:
    await cluster.ok("PUT", "/b", share("a"))
    await cluster.kubectl("a", share("b"))
    assert (cluster.heeded("a"), cluster.heeded("b")) == (None, PolicyInForce(FairShare(parent="a")))
    await cluster.simulation.restart()
    await asyncio.sleep(5)
    assert (cluster.heeded("a"), cluster.heeded("b")) == (None, PolicyInForce(FairShare(parent="a")))


# -- the pods ------------------------------------------------------------------------------------------------------


def pod(name: str, namespace: str = "team", *, policy: str = "", **labels: str) -> Json:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    if policy:
        metadata["annotations"] = {"escher.dev/policy": policy}
    return {"metadata": metadata, "spec": {"schedulerName": "escher", "containers": [{"name": "main", "image": "x"}]}}


async def test_the_status_says_how_many_pods_a_policy_governs(cluster: Cluster) -> None:
    for each in (
        pod("one", app="web"),
        pod("two", app="web", policy="a"),
        pod("three", policy="b|a"),
        pod("four", policy="b, a"),
        pod("five", policy="aa"),
        pod("six", "default", app="web", policy="a"),
    ):
        await cluster.simulation.create(each, POD)
    await asyncio.sleep(1)
    told = await cluster.ok("PUT", "/a", BALANCE)
    assert (told["pods"], told["message"]) == (4, "the spec is in force; it matches 4 pods")
    assert (await cluster.ok("PUT", "/b", {"type": "bin-packing"}))["pods"] == 2
    assert (await cluster.ok("PUT", "/all", {"type": "bin-packing", "selector": {}}))["pods"] == 5
    await cluster.simulation.ask("DELETE", "/api/v1/namespaces/team/pods/one")
    await asyncio.sleep(150)
    assert (await cluster.stored("a"))["status"]["pods"] == 3
    assert (await cluster.ready("a"))[2].endswith("it matches 3 pods")


async def test_pods_that_come_and_go_have_no_status_written_more_than_once_a_minute(cluster: Cluster) -> None:
    await cluster.ok("PUT", "/a", {"type": "bin-packing", "selector": {}})
    before = int((await cluster.stored("a"))["metadata"]["generation"])
    written = set()
    for number in range(120):
        await cluster.simulation.create(pod(f"p{number}"), POD)
        await asyncio.sleep(1)
        written.add((await cluster.stored("a"))["metadata"]["resourceVersion"])
    assert len(written) <= 4
    assert (await cluster.stored("a"))["metadata"]["generation"] == before


# -- clusters without the kind -------------------------------------------------------------------------------------


async def test_a_service_in_a_cluster_without_the_kind_runs_and_has_it_once_it_is_there(cluster: Cluster) -> None:
    path = f"{CUSTOM_RESOURCE_DEFINITION.path()}/escherpolicies.escher.dev"
    found = await cluster.simulation.ask("GET", path)
    await cluster.simulation.ask("DELETE", path)
    await asyncio.sleep(1)
    await cluster.simulation.restart()
    assert cluster.simulation.application.ready()
    told = problem(await cluster.ask("PUT", "/a", BALANCE), 404, "kind")
    assert "apply deploy/crds" in told["detail"]
    assert (await cluster.ok("GET", ""))["items"] == []
    await cluster.simulation.create(pod("one"), POD)
    await asyncio.sleep(10)
    bound = await cluster.simulation.ask("GET", "/api/v1/namespaces/team/pods/one")
    assert bound["spec"].get("nodeName")
    body = {"metadata": {"name": found["metadata"]["name"]}, "spec": found["spec"]}
    await cluster.simulation.create(
        {**body, "apiVersion": found["apiVersion"], "kind": found["kind"]}, CUSTOM_RESOURCE_DEFINITION
    )
    await asyncio.sleep(100)
    assert cluster.simulation.application.ready()
    assert (await cluster.ok("PUT", "/a", BALANCE))["ready"]


# -- policies that cannot both be kept --------------------------------------------------------------------------------

WEB = {"match_labels": {"app": "web"}}
APART = {"type": "anti-affinity", "selector": WEB}
NEAR = {"type": "co-location", "selector": WEB}
NO_TWO = (
    "selects the same pods, and no two of these can ever be placed: all in one kubernetes.io/hostname, and apart in it"
)


async def test_what_two_policies_say_of_the_same_pods_and_can_never_be_is_told_by_both_while_it_is_so(
    cluster: Cluster,
) -> None:
    told = await cluster.ok("PUT", "/apart", APART)
    assert "no two" not in told["message"]
    assert (await cluster.ok("POST", ":validate", NEAR))["message"].endswith(f"apart {NO_TWO}")
    told = await cluster.ok("PUT", "/near", NEAR)
    assert told["ready"]
    assert told["message"].endswith(f"apart {NO_TWO}")
    await asyncio.sleep(1)
    assert (await cluster.ready("apart"))[2].endswith(f"near {NO_TWO}")
    # Nobody has anything to look at any more.
    await asyncio.sleep(10)
    await cluster.ok("PUT", "/near", {**NEAR, "selector": {"match_labels": {"app": "db"}}})
    await asyncio.sleep(1)
    for name in ("apart", "near"):
        assert "no two" not in (await cluster.ready(name))[2]
    await cluster.ok("PUT", "/near", {**NEAR, "parameters": {"size": 1}})
    await asyncio.sleep(1)
    assert "no two" not in (await cluster.ready("apart"))[2]
    for name in "bcde":
        await cluster.ok("PUT", f"/{name}", NEAR)
    await asyncio.sleep(1)
    assert "b, c, d, 1 more select the same pods" in (await cluster.ready("apart"))[2]
