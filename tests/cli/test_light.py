"""The command line is light: nobody waits for the service's code to be told what a command takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = {
    *("aiohttp", "asyncio", "cryptography", "fastapi", "httpx", "kubernetes", "msgspec", "structlog"),
    *(
        "uvicorn",
        "uvloop",
        "yaml",
        "extender.app",
        "extender.adapters",
        "extender.bootstrap",
        "extender.serving",
        "extender.core",
    ),
    *("lab.controlplane.clusters", "lab.demo", "kubesim"),
}
EVERY_HELP = """
import contextlib, io, sys
from extender.cli.main import app
import typer

told = io.StringIO()

def ask(group, *path):
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        app([*path, "--help"], prog_name="escher")
    for name, command in getattr(group, "commands", {}).items():
        ask(command, *path, name)

ask(typer.main.get_command(app))
assert told.getvalue().count("Usage: escher") > 20
print(*sys.modules)
"""


def test_help_is_told_without_the_services_code() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", EVERY_HELP], cwd=ROOT, capture_output=True, text=True, env={"PATH": "", "HOME": "/"}
    )
    assert ran.returncode == 0, ran.stderr
    assert set(ran.stdout.split()) & HEAVY == set()
