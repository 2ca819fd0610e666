"""Pods as callers write them: dicts in Kubernetes' spelling, or models of the `kubernetes` package.

A model is told by what it has, and classes are taken from the package that it comes from: nothing is imported. Must not
know what is asked of a pod.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

P = TypeVar("P")
Manifest = dict[str, Any]


def manifest(pod: object) -> Manifest:
    """The pod, or pod template, as a dict in Kubernetes' spelling. Raises TypeError for anything else."""
    if isinstance(pod, Mapping):
        found = dict(pod)
    elif _is_model(pod):
        found = _spelt(pod)
    else:
        raise TypeError(
            f"a {type(pod).__name__} is no pod; give a dict in Kubernetes' spelling, or a V1Pod or V1PodTemplateSpec"
        )
    spec = found.get("spec")
    if not isinstance(spec, Mapping) or not spec.get("containers"):
        kind = found.get("kind") or type(pod).__name__
        raise TypeError(f"a {kind} without spec.containers is no pod; of a Job, give its spec.template")
    return found


def changed(pod: P, wanted: Manifest) -> P:
    """A copy of `pod` with the labels, annotations, scheduler, gates and resources of the manifest `wanted`."""
    if isinstance(pod, Mapping):
        return wanted  # type: ignore[return-value]  # made from it by `manifest`
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


def _is_model(value: object) -> bool:
    return isinstance(getattr(value, "openapi_types", None), dict) and hasattr(value, "attribute_map")


def _spelt(value: Any) -> Any:
    """A model as Kubernetes spells it, without what is None; anything else as it is."""
    if _is_model(value):
        named = ((key, getattr(value, attribute)) for attribute, key in value.attribute_map.items())
        return {key: _spelt(each) for key, each in named if each is not None}
    if isinstance(value, list | tuple):
        return [_spelt(each) for each in value]
    if isinstance(value, dict):
        return {key: _spelt(each) for key, each in value.items()}
    return value
