"""The surface that users, clusters and other programs depend on, as one JSON value without words of explanation.

    python -m tests.frozen.surface            # prints it
    python -m tests.frozen.surface --write    # records it, after a change that is meant and is in CHANGELOG.md

A rename inside the code changes nothing here: the management API's document, the CRDs, the commands with their options,
the settings, the metrics, and the recorded calls of kube-scheduler with their answers.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry
from typer.main import get_command

from extender.adapters.http.api import create_api
from extender.cli.main import app
from extender.settings.settings import Settings
from tests.adapters.http.fakes import NotedManagement, Ready

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).with_name("surface.json")
_WORDS = frozenset({"description", "summary", "title", "example", "examples"})
_METRIC = re.compile(r"^\| (`escher_[^|]*) \| ([^|]*) \|", re.MULTILINE)


def surface() -> dict[str, dict[str, str]]:
    """By part and by name: what it is, or a digest of it."""
    api = without_words(create_api(NotedManagement().by_noun(), Ready(), CollectorRegistry()).openapi())
    settings = without_words(Settings.model_json_schema())
    crds = (yaml.safe_load(file.read_text()) for file in (ROOT / "deploy/crds").iterdir())
    calls = (ROOT / "tests/adapters/http/golden").glob("*/*.json")
    return {
        "api": {f"{verb} {path}": digest(each) for path, verbs in api["paths"].items() for verb, each in verbs.items()},
        "api values": {name: digest(each) for name, each in api["components"]["schemas"].items()},
        "commands": dict(_commands(get_command(app), "escher")),
        "crds": {each["metadata"]["name"]: digest(without_words(each)) for each in crds},
        "metrics": dict(_METRIC.findall((ROOT / "docs/operations.md").read_text())),
        "settings": {name: digest(each) for name, each in settings["properties"].items()},
        "values of settings": {name: digest(each) for name, each in settings["$defs"].items()},
        "wire": {f"{each.parent.name}/{each.stem}": digest(each.read_text()) for each in calls},
    }


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def without_words(value: Any, names: bool = False) -> Any:
    """The same JSON value without explanations. `names`: the keys of `value` are names that somebody gave."""
    if isinstance(value, dict):
        kept = value.items() if names else ((key, each) for key, each in value.items() if key not in _WORDS)
        return {key: without_words(each, key in ("properties", "$defs", "schemas")) for key, each in kept}
    return [without_words(each) for each in value] if isinstance(value, list) else value


def _commands(command: Any, path: str) -> Iterator[tuple[str, str]]:
    for name, each in getattr(command, "commands", {}).items():
        yield from _commands(each, f"{path} {name}")
    yield path, " ".join(sorted(map(_parameter, command.params)))


def _parameter(each: Any) -> str:
    """Its names; with ! if it is required, and ... if it may be given several times."""
    names: str = "/".join(sorted([*each.opts, *each.secondary_opts]))
    return f"{names}{'!' if each.required else ''}{'...' if each.multiple or each.nargs != 1 else ''}"


def text() -> str:
    return json.dumps(surface(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        RECORDED.write_text(text())
    else:
        sys.stdout.write(text())
