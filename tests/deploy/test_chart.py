"""The chart, rendered by helm: what its values do, what it refuses, and that deploy/kustomize is what it comes to."""

from __future__ import annotations

import base64
import subprocess
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from extender.settings.settings_renamed import RENAMED
from lab.controlplane import schedulers
from tests.deploy.manifests import CHART, NAMESPACE, ROOT, Object, granted, one, pod_specs
from tests.deploy.rendering import Refused, file_of, parts, rendered, template, written
from tests.deploy.tools import tool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def made(**values: Any) -> list[Object]:
    """What comes of these values, whose names have `__` for a dot."""
    said = ",".join(f"{name.replace('__', '.')}={value}" for name, value in values.items())
    return rendered(*(("--set", said) if said else ()))


def kinds(found: list[Object]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in found}


def test_helm_finds_nothing_to_complain_of() -> None:
    ended = subprocess.run([tool("helm"), "lint", "--strict", CHART], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "WARNING" not in ended.stdout


def test_the_kustomize_folders_are_what_the_chart_comes_to() -> None:
    for folder, found in parts().items():
        assert file_of(folder).read_text() == written(found), f"{folder}: run `make manifests`"


# -- values ----------------------------------------------------------------------------------------------------------


def test_without_leader_election_there_is_one_service_and_never_two() -> None:
    """Two that both decide would promise the same room twice; and a budget for one would hold up drains for ever."""
    found = made(leaderElection__enabled="false")
    spec = one(found, "Deployment", "escher")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert ("PodDisruptionBudget", "escher") not in kinds(found)
    assert ("Lease", "escher") not in kinds(found)
    assert {resource for _, resource, _ in granted(found, "escher", namespace=NAMESPACE)} == {"transactionintents"}
    assert "leader" not in one(found, "ConfigMap", "escher")["data"]["escher.yaml"]
    selector = one(found, "Service", "escher")["spec"]["selector"]
    assert selector.items() <= spec["template"]["metadata"]["labels"].items()


def test_where_budgets_are_never_broken_no_pod_may_be_deleted() -> None:
    delete = ("", "pods", "delete")
    assert delete in granted(made(settings__preempts_despite_budgets="last-resort"), "escher")
    assert delete not in granted(made(settings__preempts_despite_budgets="never"), "escher")


def test_no_update_makes_of_a_deployment_with_leader_election_one_without_or_the_other_way_round() -> None:
    """An API server refuses to change the selector: one that heeds no lease is never beside one that does."""
    said = [one(made(leaderElection__enabled=on), "Deployment", "escher")["spec"] for on in ("true", "false")]
    assert said[0]["selector"] != said[1]["selector"]
    for each in said:
        labels = each["template"]["metadata"]["labels"].items()
        assert each["selector"]["matchLabels"].items() <= labels
        assert one(made(), "Service", "escher-replicas")["spec"]["selector"].items() <= labels


def test_before_the_version_that_marks_pods_the_scheduler_asks_about_every_pod() -> None:
    for options, version in ((), "1.35.2"), (("--set", "markPods=false"), "1.36.0"):
        found = rendered(*options, kubernetes=version)
        assert not [each for each in found if each["kind"].startswith("MutatingAdmissionPolicy")]
        [entry] = yaml.safe_load(one(found, "ConfigMap", "escher-scheduler")["data"]["escher.yaml"])["extenders"]
        [wanted] = schedulers.for_every_pod(schedulers.load(ROOT / "scheduler-config" / "escher.yaml"))["extenders"]
        of_the_place = {"urlPrefix", "enableHTTPS", "tlsConfig"}
        assert {key: entry[key] for key in entry.keys() - of_the_place} == {
            key: wanted[key] for key in wanted.keys() - of_the_place
        }
    assert ("MutatingAdmissionPolicy", "gate-gangs.escher.dev") in kinds(made(gateGangs="true"))


def test_the_chart_signs_for_the_service_and_for_its_caller_with_one_authority() -> None:
    found = rendered()
    secrets = [one(found, "Secret", name)["data"] for name in ("escher-tls", "escher-scheduler-tls")]
    loaded = [
        {key: x509.load_pem_x509_certificate(base64.b64decode(data[key])) for key in ("tls.crt", "ca.crt")}
        for data in secrets
    ]
    assert loaded[0]["ca.crt"] == loaded[1]["ca.crt"]
    authority = loaded[0]["ca.crt"]
    for each in loaded:
        each["tls.crt"].verify_directly_issued_by(authority)
    names = loaded[0]["tls.crt"].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert f"escher.{NAMESPACE}.svc" in names.get_values_for_type(x509.DNSName)
    [common] = loaded[1]["tls.crt"].subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    assert common.value == "system:kube-scheduler"
    assert isinstance(authority.public_key(), rsa.RSAPublicKey)
    assert "Secret" not in {kind for kind, _ in kinds(made(certificates__source="secrets"))}


def test_the_scheduler_is_made_anew_when_it_has_another_authority_to_trust() -> None:
    """It reads that at its start alone. Each rendering makes another, for no cluster has one that could be kept."""

    def said(**values: Any) -> dict[str, str]:
        template = one(made(**values), "Deployment", "escher-scheduler")["spec"]["template"]
        found: dict[str, str] = template["metadata"]["annotations"]
        return found

    assert said()["checksum/authority"] != said()["checksum/authority"]
    assert "checksum/authority" not in said(certificates__source="secrets")


def test_an_issuer_of_the_users_signs_where_one_is_named() -> None:
    found = made(
        certificates__source="certManager",
        certificates__certManager__issuerRef__name="ours",
        certificates__certManager__issuerRef__kind="ClusterIssuer",
    )
    assert "Issuer" not in {kind for kind, _ in kinds(found)}
    for name in ("escher", "escher-scheduler"):
        assert one(found, "Certificate", name)["spec"]["issuerRef"] == {"name": "ours", "kind": "ClusterIssuer"}


def test_only_settings_that_need_a_restart_roll_the_pods() -> None:
    def checksum(**values: Any) -> str:
        template = one(made(**values), "Deployment", "escher")["spec"]["template"]
        said: str = template["metadata"]["annotations"]["checksum/settings"]
        return said

    assert checksum() == checksum(settings__observe_only="true")
    assert checksum() != checksum(settings__gang_passes=3)


def test_old_names_of_settings_are_taken_too() -> None:
    found = made(settings__body_limit_bytes=1048576, settings__saves_room="false")
    said = yaml.safe_load(one(found, "ConfigMap", "escher")["data"]["escher.yaml"])
    assert (said["body_limit_bytes"], said["saves_room"]) == (1048576, False)
    assert "max_body_bytes" not in said


@pytest.mark.parametrize(("old", "new"), [(old, each.to) for old, each in RENAMED.items()])
def test_both_names_of_a_setting_are_refused(old: str, new: str) -> None:
    template = (CHART / "templates" / "service.yaml").read_text()
    assert f'"{old}" "{new}"' in template
    if old == "saves_room":
        with pytest.raises(Refused, match=f"settings.{old} is the old name of settings.{new}"):
            made(**{f"settings__{old}": "false", f"settings__{new}": "true"})


def test_kinds_are_kept_or_left_out_as_the_user_wishes() -> None:
    for each in made(crds__keep="true"):
        if each["kind"] == "CustomResourceDefinition":
            assert each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert "CustomResourceDefinition" not in {kind for kind, _ in kinds(made(crds__install="false"))}


def test_without_a_second_scheduler_nothing_of_one_is_left() -> None:
    found = made(scheduler__enabled="false", certificates__source="secrets")
    assert [name for _, name in kinds(found) if name.startswith("escher-scheduler")] == []
    assert set(pod_specs(found)) == {"Deployment/escher", "Job/escher-cleanup"}


def test_the_scheduler_waits_as_long_as_the_service_is_told() -> None:
    found = made(settings__scheduler_http_timeout_seconds=90)
    said = yaml.safe_load(one(found, "ConfigMap", "escher-scheduler")["data"]["escher.yaml"])
    assert {each["httpTimeout"] for each in said["extenders"]} == {"90s"}


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("settings.gang_patience=60", "gang_patience"),
        ("replica=2", "replica"),
        ("authorization=maybe", "authorization"),
        ("scheduler.image.digest=latest", "digest"),
        ("priorityClass.value=2000000000", "priorityClass"),
    ],
)
def test_what_is_misspelt_or_makes_no_sense_is_refused_with_its_name(said: str, complaint: str) -> None:
    with pytest.raises(Refused, match=complaint):
        made(**{said.partition("=")[0].replace(".", "__"): said.partition("=")[2]})


def test_whoever_does_not_say_where_images_are_is_asked() -> None:
    with pytest.raises(Refused, match=r"image\.registry is to say where your nodes pull escher from"):
        template()
    with pytest.raises(
        Refused, match=r"scheduler\.image\.registry is to say where your nodes pull kube-scheduler from"
    ):
        template("--set", "image.registry=a.invalid")


def test_what_cannot_work_together_is_refused() -> None:
    with pytest.raises(Refused, match="needs authorization: kubernetes"):
        made(authorization="none", monitoring__serviceMonitor__enabled="true")


# -- traces


def test_traces_are_off_and_nothing_tells_of_them() -> None:
    found = made()
    said = yaml.safe_load(one(found, "ConfigMap", "escher")["data"]["escher.yaml"])
    assert "tracing" not in said
    [container] = pod_specs(found)["Deployment/escher"]["containers"]
    assert not any(each["name"].startswith("OTEL_") for each in container["env"])


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [
        ("http://collector.observability:4318", 4318),
        ("https://traces.example/otlp", 443),
        ("http://collector.observability", 80),
    ],
)
def test_with_traces_the_service_is_told_where_to_and_let_through(endpoint: str, port: int) -> None:
    found = made(
        tracing__enabled="true",
        tracing__endpoint=endpoint,
        tracing__share="0.1",
        **{"tracing__env[0]__name": "OTEL_EXPORTER_OTLP_HEADERS", "tracing__env[0]__value": "a=b"},
        **{"networkPolicy__collector[0]__podSelector__matchLabels__app": "collector"},
    )
    said = yaml.safe_load(one(found, "ConfigMap", "escher")["data"]["escher.yaml"])
    assert said["tracing"] == "otlp"
    [container] = pod_specs(found)["Deployment/escher"]["containers"]
    told = {each["name"]: each.get("value") for each in container["env"]}
    assert {name: value for name, value in told.items() if name.startswith("OTEL_")} == {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.1",
        "OTEL_EXPORTER_OTLP_HEADERS": "a=b",
    }
    out = one(found, "NetworkPolicy", "escher")["spec"]["egress"]
    assert {"ports": [{"port": port}], "to": [{"podSelector": {"matchLabels": {"app": "collector"}}}]} in out


def test_traces_that_go_nowhere_are_refused() -> None:
    with pytest.raises(Refused, match=r"tracing\.endpoint: say where the collector is"):
        made(tracing__enabled="true")
    with pytest.raises(Refused, match="endpoint"):
        made(tracing__enabled="true", tracing__endpoint="collector:4318")
    with pytest.raises(Refused, match="tracing"):
        made(settings__tracing="otlp")
