"""The node lifecycle controller, for cordons only: adds and removes a cordoned node's taint."""

from __future__ import annotations

from extender.kube.client.requests import MERGE_PATCH
from kubesim.apiserver.machinery.store import Change
from kubesim.controllers.controller import Controller
from kubesim.kinds import NODE, Json

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


class NodeLifecycle(Controller):
    kinds = (NODE,)

    def hear(self, change: Change) -> None:
        node = change.object
        if change.type == "DELETED" or _is_cordoned(node) == _is_tainted(node):
            return
        self.start(self._set_taint(node))

    async def _set_taint(self, node: Json) -> None:
        taints = [each for each in (node.get("spec") or {}).get("taints") or () if each["key"] != UNSCHEDULABLE]
        if _is_cordoned(node):
            taints.append({"key": UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": self._clock.stamp()})
        await self.patch(NODE, node, {"spec": {"taints": taints or None}}, content_type=MERGE_PATCH)


def _is_cordoned(node: Json) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


def _is_tainted(node: Json) -> bool:
    return any(each["key"] == UNSCHEDULABLE for each in (node.get("spec") or {}).get("taints") or ())
