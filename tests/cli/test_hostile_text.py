"""What tenants write reaches no terminal raw: every command, with hostile text in every field that it is told.

Answers are made from the schemas of the management API, so that a new field is tested too.
"""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from prometheus_client import CollectorRegistry
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from extender.adapters.http.api import create_api
from extender.cli import doctor
from extender.cli.common import api
from extender.cli.common.terminal import Terminal, add_row
from extender.cli.main import app
from extender.doctor.facts import Part
from extender.doctor.findings import Finding, Report, Severity, Skipped
from extender.doctor.gates import Gated
from extender.kube.printable import printable
from tests.adapters.http.fakes import NotedManagement, Ready

HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07a\rb\nFORGED c\u202ed\u2028e\x00f\x7fg\x9bh\u200bi[red]j[/red]\U000e0001" + "k" * 10_000
)
ROOT = Path(__file__).parents[2]


FREE: dict[str, Any] = {
    "parameters": {"properties": {HOSTILE: {}}, HOSTILE: [HOSTILE, {HOSTILE: HOSTILE}]},
    "selector": [{"key": HOSTILE, "operator": HOSTILE, "values": [HOSTILE]}],
}
"""Fields of which the schema says nothing, and commands know more."""


def schemas() -> dict[str, Any]:
    return dict(create_api(NotedManagement().by_noun(), Ready(), CollectorRegistry()).openapi())


OPENAPI = schemas()


def filled(schema: Mapping[str, Any]) -> Any:
    """A value of the schema with hostile text wherever text may stand."""
    if "$ref" in schema:
        return filled(OPENAPI["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return filled(next(each for each in options if each.get("type") != "null"))
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "string":
            return "2027-01-31T12:00:00Z" if schema.get("format") == "date-time" else HOSTILE
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case "array":
            return [filled(schema["items"])]
        case "object":
            told = {key: FREE.get(key) or filled(each) for key, each in schema.get("properties", {}).items()}
            more = schema.get("additionalProperties")
            return told | ({HOSTILE: filled(more) if isinstance(more, dict) else HOSTILE} if more else {})
    return HOSTILE


def answer(request: httpx.Request) -> httpx.Response:
    """As the service would answer the call, in form; the last page of a list."""
    # A name may have slashes.
    parts = [unquote(each) for each in request.url.raw_path.decode().partition("?")[0].split("/")[1:]]
    for path, methods in OPENAPI["paths"].items():
        wanted = path.split("/")[1:]
        fits = len(wanted) == len(parts) and all(
            (w.startswith("{") and (":" not in w or p.endswith(w.rpartition("}")[2]))) or w == p
            for w, p in zip(wanted, parts, strict=True)
        )
        if not fits or request.method.lower() not in methods:
            continue
        responses = methods[request.method.lower()]["responses"]
        code = next(each for each in responses if each.startswith("2"))
        content = responses.get("202" if "202" in responses else code, {}).get("content", {})
        told = filled(content["application/json"]["schema"])
        if isinstance(told, dict) and "continue" in told:
            told["continue"] = None
        return httpx.Response(200, json=told)
    raise AssertionError(f"{request.method} {request.url.path} is not of the API")


def refusal(request: httpx.Request) -> httpx.Response:
    return httpx.Response(422, json={"detail": HOSTILE, "field": HOSTILE})


COMMANDS = [
    ["resource", "list"],
    ["resource", "set", "data1", "1", "--node", "n1"],
    ["resource", "delete", "data1"],
    ["gang", "list"],
    ["gang", "get", "train"],
    ["explain", "pod", "p"],
    ["explain", "gang", "train"],
    ["state"],
    ["quota"],
    ["policy", "list"],
    ["policy", "get", "near"],
    ["policy", "apply", "-f", "-"],
    ["policy", "validate", "-f", "-"],
    ["policy", "delete", "near"],
    ["policy", "types"],
    ["policy", "ask", "near", "--task", "t"],
    ["what-if", "--gang", "train", "--size", "2", "--each", "cpu=1"],
]
WITH_JSON = [each for each in COMMANDS if each[1:2] != ["delete"]]


# YAML reads JSON's pairs of surrogates as two characters.
SPOKEN = HOSTILE.replace("\U000e0001", "")
POLICY = {
    "apiVersion": "escher.dev/v1alpha1",
    "kind": "EscherPolicy",
    "metadata": {"name": SPOKEN, "namespace": SPOKEN},
    "spec": {"type": SPOKEN, "parameters": {SPOKEN[:40]: SPOKEN}, "selector": {"matchLabels": {"a": SPOKEN}}},
}
"""What `-f -` reads."""


def run(monkeypatch: pytest.MonkeyPatch, handler: Any, *arguments: str) -> str:
    def connect(url: str, trust: object = True) -> httpx.Client:
        return httpx.Client(base_url=url, transport=httpx.MockTransport(handler))

    monkeypatch.setattr(api, "connect", connect)
    # Of a pseudo-terminal rich would write styles, which are its own.
    done = CliRunner().invoke(app, arguments, input=json.dumps(POLICY))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (0, 1), done.output
    return done.output


def assert_harmless(printed: str) -> None:
    assert {each for each in printed if not each.isprintable()} <= {"\n"}
    assert not any(line.lstrip().startswith("FORGED") for line in printed.splitlines())


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_prints_nothing_raw(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    printed = run(monkeypatch, answer, *command)
    assert_harmless(printed)
    assert printed


@pytest.mark.parametrize("command", WITH_JSON, ids=" ".join)
def test_json_is_json_and_has_nothing_raw(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    printed = run(monkeypatch, answer, *command, "--json")
    assert_harmless(printed)
    assert HOSTILE in texts(json.loads(printed))


def texts(told: Any) -> list[str]:
    if isinstance(told, dict):
        return [each for pair in told.items() for part in pair for each in texts(part)]
    if isinstance(told, list):
        return [each for part in told for each in texts(part)]
    return [told] if isinstance(told, str) else []


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_refusal_is_told_in_one_line(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    printed = run(monkeypatch, refusal, *command)
    assert_harmless(printed)
    assert len(printed.splitlines()) == 1
    assert "[red]j[/red]" in printed


def test_what_the_doctor_finds_is_told_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    monkeypatch.setattr(doctor, "out", Terminal(file=told, width=400, highlight=False))
    monkeypatch.setattr(doctor, "_looked_at", lambda facts: [HOSTILE])
    found = Finding(HOSTILE, Severity.MISTAKE, HOSTILE, HOSTILE, HOSTILE)
    left = Skipped(Part.SCHEDULERS, HOSTILE, (HOSTILE,))
    doctor._tell(None, Report((found,), (left,)))  # type: ignore[arg-type]
    doctor._tell_gated([Gated(doctor_pod(), HOSTILE, HOSTILE, (HOSTILE,))], {}, None, yes=False)
    assert_harmless(told.getvalue())


def doctor_pod() -> Any:
    from extender.app.contracts.ports import PodRef

    return PodRef(HOSTILE, HOSTILE, HOSTILE)  # type: ignore[arg-type]


def test_a_terminal_writes_printable_text_alone_whatever_it_is_given() -> None:
    told = io.StringIO()
    terminal = Terminal(file=told, force_terminal=False, width=80)
    table = Table(HOSTILE, title=HOSTILE)
    add_row(table, HOSTILE)
    table.add_row(HOSTILE)
    terminal.print(HOSTILE)
    terminal.print(Text(HOSTILE))
    terminal.print(table)
    assert {each for each in told.getvalue() if not each.isprintable()} <= {"\n"}


def test_text_is_written_as_json_writes_it() -> None:
    for text in (HOSTILE, "plain", "\ud800", "tab\tand é", ""):
        assert printable(text).isprintable()
        assert json.loads(f'"{printable(text)}"') == text
    assert printable("a\nb\x1b", keep="\n") == "a\nb\\u001b"


def test_commands_have_no_other_way_to_print() -> None:
    """A console of rich's, `typer.echo` or a row that is added by itself would go past the terminal."""
    for file in sorted((ROOT / "extender" / "cli").glob("*.py")):
        if file.name == "terminal.py":
            continue
        for each in ast.walk(ast.parse(file.read_text())):
            if isinstance(each, ast.Attribute):
                said = ast.unparse(each)
                assert said not in ("typer.echo", "typer.secho", "table.add_row"), (file.name, each.lineno)
            elif isinstance(each, ast.Call):
                assert ast.unparse(each.func) not in ("Console", "print"), (file.name, each.lineno)
