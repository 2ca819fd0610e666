"""`escher policy` against the real service: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extender.app.contracts.kind import Identity
from extender.cli.main import app
from extender.core.policies.policy_types import TYPES, Balance
from tests.app.world import World
from tests.builders import pod
from tests.cli.conftest import Escher

pytestmark = pytest.mark.anyio

SPREAD = """\
apiVersion: escher.dev/v1alpha1
kind: EscherPolicy
metadata:
  name: spread
spec:
  type: balance
  parameters:
    tasks: 4
    maxSkew: 2
  selector:
    matchLabels:
      app_of: web
"""
TWO = f"""{SPREAD}---
apiVersion: escher.dev/v1alpha1
kind: EscherPolicy
metadata:
  name: packed
  namespace: other
spec:
  type: bin-packing
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "policy.yaml"
    write(made, SPREAD)
    return made


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def test_a_policy_is_applied_shown_and_deleted(escher: Escher, world: World, file: Path) -> None:
    assert "no policies" in (await escher("policy", "list", "-n", "team")).stdout
    world.do(world.scheduler.observe(pod("p", {}, namespace="team", labels={"app_of": "web"})))
    done = await escher("policy", "apply", "-f", str(file), "-n", "team")
    said = "team/spread is applied: the spec is in force; it matches 1 pod\n"
    assert (done.exit_code, done.stdout) == (0, said)
    policy = world.policy_matching[Identity("team", "spread")]
    assert policy.parameters == Balance(4, 2)
    listed = (await escher("policy", "list", "-n", "team")).stdout.splitlines()[1].split()
    assert listed[:4] == ["spread", "balance", "yes", "1"]
    shown = (await escher("policy", "get", "spread", "-n", "team")).stdout
    assert "team/spread: balance, in force: yes" in shown
    assert "max_skew" in shown
    assert "those that name it, and those of app_of In web" in shown
    gone = await escher("policy", "delete", "spread", "-n", "team")
    assert (gone.exit_code, gone.stdout) == (0, "spread is gone\n")
    assert world.policy_matching == {}
    assert (await escher("policy", "delete", "spread", "-n", "team")).exit_code == 0
    assert (await escher("policy", "get", "spread", "-n", "team")).exit_code == 1


async def test_a_file_may_have_several_each_in_its_own_namespace(escher: Escher, world: World, file: Path) -> None:
    write(file, TWO)
    done = await escher("policy", "apply", "-f", str(file), "-n", "team", "--json")
    assert [each["namespace"] for each in json.loads(done.stdout)["items"]] == ["team", "other"]
    assert sorted(world.policy_matching) == [("other", "packed"), ("team", "spread")]
    wrong = await escher("policy", "apply", "-f", str(file), "--if-version", "1")
    assert (wrong.exit_code, "is for one policy" in wrong.stderr) == (2, True)


async def test_what_kubectl_prints_can_be_applied(escher: Escher, world: World, file: Path) -> None:
    policy = {"kind": "EscherPolicy", "metadata": {"name": "a"}, "spec": {"type": "bin-packing"}}
    items = [{"apiVersion": "escher.dev/v1alpha1", **policy}]
    write(file, json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert (await escher("policy", "apply", "-f", str(file))).exit_code == 0
    assert list(world.policy_matching) == [("default", "a")]


async def test_a_dry_run_and_a_validation_change_nothing(escher: Escher, world: World, file: Path) -> None:
    tried = await escher("policy", "apply", "-f", str(file), "--dry-run")
    assert tried.stdout.startswith("default/spread would be applied: the spec can come into force")
    good = await escher("policy", "validate", "-f", str(file))
    assert (good.exit_code, good.stdout.startswith("default/spread is valid: ")) == (0, True)
    assert json.loads((await escher("policy", "validate", "-f", str(file), "--json")).stdout)["items"][0]["ready"]
    assert world.policy_matching == {}
    await escher("policy", "apply", "-f", str(file))
    assert "would be gone" in (await escher("policy", "delete", "spread", "--dry-run")).stdout
    assert list(world.policy_matching) == [("default", "spread")]


@pytest.mark.parametrize("command", ["apply", "validate"])
async def test_a_refusal_is_the_services_own_words_and_exit_code_1(
    escher: Escher, world: World, file: Path, command: str
) -> None:
    write(file, SPREAD.replace("maxSkew: 2", "maxSkew: 0"))
    refused = await escher("policy", command, "-f", str(file))
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "escher: parameters.max_skew: Input should be greater than or equal to 1, not 0\n"
    assert world.policy_matching == {}


async def test_a_version_that_does_not_hold_is_exit_code_1(escher: Escher, world: World, file: Path) -> None:
    conflict = await escher("policy", "apply", "-f", str(file), "--if-version", "7")
    assert (conflict.exit_code, "does not exist; expected version 7" in conflict.stderr) == (1, True)
    await escher("policy", "apply", "-f", str(file))
    assert (await escher("policy", "delete", "spread", "--if-version", "7")).exit_code == 1


async def test_what_is_not_in_force_is_shown_so(escher: Escher, world: World, file: Path) -> None:
    await escher("policy", "apply", "-f", str(file))
    there = world.policy_store.objects[Identity("default", "spread")]
    assert there.spec is not None
    bad = replace(there, spec=replace(there.spec, parameters={"tasks": -1}), resource_version="900", generation=9)
    world.policy_store.objects[Identity("default", "spread")] = bad
    world.policies.tending.known.upsert(bad)
    listed = (await escher("policy", "list")).stdout
    assert "its previous version" in listed
    assert "spec.parameters.tasks: Input should be greater than or equal to 0, not -1" in listed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "is not YAML"),
        ("", "has no EscherPolicy"),
        ("a: 1", "an object is not an EscherPolicy"),
        (SPREAD.replace("EscherPolicy", "Pod"), "an object is not an EscherPolicy"),
        (SPREAD.replace("  name: spread", "  names: spread"), "has no metadata.name"),
        (SPREAD.replace("maxSkew", "max_skew"), "spec.parameters.max_skew is not known; write maxSkew"),
        (SPREAD.replace("matchLabels", "labels"), "spec.selector.labels is not known; write matchLabels"),
        (SPREAD.replace("spec:", "specs:"), "policy spread has no spec"),
        ('{"apiVersion": "escher.dev/v1alpha1", "kind": "Pod \\ud83d\\ude00"}', "an object is not an EscherPolicy"),
        ('{"kind": "half of a character: \\ud83d"}', "it has text that is not Unicode"),
    ],
)
async def test_a_file_that_is_none_is_wrong_use(escher: Escher, world: World, file: Path, text: str, said: str) -> None:
    write(file, text)
    for command in ("apply", "validate"):
        refused = await escher("policy", command, "-f", str(file))
        assert (refused.exit_code, said in refused.stderr) == (2, True), refused.stderr
        assert str(file) in refused.stderr
    assert world.policy_matching == {}


async def test_a_file_that_is_not_there_and_a_missing_option_are_wrong_use(escher: Escher, file: Path) -> None:
    missing = await escher("policy", "apply", "-f", f"{file}.none")
    assert (missing.exit_code, "No such file" in missing.stderr) == (2, True)
    assert (await escher("policy", "apply")).exit_code == 2
    assert (await escher("policy", "get")).exit_code == 2


async def test_every_type_is_shown_with_its_parameters(escher: Escher) -> None:
    told = (await escher("policy", "types")).stdout
    assert all(f"\n{kind} " in told for kind in TYPES)
    assert "tasks, maxSkew, topologyKey" in told
    items = json.loads((await escher("policy", "types", "--json")).stdout)["items"]
    assert [each["name"] for each in items] == list(TYPES)


def test_every_command_shows_an_example() -> None:
    for command in ("list", "get", "apply", "validate", "delete", "types"):
        told = CliRunner().invoke(app, ["policy", command, "--help"])
        assert (told.exit_code, f"Example: escher policy {command}" in told.stdout) == (0, True)


# -- asks


async def test_what_a_policy_answers_is_shown_as_the_pod_has_to_say_it(
    escher: Escher, world: World, file: Path
) -> None:
    await escher("policy", "apply", "-f", str(file), "-n", "team")
    asked = await escher("policy", "ask", "spread", "--task", "web-0", "-n", "team")
    assert (asked.exit_code, asked.stderr) == (0, "")
    rows = [line.strip().split(maxsplit=1) for line in asked.stdout.splitlines()[1:]]
    assert rows == [["spec.schedulerName", "escher"], ["metadata.annotations", 'escher.dev/policy: "spread"']]
    told = json.loads((await escher("policy", "ask", "spread", "--task", "web-0", "-n", "team", "--json")).stdout)
    assert (told["annotations"], told["schedulerName"]) == ({"escher.dev/policy": "spread"}, "escher")


async def test_what_cannot_be_asked_is_told_in_words(escher: Escher, world: World, file: Path) -> None:
    nobody = await escher("policy", "ask", "nobody", "--task", "web-0", "-n", "team")
    assert (nobody.exit_code, "there is no policy team/nobody" in nobody.stderr) == (1, True)
    await escher("policy", "apply", "-f", str(file), "-n", "team")
    bad = await escher("policy", "ask", "spread", "--task", "Web", "-n", "team")
    assert (bad.exit_code, "'Web' is not a DNS label" in bad.stderr) == (1, True)
    for need in ("cpu", "=2", "cpu="):
        wrong = await escher("policy", "ask", "spread", "--task", "web-0", "--need", need)
        assert (wrong.exit_code, f"--need is '{need}'; write RESOURCE=QUANTITY" in wrong.stderr) == (2, True)
