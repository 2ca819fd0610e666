"""Paths: shipped configuration files, the binary cache, one folder per cluster.

Reads only XDG_CACHE_HOME and XDG_STATE_HOME from the environment; creates no folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from extender.shipped.errors import WrongUse

PACKAGE = Path(__file__).resolve().parent.parent
GO_MODULE = PACKAGE.parent / "lab" / "controlplane" / "go"

DEFAULT_NAME = "default"
"""The name of the cluster if the user gives none."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def shipped(folder: str) -> Path:
    """The folder `scheduler-config` or `deploy`, of the checkout or of an installed package."""
    checkout = PACKAGE.parent / folder
    return checkout if checkout.is_dir() else PACKAGE / "_shipped" / folder


def binary_cache() -> Path:
    return _xdg("XDG_CACHE_HOME", ".cache") / "escher" / "bin"


def clusters() -> Path:
    return _xdg("XDG_STATE_HOME", ".local/state") / "escher" / "clusters"


def cluster_folder(name: str) -> Path:
    """The cluster's folder. Raises WrongUse unless `name` is a DNS label (a kubeconfig context)."""
    if not _NAME.fullmatch(name):
        raise WrongUse(
            f"cluster name {name!r} is not usable: at most 63 lower-case letters, digits and '-', "
            "beginning and ending with a letter or digit"
        )
    return clusters() / name


def named(name: str) -> str:
    """The option that selects this cluster in `escher cluster`: nothing, or ` --name NAME`."""
    return "" if name == DEFAULT_NAME else f" --name {name}"


def _xdg(variable: str, default: str) -> Path:
    # The XDG specification: a relative path is ignored, as if the variable were not set.
    chosen = Path(os.environ.get(variable, ""))
    return chosen if chosen.is_absolute() else Path.home() / default
