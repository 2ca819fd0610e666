"""Every command of the tree is one that is tried with hostile text, or one that prints nothing of tenants', and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from extender.adapters.kubernetes.writers import traces
from extender.cli import sweep
from extender.cli.main import app
from extender.core.names import GangKey
from extender.kube.client import connection, credentials
from extender.kube.errors import Refused
from tests.cli.test_hostile_text import COMMANDS, HOSTILE, assert_harmless

OF_THE_CLUSTER = {("gang", "sweep"), ("cleanup",), ("cleanup", "gangs"), ("doctor",)}
"""They read the API server themselves. The doctor's findings: test_hostile_text.py."""
WITHOUT_TENANTS: dict[tuple[str, ...], str] = {
    ("serve",): "it prints its log alone, whose lines escape: test_log_format.py",
    ("demo",): "its cluster is its own, and ends with it",
    ("compare",): "its cluster is its own, and ends with it",
    **{
        ("cluster", each): "it prints what this machine runs, and reads nothing from the API server"
        for each in ("build", "up", "env", "status", "down")
    },
}


def leaves(command: Any, *before: str) -> Iterator[tuple[str, ...]]:
    if not (more := getattr(command, "commands", None)) or command.invoke_without_command:
        yield before
    for name, each in (more or {}).items():
        yield from leaves(each, *before, name)


def test_no_command_is_left_out() -> None:
    tried = {tuple(each[: len(leaf)]) for each in COMMANDS for leaf in [each[:1], each[:2]]}
    there = set(leaves(typer.main.get_command(app)))
    named = tried | OF_THE_CLUSTER | WITHOUT_TENANTS.keys()
    assert there <= named, f"try {there - named} with hostile text, or say why they print none"
    assert OF_THE_CLUSTER | WITHOUT_TENANTS.keys() <= there
    assert not OF_THE_CLUSTER & WITHOUT_TENANTS.keys()


def run(*arguments: str, given: str | None = None) -> tuple[int, str]:
    done = CliRunner().invoke(app, arguments, input=given)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert_harmless(done.output)
    return done.exit_code, done.output


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_a_sweep_of_gangs_with_such_names_prints_nothing_raw(
    monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    async def swept(*_: object) -> list[tuple[GangKey, str]]:
        return [(GangKey(HOSTILE, HOSTILE), HOSTILE)]

    monkeypatch.setattr(sweep, "_sweep", swept)
    code, said = run("cleanup", "gangs", *more)
    assert code == 0
    assert "FORGED" in said


def test_a_sweep_that_is_refused_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def swept(*_: object) -> None:
        raise Refused(403, HOSTILE)

    monkeypatch.setattr(sweep, "_sweep", swept)
    code, said = run("cleanup", "gangs")
    assert (code, len(said.splitlines())) == (1, 1)


class NoConnection:
    def __init__(self, _: object) -> None:
        pass

    async def __aenter__(self) -> NoConnection:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.fixture
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    async def load(_: object) -> None:
        pass

    monkeypatch.setattr(credentials.Credentials, "load", load)
    monkeypatch.setattr(credentials, "default_loader", lambda *_: None)
    monkeypatch.setattr(connection, "Connection", NoConnection)


@pytest.mark.usefixtures("no_cluster")
def test_a_cleanup_where_deployments_have_such_names_prints_nothing_raw(monkeypatch: pytest.MonkeyPatch) -> None:
    async def services(_: object) -> tuple[str, ...]:
        return (HOSTILE, HOSTILE)

    async def found(_: object) -> traces.Traces:
        return traces.Traces(resources=((HOSTILE, HOSTILE),), slices=((HOSTILE, HOSTILE),))

    monkeypatch.setattr(traces, "services", services)
    monkeypatch.setattr(traces, "found", found)
    assert run("cleanup") == (0, "found: 1 EphemeralResources, 1 EndpointSlices\n")
    code, said = run("cleanup", "--yes")
    assert code == 1
    assert "FORGED" in said


@pytest.mark.usefixtures("no_cluster")
def test_a_cleanup_that_is_refused_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(_: object) -> None:
        raise Refused(403, HOSTILE)

    monkeypatch.setattr(traces, "found", refused)
    code, said = run("cleanup")
    assert (code, len(said.splitlines())) == (1, 1)


@pytest.mark.parametrize("command", ["apply", "validate"])
@pytest.mark.parametrize(
    "text",
    [
        "a: [\x1b[2J",
        "a: ['\\\nFORGED: &x",
        '{"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": "a\\u001b\\nFORGED"}}',
        '{"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": "a"},'
        ' "spec": {"type": "balance", "parameters": {"b_\\u001b[2J\\nFORGED": 1}}}',
        '{"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": "a"},'
        ' "spec": {"type": "balance", "selector": {"b\\u009b\\nFORGED": 1}}}',
    ],
    ids=["no text", "no YAML", "name", "parameter", "selector"],
)
def test_a_file_of_policies_that_is_wrong_is_refused_without_printing_it_raw(command: str, text: str) -> None:
    assert run("policy", command, "-f", "-", given=text)[0] == 2
