"""Invalid pods: pods refused because their request is malformed or cannot be served in that way.

Only a change of its PodGroup or the safety switch wakes such a pod.
"""

from __future__ import annotations

from dataclasses import replace

from extender.app.cache.cache import Cache
from extender.app.contracts.effects import AskRefused, Effect
from extender.core.cluster import Pod
from extender.core.common.bounded import Bounded
from extender.core.gang_ask import GangAsk, MalformedAsk
from extender.core.gangs.state.gang import WakePod
from extender.core.gangs.state.pod_groups import PodGroups
from extender.core.names import MANAGED
from extender.kube.names import PodUid

_MARK_IT = f"apply deploy/policies/mark-pods.yaml, which adds {MANAGED} to new pods, and create the pod again"
_REMEMBERED = 16_384


class InvalidPods:
    """Keeps the refused pods. Adds what is to be done to `effects`."""

    def __init__(self, cache: Cache, groups: PodGroups, effects: list[Effect]) -> None:
        self._cache = cache
        self._groups = groups
        self._effects = effects
        self._misread: Bounded[PodUid, None] = Bounded(_REMEMBERED)
        """All refused pods."""
        self.left_out: dict[PodUid, MalformedAsk] = {}
        """Pods that need Escher's bind but would not get it, and the reason given to each."""

    def refuse(self, pod: Pod, ask: MalformedAsk) -> None:
        """Refuses the pod for what it asks; only its PodGroup or the safety switch wakes it."""
        self.add(pod)
        self._effects.append(AskRefused(pod, ask))

    def add(self, pod: Pod) -> None:
        """Notes that the pod was refused for this; its user has the reason already."""
        self._groups.turned_away(pod)
        self._misread[pod.uid] = None

    def is_understood(self, uid: PodUid) -> None:
        """What the pod asks is valid now."""
        if uid in self._misread:
            del self._misread[uid]

    def end(self, uid: PodUid) -> None:
        self.left_out.pop(uid, None)
        self._misread.pop(uid, None)

    def on_safety_switches(self) -> None:
        """Wakes the refused pods of namespaces where the safety switch now forbids refusals."""
        for uid in list(self._misread):
            pod = self._cache.pods.get(uid)
            if pod is not None and self._cache.safety_switches.observes(pod.namespace):
                del self._misread[uid]
                if pod.node is None:
                    self._effects.append(WakePod(pod))

    # -- pods that would be bound without Escher -----------------------------------------------------------------

    def leave_out(self, pod: Pod, reason: str) -> None:
        """Refuses a pod that needs Escher's bind, and that kube-scheduler would bind itself.

        Its gang does not count on it. Only the safety switch wakes it."""
        cache = self._cache
        self._misread[pod.uid] = None
        ask = self.left_out[pod.uid] = MalformedAsk("spec.containers", MANAGED, reason, _MARK_IT)
        known = cache.pods.get(pod.uid)
        if known is not None and isinstance(known.gang, GangAsk):
            cache.keep(known := replace(known, gang=ask))
            cache.policies.event_hooks.observe(known, cache.clock.steady())

    def take_back_in(self, pod: Pod) -> None:
        """kube-scheduler asks again, and now Escher binds the pod or need not."""
        if self.left_out.pop(pod.uid, None) is not None and (known := self._cache.pods.get(pod.uid)) is not None:
            self._cache.keep(replace(known, gang=pod.gang))
