"""Binds: whether a pod may be bound to a node, and which units the ledger holds for it.

A bind that a node has no room for, or that a policy does not allow yet, waits: see `waiting_binds`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from extender.app.cache.assumed_pods import AssumedPods
from extender.app.cache.cache import Cache
from extender.app.cache.waiting_binds import OVERFULL, WAITS, WaitForRoom, WaitingBinds
from extender.app.contracts.effects import BindAnswered, Effect
from extender.core.cluster import Pod
from extender.core.feedback import Bound, NotBound
from extender.core.ledger.ledger import Holder, Holding, HoldingKind
from extender.core.policy import Allow, Permit, Refuse, Wait
from extender.kube.names import CPU, MEMORY, PODS, NodeName, PodUid

GONE = "the pod is deleted or has finished"
KNOWN_ANEW = "policies of the pod's namespace have changed and Escher is matching its pods: the pod is tried again"
PARTLY_KNOWN = "Escher is reading a list of all pods: the pod is tried again"


class Binds:
    """Decides binds. Adds what is to be done to `effects`."""

    def __init__(self, cache: Cache, assumed_pods: AssumedPods, effects: list[Effect]) -> None:
        self._cache = cache
        self._assumed_pods = assumed_pods
        self._effects = effects
        self.waiting_binds = WaitingBinds(self._claim)

    # -- permit --------------------------------------------------------------------------------------------------

    def permit(self, uid: PodUid, node: NodeName) -> Permit:
        """Whether the pod may be bound to the node now; if so, the ledger holds its units there."""
        if self._observes(uid):
            return self._let_bind(uid, node)
        permit = self._claim(uid, node)
        self._assumed_pods.ended(uid)
        if isinstance(permit, Refuse):
            # kube-scheduler counted the pod there until now, and may have offered the node to no other pod.
            self._cache.ledger.capacity.reconsider(node)
        elif isinstance(permit, Wait) and permit.until is not None:
            self.waiting_binds.wait(uid, node, permit)
        return permit

    def _observes(self, uid: PodUid) -> bool:
        pod = self._cache.pods.get(uid)
        return pod is not None and self._cache.safety_switches.observes(pod.namespace)

    def _let_bind(self, uid: PodUid, node: NodeName) -> Permit:
        """Allows the bind whatever the pod's gang says; holds the pod's units there if they fit."""
        cache = self._cache
        pod, held = cache.pods[uid], cache.ledger.holding(uid)
        self._assumed_pods.ended(uid)
        if held is not None and held.node == node and held.kind is HoldingKind.ASSUMPTION:
            cache.ledger.keep(uid, None)
        elif pod.node is None and not self.assume(pod, node, None):
            self._effects.append(cache.observing.overfull(pod, node))
        return Allow()

    def _claim(self, uid: PodUid, node: NodeName) -> Permit:
        cache = self._cache
        pod, now = cache.pods.get(uid), cache.clock.steady()
        if uid in cache.ended:
            return Refuse(GONE)
        if pod is None:
            # Escher has not seen the pod yet: kube-scheduler has matched it, and Escher can know nothing about it.
            return Allow()
        if pod.node is not None and pod.node == node:
            return Allow()
        if not cache.is_decided(pod) and self._is_judged(pod, node):
            return Wait(now + WAITS, KNOWN_ANEW if cache.whole else PARTLY_KNOWN)
        if not cache.policies.reserve_permit.owned(uid):
            claimed = self._claim_alone(pod, node, now)
            if not isinstance(claimed, Allow):
                return claimed
        permit = cache.policies.reserve_permit.permit(pod, node, now)
        if isinstance(permit, Refuse):
            self._let_go(uid)
        return permit

    def _is_judged(self, pod: Pod, node: NodeName) -> bool:
        """Whether the bind is judged: Escher's rules apply, or others hold unbound units there."""
        ledger = self._cache.ledger
        held = ledger.holding(pod.uid)
        return (node in ledger.totals.unbound_on and (held is None or held.node != node)) or self._cache.judges(pod)

    def _claim_alone(self, pod: Pod, node: NodeName, now: float) -> Permit:
        """As `permit`, for a pod that no policy owns."""
        uid, ledger = pod.uid, self._cache.ledger
        if pod.node is not None:
            return Refuse(f"the pod is already bound to {pod.node}")
        held = ledger.holding(uid)
        if held is not None and held.node == node:
            ledger.keep(uid, None)
            return Allow()
        refusal = self._cache.policies.filter_score.refusal(pod, node)
        if refusal is not None:
            return refusal
        if self.assume(pod, node, None):
            return Allow()
        if any(ledger.rows.free(node, resource) < pod.requests.get(resource, 0) for resource in (CPU, MEMORY, PODS)):
            return WaitForRoom(now + WAITS, OVERFULL)
        # kube-scheduler may be configured to ignore any other resource that is short.
        ledger.forget(uid)
        return Allow()

    def assume(self, pod: Pod, node: NodeName, until: float | None) -> bool:
        """Holds the pod's units on the node if they fit beside all that does not give way."""
        ledger = self._cache.ledger
        claim = Holding(Holder(pod.uid), node, pod.requests, HoldingKind.ASSUMPTION, until=until)
        giving_way: Sequence[Holder] = ()
        if ledger.rows.short(node, pod.requests, (pod.uid,)) is not None:
            giving_way = self._cache.policies.reserve_permit.gives_way(pod).get(node, ())
        if ledger.commit([claim], releasing=giving_way).conflicts:
            return False
        self._cache.policies.reserve_permit.on_held(pod, node)
        return True

    # -- outcome of a bind ---------------------------------------------------------------------------------------

    def bound(self, told: Bound) -> None:
        cache, uid, now = self._cache, told.pod, self._cache.clock.steady()
        known = cache.pods.get(uid)
        if known is not None:
            pod = replace(known, node=told.node, attempt=told.attempt or known.attempt)
            cache.keep(pod)
            cache.ledger.confirm(uid, on=told.node, units=pod.requests)
            cache.policies.event_hooks.bound(pod, now)

    def not_bound(self, told: NotBound) -> None:
        """Frees units unless the answer is lost: that try may arrive after later, answered ones."""
        held = self._cache.ledger.holding(told.pod)
        if told.surely or told.for_good or held is None or held.owner is not None:
            self._let_go(told.pod)
        else:
            self._cache.ledger.keep(told.pod, self._cache.clock.steady() + self._cache.rules.assume_seconds)

    def reconsider(self, uid: PodUid) -> None:
        """Frees what the pod's filter holds for it: bind judges the pod again."""
        held = self._cache.ledger.holding(uid)
        if held is not None and held.until is not None:
            self._let_go(uid)

    def _let_go(self, uid: PodUid) -> None:
        """Frees what is held for the pod, unless it is bound or the holding has an owner.

        An owner decides about its own holding, and about nothing that the pod held before."""
        held = self._cache.ledger.holding(uid)
        if held is not None and held.kind is not HoldingKind.BOUND and held.owner is None:
            self._cache.ledger.forget(uid)

    # -- waiting binds -------------------------------------------------------------------------------------------

    def on_change(self) -> None:
        """Asks the policies again about the binds that wait for them: something has changed."""
        self._answer(self.waiting_binds.on_change())

    def on_nodes(self, gains: Collection[NodeName]) -> None:
        """Asks again about the binds that wait for room on these nodes, which have gained room."""
        self._answer(self.waiting_binds.on_nodes(gains))

    def is_bound(self, uid: PodUid) -> None:
        """The watch reports that the pod is bound."""
        self._assumed_pods.ended(uid)
        self._answer(self.waiting_binds.on_pod(uid))

    def on_time(self, now: float) -> None:
        self._answer(self.waiting_binds.overdue(now))

    def on_safety_switches(self) -> None:
        """Allows each waiting bind where the safety switch now forbids refusals."""
        for uid in self.waiting_binds.waiting():
            if self._observes(uid):
                self._answer(self.waiting_binds.end(uid, ""))

    def end(self, uid: PodUid) -> None:
        """The pod is deleted or has finished."""
        self._assumed_pods.ended(uid)
        self._answer(self.waiting_binds.end(uid, GONE))

    def next_deadline(self) -> float | None:
        return self.waiting_binds.next_deadline()

    def _answer(self, answers: Iterable[BindAnswered]) -> None:
        for answer in answers:
            self._effects.append(answer)
            if answer.refusal:
                self._let_go(answer.pod)
                self._cache.ledger.capacity.reconsider(answer.node)
