"""Score: a pod prefers nodes with certain labels, but does not require them.

    metadata: {annotations: {escher.dev/prefer-nodes: "disk=ssd, zone=a"}}

The more of the labels a node has, the better. An item may be a key alone: then any value matches.
"""

from __future__ import annotations

import re

from extender.core.cluster import Pod
from extender.core.gang_ask import MalformedAsk
from extender.core.names import DOMAIN
from extender.core.policy import Facts, Scorer
from extender.filters.asks import malformed
from extender.kube.names import NodeName

PREFER = f"{DOMAIN}/prefer-nodes"
_PART = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL = re.compile(rf"((?:[-a-z0-9.]{{1,253}}/)?{_PART})(?:=((?:{_PART})?))?")


class Preference:
    name = "preference"

    def malformed(self, pod: Pod) -> MalformedAsk | None:
        value = pod.annotations.get(PREFER)
        if value is None or all(_LABEL.fullmatch(label.strip()) for label in value.split(",")):
            return None
        return malformed(PREFER, value, "node labels, separated by commas", "disk=ssd, zone=a")

    def score(self, pod: Pod, facts: Facts) -> Scorer | None:
        value = pod.annotations.get(PREFER)
        if value is None:
            return None
        matches = [match for label in value.split(",") if (match := _LABEL.fullmatch(label.strip()))]
        wanted = [(match[1], match[2]) for match in matches]

        def score(name: NodeName) -> float:
            labels = facts.nodes[name].labels if name in facts.nodes else {}
            met = sum(key in labels and expected in (None, labels[key]) for key, expected in wanted)
            return met / max(1, len(wanted))

        return score
