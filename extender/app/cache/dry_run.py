"""Dry run: what would have been refused where the safety switch forbids refusals.

It asks the same rules as the `Scheduler`, and holds nothing: if no pod is refused, what is held for one pod is only
missing for another. The answer for a gang is worked out again after a while, not for each of its members.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.app.policies import Policies
from extender.core.cluster import Pod
from extender.core.common.bounded import Bounded
from extender.core.gang_ask import GangAsk, MalformedAsk
from extender.core.names import GangKey
from extender.core.safety_switches import Act, Withheld
from extender.kube.names import NodeName

HOLDS_GOOD = 5.0
"""Seconds for which the answer for a gang is used again."""
_GANGS_REMEMBERED = 1024


class DryRun:
    def __init__(self, policies: Policies) -> None:
        self._policies = policies
        self._said: Bounded[GangKey, tuple[float, str]] = Bounded(_GANGS_REMEMBERED)

    def filtered(self, pod: Pod, sent: Sequence[NodeName], now: float) -> list[Withheld]:
        """The pod may go to any of the nodes; returns what would have been refused."""
        why = self.would_refuse(pod, sent, now)
        gang = pod.gang.key if isinstance(pod.gang, GangAsk) else None
        return [Withheld(Act.REFUSE, pod.namespace, gang, (str(pod), why))] if why else []

    def overfull(self, pod: Pod, node: NodeName) -> Withheld:
        """The pod is bound to a node that has no room for it, as far as Escher knows."""
        return Withheld(Act.REFUSE, pod.namespace, None, (str(pod), f"does not fit on {node}"))

    def would_refuse(self, pod: Pod, sent: Sequence[NodeName], now: float) -> str:
        """Why the pod would be refused; empty if it would not be."""
        if isinstance(pod.gang, MalformedAsk):
            return pod.gang.reason
        if isinstance(pod.gang, GangAsk):
            return self._would_refuse_gang(pod.gang.key, pod, sent, now)
        verdict = self._policies.filter_score.verdict(pod, sent)
        if verdict.passed or not sent:
            return ""
        return next(iter((*verdict.rejected.values(), *verdict.unresolvable.values())))

    def _would_refuse_gang(self, key: GangKey, pod: Pod, sent: Sequence[NodeName], now: float) -> str:
        known = self._said.get(key)
        if known is not None and now < known[0]:
            return known[1]
        said = self._policies.reserve_permit.would_refuse(pod, sent)
        self._said[key] = (now + HOLDS_GOOD, said)
        return said
