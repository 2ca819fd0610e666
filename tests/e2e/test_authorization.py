"""Tokens and rights as an API server has them: on both, whoever shows none is refused; on the real one RBAC decides."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from extender.settings.settings import OWN_NAMESPACE
from lab.controlplane.clusters import EmbeddedCluster, RealCluster
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import CLUSTERS, REAL_ONLY

pytestmark = [pytest.mark.timeout(300)]

Cluster = RealCluster | EmbeddedCluster
RESOURCE = {"capacity": 1, "node_spec": {}}
ROOT = Path(__file__).parents[2]
SECURITY, SHARED_NAMES = ROOT / "docs" / "security.md", ROOT / "deploy" / "authorization" / "shared-names.yaml"
KUBECTL = Path(sys.executable).with_name("kubectl")
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture(scope="module")
def cluster(state_folder: Path, where: str) -> Iterator[Cluster]:
    # Believed for a second, so that nobody has to wait for what is taken away.
    folder = state_folder / "authorization"
    folder.mkdir(exist_ok=True)
    settings = folder / f"{where}.yaml"
    settings.write_text("authorization: kubernetes\nauthorization_cache_seconds: 1\n")
    with CLUSTERS[where].start(nodes=1, service_arguments=("--config", str(settings))) as made:
        yield made


@pytest.fixture
def service(cluster: Cluster) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=str(cluster.service_url), timeout=30, trust_env=False) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def account(cluster: Cluster, namespace: str, name: str = "app") -> str:
    """The token of a new service account in a new namespace."""
    api = cluster.admin
    api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
    return token_of(cluster, namespace, name)


def token_of(cluster: Cluster, namespace: str, name: str = "app", audiences: tuple[str, ...] = ()) -> str:
    """A token of the service account; for the API server, unless it is for others."""
    spec: dict[str, Any] = {"expirationSeconds": 3600, "audiences": list(audiences)}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    return str(cluster.admin.post(path, body)["status"]["token"])


def allow(cluster: Cluster, namespace: str, *rules: dict[str, Any]) -> None:
    """The namespace's service account may do that there."""
    path = f"/apis/{RBAC}/v1/namespaces/{namespace}"
    cluster.admin.post(f"{path}/roles", {"metadata": {"name": "app"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "app", "namespace": namespace}
    binding = {"roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "app"}, "subjects": [subject]}
    cluster.admin.post(f"{path}/rolebindings", {"metadata": {"name": "app"}, **binding})


def rule(resources: list[str], verbs: list[str], **more: Any) -> dict[str, Any]:
    return {"apiGroups": ["escher.dev"], "resources": resources, "verbs": verbs, **more}


def test_whoever_shows_no_token_is_refused_and_the_admins_is_good(cluster: Cluster, service: httpx.Client) -> None:
    at = "/v1/namespaces/default/resources/data1"
    for headers in ({}, bearer("of-another-cluster")):
        assert service.put(at, json=RESOURCE, headers=headers).status_code == 401
        assert service.get("/metrics", headers=headers).status_code == 401
    assert service.get("/readyz").status_code == 200
    admin = bearer(cluster.access.token)
    assert service.put(at, json=RESOURCE, headers=admin).status_code == 200
    assert service.get("/metrics", headers=admin).status_code == 200
    assert service.delete(at, headers=admin).status_code == 204
    assert "of-another-cluster" not in cluster.log("service")
    eventually(
        lambda: cluster.log("service").count("event='audited'") == 4,
        what="a line for each write",
    )


@REAL_ONLY
def test_a_service_account_gets_its_namespace_and_no_other(cluster: Cluster, service: httpx.Client) -> None:
    mine, other = account(cluster, "mine"), account(cluster, "other")
    path = "/v1/namespaces/mine/resources/data1"
    refused = service.put(path, json=RESOURCE, headers=bearer(mine))
    assert refused.status_code == 403
    assert refused.json()["missing"] == {
        "verb": "create",
        "group": "escher.dev",
        "resource": "ephemeralresources",
        "namespace": "mine",
        "name": "data1",
    }
    for namespace in ("mine", "other"):
        allow(cluster, namespace, rule(["ephemeralresources"], ["create", "update", "delete", "get", "list"]))
    eventually(
        lambda: service.put(path, json=RESOURCE, headers=bearer(mine)).status_code == 200,
        what="the service account's role being known",
    )
    for method, body in (("PUT", RESOURCE), ("GET", None), ("DELETE", None)):
        assert service.request(method, path, json=body, headers=bearer(other)).status_code == 403
    shared = service.put(path, json=RESOURCE | {"shared": True}, headers=bearer(mine))
    assert shared.json()["missing"]["resource"] == "ephemeralresources/shared"
    assert service.get("/v1/cluster-state", headers=bearer(mine)).status_code == 403
    assert service.get("/metrics", headers=bearer(mine)).status_code == 403
    operations = [{"op": "set", "namespace": "other", "name": "data1", **RESOURCE}]
    whole = service.post("/v1/transactions", json={"operations": operations}, headers=bearer(mine))
    assert (whole.status_code, whole.json()["missing"]["namespace"]) == (403, "other")
    assert service.delete(path, headers=bearer(mine)).status_code == 204


@REAL_ONLY
def test_a_role_may_be_for_one_name(cluster: Cluster, service: httpx.Client) -> None:
    token = account(cluster, "team-c")
    allow(cluster, "team-c", rule(["ephemeralresources"], ["create", "update"], resourceNames=["mine"]))
    at = "/v1/namespaces/team-c/resources"
    eventually(
        lambda: service.put(f"{at}/mine", json=RESOURCE, headers=bearer(token)).status_code == 200,
        what="the role being known",
    )
    assert service.put(f"{at}/other", json=RESOURCE, headers=bearer(token)).status_code == 403


@REAL_ONLY
def test_a_token_for_others_and_one_whose_account_is_gone_are_good_for_nothing(
    cluster: Cluster, service: httpx.Client
) -> None:
    path = "/v1/namespaces/team-d/gangs"
    token = account(cluster, "team-d")
    allow(cluster, "team-d", rule(["gangs"], ["list"]))
    eventually(
        lambda: service.get(path, headers=bearer(token)).status_code == 200,
        what="the role being known",
    )
    elsewhere = token_of(cluster, "team-d", audiences=("somebody-else",))
    assert service.get(path, headers=bearer(elsewhere)).status_code == 401
    cluster.admin.delete("/api/v1/namespaces/team-d/serviceaccounts/app")
    eventually(
        lambda: service.get(path, headers=bearer(token)).status_code == 401,
        what="the token having ended",
    )


@REAL_ONLY
def test_the_commands_of_the_security_model_give_a_pod_its_namespace(
    cluster: Cluster, service: httpx.Client, tmp_path: Path
) -> None:
    commands = [line.split() for line in SECURITY.read_text().splitlines() if line.startswith("    kubectl create ")]
    assert len(commands) == 2
    token, path = account(cluster, "team-a", "trainer"), "/v1/namespaces/team-a/resources/data1"
    assert service.put(path, json=RESOURCE, headers=bearer(token)).status_code == 403
    environment = {"HOME": str(tmp_path), "KUBECONFIG": str(cluster.kubeconfig), "NO_PROXY": "*"}
    for _, *words in commands:
        done = subprocess.run(
            [KUBECTL, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
    eventually(
        lambda: service.put(path, json=RESOURCE, headers=bearer(token)).status_code == 200,
        what="the role being known",
    )
    other = path.replace("team-a", "default")
    assert service.put(other, json=RESOURCE, headers=bearer(token)).status_code == 403


@REAL_ONLY
def test_a_shared_name_needs_its_right_from_the_api_server_too_where_the_policy_is(
    cluster: Cluster, service: httpx.Client
) -> None:
    token = account(cluster, "team-s")
    verbs = ["create", "update", "patch", "get", "delete"]
    allow(cluster, "team-s", rule(["ephemeralresources"], verbs))
    for each in yaml.safe_load_all(SHARED_NAMES.read_text()):
        cluster.admin.post(f"/apis/admissionregistration.k8s.io/v1/{PLURALS[each['kind']]}", each)
    objects = "/apis/escher.dev/v1alpha1/namespaces/team-s/ephemeralresources"

    def written(name: str, shared: bool) -> tuple[int, str]:
        body = {
            "apiVersion": "escher.dev/v1alpha1",
            "kind": "EphemeralResource",
            "metadata": {"name": name},
            "spec": {"capacity": 1, "nodeSpec": {"resources": {"cpu": "1"}}, "shared": shared},
        }
        with httpx.Client(base_url=cluster.access.url, verify=cluster.access.trust, trust_env=False) as api:
            answer = api.post(f"{objects}?dryRun=All", json=body, headers=bearer(token))
        return answer.status_code, answer.text

    eventually(lambda: written("all", True)[0] == 403, what="the policy being in force")
    assert "needs the right to create ephemeralresources/shared in namespace team-s" in written("all", True)[1]
    assert written("one", False)[0] == 201
    # The service writes what it has asked about.
    path = "/v1/namespaces/team-s/resources/all"
    body = RESOURCE | {"shared": True}
    assert service.put(path, json=body, headers=bearer(token)).status_code == 403
    admin = bearer(cluster.access.token)
    assert service.put(path, json=body, headers=admin).status_code == 200
    assert service.delete(f"{path}?shared=true", headers=admin).status_code == 204
    role = f"/apis/{RBAC}/v1/namespaces/team-s/roles/app"
    rules = [rule(["ephemeralresources", "ephemeralresources/shared"], verbs)]
    cluster.admin.patch(role, {"rules": rules})
    eventually(lambda: written("all", True)[0] == 201, what="the role being known")


@REAL_ONLY
def test_what_a_tenant_forges_of_a_transaction_moves_nothing_of_others_and_nothing_shared(
    cluster: Cluster, service: httpx.Client
) -> None:
    """It looks as an earlier version stored it. Found at the start, it would have been carried out at once."""
    token, admin = account(cluster, "ten-x"), bearer(cluster.access.token)
    cluster.admin.post("/api/v1/namespaces", {"metadata": {"name": "ten-y"}})
    allow(cluster, "ten-x", rule(["*"], ["*"]))
    objects = "/apis/escher.dev/v1alpha1/namespaces/{}/ephemeralresources"

    def as_tenant(method: str, path: str, body: Any = None) -> httpx.Response:
        with httpx.Client(base_url=cluster.access.url, verify=cluster.access.trust, trust_env=False) as api:
            return api.request(method, path, json=body, headers=bearer(token))

    def manifest(name: str, spec: Any, annotations: Any) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "ten-x", "annotations": annotations}
        return {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": metadata, "spec": spec}

    wishes = [{"op": "set", "namespace": each, "name": "data", **RESOURCE} for each in ("ten-x", "ten-y")]
    assert service.post("/v1/transactions", json={"operations": wishes}, headers=admin).status_code == 200
    eventually(lambda: as_tenant("GET", objects.format("ten-x")).status_code == 200, what="the role being known")
    mine = as_tenant("GET", objects.format("ten-x") + "/data").json()
    stolen = manifest("stolen", {"shared": True, "nodes": {"node-0": 7}}, {})
    for transaction, formers in (
        (mine["metadata"]["annotations"]["escher.dev/mark"].partition(".")[0], []),
        ("abcdefghijklmnop", [{"name": "stolen", "deletes": True, "was": stolen}]),
    ):
        said = {"transaction": transaction, "objects": formers, "deciding": "", "others": [], "givenUp": False}
        note = manifest(f"transaction-{transaction}", {"nodes": {}}, {"escher.dev/transaction": json.dumps(said)})
        assert as_tenant("POST", objects.format("ten-x"), note).status_code == 201
    # Where they would be believed, nobody but the service may write them.
    intent = {"apiVersion": "escher.dev/v1alpha1", "kind": "TransactionIntent", "metadata": {"name": "transaction-a"}}
    for namespace, status in ((OWN_NAMESPACE, 403), ("ten-x", 201)):
        path = f"/apis/escher.dev/v1alpha1/namespaces/{namespace}/transactionintents"
        other = {"namespace": "ten-y", "name": "data", "was": None}
        answer = as_tenant("POST", path, {**intent, "spec": {"objects": [{k: v for k, v in other.items() if v}]}})
        assert answer.status_code == status, answer.text
    cluster.kill("service")
    cluster.start_component("service")

    def told() -> list[str]:
        found = cluster.admin.list_all(objects.format("ten-x"))
        left = [each for each in found if each["metadata"]["name"].startswith("transaction-")]
        return [each["status"]["conditions"][0]["message"] for each in left if each.get("status")]

    eventually(lambda: len(told()) == 2, what="what is said of both")
    assert all("Escher rolls nothing back by it" in each for each in told())
    kept = {"escher.dev/ten-x.data": "1", "escher.dev/ten-y.data": "1"}
    capacity = cluster.admin.get("/api/v1/nodes/node-0")["status"]["capacity"]
    assert {key: units for key, units in capacity.items() if key.startswith("escher.dev/ten-")} == kept
    assert "escher.dev/stolen" not in capacity
    # A transaction goes on as ever, and what it has stored is gone when it is answered.
    assert service.post("/v1/transactions", json={"operations": wishes}, headers=admin).status_code == 200
    assert cluster.admin.list_all(f"/apis/escher.dev/v1alpha1/namespaces/{OWN_NAMESPACE}/transactionintents") == []


@REAL_ONLY
def test_what_a_tenant_nests_as_deeply_as_it_likes_keeps_nobody_from_reading_the_rest(
    cluster: Cluster, service: httpx.Client
) -> None:
    """A decoder that goes down level by level ends at a thousand; one such object was the end of each list."""
    token, admin, deep = account(cluster, "ten-n"), bearer(cluster.access.token), "[" * 2000 + "]" * 2000
    allow(cluster, "ten-n", rule(["*"], ["*"]), {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]})
    ours = "/apis/escher.dev/v1alpha1/namespaces/ten-n"

    def as_tenant(method: str, path: str, text: str, kind: str = "application/json") -> int:
        headers = {"Content-Type": kind, **bearer(token)}
        with httpx.Client(base_url=cluster.access.url, verify=cluster.access.trust, trust_env=False, timeout=60) as api:
            return api.request(method, path, content=text, headers=headers).status_code

    def manifest(kind: str, spec: Any, annotations: Any = None) -> str:
        metadata = {"name": "deep", "annotations": annotations or {}}
        head = {"apiVersion": "escher.dev/v1alpha1", "kind": kind}
        return json.dumps({**head, "metadata": metadata, "spec": spec})

    policy = manifest("EscherPolicy", {"type": "balance", "parameters": {}})
    eventually(lambda: as_tenant("POST", f"{ours}/escherpolicies", policy) == 201, what="the role being known")
    said = f'{{"status":{{"inForce":{{"type":"balance","parameters":{{"x":{deep}}}}}}}}}'
    assert as_tenant("PATCH", f"{ours}/escherpolicies/deep/status", said, "application/merge-patch+json") == 200
    chosen = manifest("EphemeralResource", {"nodes": {"node-0": 1}}, {"escher.dev/chosen": f'{{"x":{deep}}}'})
    assert as_tenant("POST", f"{ours}/ephemeralresources", chosen) == 201
    fields = '{"f:a":' * 2000 + "{}" + "}" * 2000
    managed = f'[{{"manager":"me","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields}}}]'
    container = '{"name":"main","image":"none"}'
    pod = f'{{"metadata":{{"name":"deep","managedFields":{managed}}},"spec":{{"containers":[{container}]}}}}'
    assert as_tenant("POST", "/api/v1/namespaces/ten-n/pods", pod) == 201
    cluster.kill("service")
    cluster.start_component("service")
    path = "/v1/namespaces/ten-n/resources/other"
    assert service.put(path, json=RESOURCE, headers=admin).status_code == 200
    assert service.get("/v1/namespaces/ten-n/resources/deep", headers=admin).status_code == 200
    assert service.delete("/v1/namespaces/ten-n/resources/deep", headers=admin).status_code == 204
    assert service.get("/readyz").status_code == 200
