"""The shipped scheduler configurations say what the documentation promises, and are localised without other change."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.core.names import MANAGED
from extender.shipped import places
from extender.shipped.errors import ClusterError, WrongUse
from lab.controlplane import schedulers

KUBECONFIG = Path("/somewhere/kubeconfig")
SHIPPED = places.shipped("scheduler-config")
FILES = ["escher.yaml", "escher-resources.yaml"]
ROOT = Path(__file__).parents[2]
RBAC = list(yaml.safe_load_all((places.shipped("deploy") / "schedulers" / "rbac.yaml").read_text()))


def profiles(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {profile["schedulerName"]: profile for profile in config["profiles"]}


def test_the_extender_scheduler_calls_the_service_of_this_cluster() -> None:
    config = schedulers.extender_scheduler(kubeconfig=KUBECONFIG, service_url="http://127.0.0.1:4711")
    assert {each["urlPrefix"] for each in config["extenders"]} == {"http://127.0.0.1:4711/scheduler"}
    assert config["clientConnection"]["kubeconfig"] == "/somewhere/kubeconfig"
    assert config["leaderElection"] == {"leaderElect": False}


def test_only_what_depends_on_the_place_differs_from_the_shipped_file() -> None:
    shipped = schedulers.load(SHIPPED / "escher.yaml")
    local = schedulers.extender_scheduler(kubeconfig=KUBECONFIG, service_url="http://127.0.0.1:8080")
    for config in (shipped, local):
        config["clientConnection"].pop("kubeconfig")
        config.pop("leaderElection")
    assert local == shipped


def test_the_ledger_profile_hides_the_domain_from_the_fit_and_does_not_sample() -> None:
    ledger = profiles(schedulers.load(SHIPPED / "escher.yaml"))["escher-ledger"]
    assert ledger["percentageOfNodesToScore"] == 100
    [fit] = ledger["pluginConfig"]
    assert (fit["name"], fit["args"]["ignoredResourceGroups"]) == ("NodeResourcesFit", ["escher.dev"])


def test_the_escher_profile_samples_as_users_run_it() -> None:
    assert profiles(schedulers.load(SHIPPED / "escher.yaml"))["escher"] == {"schedulerName": "escher"}


def test_the_extender_is_mandatory_sends_names_only_and_outlasts_a_gang() -> None:
    for extender in schedulers.load(SHIPPED / "escher.yaml")["extenders"]:
        assert (extender["ignorable"], extender["nodeCacheCapable"], extender["httpTimeout"]) == (False, True, "60s")


def verbs(extender: dict[str, Any]) -> dict[str, str]:
    return {name: extender[name] for name in extender if name.endswith("Verb")}


def test_every_pod_is_filtered_and_preempts_by_it_and_marked_ones_alone_are_scored_and_bound() -> None:
    everybody, marked = schedulers.load(SHIPPED / "escher.yaml")["extenders"]
    assert verbs(everybody) == {"filterVerb": "filter-only", "preemptVerb": "preempt"}
    assert "managedResources" not in everybody
    assert verbs(marked) == {"prioritizeVerb": "prioritize", "bindVerb": "bind"}
    assert marked["managedResources"] == [{"name": MANAGED, "ignoredByScheduler": True}]


def test_for_every_pod_one_entry_has_all_verbs() -> None:
    shipped = schedulers.load(SHIPPED / "escher.yaml")
    [extender] = schedulers.for_every_pod(shipped)["extenders"]
    assert verbs(extender) == {each + "Verb": each for each in ("filter", "prioritize", "bind", "preempt")}
    assert extender["weight"] == 1
    assert "managedResources" not in extender
    assert len(shipped["extenders"]) == 2


def test_the_resources_scheduler_knows_no_extender() -> None:
    config = schedulers.resources_scheduler(kubeconfig=KUBECONFIG)
    assert "extenders" not in config
    assert list(profiles(config)) == ["escher-resources", "default-scheduler"]


@pytest.mark.parametrize("file", FILES)
def test_nobody_takes_pods_of_the_clusters_own_scheduler_unless_asked(file: str) -> None:
    assert "default-scheduler" not in profiles(schedulers.load(SHIPPED / file))


@pytest.mark.parametrize("file", FILES)
def test_beside_the_clusters_own_scheduler_there_is_a_port_for_each(file: str) -> None:
    """On a machine of the control plane those of Kubernetes' own components are taken."""
    ports = {each: _port(SHIPPED / each) for each in FILES}
    assert ports[file] not in {10248, 10249, 10250, 10255, 10256, 10257, 10258, 10259, 10260}
    assert len(set(ports.values())) == len(FILES)
    for document in ("README.md", "docs/operations.md"):
        assert f"--config=scheduler-config/{file} --secure-port={ports[file]}" in (ROOT / document).read_text()


def _port(file: Path) -> int:
    [port] = re.findall(rf"kube-scheduler --config=scheduler-config/{file.name} --secure-port=(\d+)", file.read_text())
    return int(port)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("subject", ["escher-scheduler", "system:kube-scheduler"])
def test_each_may_hold_the_lease_that_its_file_names(file: str, subject: str) -> None:
    """Kubernetes' own role for schedulers has `kube-scheduler` alone."""
    wanted = schedulers.load(SHIPPED / file)["leaderElection"]
    allowed: set[str] = set()
    for role in _granted(subject, "Role", wanted["resourceNamespace"]):
        for rule in role["rules"]:
            assert (rule["apiGroups"], rule["resources"]) == (["coordination.k8s.io"], ["leases"])
            if wanted["resourceName"] in rule.get("resourceNames", [wanted["resourceName"]]):
                allowed |= set(rule["verbs"])
    assert {"create", "get", "update"} <= allowed


def test_the_service_account_may_do_what_a_scheduler_must() -> None:
    granted = {each["roleRef"]["name"] for each in RBAC if "roleRef" in each and _binds(each, "escher-scheduler")}
    reader = "extension-apiserver-authentication-reader"
    assert granted >= {"system:kube-scheduler", "system:volume-scheduler", reader}
    [account] = [each["metadata"] for each in RBAC if each["kind"] == "ServiceAccount"]
    assert account == {"name": "escher-scheduler", "namespace": "kube-system"}


def _granted(subject: str, kind: str, namespace: str) -> list[dict[str, Any]]:
    """The roles of that kind in the file that are bound to the subject there."""
    named = {
        each["roleRef"]["name"]
        for each in RBAC
        if each["kind"] == f"{kind}Binding" and each["metadata"]["namespace"] == namespace and _binds(each, subject)
    }
    return [each for each in RBAC if each["kind"] == kind and each["metadata"]["name"] in named]


def _binds(binding: dict[str, Any], subject: str) -> bool:
    for each in binding["subjects"]:
        if each["name"] == subject:
            # As kube-apiserver validates it.
            return bool(each.get("namespace")) if each["kind"] == "ServiceAccount" else "namespace" not in each
    return False


@pytest.mark.parametrize("file", FILES)
def test_real_clusters_get_leader_election_under_a_name_of_its_own_and_no_client_limit(file: str) -> None:
    config = schedulers.load(SHIPPED / file)
    assert config["leaderElection"]["leaderElect"] is True
    assert config["leaderElection"]["resourceName"] not in ("", "kube-scheduler")
    assert (config["clientConnection"]["qps"], config["clientConnection"]["burst"]) == (1000, 1000)


def test_a_clusters_own_scheduler_asks_about_marked_pods_alone() -> None:
    """Whoever bears no mark, the service's own pods among them, is placed while the service is away."""
    config = schedulers.load(SHIPPED / "kubeadm.yaml")
    assert set(profiles(config)) == {"default-scheduler", "escher"}
    [entry] = config["extenders"]
    assert entry["managedResources"] == [{"name": MANAGED, "ignoredByScheduler": True}]
    [wanted] = schedulers.for_every_pod(schedulers.load(SHIPPED / "escher.yaml"))["extenders"]
    of_the_place = {"urlPrefix", "enableHTTPS", "tlsConfig", "managedResources"}
    assert {key: entry[key] for key in entry.keys() - of_the_place} == {
        key: wanted[key] for key in wanted.keys() - of_the_place
    }
    assert entry["enableHTTPS"] is True
    assert entry["tlsConfig"].keys() == {"serverName", "caFile", "certFile", "keyFile"}


def test_a_brought_scheduler_serves_its_name_unless_it_has_a_file(tmp_path: Path) -> None:
    bare = schedulers.brought_scheduler("coscheduling", kubeconfig=KUBECONFIG, config_file=None)
    assert set(profiles(bare)) == {"coscheduling"}
    assert bare["clientConnection"]["qps"] == 1000
    file = tmp_path / "mine.yaml"
    file.write_text("kind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: mine}]\n")
    own = schedulers.brought_scheduler("coscheduling", kubeconfig=KUBECONFIG, config_file=file)
    assert set(profiles(own)) == {"mine"}
    assert own["clientConnection"] == {"kubeconfig": "/somewhere/kubeconfig"}


@pytest.mark.parametrize("file", FILES)
def test_without_sampling_every_profile_looks_at_all_nodes_and_nothing_else_differs(file: str) -> None:
    shipped = schedulers.load(SHIPPED / file)
    without = schedulers.without_sampling(shipped)
    assert without.pop("percentageOfNodesToScore") == 100
    for each in without["profiles"]:
        assert each["percentageOfNodesToScore"] == 100
    for config in (shipped, without):
        for each in config["profiles"]:
            each.pop("percentageOfNodesToScore", None)
    assert without == shipped
    assert schedulers.without_sampling({"profiles": None})["profiles"] is None


def test_a_file_that_is_no_scheduler_configuration_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    with pytest.raises(ClusterError, match="cannot read the scheduler configuration"):
        schedulers.load(file)
    file.write_text("a: [")
    with pytest.raises(WrongUse, match="is not YAML"):
        schedulers.load(file)
    file.write_text("- 1\n")
    with pytest.raises(WrongUse, match="holds no KubeSchedulerConfiguration"):
        schedulers.load(file)
