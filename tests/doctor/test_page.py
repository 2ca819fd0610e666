"""docs/doctor.md is true: its tables are what the code has and asks, and its commands do what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extender.cli.main import app
from extender.doctor.checks import CHECKS
from extender.doctor.facts import Cluster, Facts
from extender.doctor.from_cluster import ServiceAccount, read_cluster
from extender.doctor.from_files import shipped
from extender.doctor.gates import gated_pods
from extender.doctor.rules.node_checks import CHECKS as ON_NODES
from extender.kube.client.requests import MERGE_PATCH
from extender.settings.settings import Settings
from kubesim.kinds import MUTATING_POLICY, MUTATING_POLICY_BINDING, NAMESPACE, POD
from kubesim.local import LocalCluster
from lab.simulation import Simulation
from loadtests.shared.pods import pod
from tests.conformance.test_kubectl import KUBECTL
from tests.doctor.called import Called, Noted

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "doctor.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_table_of_checks_is_the_checks() -> None:
    rows = [
        f"| `{each.name}` | {each.finds} | {each.severity} | {', '.join(each.needs) or 'always'} |" for each in CHECKS
    ]
    told = [line for line in section("Checks").splitlines() if line.startswith("| `")]
    assert told == rows, "docs/doctor.md is to have these:\n" + "\n".join(rows)


@pytest.mark.anyio
async def test_it_asks_for_what_the_page_says_and_no_more() -> None:
    said: set[Called] = set()
    table = section("What it asks of the API server")
    for group, resource, verbs in re.findall(r"^\| ([\w.]+) \| ([\w/]+) \| ([^|]+) \|$", table, re.MULTILINE):
        said.add(("" if group == "core" else group, resource, verbs.partition(";")[0].strip()))
    async with Simulation(nodes=1) as simulation:
        noted = Noted(simulation.connection_of_service())
        for account in (None, ServiceAccount("escher-system", "escher")):
            await read_cluster(noted, lambda: datetime.now(UTC), account=account)
        assert noted.called == said
        await gated_pods(noted)
        assert noted.called == said


@pytest.fixture
def cluster(kubesim_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    """With the admission policy that gates gangs, and one that it has gated in each of two namespaces."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("KUBECONFIG", str(kubesim_cluster.kubeconfig))
    monkeypatch.setenv("ESCHER_URL", "http://127.0.0.1:1")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
    kubesim_cluster.ask("POST", NAMESPACE.path(), namespace)
    subprocess.run([KUBECTL, "apply", "-f", "deploy/policies/gate-gangs.yaml"], check=True, capture_output=True)
    for where in ("default", "team-a"):
        kubesim_cluster.ask("POST", POD.path(where), pod("train-0", gang="train", quorum=2))
        assert is_gated(kubesim_cluster, where)
    return kubesim_cluster


def is_gated(cluster: LocalCluster, namespace: str, name: str = "train-0") -> bool:
    return bool(cluster.ask("GET", POD.path(namespace, name))["spec"].get("schedulingGates"))


def typed(text: str) -> list[list[str]]:
    found = re.findall(r"^ {4,}((?:escher|kubectl) .*)$", text, re.MULTILINE)
    return [shlex.split(line) for line in found]


def test_the_procedure_at_the_gate_is_carried_out_line_by_line(cluster: LocalCluster) -> None:
    delete, see, one, rest = typed(section("Pods at the gate while Escher is away"))
    assert delete[0] == "kubectl"
    subprocess.run([KUBECTL, *delete[1:]], check=True, capture_output=True)
    assert cluster.ask("GET", MUTATING_POLICY.path())["items"] == []
    assert cluster.ask("GET", MUTATING_POLICY_BINDING.path())["items"] == []
    cluster.ask("POST", POD.path("default"), pod("train-1", gang="train", quorum=2))
    assert not is_gated(cluster, "default", "train-1")

    def escher(words: list[str]) -> str:
        done = CliRunner().invoke(app, words[1:])
        assert (done.exit_code, done.stderr) == (0, "")
        return done.stdout

    assert "nothing was changed" in escher(see)
    escher(one)
    assert (is_gated(cluster, "team-a"), is_gated(cluster, "default")) == (False, True)
    escher(rest)
    assert not is_gated(cluster, "default")


def test_what_is_typed_first_can_be_typed(cluster: LocalCluster) -> None:
    [words] = typed(PAGE.partition("\n## ")[0])
    done = CliRunner().invoke(app, words[1:])
    # The fixture's cluster has no definitions of ours, nor a service.
    assert done.exit_code == 1
    assert "looked at\n  scheduler-config/escher.yaml\n" in done.stdout
    assert "definition-missing" in done.stdout
    assert "service-unreachable" in done.stdout


def test_the_command_that_removes_what_is_left_over_removes_it(cluster: LocalCluster) -> None:
    """As the check `left-over` prints it."""
    [name] = cluster.add_nodes(1)
    left = {field: {"escher.dev/old.x": "2"} for field in ("capacity", "allocatable")}
    cluster.ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": left}, content_type=MERGE_PATCH)
    facts = Facts(
        now=datetime.now(UTC),
        shipped=shipped("9.9"),
        settings=Settings.model_validate({}),
        cluster=Cluster(nodes=(cluster.ask("GET", f"/api/v1/nodes/{name}"),)),
    )
    [found] = [each for check in ON_NODES for each in check.look(facts)]
    command = shlex.split(found.mend.partition(": ")[2])
    assert command[0] == "kubectl"
    subprocess.run([KUBECTL, *command[1:]], check=True, capture_output=True)
    status = cluster.ask("GET", f"/api/v1/nodes/{name}")["status"]
    assert "escher.dev/old.x" not in {*status["capacity"], *status["allocatable"]}
