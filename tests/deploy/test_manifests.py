"""What deploy/kustomize installs: no rights beyond what the code calls, no dependence on ourselves, no more power than
it takes."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender import __version__
from extender.adapters.kubernetes.writers import traces
from extender.app.contracts.ports import PodRef
from extender.core.names import DOMAIN
from extender.doctor.permissions import IN_OWN_NAMESPACE, NEEDED, TO_LEAD
from extender.kube.names import PodUid, ResourceKey
from extender.settings.settings import CHANGEABLE, load_settings
from extender.settings.settings_renamed import RENAMED
from lab.controlplane import schedulers
from tests.deploy.manifests import (
    CHART,
    KUSTOMIZE,
    NAMESPACE,
    ROOT,
    Object,
    copies,
    granted,
    grants,
    objects,
    one,
)
from tests.deploy.manifests import pod_specs as pods_of
from tests.deploy.rendering import known_settings
from tests.doctor.called import Noted

FOLDERS = ("base", "components/second-scheduler", "components/cert-manager", "components/monitoring", "cleanup")
FOUND = {folder: objects((KUSTOMIZE / folder / "objects.yaml").read_text()) for folder in FOLDERS}
BASE, SCHEDULER, CLEANUP = FOUND["base"], FOUND["components/second-scheduler"], FOUND["cleanup"]
EVERYTHING = [each for found in FOUND.values() for each in found]
PODS = pods_of(EVERYTHING)


@pytest.mark.parametrize("copy", copies(), ids=lambda path: path.name)
def test_what_the_chart_has_from_elsewhere_is_the_same_there(copy: Path) -> None:
    assert copy.read_text() == copies()[copy].read_text(), "run `make manifests`"


def test_the_chart_has_nothing_else_from_elsewhere() -> None:
    assert {path for path in (CHART / "files").rglob("*") if path.is_file()} == set(copies())


def test_the_chart_installs_this_version() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__


# -- rights ----------------------------------------------------------------------------------------------------------


def test_the_service_is_granted_what_it_calls_and_nothing_else() -> None:
    """What it calls is derived from the code by tests/doctor."""
    needed = {(each.group, each.resource, each.verb) for each in NEEDED}
    assert granted(BASE, "escher") == needed


def test_to_lead_it_is_granted_what_that_takes_in_its_namespace_alone_and_of_one_lease_and_slice() -> None:
    needed = {(each.group, each.resource, each.verb) for each in (*TO_LEAD, *IN_OWN_NAMESPACE)}
    assert granted(BASE, "escher", namespace=NAMESPACE) == needed
    said = settings_of(BASE)
    for _, rule in (each for each in grants(BASE, "escher") if each[0] == NAMESPACE):
        # What does not exist yet has no name to be compared.
        [resource] = rule["resources"]
        if resource == "transactionintents":
            continue
        named = {"leases": said["lease_name"], "endpointslices": f"{said['lease_name']}-leader"}[resource]
        assert rule.get("resourceNames") == (None if rule["verbs"] == ["create"] else [named])
    assert one(BASE, "Lease", said["lease_name"])["metadata"]["namespace"] == said["lease_namespace"] == NAMESPACE


def test_the_scheduler_has_what_kubernetes_grants_schedulers_and_one_lease() -> None:
    assert granted(SCHEDULER, "escher-scheduler") == set()
    [(where, rule)] = grants(SCHEDULER, "escher-scheduler")
    assert (where, rule["resourceNames"], rule["verbs"]) == (NAMESPACE, ["escher-scheduler"], ["get", "update"])
    bound = {each["roleRef"]["name"] for each in SCHEDULER if each["kind"].endswith("Binding") and "roleRef" in each}
    shipped = yaml.safe_load_all((ROOT / "deploy" / "schedulers" / "rbac.yaml").read_text())
    system = {each["roleRef"]["name"] for each in shipped if "roleRef" in each} - {"escher-scheduler-leases"}
    assert bound == system | {"escher-scheduler"}
    assert one(SCHEDULER, "Lease", "escher-scheduler")["metadata"]["namespace"] == NAMESPACE


def test_the_cleanup_is_granted_what_it_calls_and_nothing_else() -> None:
    noted = Noted()
    pod = PodRef("team", "a", PodUid("u"))
    everything = traces.Traces(
        (("team", "a"),), {"n1": frozenset([ResourceKey("escher.dev/a")])}, (pod,), (pod,), (("team", "a"),)
    )

    async def called() -> None:
        await traces.services(noted)
        await traces.found(noted)
        await traces.remove(noted, everything)

    asyncio.run(called())
    assert granted(CLEANUP, "escher-cleanup") == noted.called


LED = ("Service", "escher")
"""Which selects nobody: the leader has it lead to itself."""


def settings_of(found: list[Object]) -> dict[str, Any]:
    """The service's."""
    said: dict[str, Any] = yaml.safe_load(one(found, "ConfigMap", "escher")["data"]["escher.yaml"])
    return said


READ, WRITE = {"get", "list", "watch"}, {"create", "update", "patch", "delete", "deletecollection"}


@pytest.mark.parametrize(
    ("role", "writes", "aggregated"),
    [
        ("viewer", {"whatifs"}, {"view", "edit", "admin"}),
        ("resource-editor", {"ephemeralresources", "claims", "escherpolicies/ask"}, {"edit", "admin"}),
        ("policy-editor", {"escherpolicies", "escherpolicies/ask"}, {"edit", "admin"}),
        (
            "admin",
            {"ephemeralresources", "ephemeralresources/shared", "escherpolicies", "escherpolicies/ask"}
            | {"claims", "whatifs"},
            {"admin"},
        ),
    ],
)
def test_people_have_roles_for_what_is_ours_alone(role: str, writes: set[str], aggregated: set[str]) -> None:
    found = one(BASE, "ClusterRole", f"escher-{role}")
    may: dict[str, set[str]] = {}
    for rule in found["rules"]:
        assert rule["apiGroups"] == [DOMAIN]
        for resource in rule["resources"]:
            may[resource] = may.get(resource, set()) | set(rule["verbs"])
    assert {resource for resource, verbs in may.items() if verbs & WRITE} == writes
    assert "transactionintents" not in may, "what these say is believed"
    assert may["ephemeralresources"] >= READ
    assert may["escherpolicies"] >= READ
    labels = found["metadata"]["labels"]
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    assert {label.removeprefix(prefix) for label in labels if label.startswith(prefix)} == aggregated


def test_every_resource_that_the_management_api_asks_about_is_in_a_role() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    table = page.partition("\n## Who may do what\n")[2].partition("\n## ")[0]
    asked = {
        each for row in table.splitlines() if row.startswith("|") for each in re.findall(r"`([a-z]+(?:/[a-z]+)?)`", row)
    }
    roles = [
        one(BASE, "ClusterRole", f"escher-{name}") for name in ("viewer", "resource-editor", "policy-editor", "admin")
    ]
    known = {resource for role in roles for rule in role["rules"] for resource in rule["resources"]}
    assert len(asked) >= 10
    assert asked == known


def test_no_role_has_a_star() -> None:
    for role in (each for each in EVERYTHING if each["kind"] in ("Role", "ClusterRole")):
        assert "*" not in [each for rule in role["rules"] for said in rule.values() for each in said]


# -- pods ------------------------------------------------------------------------------------------------------------


def test_there_are_the_pods_that_are_looked_at_here() -> None:
    assert set(PODS) == {"Deployment/escher", "Deployment/escher-scheduler", "Job/escher-cleanup"}


@pytest.mark.parametrize("pod", PODS)
def test_nobody_needs_escher_to_be_scheduled(pod: str) -> None:
    """Else it would never start again once it was down."""
    spec = PODS[pod]
    assert spec["schedulerName"] == "default-scheduler"
    assert "schedulingGates" not in spec
    asked = [each for container in spec["containers"] for each in _amounts(container)]
    assert not [key for key in asked if key.startswith(DOMAIN)]
    [template] = [
        each["spec"]["template"] for each in EVERYTHING if f"{each['kind']}/{each['metadata']['name']}" == pod
    ]
    said = {**template["metadata"]["labels"], **template["metadata"].get("annotations", {})}
    assert not [key for key in said if key.startswith(f"{DOMAIN}/")]
    assert "scheduling.x-k8s.io/pod-group" not in said


def _amounts(container: Object) -> set[str]:
    return {key for amounts in container["resources"].values() for key in amounts}


@pytest.mark.parametrize("pod", PODS)
def test_everybody_has_as_little_power_as_pod_security_restricted_allows(pod: str) -> None:
    spec = PODS[pod]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] >= 1000
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert all("hostPath" not in volume for volume in spec["volumes"])


@pytest.mark.parametrize("pod", [name for name in PODS if name.startswith("Deployment")])
def test_who_serves_is_probed_and_of_the_highest_priority_that_users_have(pod: str) -> None:
    [container] = PODS[pod]["containers"]
    ports = {each["name"] for each in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
        assert container[probe]["httpGet"]["port"] in ports
    assert one(BASE, "PriorityClass", PODS[pod]["priorityClassName"])["value"] == 1_000_000_000


@pytest.mark.parametrize("name", ["escher", "escher-scheduler"])
def test_there_are_two_which_are_spread_and_one_at_a_time_is_drained(name: str) -> None:
    deployment = one(EVERYTHING, "Deployment", name)["spec"]
    assert deployment["replicas"] == 2
    spread = {each["topologyKey"] for each in deployment["template"]["spec"]["topologySpreadConstraints"]}
    assert spread == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    budget = one(EVERYTHING, "PodDisruptionBudget", name)["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == deployment["selector"]


def test_of_two_services_one_leads_and_the_verbs_go_where_it_says() -> None:
    said = settings_of(BASE)
    service = one(BASE, "Service", "escher")["spec"]
    assert said["leader_election"] is True
    assert "selector" not in service, "its pods would be led to that follow"
    assert (said["leader_service"], said["leader_service_port"]) == ("escher", service["ports"][0]["name"])
    [container] = PODS["Deployment/escher"]["containers"]
    assert {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]} == {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_IP": "status.podIP",
    }


def test_an_update_takes_none_away_before_another_could_take_over() -> None:
    spec = one(BASE, "Deployment", "escher")["spec"]
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert PODS["Deployment/escher"]["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_what_selects_pods_finds_them() -> None:
    labels = [
        each["spec"]["template"]["metadata"]["labels"].items() for each in EVERYTHING if each["kind"] == "Deployment"
    ]
    selectors = [
        each["spec"].get("podSelector", {}).get("matchLabels") or each["spec"].get("selector")
        for each in EVERYTHING
        if each["kind"] in ("Service", "NetworkPolicy") and (each["kind"], each["metadata"]["name"]) != LED
    ]
    assert len(selectors) == 4
    for selector in selectors:
        assert len([each for each in labels if selector.items() <= each]) == 1


# -- files of the two programs ---------------------------------------------------------------------------------------


def test_the_service_understands_its_file(tmp_path: Path) -> None:
    file = tmp_path / "escher.yaml"
    file.write_text(one(BASE, "ConfigMap", "escher")["data"]["escher.yaml"])
    settings = load_settings(file)
    [container] = PODS["Deployment/escher"]["containers"]
    assert settings.port == container["ports"][0]["containerPort"]
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert {
        str(path.parent) for path in (settings.tls_certificate, settings.tls_key, settings.tls_client_ca) if path
    } <= mounted
    assert container["args"][1:] == ["--config", "/etc/escher/settings/escher.yaml"]
    assert "/etc/escher/settings" in mounted


def test_the_chart_knows_every_setting_and_those_that_need_no_restart() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    assert set(schema["settings"]["propertyNames"]["enum"]) == known_settings(), "run `make manifests`"
    template = (CHART / "templates" / "service.yaml").read_text()
    [omitted] = re.findall(r"omit \$settings ([^)]*)\) \|", template)
    assert {each.strip('"') for each in omitted.split()} == {
        *CHANGEABLE,
        *(old for old, each in RENAMED.items() if each.to in CHANGEABLE),
    }


def test_every_value_is_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def check(values: Any, schema: Any, where: str) -> None:
        for key, value in values.items():
            below = schema["properties"].get(key)
            assert below is not None, f"{where}{key}"
            if "properties" in below:
                check(value, below, f"{where}{key}.")

    check(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "")


def test_the_second_scheduler_runs_the_shipped_file_with_what_depends_on_the_place() -> None:
    said = yaml.safe_load(one(SCHEDULER, "ConfigMap", "escher-scheduler")["data"]["escher.yaml"])
    shipped = schedulers.load(ROOT / "scheduler-config" / "escher.yaml")
    [container] = PODS["Deployment/escher-scheduler"]["containers"]
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    for entry, original in zip(said["extenders"], shipped["extenders"], strict=True):
        host = f"escher.{NAMESPACE}.svc"
        assert entry.pop("urlPrefix") == f"https://{host}:8443/scheduler"
        tls = entry.pop("tlsConfig")
        assert tls.pop("serverName") == host
        assert {str(Path(file).parent) for file in tls.values()} <= mounted
        assert tls.keys() == {"caFile", "certFile", "keyFile"}
        assert entry.pop("enableHTTPS") is True
        assert not original.pop("enableHTTPS")
        del original["urlPrefix"]
    assert said.pop("leaderElection") == {
        "leaderElect": True,
        "resourceName": "escher-scheduler",
        "resourceNamespace": NAMESPACE,
    }
    del shipped["leaderElection"]
    assert said == shipped


def test_certificates_are_for_the_names_that_are_called_and_for_the_user_that_calls() -> None:
    certificates = FOUND["components/cert-manager"]
    service = one(certificates, "Certificate", "escher")["spec"]
    assert f"escher.{NAMESPACE}.svc" in service["dnsNames"]
    caller = one(certificates, "Certificate", "escher-scheduler")["spec"]
    assert (caller["commonName"], caller["usages"]) == ("system:kube-scheduler", ["client auth"])
    wanted = {
        volume["secret"]["secretName"] for pod in PODS.values() for volume in pod["volumes"] if "secret" in volume
    }
    assert wanted == {service["secretName"], caller["secretName"]}


# -- kustomize -------------------------------------------------------------------------------------------------------

OVERLAYS = sorted((KUSTOMIZE / "overlays").iterdir())


def built(folder: Path) -> list[Object]:
    kubectl = Path(sys.executable).parent / "kubectl"
    ended = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return objects(ended.stdout)


@pytest.mark.parametrize("folder", [*OVERLAYS, KUSTOMIZE / "cleanup"], ids=lambda path: path.name)
def test_overlays_can_be_built_and_every_image_is_where_the_user_says(folder: Path) -> None:
    found = built(folder)
    assert len({(each["kind"], each["metadata"]["name"]) for each in found}) == len(found)
    images = [container["image"] for pod in pods_of(found).values() for container in pod["containers"]]
    assert images
    assert all(image.startswith("registry.invalid/") for image in images)


def test_the_overlay_for_the_clusters_own_scheduler_has_none_and_lets_it_in() -> None:
    found = built(KUSTOMIZE / "overlays" / "default-scheduler")
    assert "Deployment/escher-scheduler" not in pods_of(found)
    sources = one(found, "NetworkPolicy", "escher")["spec"]["ingress"][0]["from"]
    assert {"ipBlock": {"cidr": "192.0.2.0/24"}} in sources
