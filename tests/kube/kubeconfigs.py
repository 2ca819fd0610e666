"""Kubeconfigs and credentials plugins as files, and a clock to let what they give expire."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import Any

import yaml


class Time:
    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def kubeconfig(folder: Path, user: dict[str, Any], **cluster: Any) -> Path:
    file = folder / "config"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "main", "cluster": {"server": "http://127.0.0.1:8001/", **cluster}}],
        "users": [{"name": "main", "user": user}],
        "contexts": [{"name": "main", "context": {"cluster": "main", "user": "main"}}],
    }
    file.write_text(yaml.safe_dump(content))
    return file


def plugin(folder: Path, body: str) -> dict[str, Any]:
    """The `exec` of a kubeconfig: a credentials plugin that runs this Python."""
    program = folder / "plugin"
    program.write_text(f"#!{sys.executable}\nimport json, pathlib, sys\nfolder = pathlib.Path({str(folder)!r})\n{body}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program), "interactiveMode": "Never"}
