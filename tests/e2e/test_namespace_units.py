"""Units belong to their namespace: the API server refuses pods that name another's, and Escher lets exports alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from lab.controlplane.clusters import RealCluster
from tests.controlplane.deadline import eventually
from tests.e2e.conftest import CLUSTERS, REAL_ONLY

pytestmark = [pytest.mark.timeout(300), pytest.mark.older]

POLICY = Path(__file__).parents[2] / "deploy" / "authorization" / "namespace-units.yaml"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
THEIRS, OWN, SHARED = "escher.dev/team-b.x", "escher.dev/team-a.x", "escher.dev/x"


@pytest.fixture
def cluster(where: str) -> Iterator[RealCluster]:
    assert where == "real"
    with RealCluster.start(nodes=1) as made:
        yield made


def pod(name: str, key: str, *, init: bool = False, **spec: Any) -> dict[str, Any]:
    asking = {"name": "asking", "image": "none", "resources": {"requests": {key: "1"}, "limits": {key: "1"}}}
    plain = {"name": "plain", "image": "none"}
    containers = {"containers": [plain], "initContainers": [asking]} if init else {"containers": [asking]}
    return {"metadata": {"name": name}, "spec": {"schedulerName": "escher", **containers, **spec}}


@REAL_ONLY
def test_a_pod_that_names_anothers_units_is_refused_and_one_that_they_are_exported_to_is_bound(
    cluster: RealCluster, where: str
) -> None:
    assert where in CLUSTERS
    access, admin = cluster.access, cluster.admin
    for namespace in ("team-a", "team-b"):
        admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    for each in yaml.safe_load_all(POLICY.read_text()):
        admin.post(f"{ADMISSION}/{PLURALS[each['kind']]}", each)

    def tried(made: dict[str, Any], query: str = "?dryRun=All") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {access.token}"}
        with httpx.Client(base_url=access.url, verify=access.trust, trust_env=False, headers=headers) as api:
            answer = api.post(f"/api/v1/namespaces/team-a/pods{query}", json=made)
        return answer.status_code, answer.text

    eventually(lambda: tried(pod("p", THEIRS))[0] == 403, what="the policy being in force")
    assert "may ask for ephemeral resources of its own namespace, escher.dev/team-a.NAME" in tried(pod("p", THEIRS))[1]
    assert tried(pod("p", THEIRS, init=True))[0] == 403
    assert [tried(pod("p", key))[0] for key in (OWN, SHARED, "example.com/team-b.x")] == [201] * 3
    unknown = tried(pod("p", "cpu", resources={"requests": {THEIRS: "1"}, "limits": {THEIRS: "1"}}))
    assert unknown[0] in (403, 422)

    # An administrator lets the namespace name others' units: Escher goes by what is exported.
    admin.patch("/api/v1/namespaces/team-a", {"metadata": {"labels": {"escher.dev/foreign-units": "allowed"}}})
    eventually(lambda: tried(pod("p", THEIRS))[0] == 201, what="the label being known")
    with httpx.Client(base_url=str(cluster.service_url), timeout=30, trust_env=False) as service:
        at, body = "/v1/namespaces/team-b/resources/x", {"capacity": 4, "node_spec": {}}
        assert service.put(at, json=body).status_code == 200
        assert tried(pod("waits", THEIRS), "")[0] == 201
        path = "/v1/namespaces/team-a/pods/waits/explain"
        reason = "the pod requests ephemeral resources of another namespace that are not exported to its namespace"
        eventually(lambda: reason in service.get(path).text, what="the pod being refused")
        node = "/api/v1/namespaces/team-a/pods/waits"
        assert "nodeName" not in admin.get(node)["spec"]
        assert service.put(at, json={**body, "export_to": ["team-a"]}).status_code == 200
        eventually(lambda: "nodeName" in admin.get(node)["spec"], what="the pod being bound")
