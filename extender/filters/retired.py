"""Refuses pods with an annotation that Escher reads no more: else such pods could run side by side."""

from __future__ import annotations

from extender.core.cluster import Pod
from extender.core.gang_ask import MalformedAsk
from extender.core.names import DOMAIN
from extender.core.policies.policy_matching import POLICY

GROUP = f"{DOMAIN}/anti-affinity-group"
_REMEDY = f"create an EscherPolicy of type anti-affinity, and name it: annotation {POLICY}; then remove {GROUP}"


class Retired:
    name = "retired"

    def malformed(self, pod: Pod) -> MalformedAsk | None:
        if GROUP not in pod.annotations:
            return None
        said = f"annotation {GROUP} is not read any more: an EscherPolicy of type anti-affinity keeps pods apart"
        return MalformedAsk(GROUP, pod.annotations[GROUP], said, _REMEDY)
