"""Applies custom resource definitions, Escher's and others, before any client uses them."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from extender.settings.settings import OWN_NAMESPACE
from extender.shipped import loopback, places
from extender.shipped.errors import ClusterError

_NAMESPACES = "/api/v1/namespaces"
_OWN_NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN_NAMESPACE}}
_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WITHIN = 30.0


def shipped_definitions() -> list[dict[str, Any]]:
    """Every CustomResourceDefinition in deploy/crds, in the order of the file names."""
    return _definitions(sorted((places.shipped("deploy") / "crds").glob("*.yaml")))


def establish(
    url: str, *, trust: ssl.SSLContext, token: str, pause: Callable[[float], object], more: Sequence[Path] = ()
) -> None:
    """The API server serves all definitions, also those in `more`, and has the service's namespace.

    Waits for both. Raises ClusterError if a definition is refused or is not served in time.
    """
    status, answer = loopback.ask("POST", url + _NAMESPACES, trust=trust, token=token, body=_OWN_NAMESPACE)
    if status not in (201, 409):
        raise ClusterError(f"the API server refuses the namespace {OWN_NAMESPACE}: {message(answer)}")
    waiting: set[str] = set()
    for definition in [*shipped_definitions(), *_definitions(more)]:
        status, answer = loopback.ask("POST", url + _PATH, trust=trust, token=token, body=definition)
        name = definition["metadata"]["name"]
        if status != 201:
            raise ClusterError(f"the API server refuses the definition {name}: {message(answer)}")
        waiting |= _collections(definition)
    deadline = time.monotonic() + _WITHIN
    while waiting:
        # The condition Established comes too early: for a moment requests are still answered 404 or 429.
        waiting = {path for path in waiting if loopback.ask("GET", url + path, trust=trust, token=token)[0] != 200}
        if waiting and time.monotonic() > deadline:
            raise ClusterError(f"not served within {_WITHIN:.0f} s: {', '.join(sorted(waiting))}")
        if waiting:
            pause(0.05)


def _collections(definition: dict[str, Any]) -> set[str]:
    """Paths of the lists of a definition's objects over all namespaces."""
    spec = definition["spec"]
    served = [version["name"] for version in spec["versions"] if version["served"]]
    return {f"/apis/{spec['group']}/{version}/{spec['names']['plural']}" for version in served}


def _definitions(files: Iterable[Path]) -> list[dict[str, Any]]:
    return [document for file in files for document in _documents(file)]


def _documents(file: Path) -> list[dict[str, Any]]:
    return [each for each in documents(file) if each.get("kind") == "CustomResourceDefinition"]


def documents(file: Path) -> list[dict[str, Any]]:
    """The documents of a YAML file, without empty ones. Raises ClusterError if it is not YAML."""
    try:
        parsed = deepcopy(_parsed(file.read_text()))
    except yaml.YAMLError as error:
        raise ClusterError(f"{file} is not YAML: {error}") from error
    return [each for each in parsed if each]


@cache
def _parsed(text: str) -> list[Any]:
    """The parsed documents, cached: a simulation starts in less time than YAML takes to read."""
    return list(yaml.safe_load_all(text))


def message(answer: bytes) -> str:
    """The API server's message in an error answer."""
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        return answer.decode(errors="replace")
