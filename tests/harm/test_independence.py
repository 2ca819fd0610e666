"""What judges the service has nothing of it: no module of the witness imports any other than its own,
what watches and what reads pods for all who judge from outside, and libraries."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import lab.controlplane.witness
import loadtests.harm
import loadtests.shared.reading

SHARED = {
    module.__name__: Path(module.__file__ or "") for module in (loadtests.shared.reading, lab.controlplane.witness)
}
"""For all who judge from outside; they import none but libraries."""
MODULES = [*SHARED.values(), *sorted(Path(loadtests.harm.__path__[0]).glob("*.py"))]


def imported(module: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.stem))
def test_the_witness_imports_nothing_that_decides(module: Path) -> None:
    for name in imported(module):
        library = name.partition(".")[0] in {"msgspec", *sys.stdlib_module_names}
        own = module not in SHARED.values() and (name.startswith("loadtests.harm") or name in SHARED)
        assert library or own, f"{module.name} imports {name}"
