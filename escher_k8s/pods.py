"""Pods as callers write them: dicts in Kubernetes' spelling, or models of the `kubernetes` package.

A model is recognised by its attributes, and classes are taken from its own package: nothing is imported.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

P = TypeVar("P")
Manifest = dict[str, Any]


def changed(pod: P, wanted: Manifest) -> P:
    """A copy of the pod with the `wanted` labels, annotations, scheduler, gates and resources."""
    if isinstance(pod, Mapping):
        return wanted  # type: ignore[return-value]  # made from it
    model: Any = copy.deepcopy(pod)
    classes = sys.modules[type(model).__module__.rpartition(".")[0]]
    if model.metadata is None:
        model.metadata = classes.V1ObjectMeta()
    model.metadata.labels = wanted["metadata"]["labels"]
    model.metadata.annotations = wanted["metadata"]["annotations"]
    spec = wanted["spec"]
    model.spec.scheduler_name = spec.get("schedulerName")
    if gates := spec.get("schedulingGates"):
        model.spec.scheduling_gates = [classes.V1PodSchedulingGate(name=gate["name"]) for gate in gates]
    for name in ("containers", "initContainers"):
        there = model.spec.containers if name == "containers" else model.spec.init_containers
        for container, said in zip(there or [], spec.get(name) or [], strict=True):
            if "resources" in said:
                if container.resources is None:
                    container.resources = classes.V1ResourceRequirements()
                container.resources.requests = said["resources"].get("requests")
                container.resources.limits = said["resources"].get("limits")
    return model  # type: ignore[no-any-return]


def is_model(value: object) -> bool:
    return isinstance(getattr(value, "openapi_types", None), dict) and hasattr(value, "attribute_map")


def spelt(value: Any) -> Any:
    """A model in Kubernetes' spelling, without None values; dicts and lists are copied."""
    if is_model(value):
        named = ((key, getattr(value, attribute)) for attribute, key in value.attribute_map.items())
        return {key: spelt(each) for key, each in named if each is not None}
    if isinstance(value, list | tuple):
        return [spelt(each) for each in value]
    if isinstance(value, Mapping):
        return {key: spelt(each) for key, each in value.items()}
    return value
