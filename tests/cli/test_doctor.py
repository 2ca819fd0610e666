"""`escher doctor` on an embedded cluster, with files and a service; what it prints, and its exit code."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from typer.testing import CliRunner, Result

from extender import __version__
from extender.cli.main import app
from extender.doctor.rules import service_checks
from extender.settings.settings import OWN_NAMESPACE
from extender.shipped import crds, places
from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, MUTATING_POLICY, MUTATING_POLICY_BINDING, NAMESPACE, POD, Json
from kubesim.local import LocalCluster
from lab.controlplane import marking
from loadtests.shared.pods import pod
from tests.app.world import World
from tests.cli.certificates import Certificates
from tests.cli.conftest import Escher
from tests.cli.test_people import over_tls

SHIPPED = places.shipped("scheduler-config") / "escher.yaml"
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def cluster(kubesim_cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    """With all that Escher wants to be installed, and no other cluster or service in sight."""
    for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    kubesim_cluster.ask("POST", NAMESPACE.path(), {"metadata": {"name": OWN_NAMESPACE}})
    for definition in crds.shipped_definitions():
        kubesim_cluster.ask("POST", CUSTOM_RESOURCE_DEFINITION.path(), definition)
    for kind, body in zip((MUTATING_POLICY, MUTATING_POLICY_BINDING), marking.shipped_policy(), strict=True):
        kubesim_cluster.ask("POST", kind.path(), body)
    return kubesim_cluster


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["doctor", *map(str, arguments)])


def spoilt(folder: Path, **changes: Any) -> Path:
    """The shipped file with these in its first entry."""
    document = yaml.safe_load(SHIPPED.read_text())
    document["extenders"][0].update(changes)
    file = folder / "scheduler.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def test_a_sound_set_up_ends_with_0_and_tells_what_was_looked_at_and_what_was_not(cluster: LocalCluster) -> None:
    cluster.add_nodes(2)
    done = run("--scheduler-config", SHIPPED, "--kubeconfig", cluster.kubeconfig)
    assert (done.exit_code, done.stderr) == (0, "")
    looked, _, rest = done.stdout.partition("not looked at\n")
    assert str(SHIPPED) in looked
    assert f"cluster {cluster.url}: 2 nodes, 0 pods" in looked
    assert "permissions of kubernetes-admin" in looked or "permissions of admin" in looked
    assert "the service's settings: give them with --config FILE" in rest
    assert "no service answers at http://127.0.0.1:8080; give its address with --url" in rest
    assert rest.endswith("nothing is wrong with what was looked at\n")


def test_mistakes_end_with_1_and_each_has_field_value_and_mend(cluster: LocalCluster, tmp_path: Path) -> None:
    file = spoilt(tmp_path, ignorable=True, httpTimeout="5s", nodeCacheCapable=False)
    done = run("--scheduler-config", file, "--kubeconfig", cluster.kubeconfig)
    assert done.exit_code == 1
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[:2] for line in lines if line[:1] in (["mistake"], ["note"])] == [
        ["mistake", "time-out-short"],
        ["mistake", "ignorable"],
        ["note", "nodes-sent-whole"],
    ]
    assert f"{file}: extenders[0]" in done.stdout
    assert "httpTimeout is 5s" in done.stdout
    assert "Set ignorable: false" in done.stdout
    assert done.stdout.endswith("2 mistakes, 1 note\n")


def test_notes_alone_end_with_0(tmp_path: Path, cluster: LocalCluster) -> None:
    done = run("--scheduler-config", spoilt(tmp_path, nodeCacheCapable=False), "--kubeconfig", cluster.kubeconfig)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "0 mistakes, 1 note")


def test_json_has_the_same(tmp_path: Path, cluster: LocalCluster) -> None:
    file = spoilt(tmp_path, ignorable=True)
    done = run("--scheduler-config", file, "--kubeconfig", cluster.kubeconfig, "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["mistakes"]) == (1, 1)
    assert told["findings"] == [
        {
            "check": "ignorable",
            "severity": "mistake",
            "subject": f"{file}: extenders[0]",
            "wrong": "ignorable is true: while Escher is down, every node passes and gangs are bound in part",
            "mend": "Set ignorable: false; pods of these profiles then wait for Escher.",
        }
    ]
    assert {each["part"] for each in told["not_looked_at"]} == {
        "quotas of namespaces with waiting pods",
        *("the service's settings", "service", "the service's certificate", "the service's safety switches"),
        "the service's nodes",
    }
    assert all(each["why"] and each["checks"] for each in told["not_looked_at"])


def test_without_anything_nothing_is_looked_at_and_that_is_told(cluster: LocalCluster, tmp_path: Path) -> None:
    done = run()
    assert done.exit_code == 0
    assert done.stdout.startswith("looked at\n  nothing\nnot looked at\n")
    assert "kube-scheduler's configuration: give it with --scheduler-config FILE" in done.stdout
    assert f"there is no kubeconfig at {tmp_path}/.kube/config; give one with --kubeconfig" in done.stdout


def test_what_the_cluster_lacks_is_found(cluster: LocalCluster) -> None:
    cluster.ask("DELETE", CUSTOM_RESOURCE_DEFINITION.path(name="escherpolicies.escher.dev"))
    cluster.ask("DELETE", MUTATING_POLICY.path(name="mark-pods.escher.dev"))
    told = json.loads(run("--kubeconfig", cluster.kubeconfig, "--json").stdout)
    assert [each["check"] for each in told["findings"]] == ["definition-missing", "mark-missing"]


def test_an_api_server_that_is_away_is_a_mistake(cluster: LocalCluster, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(cluster.kubeconfig.read_text().replace(cluster.url, "https://127.0.0.1:1"))
    told = json.loads(run("--kubeconfig", kubeconfig, "--json").stdout)
    assert [(each["check"], each["subject"]) for each in told["findings"]] == [
        ("api-server-unreachable", "https://127.0.0.1:1")
    ]


def test_a_service_that_is_named_and_away_is_a_mistake() -> None:
    done = run("--url", NOWHERE, "--json")
    [found] = json.loads(done.stdout)["findings"]
    assert (done.exit_code, found["check"], found["subject"]) == (1, "service-unreachable", NOWHERE)
    assert "it cannot be reached" in found["wrong"]


@pytest.mark.anyio
async def test_the_service_is_looked_at(escher: Escher, cluster: LocalCluster) -> None:
    """Its nodes are the world's: n1, n2, n3."""
    cluster.add_nodes(1)
    done = await escher("doctor", "--kubeconfig", str(cluster.kubeconfig))
    assert done.exit_code == 1
    assert "its nodes are n1, n2, n3, but here node-0" in done.stdout
    assert f"version {__version__}" in done.stdout


@pytest.mark.anyio
async def test_over_https_its_certificate_is_looked_at(
    world: World, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Certificates(tmp_path)
    shown = [f"--tls-ca={files.ca}", f"--tls-certificate={files.certificate}", f"--tls-key={files.key}"]
    async with over_tls(world, files) as url:
        long = await anyio.to_thread.run_sync(lambda: run("--url", url, *shown, "--json"))
        monkeypatch.setattr(service_checks, "_ENDS_SOON", timedelta(days=365_000))
        short = await anyio.to_thread.run_sync(lambda: run("--url", url, *shown, "--json"))
        strange = await anyio.to_thread.run_sync(lambda: run("--url", url, "--json"))
    assert json.loads(long.stdout)["findings"] == []
    assert [each["check"] for each in json.loads(short.stdout)["findings"]] == ["certificate-ends"]
    [unknown] = json.loads(strange.stdout)["findings"]
    assert unknown["check"] == "service-unreachable"
    assert "CERTIFICATE_VERIFY_FAILED" in unknown["wrong"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--yes"], "--yes is for --release-gates"),
        (["--force"], "--force is for --release-gates"),
        (["--namespace", "a"], "--namespace is for --release-gates"),
        (["--release-gates", "--service-account", "a/b"], "--release-gates checks only pods"),
        (["--scheduler-config", "/nowhere"], "--scheduler-config: /nowhere: No such file"),
        (["--config", "/nowhere"], "--config is /nowhere: "),
        (["--kubeconfig", "/nowhere"], "--kubeconfig (or --context): there is no kubeconfig at /nowhere"),
        (["--release-gates", "--kubeconfig", "/nowhere"], "there is no kubeconfig at /nowhere"),
        (["--service-account", "escher"], "--service-account is 'escher'; write NAMESPACE/NAME"),
        (["--url", "nowhere"], "not a service URL"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_wrong_use_is_told(arguments: list[str], told: str) -> None:
    refused = run(*arguments)
    assert refused.exit_code == 2
    assert told in refused.stderr


def test_settings_are_read_from_the_services_file(cluster: LocalCluster, tmp_path: Path) -> None:
    config = tmp_path / "escher.yaml"
    config.write_text(f"scheduler_http_timeout_seconds: 90\nkubeconfig: {cluster.kubeconfig}\n")
    told = json.loads(run("--config", config, "--scheduler-config", SHIPPED, "--json").stdout)
    assert {each["check"] for each in told["findings"]} == {"time-out-differs"}
    assert any(cluster.url in each for each in told["looked_at"])


def test_a_setting_with_an_old_name_is_found(cluster: LocalCluster, tmp_path: Path) -> None:
    config = tmp_path / "escher.yaml"
    config.write_text(f"saves_room: false\nkubeconfig: {cluster.kubeconfig}\n")
    told = json.loads(run("--config", config, "--scheduler-config", SHIPPED, "--json").stdout)
    [found] = [each for each in told["findings"] if each["check"] == "setting-renamed"]
    assert "saves_room is named backfill_reservation" in found["wrong"]


def test_permissions_of_a_service_account_are_looked_at(cluster: LocalCluster) -> None:
    told = json.loads(
        run("--kubeconfig", cluster.kubeconfig, "--service-account", "escher-system/escher", "--json").stdout
    )
    assert "permissions of system:serviceaccount:escher-system:escher" in told["looked_at"]


# -- releasing gates -------------------------------------------------------------------------------------------------


def gated(cluster: LocalCluster, name: str, namespace: str = "default") -> None:
    body: Json = pod(name, gang="train", quorum=2, gated=True)
    cluster.ask("POST", POD.path(namespace), body)


def gates_of(cluster: LocalCluster, name: str) -> list[Json]:
    found: list[Json] = cluster.ask("GET", POD.path("default", name))["spec"].get("schedulingGates") or []
    return found


def test_gates_are_listed_and_stay_until_somebody_says_so(cluster: LocalCluster) -> None:
    gated(cluster, "train-0")
    listed = run("--release-gates", "--kubeconfig", cluster.kubeconfig)
    assert listed.exit_code == 0
    assert "default/train-0" in listed.stdout
    assert "nothing was changed; --yes removes the gate from these pods" in listed.stdout
    assert len(gates_of(cluster, "train-0")) == 1
    done = run("--release-gates", "--kubeconfig", cluster.kubeconfig, "--yes")
    assert done.exit_code == 0
    assert "gate removed" in done.stdout
    assert gates_of(cluster, "train-0") == []
    assert "no pod waits at Escher's gate" in run("--release-gates", "--kubeconfig", cluster.kubeconfig).stdout


def test_gates_of_one_namespace_are_released_alone(cluster: LocalCluster) -> None:
    gated(cluster, "train-0")
    done = run("--release-gates", "--kubeconfig", cluster.kubeconfig, "--namespace", "team", "--yes")
    assert (done.exit_code, done.stdout) == (0, "no pod waits at Escher's gate in namespace team\n")
    assert len(gates_of(cluster, "train-0")) == 1


def test_gates_as_json(cluster: LocalCluster) -> None:
    gated(cluster, "train-0")
    told = json.loads(run("--release-gates", "--kubeconfig", cluster.kubeconfig, "--yes", "--json").stdout)
    assert told["items"] == [
        {
            "namespace": "default",
            "pod": "train-0",
            "gang": "train",
            "scheduler": "escher",
            "other_gates": [],
            "released": True,
            "error": None,
        }
    ]


@pytest.mark.anyio
async def test_gates_are_left_to_a_service_that_answers_unless_forced(escher: Escher, cluster: LocalCluster) -> None:
    gated(cluster, "train-0")
    common = ("doctor", "--release-gates", "--kubeconfig", str(cluster.kubeconfig))
    refused = await escher(*common, "--yes")
    assert refused.exit_code == 1
    assert "it removes the gate of each pod when its gang's turn comes" in refused.stderr
    assert len(gates_of(cluster, "train-0")) == 1
    assert (await escher(*common, "--yes", "--force")).exit_code == 0
    assert gates_of(cluster, "train-0") == []


def test_a_gate_that_cannot_be_taken_off_is_told_and_ends_with_1(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(requests: object, pod: object) -> str:
        return "pods is forbidden"

    gated(cluster, "train-0")
    monkeypatch.setattr("extender.doctor.gates.release", refused)
    done = run("--release-gates", "--kubeconfig", cluster.kubeconfig, "--yes")
    assert done.exit_code == 1
    assert "pods is forbidden" in done.stdout
