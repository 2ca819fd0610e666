"""A ghost as Kubernetes' JSON spells it. Knows the one spelling of a pod that this takes, and no way to send it."""

from __future__ import annotations

from typing import Any, Protocol

from extender.esl.base import Ghost
from extender.esl.departed import GHOST_LABEL, INSTANCE_LABEL, KEY_LABEL, RUN_LABEL

PAUSE_IMAGE = "registry.k8s.io/pause:3.10"

_NOBODY = 65535


class Owner(Protocol):
    """A pod with whose deletion Kubernetes deletes the ghost."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


def ghost_manifest(ghost: Ghost, owner: Owner | None = None, instance: str = "") -> dict[str, Any]:
    """The pod: it does nothing, may do nothing, and is gone at once when it is deleted.

    It is let in where the namespace enforces the Pod Security Standard `restricted`. Limits are as the requests, so
    that neither a limit range's default is below what it holds nor a quota of limits misses any.
    """
    labels = {GHOST_LABEL: ghost.group}
    labels |= {INSTANCE_LABEL: instance} if instance else {}
    labels |= {RUN_LABEL: ghost.run, KEY_LABEL: ghost.key.partition("/")[2]} if ghost.run else {}
    metadata: dict[str, Any] = {"name": ghost.name, "namespace": ghost.namespace, "labels": labels}
    if owner is not None:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            **ghost.placement,
            "schedulerName": ghost.scheduler,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _NOBODY,
                "runAsGroup": _NOBODY,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "ghost",
                    "image": PAUSE_IMAGE,
                    "resources": {"requests": dict(ghost.requests), "limits": dict(ghost.requests)},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
