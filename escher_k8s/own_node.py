"""Own node: what tells on which node the caller runs, for a `node_spec` of None. Nothing is guessed.

In this order: what the client was given, or $ESCHER_NODE (before this is asked); $NODE_NAME; where the service sees
the pod named by $POD_NAME, else by $HOSTNAME, of the namespace in $POD_NAMESPACE, else in the files of the service
account. Outside a pod nothing tells. Must not know requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from escher_k8s.errors import EscherError

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
SNIPPET = """\
env:
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}"""


class OwnNodeUnknown(EscherError):
    """The caller runs in a pod, and nothing says on which node that is: see what to add to its manifest."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; name a node, or have the pod be told its own by what its container says:\n{SNIPPET}")


@dataclass(frozen=True, slots=True)
class OwnPod:
    """The caller's pod, as its surroundings name it."""

    namespace: str
    name: str
    said_by: str


def own_pod(environment: Mapping[str, str], namespace_file: Path) -> OwnPod | str | None:
    """The caller's pod, or the node's name where that is said; None: the caller runs in no pod. Raises OwnNodeUnknown
    where it does, and its name is not known."""
    if node := environment.get("NODE_NAME"):
        return node
    namespace = environment.get("POD_NAMESPACE") or _read(namespace_file)
    if not namespace:
        if environment.get("KUBERNETES_SERVICE_HOST"):
            raise OwnNodeUnknown("this pod's namespace is not known: it has no files of a service account")
        return None
    for variable in ("POD_NAME", "HOSTNAME"):
        if name := environment.get(variable):
            return OwnPod(namespace, name, f"${variable}")
    raise OwnNodeUnknown("this pod's name is not known: neither $POD_NAME nor $HOSTNAME is set")


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
