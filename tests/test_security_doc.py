"""docs/security.md is true: its rights are the code's, and the tests that it names for each attack exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from extender.adapters.http.call_admission import _OPEN
from extender.adapters.http.rights import CLAIMS, NEEDS, SHARED
from extender.core.safety_switches import LABELS
from tests.lies.test_lies import LIES
from tests.test_failures_doc import names_in

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "security.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The table below the heading, without its head."""
    below = TEXT.split(f"# {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in below.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


ATTACKS = rows("Attacks that were tried")
READS = [row for row in rows("What Escher reads, and what a lie reaches") if not row[0].startswith("**")]
_OURS = re.compile(r"(?<!esl\.)(?:DOMAIN}|escher\.dev)/([a-z][a-z-]*[a-z])\"")
_TOOLS = {"compare", "controlplane", "demo"}
"""Folders of what only developers run."""


def test_every_right_that_is_needed_stands_there_and_no_other() -> None:
    said = " ".join(cell for row in rows("Who may do what") for cell in row[2:])
    named = set(re.findall(r"`([a-z]+(?:/[a-z]+)?)`", said))
    assert named == {each.resource for each in NEEDS.values() if each.resource} | {SHARED, CLAIMS}


def test_every_verb_stands_beside_its_resource() -> None:
    found: dict[str, set[str]] = {}
    for _, verbs, resource in rows("Who may do what"):
        for name in re.findall(r"`([a-z]+(?:/[a-z]+)?)`", resource):
            found.setdefault(name, set()).update(re.findall(r"[a-z]+", verbs))
    for needs in NEEDS.values():
        assert set(needs.verbs) <= found.get(needs.resource, set()), needs


def test_what_everybody_may_read_stands_there() -> None:
    [row] = [each for each in rows("Security: who trusts whom") if "kubelet" in each[0]] or [[]]
    assert set(re.findall(r"`(/[a-z.]+)`", row[2])) <= _OPEN


def test_every_attack_has_its_row() -> None:
    assert len(ATTACKS) > 15
    assert {len(row) for row in ATTACKS} == {3}


@pytest.mark.parametrize("row", ATTACKS, ids=[row[0][:50] for row in ATTACKS])
def test_the_tests_of_an_attack_exist(row: list[str]) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", row[2])
    assert len(named) == row[2].count("`") / 2 > 0
    assert [f"{path}::{name}" for path, name in named if name not in names_in(path)] == []


def test_every_key_of_ours_that_the_code_knows_has_a_row() -> None:
    code = "".join(path.read_text() for path in (ROOT / "extender").rglob("*.py") if not _TOOLS & set(path.parts))
    said = set(re.findall(r"`escher\.dev/([a-z-]+)`", "".join(row[0] for row in READS)))
    keys = set(_OURS.findall(code)) | {label.removeprefix("escher.dev/") for label in LABELS.values()}
    assert keys - said == set()


def test_every_lie_has_a_row() -> None:
    assert set(re.findall(r"\blie \*([^*]+)\*", "".join(row[4] for row in READS))) == set(LIES)


@pytest.mark.parametrize("row", READS, ids=[row[0][:50] for row in READS])
def test_each_thing_that_is_read_was_lied_about(row: list[str]) -> None:
    who, believed, reached, tried = row[1:]
    assert all((who, believed, reached))
    named = re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)`", tried)
    assert named or "lie *" in tried
    assert [f"{path}::{name}" for path, name in named if name not in names_in(path)] == []
