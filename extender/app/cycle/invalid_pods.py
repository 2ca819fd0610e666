"""Misunderstood: pods that are turned away for what they ask, which cannot be understood or not be had that way.

Nothing wakes one but its PodGroup, or the brake. Must not know where a pod may go.
"""

from __future__ import annotations

from dataclasses import replace

from extender.app.cache.cache import Cache
from extender.app.contracts.effects import AskRefused, Effect
from extender.core.bounded import Bounded
from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk, MalformedAsk
from extender.core.gangs.state.gang import WakePod
from extender.core.gangs.state.pod_groups import PodGroups
from extender.core.names import MANAGED
from extender.kube.names import PodUid

_MARK_IT = f"apply deploy/policies/mark-pods.yaml, which has new pods ask for {MANAGED}, and make the pod anew"
_REMEMBERED = 16_384


class InvalidPods:
    """`effects`: what is to be done is added there."""

    def __init__(self, cache: Cache, groups: PodGroups, effects: list[Effect]) -> None:
        self._cache = cache
        self._groups = groups
        self._effects = effects
        self._misread: Bounded[PodUid, None] = Bounded(_REMEMBERED)
        """All of them."""
        self.left_out: dict[PodUid, MalformedAsk] = {}
        """Those that need us to bind them, and that kube-scheduler would bind without us; and what they are told."""

    def refuse(self, pod: Pod, ask: MalformedAsk) -> None:
        """It is turned away for what it asks: nothing wakes it but its group, or the brake."""
        self.add(pod)
        self._effects.append(AskRefused(pod, ask))

    def add(self, pod: Pod) -> None:
        """It was turned away for that, and has been told."""
        self._groups.turned_away(pod)
        self._misread[pod.uid] = None

    def is_understood(self, uid: PodUid) -> None:
        """What the pod asks makes sense by now."""
        if uid in self._misread:
            del self._misread[uid]

    def end(self, uid: PodUid) -> None:
        """Nothing is to be done about it any more."""
        self.left_out.pop(uid, None)
        self._misread.pop(uid, None)

    def heed_brake(self) -> None:
        """Nobody is turned away for what it asks where nobody is refused."""
        for uid in list(self._misread):
            pod = self._cache.pods.get(uid)
            if pod is not None and self._cache.brake.observes(pod.namespace):
                del self._misread[uid]
                if pod.node is None:
                    self._effects.append(WakePod(pod))

    # -- who would be bound without us ---------------------------------------------------------------------------

    def leave_out(self, pod: Pod, reason: str) -> None:
        """The pod needs us to bind it, and kube-scheduler would do so itself: it is turned away, and its gang does not
        count on it. Only the brake wakes it."""
        cache = self._cache
        self._misread[pod.uid] = None
        ask = self.left_out[pod.uid] = MalformedAsk("spec.containers", MANAGED, reason, _MARK_IT)
        known = cache.pods.get(pod.uid)
        if known is not None and isinstance(known.gang, GangAsk):
            cache.keep(known := replace(known, gang=ask))
            cache.policies.following.observe(known, cache.clock.steady())

    def take_back_in(self, pod: Pod) -> None:
        """kube-scheduler asks as one that has us bind the pod, or that need not."""
        if self.left_out.pop(pod.uid, None) is not None and (known := self._cache.pods.get(pod.uid)) is not None:
            self._cache.keep(replace(known, gang=pod.gang))
