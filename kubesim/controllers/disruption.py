"""The disruption controller: writes how many pods of each PodDisruptionBudget may be evicted.

It counts pods by the budget's selector. The expected number is that of existing pods, not their controllers' wish: a
percentage is of the pods that exist.
"""

from __future__ import annotations

from typing import Any

from kubesim.apiserver.machinery.selectors import of_label_selector
from kubesim.apiserver.machinery.store import Change
from kubesim.controllers.controller import Controller
from kubesim.kinds import DISRUPTION_BUDGET, POD, Json

_SOON = 0.01


class Disruption(Controller):
    kinds = (DISRUPTION_BUDGET, POD)

    def hear(self, change: Change) -> None:
        metadata = change.object["metadata"]
        if change.kind is DISRUPTION_BUDGET:
            if change.type != "DELETED":
                self._soon(metadata["namespace"], metadata["name"])
            return
        for budget in self.known(DISRUPTION_BUDGET, metadata["namespace"]):
            self._soon(metadata["namespace"], budget["metadata"]["name"])

    def _soon(self, namespace: str, name: str) -> None:
        self.later(f"{namespace}/{name}", _SOON, lambda: self._tell(namespace, name))

    async def _tell(self, namespace: str, name: str) -> None:
        budget = self._store.get(DISRUPTION_BUDGET, namespace, name)
        if budget is None:
            return
        selects = of_label_selector(budget["spec"].get("selector"))
        living = (pod for pod in self.known(POD, namespace) if _counts(pod))
        pods = [pod for pod in living if selects(pod["metadata"].get("labels") or {})]
        healthy = sum(_is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods)
        desired = _desired(budget["spec"], len(pods))
        allowed = max(0, healthy - desired)
        now = self._clock.stamp()
        status: Json = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": len(pods),
            "observedGeneration": budget["metadata"].get("generation", 1),
        }
        before = budget.get("status") or {}
        if all(before.get(key) == value for key, value in status.items()):
            return
        reason = ("SufficientPods", "True") if allowed else ("InsufficientPods", "False")
        condition = {"type": "DisruptionAllowed", "reason": reason[0], "status": reason[1], "message": ""}
        status["conditions"] = [{**condition, "lastTransitionTime": now, "observedGeneration": 1}]
        await self.patch(DISRUPTION_BUDGET, budget, {"status": status}, subresource="status")


def _desired(spec: Json, expected: int) -> int:
    """How many pods must stay healthy."""
    if (most := spec.get("maxUnavailable")) is not None:
        return max(0, expected - _scaled(most, expected))
    return _scaled(spec.get("minAvailable", 0), expected)


def _scaled(number: Any, of: int) -> int:
    """A number, or a percentage of `of`, rounded up."""
    if isinstance(number, str):
        return -(-int(number.removesuffix("%")) * of // 100)
    return int(number)


def _counts(pod: Json) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def _is_ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
