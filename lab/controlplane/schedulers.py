"""The configuration files in scheduler-config/, made fit for a cluster of the cluster tool.

The files are used as shipped; only what depends on the place differs: kubeconfig, the extender's address, leader
election (one replica here), and that pods which name no scheduler are served too. So a mistake in them is found by
every end-to-end test.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from extender.shipped import places
from extender.shipped.errors import ClusterError, WrongUse


def extender_scheduler(*, kubeconfig: Path | None, service_url: str) -> dict[str, Any]:
    """Configuration of the kube-scheduler with the extender: profiles `escher` and `escher-ledger`."""
    config = localised(load(places.shipped("scheduler-config") / "escher.yaml"), kubeconfig=kubeconfig)
    for extender in config["extenders"]:
        extender["urlPrefix"] = f"{service_url}/scheduler"
    return config


def resources_scheduler(*, kubeconfig: Path | None) -> dict[str, Any]:
    """Configuration of the kube-scheduler that knows no extender: `escher-resources` and `default-scheduler`."""
    shipped = load(places.shipped("scheduler-config") / "escher-resources.yaml")
    # Nobody else serves it here. A user's cluster has its own scheduler, so that the file claims no such profile.
    shipped["profiles"].append({"schedulerName": "default-scheduler"})
    return localised(shipped, kubeconfig=kubeconfig)


def brought_scheduler(name: str, *, kubeconfig: Path, config_file: Path | None) -> dict[str, Any]:
    """Configuration of a scheduler that the user brings: his file, or one profile called `name` and no more."""
    if config_file is not None:
        return localised(load(config_file), kubeconfig=kubeconfig)
    bare: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        # As in the shipped files: the client's limits must not be what a comparison measures.
        "clientConnection": {"qps": 1000, "burst": 1000},
        "profiles": [{"schedulerName": name}],
    }
    return localised(bare, kubeconfig=kubeconfig)


def for_every_pod(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of `extender_scheduler` with one entry, which asks all verbs about every pod: as for a cluster
    whose API server does not mark pods."""
    first, second = config["extenders"]
    more = {name: second[name] for name in ("prioritizeVerb", "bindVerb", "weight")}
    return {**config, "extenders": [{**first, **more, "filterVerb": "filter"}]}


def without_sampling(config: dict[str, Any]) -> dict[str, Any]:
    """The same configuration, but all its profiles look at every node and score all that are feasible."""
    everything = {"percentageOfNodesToScore": 100}
    profiles = [{**each, **everything} for each in config.get("profiles") or []]
    return {**config, **everything, **({"profiles": profiles} if profiles else {})}


def check_brought(name: str, program: Path) -> None:
    """Raises WrongUse where that cannot be run."""
    if not (program.is_file() and os.access(program, os.X_OK)):
        raise WrongUse(f"--scheduler-binary {name}={program}: no executable file is there")


def load(path: Path) -> dict[str, Any]:
    """The parsed file, which must be a KubeSchedulerConfiguration."""
    try:
        parsed = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ClusterError(f"cannot read the scheduler configuration {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise WrongUse(f"{path} is not YAML: {error}") from error
    if not isinstance(parsed, dict) or parsed.get("kind") != "KubeSchedulerConfiguration":
        raise WrongUse(f"{path} holds no KubeSchedulerConfiguration")
    return parsed


def localised(config: dict[str, Any], *, kubeconfig: Path | None) -> dict[str, Any]:
    """The same configuration for one replica that reaches the cluster through `kubeconfig`; None: it needs none."""
    connection = {**config.get("clientConnection", {}), "kubeconfig": str(kubeconfig or "")}
    return {**config, "clientConnection": connection, "leaderElection": {"leaderElect": False}}
