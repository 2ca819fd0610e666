"""The audit log of a cluster's API server: its policy, its path, and kube-apiserver's arguments.

The log has one JSON object a line (audit.k8s.io/v1). Requests that end or bind a pod are logged with their bodies; so
are the service's own Events. Other changes are logged without bodies. Reads are not logged.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.controlplane.processes.credentials import SERVICE

_EVENTS = [{"group": "", "resources": ["events"]}, {"group": "events.k8s.io", "resources": ["events"]}]
_POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # `RequestReceived` stays: if the API server is killed, the log has the request, though not its result.
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
"""The log is never rotated, because its readers continue from their last offset."""


def log_of(folder: Path) -> Path:
    """The audit log of the cluster in `folder`: it is beside the logs of the components."""
    return folder / "logs" / "audit.log"


def arguments(folder: Path) -> tuple[str, ...]:
    """Writes the audit policy into the cluster's folder and returns kube-apiserver's arguments."""
    policy = folder / "audit-policy.json"
    policy.write_text(json.dumps(_POLICY, indent=2))
    return (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log_of(folder)}",
        f"--audit-log-maxsize={_LARGEST_MEGABYTES}",
    )
