"""The package is light: what an application loads with it, and what it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import escher_k8s

ROOT = Path(__file__).parents[2]
HEAVY = {
    *("fastapi", "starlette", "pydantic", "uvicorn", "uvloop", "numpy", "kubernetes", "aiohttp", "prometheus_client"),
    *(
        "httpx",
        "structlog",
        "cryptography",
        "yaml",
        "kubesim",
        "extender.app",
        "extender.adapters",
        "extender.bootstrap",
    ),
}


def _loaded(code: str) -> set[str]:
    shown = f"{code}\nimport sys\nprint(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", shown], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


def test_importing_it_loads_no_framework_no_numpy_and_no_kubernetes() -> None:
    loaded = _loaded("import escher_k8s, escher_k8s.esl")
    assert "escher_k8s.esl" in loaded
    assert loaded & HEAVY == set()


def test_type_checkers_believe_its_types() -> None:
    for package in ("escher_k8s", "extender"):
        assert (ROOT / package / "py.typed").is_file()
    assert sorted(escher_k8s.__all__) == escher_k8s.__all__
    assert all(hasattr(escher_k8s, name) for name in escher_k8s.__all__)
