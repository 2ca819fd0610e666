"""Installs the admission policy that marks pods that need Escher, before any pods are created."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable
from typing import Any

from extender.core.names import DOMAIN, MANAGED
from extender.shipped import crds, loopback, places
from extender.shipped.errors import ClusterError

_COLLECTIONS = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}
_WITHIN = 30.0


def shipped_policy() -> list[dict[str, Any]]:
    """deploy/policies/mark-pods.yaml: the policy and its binding."""
    return crds.documents(places.shipped("deploy") / "policies" / "mark-pods.yaml")


def apply(url: str, *, api: str, trust: ssl.SSLContext, token: str) -> None:
    """Creates the policy as of the group and version `api`. Raises ClusterError if refused."""
    for each in shipped_policy():
        where, body = f"{url}/apis/{api}/{_COLLECTIONS[each['kind']]}", {**each, "apiVersion": api}
        status, answer = loopback.ask("POST", where, trust=trust, token=token, body=body)
        if status != 201:
            name = each["metadata"]["name"]
            raise ClusterError(f"the API server refuses the {each['kind']} {name}: {crds.message(answer)}")


def await_force(url: str, *, trust: ssl.SSLContext, token: str, pause: Callable[[float], object]) -> None:
    """Waits until a dry-run pod is marked. Raises ClusterError after `_WITHIN` seconds."""
    deadline = time.monotonic() + _WITHIN
    while not _marks(url, trust, token):
        if time.monotonic() > deadline:
            raise ClusterError(f"deploy/policies/mark-pods.yaml is not in force within {_WITHIN:.0f} s")
        pause(0.05)


def _marks(url: str, trust: ssl.SSLContext, token: str) -> bool:
    container = {"name": "main", "image": "none"}
    spec = {"schedulerName": "escher", "containers": [container]}
    tried = {"metadata": {"name": "escher-is-marked", "labels": {f"{DOMAIN}/tried": "true"}}, "spec": spec}
    path = "/api/v1/namespaces/default/pods?dryRun=All"
    status, answer = loopback.ask("POST", url + path, trust=trust, token=token, body=tried)
    # The API server refuses the pod until the namespace exists.
    return status == 201 and MANAGED in json.loads(answer)["spec"]["containers"][0]["resources"].get("requests", {})
