"""docs/architecture.md: its table of where to change things names the files, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
TABLE = PAGE[PAGE.index("## Where do I change X") : PAGE.index("## Invariants")]
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([^|]+)` \|$", TABLE, re.MULTILINE)
SOURCES = {path: path.read_text() for path in (ROOT / "extender").rglob("*.py")}


def test_it_has_at_least_fifteen_rows() -> None:
    assert len(ROWS) >= 15
    assert len({what for what, _, _ in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("what", "files", "named"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_names_the_files_in_which_the_thing_stands_and_no_others(what: str, files: str, named: str) -> None:
    linked = {(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\(([^)]+)\)", files)}
    assert linked
    [folder] = {path.parent for path in linked}
    assert {path for path, text in SOURCES.items() if folder in path.parents and named in text} == linked, what
