"""`escher doctor` on the real control plane: what is shipped has no findings, and what is then spoilt is found."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from extender.cli.main import app
from extender.doctor.checks import CHECKS
from extender.doctor.findings import examine
from extender.doctor.from_files import scheduler_files
from extender.doctor.permissions import IN_OWN_NAMESPACE, NEEDED
from extender.doctor.rules import entry_checks, profile_checks
from extender.shipped import crds, places, versions
from extender.shipped.progress import Progress
from lab.controlplane.api import Api
from lab.controlplane.clusters import RealCluster
from lab.controlplane.processes import binaries
from loadtests.shared.pods import Json, pod
from tests.controlplane.deadline import eventually
from tests.doctor.mistakes import MISTAKES, Mistake
from tests.doctor.set_up import SetUp

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/escherpolicies.escher.dev"
MARKING = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/mark-pods.escher.dev"
RESOURCES = "/apis/escher.dev/v1alpha1/namespaces/default/ephemeralresources"
KEY = "escher.dev/default.data1"
ROLE = "escher-as-documented"


@pytest.fixture(scope="module")
def cluster(state_folder: Path) -> Iterator[RealCluster]:
    # Where marks are behind a feature gate too: what is shipped relies on them.
    with RealCluster.start(nodes=2, marks=True) as started:
        yield started


def looked_at(cluster: RealCluster, *more: str) -> tuple[set[str], Json]:
    """The checks that found something, and all that was told."""
    shipped = places.shipped("scheduler-config")
    files = [f"--scheduler-config={shipped / name}" for name in ("escher.yaml", "escher-resources.yaml")]
    where = ["--kubeconfig", str(cluster.kubeconfig), "--url", cluster.service_url]
    done = CliRunner().invoke(app, ["doctor", *files, *where, "--json", *more])
    told: Json = json.loads(done.stdout)
    assert done.exit_code == (1 if told["mistakes"] else 0)
    return {each["check"] for each in told["findings"]}, told


def grant(api: Api, *left_out: str) -> None:
    """The account has what the table of permissions says, without these."""
    rules = [
        {"apiGroups": [each.group], "resources": [each.resource], "verbs": [each.verb]}
        for each in (*NEEDED, *IN_OWN_NAMESPACE)
        if str(each) not in left_out
    ]
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": ROLE},
        "rules": rules,
    }
    api.put(f"{RBAC}/clusterroles/{ROLE}", body)


@pytest.mark.older
def test_what_is_shipped_has_no_findings_and_every_part_of_it_is_read(cluster: RealCluster) -> None:
    manifest = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": "data1"}}
    [node, _] = sorted(each["metadata"]["name"] for each in cluster.admin.get("/api/v1/nodes")["items"])
    cluster.admin.post(RESOURCES, {**manifest, "spec": {"nodes": {node: 4}}})
    for number in range(2):
        cluster.admin.post("/api/v1/namespaces/default/pods", pod(f"train-{number}", gang="train", quorum=2))
    eventually(lambda: "status" in cluster.admin.get(f"{RESOURCES}/data1"), what="the resource's status")
    found, told = looked_at(cluster)
    assert found == set()
    assert {each["part"] for each in told["not_looked_at"]} == {"the service's settings"}


@pytest.mark.older
def test_the_policy_that_gates_all_gangs_is_taken_in_the_version_of_its_kind_that_there_is(
    cluster: RealCluster,
) -> None:
    api = versions.chosen().admission_policies.name
    collections = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
    shipped = crds.documents(places.shipped("deploy") / "policies" / "gate-gangs.yaml")
    for collection, each in zip(collections, shipped, strict=True):
        cluster.admin.post(f"/apis/{api}/{collection}", {**each, "apiVersion": api}, dryRun="All")


def test_permissions_of_the_table_are_enough_and_one_that_is_missing_is_found(cluster: RealCluster) -> None:
    api = cluster.admin
    named = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": ROLE}}
    api.post(f"{RBAC}/clusterroles", {**named, "kind": "ClusterRole", "rules": []})
    subject = {"kind": "ServiceAccount", "namespace": "escher-system", "name": "escher"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE}
    binding = {**named, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]}
    api.post(f"{RBAC}/clusterrolebindings", binding)
    account = ("--service-account", "escher-system/escher")

    def denied() -> set[str]:
        found, told = looked_at(cluster, *account)
        assert found <= {"permission-missing"}
        return {each["wrong"] for each in told["findings"]}

    # The authorizer learns of roles by watching them.
    grant(api)
    eventually(lambda: not denied(), what="all that is in the table is granted")
    grant(api, "create pods/binding", "watch nodes")
    eventually(
        lambda: (
            denied()
            == {
                "may not create pods/binding; without that no pod that Escher is to bind gets a node",
                "may not watch nodes; without that the service does not work",
            }
        ),
        what="what is missing is found",
    )


def test_definitions_and_policies_that_are_changed_are_found(cluster: RealCluster) -> None:
    api = cluster.admin
    definition, policy = api.get(DEFINITION), api.get(MARKING)
    changed: Any = json.loads(json.dumps(definition))
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"].pop()
    api.put(DEFINITION, changed)
    policy["spec"]["failurePolicy"] = "Fail"
    api.put(MARKING, policy)
    assert looked_at(cluster)[0] == {"definition-differs", "mark-fails"}
    definition["metadata"]["resourceVersion"] = api.get(DEFINITION)["metadata"]["resourceVersion"]
    api.put(DEFINITION, definition)
    api.delete(MARKING)
    assert looked_at(cluster)[0] == {"mark-missing"}


def by_kube_scheduler(cluster: RealCluster, folder: Path, document: Json) -> tuple[Path | None, str]:
    """That configuration as kube-scheduler itself writes it, with all that it takes for granted; None: it refuses it.
    And what it says. It starts nothing."""
    document["clientConnection"]["kubeconfig"] = str(cluster.kubeconfig)
    given, written = folder / "given.yaml", folder / "written.yaml"
    given.write_text(yaml.safe_dump(document))
    program = binaries.build(Progress()) / "kube-scheduler"
    ran = subprocess.run(
        [program, f"--config={given}", f"--write-config-to={written}", "--secure-port=0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return (written if ran.returncode == 0 else None), ran.stderr


IN_FILES = [
    each for each in MISTAKES if each.check in {check.name for check in (*profile_checks.CHECKS, *entry_checks.CHECKS)}
]


@pytest.mark.parametrize("mistake", IN_FILES, ids=lambda each: each.check)
def test_kube_scheduler_refuses_what_is_said_to_be_refused_and_takes_all_else(
    cluster: RealCluster, tmp_path: Path, mistake: Mistake
) -> None:
    """So these mistakes are found by nobody else, and those are told in the words of what happens."""
    set_up = SetUp()
    mistake.make(set_up)
    if any("tlsConfig" in each for each in set_up.scheduler.get("extenders", ())):
        # Whether the files of certificates are there is looked at as well; these are not.
        set_up.scheduler["extenders"] = [
            {name: value for name, value in each.items() if name != "tlsConfig"}
            for each in set_up.scheduler["extenders"]
        ]
    told = [each.wrong for each in examine(set_up.facts(), CHECKS).findings]
    written, said = by_kube_scheduler(cluster, tmp_path, set_up.scheduler)
    assert (written is None) == any("kube-scheduler rejects" in each for each in told), said[-500:]


@pytest.mark.parametrize("number", [0, 1])
def test_what_is_shipped_has_no_findings_as_kube_scheduler_itself_writes_it(
    cluster: RealCluster, tmp_path: Path, number: int
) -> None:
    set_up = SetUp()
    written, said = by_kube_scheduler(cluster, tmp_path, set_up.schedulers[number])
    assert written is not None, said
    [found] = scheduler_files(written)
    set_up.schedulers[number] = dict(found.document)
    assert examine(set_up.facts(), CHECKS).findings == ()


def test_while_the_service_is_away_what_waits_for_it_is_found_and_let_go(cluster: RealCluster) -> None:
    api = cluster.admin
    cluster.stop_component("service")
    node = next(iter(api.get(f"{RESOURCES}/data1")["spec"]["nodes"]))
    gone: Json = {"status": {"capacity": {KEY: None}, "allocatable": {KEY: None}}}
    api.patch(f"/api/v1/nodes/{node}/status", gone)
    body = pod("late-0", gang="late", quorum=2, gated=True)
    body["spec"]["schedulingGates"].append({"name": "example.com/other"})
    api.post("/api/v1/namespaces/default/pods", body)
    found, _ = looked_at(cluster)
    assert {"service-unreachable", "gate-without-service", "status-reset"} <= found
    where = ["--kubeconfig", str(cluster.kubeconfig), "--url", cluster.service_url]
    done = CliRunner().invoke(app, ["doctor", "--release-gates", *where, "--yes", "--json"])
    assert [each["released"] for each in json.loads(done.stdout)["items"]] == [True]
    late = api.get("/api/v1/namespaces/default/pods/late-0")
    assert late["spec"]["schedulingGates"] == [{"name": "example.com/other"}]
    assert "gate-without-service" not in looked_at(cluster)[0]
