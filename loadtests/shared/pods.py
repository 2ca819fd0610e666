"""Pods and gangs as tests and measurements create them in the API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXTENDER, LEDGER, PURE = "escher", "escher-ledger", "escher-resources"
"""Scheduler profiles: with the extender, with its ledger only, and without the extender."""
OURS = (EXTENDER, LEDGER)
"""Profiles that call the service. Without it an ESL makes the gang, not a pod's annotation."""
PROFILES = (*OURS, PURE)
Json = dict[str, Any]


def pod(
    name: str,
    scheduler: str = EXTENDER,
    *,
    gang: str | None = None,
    quorum: int | str | None = None,
    run_seconds: float | None = None,
    timeout: int | None = None,
    selector: Mapping[str, str] | None = None,
    priority_class: str | None = None,
    gated: bool = False,
    grace: int = 0,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **asks: str | int,
) -> Json:
    """Returns a pod of one container. `gated`: with Escher's scheduling gate.

    `grace`: seconds to end; 0: its end is not visible. `asks`: cpu (default 1), memory ...; others by `**{"a.b/c": 1}`.
    """
    said = {
        **(annotations or {}),
        "escher.dev/gang-min-member": quorum,
        "escher.dev/run-seconds": run_seconds,
        "escher.dev/gang-timeout-seconds": timeout,
    }
    resources = {key: str(units) for key, units in {"cpu": "1", **asks}.items()}
    extended = {key: units for key, units in resources.items() if "/" in key}
    spec: Json = {
        "schedulerName": scheduler,
        "terminationGracePeriodSeconds": grace,
        "nodeSelector": dict(selector or {}),
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none", "resources": {"requests": resources, "limits": extended}}],
    }
    if gated:
        spec["schedulingGates"] = [{"name": "escher.dev/gang"}]
    if priority_class is not None:
        spec["priorityClassName"] = priority_class
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**(labels or {}), **({} if gang is None else {"escher.dev/gang": gang})},
            "annotations": {key: str(value) for key, value in said.items() if value is not None},
        },
        "spec": spec,
    }


def daemon_set(name: str, **spec: Any) -> Json:
    labels = {"of": name}
    containers = [{"name": "main", "image": "none"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers, **spec}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def disruption_budget(name: str, labels: Mapping[str, str], **spec: Any) -> Json:
    said = {**spec, "selector": {"matchLabels": dict(labels)}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": said}
