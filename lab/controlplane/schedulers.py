"""The configuration files in scheduler-config/, adapted to a cluster of the cluster tool.

The files are used as shipped, so every end-to-end test finds a mistake in them. Only these settings differ: kubeconfig,
the extender's address, no leader election (one replica), and an added profile for pods that name no scheduler.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from extender.shipped import places
from extender.shipped.errors import ClusterError, WrongUse


def extender_scheduler(*, kubeconfig: Path | None, service_url: str) -> dict[str, Any]:
    """Configuration with the extender: profiles `escher` and `escher-ledger`."""
    config = localised(load(places.shipped("scheduler-config") / "escher.yaml"), kubeconfig=kubeconfig)
    for extender in config["extenders"]:
        extender["urlPrefix"] = f"{service_url}/scheduler"
    return config


def resources_scheduler(*, kubeconfig: Path | None) -> dict[str, Any]:
    """Configuration without extender: profiles `escher-resources` and `default-scheduler`."""
    shipped = load(places.shipped("scheduler-config") / "escher-resources.yaml")
    # No other scheduler serves it here. The shipped file lacks this profile, because a user's cluster has its own
    # scheduler.
    shipped["profiles"].append({"schedulerName": "default-scheduler"})
    return localised(shipped, kubeconfig=kubeconfig)


def brought_scheduler(name: str, *, kubeconfig: Path, config_file: Path | None) -> dict[str, Any]:
    """Configuration of a user's scheduler: the user's file, or only one profile called `name`."""
    if config_file is not None:
        return localised(load(config_file), kubeconfig=kubeconfig)
    bare: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        # As in the shipped files, so that a comparison does not measure the client's limits.
        "clientConnection": {"qps": 1000, "burst": 1000},
        "profiles": [{"schedulerName": name}],
    }
    return localised(bare, kubeconfig=kubeconfig)


def for_every_pod(config: dict[str, Any]) -> dict[str, Any]:
    """The result of `extender_scheduler`, changed to call all verbs for every, unmarked, pod."""
    first, second = config["extenders"]
    more = {name: second[name] for name in ("prioritizeVerb", "bindVerb", "weight")}
    return {**config, "extenders": [{**first, **more, "filterVerb": "filter"}]}


def without_sampling(config: dict[str, Any]) -> dict[str, Any]:
    """The same configuration, but all profiles check every node and score all feasible ones."""
    everything = {"percentageOfNodesToScore": 100}
    profiles = [{**each, **everything} for each in config.get("profiles") or []]
    return {**config, **everything, **({"profiles": profiles} if profiles else {})}


def check_brought(name: str, program: Path) -> None:
    """Raises WrongUse if `program` is not an executable file."""
    if not (program.is_file() and os.access(program, os.X_OK)):
        raise WrongUse(f"--scheduler-binary {name}={program}: no executable file is there")


def load(path: Path) -> dict[str, Any]:
    """The parsed file. Raises WrongUse for other content, ClusterError if it is unreadable."""
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
    """The same configuration, one replica, with this kubeconfig (None: none is needed)."""
    connection = {**config.get("clientConnection", {}), "kubeconfig": str(kubeconfig or "")}
    return {**config, "clientConnection": connection, "leaderElection": {"leaderElect": False}}
