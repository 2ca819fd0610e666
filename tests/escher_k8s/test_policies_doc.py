"""docs/policies.md is true of EscherPolicy: what it shows in YAML, Python, curl and the command line is done, in order,
on a service in simulation."""

from __future__ import annotations

import doctest
import json
import re
import shlex
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from extender.adapters.spelling import camel
from extender.cli.main import app
from extender.core.policies.policy_types import TYPES
from tests.docs.pages import request_of
from tests.escher_k8s.conftest import Stage

SECTION = (
    (Path(__file__).parents[2] / "docs" / "policies.md").read_text().split("## EscherPolicy\n")[1].split("\n## ")[0]
)
OBJECTS = "/apis/escher.dev/v1alpha1/namespaces/team-a/escherpolicies"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)


def test_the_manifest_is_in_force_as_kubectl_and_as_escher_apply_it(
    on_stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, annotation = blocks("yaml")
    on_stage.run(on_stage.simulation.ask("POST", OBJECTS, yaml.safe_load(manifest)))
    on_stage.pass_time(1)
    by_kubectl = on_stage.run(on_stage.simulation.ask("GET", f"{OBJECTS}/spread"))
    [ready] = by_kubectl["status"]["conditions"]
    assert (ready["type"], ready["status"]) == ("Ready", "True")
    on_stage.run(on_stage.simulation.ask("DELETE", f"{OBJECTS}/spread"))
    on_stage.pass_time(1)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spread.yaml").write_text(manifest)
    typed = [line.strip() for line in SECTION.splitlines() if line.startswith("    escher ")]
    assert len(typed) >= 4
    for line in typed:
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, (line, done.output)
        assert "spread" in done.stdout
    by_escher = on_stage.run(on_stage.simulation.ask("GET", f"{OBJECTS}/spread"))
    assert by_escher["spec"] == by_kubectl["spec"]
    assert yaml.safe_load(annotation)["metadata"]["annotations"] == {"escher.dev/policy": "spread"}
    assert CliRunner().invoke(app, ["policy", "delete", "spread", "-n", "team-a"]).exit_code == 0


@pytest.mark.usefixtures("on_stage")
def test_what_is_typed_in_python_answers_what_is_shown() -> None:
    session = doctest.DocTestParser().get_doctest("\n".join(blocks("pycon")), {}, "docs/policies.md", None, 0)
    told: list[str] = []
    failed, tried = doctest.DocTestRunner().run(session, out=told.append)
    assert not failed, "".join(told)
    assert tried > 7


def test_what_curl_sends_is_answered(on_stage: Stage) -> None:
    [typed] = blocks("sh")
    calls = [request_of(shlex.split(line)[1:]) for line in typed.splitlines()]
    assert {each.method for each in calls} == {"PUT", "PATCH", "POST", "GET", "DELETE"}
    with httpx.Client(transport=on_stage.blocking) as client:
        for request in calls:
            answer = client.send(request)
            assert answer.status_code in (200, 204), (request.url, answer.text)


def test_every_type_is_in_the_table_with_its_parameters_and_defaults() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", SECTION, re.MULTILINE)
    assert rows == [(kind, ", ".join(shown(each) for each in fields(TYPES[kind])) or "none") for kind in TYPES]


def shown(parameter: Any) -> str:
    if parameter.default is MISSING:
        return f"`{camel(parameter.name)}` (needed)"
    default = [] if parameter.default == () else parameter.default
    return f"`{camel(parameter.name)}: {json.dumps(default)}`"
