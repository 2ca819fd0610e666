"""Writes a ghost as Kubernetes' JSON."""

from __future__ import annotations

from typing import Any, Protocol

from extender.esl.base import Ghost
from extender.esl.gangs.departed import GHOST_LABEL, INSTANCE_LABEL, KEY_LABEL, RUN_LABEL

PAUSE_IMAGE = "registry.k8s.io/pause:3.10"

_NOBODY = 65535


class Owner(Protocol):
    """The pod that owns the ghost: Kubernetes deletes the ghost with it."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


def ghost_manifest(ghost: Ghost, owner: Owner | None = None, instance: str = "") -> dict[str, Any]:
    """The pod: it does nothing, has no privileges, and ends at once when it is deleted.

    The Pod Security Standard `restricted` admits it. Limits equal the requests: a limit range's default never sets a
    limit below what the ghost holds, and a quota of limits misses none.
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
