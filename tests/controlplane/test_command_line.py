"""`escher cluster` answers wrong use with exit code 2, failure with 1, and never with a traceback."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extender.cli.main import app
from extender.shipped import places
from extender.shipped.errors import ClusterError
from extender.shipped.versions import Kubernetes
from lab.controlplane import clusters
from lab.controlplane.clusters import Wishes
from lab.controlplane.processes import binaries, folders, supervision
from lab.controlplane.processes.state import ClusterState, Running

PAGE = Path(__file__).parents[2] / "docs" / "upgrade.md"


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["cluster", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["up", "--native-gangs"], "--native-gangs is for a real control plane: add --real"),
        (["up", "--feature-gates", "Gate=true"], "--feature-gates is for a real control plane: add --real"),
        (["up", "--kubernetes", "1.35"], "--kubernetes is for a real control plane: add --real"),
        (["up", "--real", "--kubernetes", "1.12"], "--kubernetes 1.12: a control plane can be built of 1.36, 1.35"),
        (["build", "--kubernetes", "1.35.4"], "--kubernetes 1.35.4: a control plane can be built of 1.36, 1.35"),
        (["up", "--real", "--native-gangs", "--kubernetes", "1.35"], "Kubernetes 1.35 has no PodGroups"),
        (["up", "--nodes", "1000000"], "between 0 and 20000 nodes"),
        (["up", "--real", "--nodes", "-1"], "--nodes"),
        (["up", "--real", "--nodes", "many"], "--nodes"),
        (["up", "--real", "--nodes", "1000000"], "between 0 and 20000 nodes"),
        (["up", "--real", "--name", "Not A Label"], "is not usable"),
        (["up", "--real", "--feature-gates", "Gate"], "expected NAME=VALUE, found 'Gate'"),
        (["up", "--real", "--feature-gates", "Gate=maybe"], "should be true or false, found 'maybe'"),
        (["up", "--real", "--scheduler-binary", "mine"], "expected NAME=VALUE"),
        (["up", "--real", "--scheduler-binary", "mine=/nowhere/at/all"], "no executable file is there"),
        (["up", "--real", "--scheduler-config", "mine=/etc/hostname"], "there is no --scheduler-binary mine"),
        (["up", "--real", "--node-trace", "/nowhere.csv"], "cannot read the trace /nowhere.csv"),
        (["status", "--name", "a/b"], "is not usable"),
        (["sideways"], "No such command"),
    ],
)
def test_wrong_use_is_named_and_ends_with_two(arguments: list[str], complaint: str) -> None:
    code, output = run(*arguments)
    assert (code, complaint in " ".join(output.split())) == (2, True), output


def test_a_build_that_fails_ends_with_one_and_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_go(*_: object) -> Path:
        raise ClusterError("there is no `go` on the PATH; install Go")

    monkeypatch.setattr(binaries, "build", no_go)
    assert run("build") == (1, "escher: there is no `go` on the PATH; install Go\n")
    assert run("up", "--real")[0] == 1


def test_a_kubeconfig_of_somebody_else_is_refused_before_anything_starts(tmp_path: Path) -> None:
    foreign = tmp_path / "config"
    foreign.write_text("contexts: [{name: production}]")
    code, output = run("up", "--real", "--kubeconfig", str(foreign))
    assert (code, "it is left alone" in output) == (1, True)


def test_with_nothing_running_status_fails_and_down_does_not() -> None:
    assert run("status") == (1, "escher: no cluster called default runs here; start it with `escher cluster up`\n")
    assert run("env")[0] == 1
    code, output = run("status", "--json")
    assert (code, json.loads(output)) == (
        1,
        {"kind": None, "kubeconfig": None, "service_url": None, "processes": []},
    )
    assert run("down") == (0, "no cluster called default runs here\n")


@pytest.mark.parametrize("command", ["build", "up", "env", "status", "down"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    code, output = run(command, "--help")
    assert (code, f"escher cluster {command}" in output.partition("Example")[2]) == (0, True)


@pytest.mark.parametrize(("options", "named"), [([], ""), (["--name", "second"], " --name second")])
def test_what_is_advised_is_about_the_cluster_that_was_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], named: str
) -> None:
    here = Running("supervisor", os.getpid(), 0)

    def brought_up(name: str, wishes: Wishes, told: object) -> ClusterState:
        return ClusterState(
            "embedded", name, "ready", "/k/config", "https://127.0.0.1:1", "http://127.0.0.1:2", {}, here
        )

    monkeypatch.setattr(clusters, "bring_up", brought_up)
    _, told = run("up", *options)
    assert told.splitlines()[1:] == [
        "  export KUBECONFIG=/k/config",
        "  export ESCHER_URL=http://127.0.0.1:2",
        f"  escher cluster down{named}",
    ]
    _, told = run("up", "--no-service", *options)
    assert told.splitlines()[3] == "  escher serve --kubeconfig /k/config --port 2"
    monkeypatch.setattr(supervision, "running", lambda name: None)
    for command in ("status", "env"):
        _, told = run(command, *options)
        assert told.endswith(f"start it with `escher cluster up{named}`\n")
    folder = places.cluster_folder(options[-1] if options else "default")
    with folders.claimed(folder), pytest.raises(ClusterError, match=f"`escher cluster down{named}`"):
        folders.claimed(folder).__enter__()


def test_the_page_about_versions_says_how_to_have_the_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Running("supervisor", os.getpid(), 0)
    done: list[tuple[str, object]] = []

    def built(_told: object, kubernetes: Kubernetes) -> Path:
        done.append((kubernetes.minor, "built"))
        return Path("/cache")

    def brought_up(name: str, wishes: Wishes, told: object) -> ClusterState:
        done.append((wishes.kubernetes, wishes.marks))
        return ClusterState("real", name, "ready", "/k/config", "https://127.0.0.1:1", "http://127.0.0.1:2", {}, here)

    monkeypatch.setattr(binaries, "build", built)
    monkeypatch.setattr(binaries, "build_shared", lambda _told: Path("/cache"))
    monkeypatch.setattr(clusters, "bring_up", brought_up)
    for line in re.findall(r"^    escher cluster (.+)$", PAGE.read_text(), re.MULTILINE):
        code, output = run(*shlex.split(line))
        assert code == 0, output
    assert done == [("1.35", "built"), ("1.35", None), ("1.35", True)]


def test_what_a_shell_needs_is_printed_so_that_it_can_be_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Running("supervisor", os.getpid(), 0)
    found = ClusterState("embedded", "a", "ready", "/my files/k", "https://127.0.0.1:1", "http://127.0.0.1:2", {}, here)
    monkeypatch.setattr(supervision, "running", lambda name: found if name == "a" else None)
    code, told = run("env", "--name", "a")
    assert (code, told) == (0, "export KUBECONFIG='/my files/k'\nexport ESCHER_URL=http://127.0.0.1:2\n")
