"""The scripts of `make audit`, run by the Python that has what they need: that of `make audit`'s own environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / ".ci"


def ran(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The script has ended. `ESCHER_AUDIT_VENV`: where that environment is, if not where make puts it."""
    folder = Path(os.environ.get("ESCHER_AUDIT_VENV", ROOT / ".venv-audit"))
    if not (folder / ".ready").exists():
        pytest.skip("there is no environment with pip-audit and CycloneDX: run `make audit`")
    command = [str(folder / "bin" / "python"), str(SCRIPTS / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
