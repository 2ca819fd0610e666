"""Rights that come after the service, and rights that go and come back, as RBAC of a real API server has them.

In virtual time, kind by kind: tests/kubesim/test_forbidden.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from extender.app.cache.staleness import DESTROYS_WITHIN
from extender.kube.client.certificates import write_kubeconfig
from extender.settings.settings import OWN_NAMESPACE
from lab.controlplane import nodes
from lab.controlplane.clusters import RealCluster
from loadtests.shared.pods import Json, pod
from tests.controlplane.deadline import eventually
from tests.deploy.manifests import KUSTOMIZE, NAME, objects, one
from tests.e2e.workload import stays

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
OWN = f"/api/v1/namespaces/{OWN_NAMESPACE}/serviceaccounts"
PODS, TEAM = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/team/pods"
SECONDS = 3.0
INSTALLED = objects((KUSTOMIZE / "base" / "objects.yaml").read_text())


@pytest.fixture
def cluster(state_folder: Path) -> Iterator[RealCluster]:
    """Nobody serves yet. Everything of the service's ServiceAccount is there, but what binds its ClusterRole to it."""
    with RealCluster.start(nodes=3, service=False) as started:
        api = started.admin
        api.post(OWN, {"metadata": {"name": NAME}})
        api.post(f"{RBAC}/clusterroles", one(INSTALLED, "ClusterRole", NAME))
        api.post(f"{RBAC}/namespaces/{OWN_NAMESPACE}/roles", one(INSTALLED, "Role", NAME))
        api.post(f"{RBAC}/namespaces/{OWN_NAMESPACE}/rolebindings", one(INSTALLED, "RoleBinding", NAME))
        body = {"metadata": {"name": "high"}, "value": 1000}
        api.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)
        # No member of the gang fits there, and no room is kept for it.
        started.create_nodes([nodes.node("spare", {"cpu": "2", "memory": "8Gi", "pods": "8"})])
        yield started


def serve(cluster: RealCluster, folder: Path) -> None:
    """The service runs as its ServiceAccount, and is ready."""
    token = cluster.admin.post(f"{OWN}/{NAME}/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    own, access = folder / "own.kubeconfig", cluster.access
    write_kubeconfig(own, context="own", server=access.url, authority=access.authority.encode(), token=token)
    cluster.start_component("service", ("--kubeconfig", str(own)))


def give_rights(cluster: RealCluster) -> None:
    cluster.admin.post(f"{RBAC}/clusterrolebindings", one(INSTALLED, "ClusterRoleBinding", NAME))


def take_rights(cluster: RealCluster) -> None:
    """Watches that are open would go on for minutes: the API server is started anew, too."""
    cluster.admin.delete(f"{RBAC}/clusterrolebindings/{NAME}")
    cluster.stop_component("kube-apiserver")
    cluster.start_component("kube-apiserver")


def readyz(cluster: RealCluster) -> tuple[int, Json]:
    """The status is 0 where nobody listens."""
    try:
        answer = httpx.get(f"{cluster.service_url}/readyz", trust_env=False)
    except httpx.TransportError:
        return 0, {}
    return answer.status_code, answer.json()


def create(cluster: RealCluster, path: str, *made: Json) -> None:
    for each in made:
        cluster.admin.post(path, each)


def gang_of_two() -> list[Json]:
    return [pod(f"high-{number}", gang="high", quorum=2, cpu=8, priority_class="high") for number in range(2)]


def bound(cluster: RealCluster, path: str, prefix: str) -> int:
    """How many pods of such a name are bound, and not about to go."""
    found = [each for each in cluster.admin.list_all(path) if each["metadata"]["name"].startswith(prefix)]
    return sum(bool(each["spec"].get("nodeName")) and "deletionTimestamp" not in each["metadata"] for each in found)


def turned_away(cluster: RealCluster, path: str, prefix: str) -> int:
    """Of how many kube-scheduler has said that it cannot place them."""
    found = [each for each in cluster.admin.list_all(path) if each["metadata"]["name"].startswith(prefix)]
    conditions = [condition for each in found for condition in each["status"].get("conditions") or ()]
    return sum(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


def test_rights_that_come_three_seconds_late_are_waited_for_and_what_narrows_is_known_from_readiness_on(
    cluster: RealCluster, tmp_path: Path
) -> None:
    api = cluster.admin
    api.post("/api/v1/namespaces", {"metadata": {"name": "team", "labels": {"escher.dev/preempt": "off"}}})
    spec: Json = {"type": "anti-affinity", "selector": {"matchLabels": {"app": "db"}}}
    policy = {"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": "apart"}, "spec": spec}
    api.post("/apis/escher.dev/v1alpha1/namespaces/team/escherpolicies", policy)
    here, labels = {"kubernetes.io/hostname": "node-0"}, {"app": "db"}
    lows = [pod(f"low-{number}", cpu=8) for number in range(2)]
    for number, each in enumerate(lows):
        each["spec"]["nodeName"] = f"node-{number + 1}"
    create(cluster, TEAM, *lows)
    # All that is to be turned away asks before the service is ready: its first answers count.
    create(cluster, TEAM, *(pod(f"db-{number}", labels=labels, selector=here) for number in range(2)))
    create(cluster, PODS, *gang_of_two())
    with ThreadPoolExecutor(1) as worker:
        starting = worker.submit(serve, cluster, tmp_path)
        eventually(lambda: readyz(cluster)[0] == 503, what="the service listening")
        stays(lambda: readyz(cluster)[0], during=SECONDS, what="the answer of /readyz")
        assert "is forbidden" in readyz(cluster)[1]["detail"]
        assert bound(cluster, TEAM, "db") == bound(cluster, PODS, "high") == 0
        give_rights(cluster)
        starting.result(timeout=60)
    eventually(lambda: bound(cluster, TEAM, "db") == 1, within=30, what="the first of the two that are to be apart")
    eventually(lambda: turned_away(cluster, PODS, "high") == 2, within=30, what="the gang being turned away")
    assert stays(lambda: bound(cluster, TEAM, "db"), during=8, what="the number of the two that are bound") == 1
    assert (bound(cluster, TEAM, "low"), bound(cluster, PODS, "high")) == (2, 0)
    assert readyz(cluster)[1]["without"] == []
    label = "the label of the namespace is what kept them"
    api.patch("/api/v1/namespaces/team", {"metadata": {"labels": {"escher.dev/preempt": None}}})
    eventually(lambda: bound(cluster, PODS, "high") == 2, within=60, what=label)


def test_while_rights_are_withdrawn_nothing_is_evicted_nor_bound_and_all_goes_on_when_they_are_back(
    cluster: RealCluster, tmp_path: Path
) -> None:
    give_rights(cluster)
    serve(cluster, tmp_path)
    pid = cluster.pids()["service"]
    create(cluster, PODS, *(pod(f"low-{number}", cpu=8) for number in range(2)))
    eventually(lambda: bound(cluster, PODS, "low") == 2, within=30, what="the pods of lower priority")
    take_rights(cluster)
    # Marked, it is bound by Escher; kube-scheduler binds plain pods by its own right.
    marked: dict[str, Any] = {"escher.dev/managed": 0}
    create(cluster, PODS, pod("small", **marked), *gang_of_two())
    # The switch is set while its namespace may not be read.
    labels: dict[str, Any] = {"escher.dev/preempt": "off"}
    cluster.admin.patch("/api/v1/namespaces/default", {"metadata": {"labels": labels}})

    def state() -> tuple[int, ...]:
        return tuple(bound(cluster, PODS, prefix) for prefix in ("low", "high", "small"))

    assert stays(state, during=DESTROYS_WITHIN + 5, what="what is bound") == (2, 0, 0)
    lost = eventually(lambda: readyz(cluster)[1]["lost"], what="/readyz saying so")
    assert {"nodes", "pods", "namespaces"} <= lost.keys()
    assert "is forbidden" in lost["pods"]["why"]
    assert cluster.log("service").count("nothing is evicted") >= 1
    give_rights(cluster)
    eventually(lambda: readyz(cluster)[1]["lost"] == {}, what="all kinds being followed again")
    eventually(lambda: bound(cluster, PODS, "small") == 1, within=60, what="the small pod")
    assert stays(state, during=8, what="what is bound") == (2, 0, 1), "the switch counts from the first moment"
    cluster.admin.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"escher.dev/preempt": None}}})
    eventually(lambda: bound(cluster, PODS, "high") == 2, within=60, what="the gang having its room")
    assert cluster.pids()["service"] == pid
