"""docs/writing-a-policy.md is true: its files are run as they stand there, and counted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from escher_k8s.esl import PolicyEsl, Queue
from lab.compare.lines import code_lines
from tests.docs.lines import ROOT

PAGE = (ROOT / "docs/writing-a-policy.md").read_text()
FILES = dict(re.findall(r"^\*\*`([\w.]+)`\*\*\n\n```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
MOST = 60


def run(folder: Path, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The test, by pytest, in a folder that has these files and nothing else."""
    for name, text in files.items():
        (folder / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:schemathesis",
        "test_at_most.py",
    ]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_policy_passes_its_test_as_both_stand_on_the_page(tmp_path: Path) -> None:
    done = run(tmp_path, FILES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "21 passed" in done.stdout


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("self.key(group): self.most ", "self.key(group): self.most + 1 "), ("task.group): 1", "task.group): 0")],
)
def test_its_test_fails_where_the_policy_is_wrong(tmp_path: Path, right: str, wrong: str) -> None:
    assert right in FILES["at_most.py"]
    done = run(tmp_path, {**FILES, "at_most.py": FILES["at_most.py"].replace(right, wrong)})
    assert done.returncode == 1, done.stdout + done.stderr
    assert "failed" in done.stdout


def test_every_python_block_is_a_file_and_both_together_are_under_sixty_lines() -> None:
    assert FILES.keys() == {"at_most.py", "test_at_most.py"}
    assert PAGE.count("```python") == len(FILES)
    assert sum(map(code_lines, FILES.values())) < sum(len(text.splitlines()) for text in FILES.values()) < MOST


def test_what_the_page_says_a_policy_may_use_is_there() -> None:
    policy = Queue("some", capacity=1)
    named = re.findall(r"`(?:self\.)?(\w+(?:\.\w+)*)\(", PAGE.partition("## What else")[2])
    for name in [*named, "view.fits", "view.eligible", "patience", "grace"]:
        found: object = policy
        for part in name.split("."):
            found = getattr(found, part)
    assert {"decide", "due", "possible_nodes", "suits"} <= set(named) & set(dir(PolicyEsl))
