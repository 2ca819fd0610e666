"""Where the package `lab` is not installed, as in the image: what needs it names the extra, and the rest works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "lab":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
from extender.__main__ import start
start()
"""


def escher(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT, *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("command", [("demo",), ("compare",), ("cluster", "status"), ("cluster", "build")])
def test_what_needs_it_names_the_extra(command: tuple[str, ...]) -> None:
    ran = escher(*command)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == "escher: this command needs the extra `lab`: pip install 'escher-kubernetes[lab]'.\n"


def test_explain_and_help_do_not_need_it() -> None:
    asked = escher("explain", "pod", "p", "--url", "http://127.0.0.1:1")
    assert asked.returncode == 1
    assert "cannot be reached" in asked.stderr
    assert escher("compare", "--help").returncode == 0
