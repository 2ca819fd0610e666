"""Own node: finds the node on which the caller runs, for a `node_spec` of None. Nothing is guessed.

In this order: what the client was given, or $ESCHER_NODE (checked before); $NODE_NAME; the node where the service sees
the caller's pod. The pod is named by $POD_NAME, else by $HOSTNAME; its namespace by $POD_NAMESPACE, else by the files
of the service account. Outside a pod the node is unknown.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from escher_k8s.answers import Explanation
from escher_k8s.errors import EscherError, NotFound

Q = TypeVar("Q")
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
SNIPPET = """\
env:
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}"""


class OwnNodeUnknown(EscherError):
    """The caller's pod does not know its node: the text shows what to add to its manifest."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}; name a node, or add this to the pod's container:\n{SNIPPET}")


@dataclass(frozen=True, slots=True)
class OwnPod:
    """The caller's pod, as its environment names it."""

    namespace: str
    name: str
    said_by: str


def own_pod(environment: Mapping[str, str], namespace_file: Path) -> OwnPod | str | None:
    """The caller's pod, or its node's name; None: no pod. Raises OwnNodeUnknown if unclear."""
    if node := environment.get("NODE_NAME"):
        return node
    namespace = environment.get("POD_NAMESPACE") or _read(namespace_file)
    if not namespace:
        if environment.get("KUBERNETES_SERVICE_HOST"):
            raise OwnNodeUnknown("this pod's namespace is not known: it has no service account files")
        return None
    for variable in ("POD_NAME", "HOSTNAME"):
        if name := environment.get(variable):
            return OwnPod(namespace, name, f"${variable}")
    raise OwnNodeUnknown("this pod's name is not known: neither $POD_NAME nor $HOSTNAME is set")


def node_of(pod: OwnPod, asked: Generator[Q, bytes, Explanation]) -> Generator[Q, bytes, str]:
    """The node where the service, `asked` about the pod, sees it. Raises OwnNodeUnknown."""
    try:
        found = yield from asked
    except NotFound:
        why = f"{pod.said_by} is {pod.name!r}, and the service knows no such pod in namespace {pod.namespace!r}"
        raise OwnNodeUnknown(why) from None
    if found.node is None:
        raise OwnNodeUnknown(f"the service does not know where pod {pod.namespace}/{pod.name} is bound")
    return found.node


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
