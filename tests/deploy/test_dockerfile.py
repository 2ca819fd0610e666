"""What is promised of the image: everything pinned, nobody is root, nothing else in it; and that its steps work."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import ssl
import subprocess
from importlib.metadata import distributions
from pathlib import Path

import pytest
import typer

from extender import __version__
from extender.cli.main import app
from extender.kube.client.certificates import Authority, write_secret
from extender.shipped import loopback
from lab.controlplane.clusters import EmbeddedCluster
from lab.controlplane.processes import ports
from tests.controlplane.deadline import eventually
from tests.deploy.dockerfile import Built, let_through, read, stages
from tests.deploy.manifests import KUSTOMIZE, ROOT, objects, pod_specs
from tests.supply_chain.audited import ran

TEXT = (ROOT / "Dockerfile").read_text()
STEPS = read(TEXT)
COMMANDS = [part.strip() for step in STEPS if step.instruction == "RUN" for part in step.words.split("&&")]
LAST = stages(STEPS)[-1][1]


def test_every_base_is_pinned_by_a_digest_that_the_builder_has_to_name() -> None:
    bases = [step.words.split()[0] for step in STEPS if step.instruction == "FROM"]
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.\d+-slim@\$\{BASE_DIGEST\}", bases[0])
    assert [step.words for step in STEPS[: STEPS.index(LAST[0])] if step.instruction == "ARG"] == [
        "BASE_DIGEST",
        "PIP_INDEX_URL",
    ], "neither has a default"


def test_nothing_comes_from_anywhere_but_this_folder_and_hashed_wheels() -> None:
    assert "ADD" not in {step.instruction for step in STEPS}
    installs = [each for each in COMMANDS if re.search(r"pip .*\b(install|wheel|download)\b", each)]
    assert len(installs) == 4
    for each in installs:
        assert "--no-deps" in each
        assert ("--require-hashes" in each) != ("--no-index" in each)
    assert [each for each in COMMANDS if re.search(r"\b(apt|apt-get|apk|curl|wget|git)\b", each)] == []
    assert "://" not in "".join(step.words for step in STEPS)


def test_nobody_is_root_and_a_number_says_so() -> None:
    [user] = [step.words for step in LAST if step.instruction == "USER"]
    assert re.fullmatch(r"([1-9]\d{3,}):\1", user)
    base = objects((KUSTOMIZE / "base" / "objects.yaml").read_text())
    security = pod_specs(base)["Deployment/escher"]["securityContext"]
    assert user == f"{security['runAsUser']}:{security['runAsGroup']}"


def test_the_last_stage_has_what_was_installed_and_no_more() -> None:
    assert [step.words for step in LAST if step.instruction == "COPY"] == ["--from=build /opt/escher /opt/escher"]
    [made] = [each for each in COMMANDS if "venv" in each and "/opt/escher" in each]
    assert "--without-pip" in made


def test_what_is_copied_reaches_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text()
    sources = [
        source
        for step in STEPS
        if step.instruction == "COPY" and "--from=" not in step.words
        for source in step.words.split()[:-1]
    ]
    assert len(sources) >= 8
    for source in sources:
        assert (ROOT / source).exists()
        assert let_through(ignored, source.rstrip("/")), source
    assert not let_through(ignored, "tests")
    assert not let_through(ignored, ".git")


def test_what_it_runs_is_a_command_of_ours() -> None:
    [entry] = [step.command() for step in LAST if step.instruction == "ENTRYPOINT"]
    [words] = [step.command() for step in LAST if step.instruction == "CMD"]
    assert entry == ["escher"]
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    command = group.commands[words[0]]
    with command.make_context("serve", words[1:], resilient_parsing=False) as context:
        assert context.params["host"] == "0.0.0.0"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(TEXT, ROOT, tmp_path_factory.mktemp("image"))


@pytest.mark.longer
@pytest.mark.timeout(600)
def test_the_steps_make_something_that_runs(image: Built) -> None:
    assert image.run("escher --version") == f"escher {__version__}\n"
    assert "pip" not in {path.name for path in (image.root / "opt/escher/bin").iterdir()}
    kept = {path.name for path in image.root.iterdir()}
    assert kept == {"opt"}


@pytest.mark.longer
@pytest.mark.timeout(600)
def test_the_bill_of_materials_is_what_is_in_it(image: Built, tmp_path: Path) -> None:
    [installed] = (image.root / "opt/escher/lib").glob("python3.*/site-packages")
    ended = ran("sbom.py", ROOT / "requirements" / "runtime.txt", "--installed", installed, "--out", tmp_path / "sbom")
    assert ended.returncode == 0, ended.stderr
    bill = json.loads((tmp_path / "sbom").read_text())
    told = {each["purl"] for each in [bill["metadata"]["component"], *bill["components"]]}
    there = {
        f"pkg:pypi/{each.name.lower().replace('_', '-')}@{each.version}"
        for each in distributions(path=[str(installed)])
    }
    assert told == there


@pytest.mark.longer
@pytest.mark.timeout(600)
def test_traces_can_be_switched_on_in_it(image: Built) -> None:
    assert image.run("python -c 'from extender.adapters.tracing.export import Exported; print(Exported.__name__)'") == (
        "Exported\n"
    )


def answers(url: str, authority: str) -> bool:
    with contextlib.suppress(loopback.Unreachable):
        return loopback.ask("GET", url, trust=ssl.create_default_context(cadata=authority))[0] == 200
    return False


@pytest.mark.longer
@pytest.mark.timeout(600)
def test_the_service_in_it_becomes_ready_by_its_own_command_and_writes_nothing(
    image: Built, state_folder: Path, tmp_path: Path
) -> None:
    authority = Authority.make("image")
    certificate, key = authority.issue("escher")
    for name, content in {"tls.crt": certificate, "tls.key": key, "ca.crt": authority.certificate}.items():
        write_secret(tmp_path / name, content)
    [words] = [step.command() for step in LAST if step.instruction == "CMD"]
    port = ports.choose(["service"])["service"]
    here = {"0.0.0.0": "127.0.0.1", "8080": str(port)}
    words = [here.get(word, word).replace("/etc/escher/tls", str(tmp_path)) for word in words]
    before = dict(image.files())
    with EmbeddedCluster.start(nodes=1, service=False) as cluster:
        command = [str(image.root / "opt/escher/bin/escher"), *words, "--kubeconfig", str(cluster.kubeconfig)]
        log = tmp_path / "log"
        with log.open("wb") as out, subprocess.Popen(command, env=image.environment, stdout=out, stderr=out) as running:
            try:
                address, trust = f"https://127.0.0.1:{port}/readyz", authority.certificate.decode()
                eventually(lambda: answers(address, trust), within=60, what="ready")
            except BaseException as error:
                error.add_note(log.read_text())
                raise
            finally:
                running.send_signal(signal.SIGTERM)
                running.wait(20)
    assert running.returncode == 0
    assert dict(image.files()) == before, "its root may be read-only"
