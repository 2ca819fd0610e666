"""Writes a task's pod as Kubernetes' JSON: the application's template and the requirement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extender.esl.base import LaunchTask


def task_manifest(launch: LaunchTask, template: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the template (a pod, or a pod template), with the launch's name and requirement."""
    made = launch.requirement.attach(template)
    metadata = {key: value for key, value in made.pop("metadata").items() if key != "generateName"}
    return {
        **made,
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "name": launch.name, "namespace": launch.namespace},
    }


def is_its(launch: LaunchTask, labels: Mapping[str, str]) -> bool:
    """Whether a pod of that name with these labels is the one to be launched."""
    return all(labels.get(key) == value for key, value in launch.requirement.labels.items())
