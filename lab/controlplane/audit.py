"""The audit log of a cluster's API server: what kube-apiserver is told to write, and where it is.

One JSON object a line (audit.k8s.io/v1). Who ends a pod or binds one is told with all that was sent; so are the
service's own Events. Other changes are told without, and reading not at all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.controlplane.credentials import SERVICE

_EVENTS = [{"group": "", "resources": ["events"]}, {"group": "events.k8s.io", "resources": ["events"]}]
_POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # An API server that is killed has told what it was asked, though not what came of it.
    "omitStages": ["ResponseStarted"],
    "omitManagedFields": True,
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "None", "resources": [{"group": "coordination.k8s.io"}]},
        {
            "level": "RequestResponse",
            "verbs": ["create"],
            "resources": [{"group": "", "resources": ["pods/eviction", "pods/binding"]}],
        },
        {"level": "RequestResponse", "verbs": ["delete"], "resources": [{"group": "", "resources": ["pods"]}]},
        {"level": "Request", "verbs": ["deletecollection"], "resources": [{"group": "", "resources": ["pods"]}]},
        {
            "level": "Request",
            "users": [SERVICE],
            "verbs": ["create"],
            "resources": _EVENTS,
            "omitStages": ["RequestReceived"],
        },
        {"level": "None", "resources": _EVENTS},
        {"level": "Metadata", "omitStages": ["RequestReceived"]},
    ],
}
_LARGEST_MEGABYTES = 1 << 20
"""It is never cut: who reads it reads on from where he was."""


def log_of(folder: Path) -> Path:
    """Where the cluster in that folder writes its audit log: beside the logs of its components."""
    return folder / "logs" / "audit.log"


def arguments(folder: Path) -> tuple[str, ...]:
    """kube-apiserver's; its policy is in the cluster's folder."""
    policy = folder / "audit-policy.json"
    policy.write_text(json.dumps(_POLICY, indent=2))
    return (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log_of(folder)}",
        f"--audit-log-maxsize={_LARGEST_MEGABYTES}",
    )
