"""The tables of docs/policies/README.md are true: lines are counted, and the tests named there exist."""

from __future__ import annotations

import re

import escher_k8s.esl
from extender.core.policies.policy_types import TYPES
from extender.esl.runtime.policy_esl import PolicyEsl
from lab.compare.lines import code_lines
from tests.docs.lines import README, ROOT, ROWS, SHARED, with_tables

PAGE = README.read_text()


def test_only_lines_that_bear_code_count() -> None:
    source = '''"""What it is,
in two lines."""

# A remark.
import os  # and another


class A:
    """A docstring."""

    x = """a text

    of a value"""
    y: int = 1
    """What y is."""

    def f(self) -> str:
        return (
            "b"
        )
'''
    assert code_lines(source) == len(["import", "class", "x =", "of a value", "y:", "def", "return (", '"b"', ")"])
    assert code_lines("") == 0
    assert code_lines('class A:\n    """B."""\n\nx = 1; "a"\n') == 2


def test_the_tables_are_as_the_tool_counts_them_now() -> None:
    assert with_tables(PAGE) == PAGE, "python -m tests.docs.lines --write"


def test_every_policy_that_is_exported_and_every_type_is_in_the_table() -> None:
    exported = [getattr(escher_k8s.esl, name) for name in escher_k8s.esl.__all__]
    policies = [each for each in exported if isinstance(each, type) and issubclass(each, PolicyEsl)]
    files = {policy.__module__.rpartition(".")[2] for policy in policies} - {"policy_esl"}
    assert len(files) > 10
    assert files <= {name for row in ROWS for name in row.esl}
    assert {f"`{kind}`" for kind in TYPES} <= {row.type for row in ROWS}


def test_every_policy_of_the_library_is_exported() -> None:
    shared = {name for names in SHARED.values() for name in names}
    named = {name for row in ROWS for name in row.esl} - shared
    for name in sorted(named):
        source = next((ROOT / "extender/esl").rglob(f"{name}.py")).read_text()
        for policy in re.findall(r"^class ([A-Z]\w+)\((?:\w*Esl|_\w+|Soft)", source, re.MULTILINE):
            assert policy in escher_k8s.esl.__all__


def test_every_test_that_is_named_is_there() -> None:
    named = re.findall(r"\[`(test_\w+)`\]\(\.\./\.\./(tests/[\w/]+\.py)\)", PAGE)
    assert len(named) > 20
    assert PAGE.count("`test_") == len(named)
    for name, file in named:
        assert re.search(rf"^ *(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), (name, file)


def test_every_scenario_says_something_of_every_space() -> None:
    rows = [line.strip("| \n").split(" | ") for line in PAGE.splitlines() if re.match(r"\| \d+ ", line)]
    assert {int(row[0].split()[0]) for row in rows} == {7, 8, 9, 10, 11, 15, 16, 17, 18}
    for row in rows:
        assert len(row) == 6, row
        assert all(cell in ("not yet", "—") or "`test_" in cell for cell in row[1:]), row
