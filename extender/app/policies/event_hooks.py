# mypy: disable-error-code="type-abstract"
"""Event hooks: dispatch facts, outcomes and time to policies, and collect their effects."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import chain

from extender.app.policies.fault_isolation import FaultIsolation, having
from extender.core.cluster import Node, Pod
from extender.core.common.timers import earliest
from extender.core.feedback import Feedback
from extender.core.gangs.state.gang import GangEffect
from extender.core.ledger.ledger import HoldingKind
from extender.core.policy import (
    Acts,
    CountsHeld,
    Facts,
    KeepsEnded,
    KeepsTime,
    Observes,
    Orders,
    OrdersAlike,
    Policy,
    RequeueHints,
)
from extender.kube.names import NodeName, PodUid

_NOTHING: Sequence[GangEffect] = ()
_NO_NODES: Sequence[NodeName] = ()
_NO_NAMESPACES: Collection[str] = ()


class EventHooks:
    def __init__(self, policies: Sequence[Policy], facts: Facts, containment: FaultIsolation) -> None:
        self._facts = facts
        self._contained = containment
        self._observes = having(Observes, policies)
        self._outlives = having(KeepsEnded, policies)
        self._acts = having(Acts, policies)
        self._only_observes = {name: policy for name, policy in self._observes.items() if name not in self._acts}
        self._stirs = having(RequeueHints, policies)
        self._orders = having(Orders, policies)
        self._orders_alike = having(OrdersAlike, policies)
        self._counts_held = having(CountsHeld, policies)
        self._keeps_time = having(KeepsTime, policies)

    # -- facts ---------------------------------------------------------------------------------------------------

    def observe(self, fact: Pod | Node, now: float) -> None:
        self._contained.call_each(self._observes, lambda policy: policy.observe(fact, now))

    def bound(self, pod: Pod, now: float) -> None:
        """The Binding is written, and no watch has reported it yet.

        Policies that act get it as feedback: what they know of the pod may be newer than this."""
        self._contained.call_each(self._only_observes, lambda policy: policy.observe(pod, now))

    def forget(self, fact: Pod | Node) -> None:
        self._contained.call_each(self._observes, lambda policy: policy.forget(fact))

    def finished(self, pod: Pod, now: float) -> None:
        self._contained.call_each(self._outlives, lambda policy: policy.finished(pod, now))

    def deleted(self, uid: PodUid, now: float) -> None:
        self._contained.call_each(self._outlives, lambda policy: policy.deleted(uid, now))

    # -- effects and what became of them -------------------------------------------------------------------------

    def take_effects(self) -> Iterator[GangEffect]:
        return chain.from_iterable(self._contained.ask_each(self._acts, lambda policy: policy.take_effects(), _NOTHING))

    def on_event(self, told: Feedback, now: float) -> None:
        self._contained.call_each(self._acts, lambda policy: policy.on_event(told, now))

    def take_requeue_hints(self) -> set[str]:
        """Namespaces whose matched pods may fit elsewhere now, though no node has gained room."""
        asked = self._contained.ask_each(self._stirs, lambda policy: policy.take_requeue_hints(), _NO_NAMESPACES)
        return {namespace for taken in asked if taken for namespace in taken}

    # -- order and time ------------------------------------------------------------------------------------------

    def on_held(self) -> None:
        """Tells the policies that count holdings what has changed of these."""
        ledger, pods = self._facts.ledger, self._facts.pods
        changed = ledger.changes.drain_holders()
        if changed is not None and not changed:
            return
        held: dict[PodUid, bool] = {}
        for uid in pods if changed is None else map(PodUid, changed):
            holding = ledger.holding(uid)
            if holding is None or holding.kind is HoldingKind.SAVING:
                held[uid] = False
            elif holding.kind is not HoldingKind.BOUND and uid in pods:
                held[uid] = True
        if held:
            self._contained.call_each(self._counts_held, lambda policy: policy.hold(held))

    def order_version(self) -> int:
        """A number that changes whenever `order` may answer otherwise than before."""
        self.on_held()
        return sum(self._contained.ask_each(self._orders, lambda policy: policy.order_version, 0))

    def order(self, members: Sequence[Pod]) -> tuple[float, ...]:
        """The gang's position in the queue of its priority: one number a policy, lower first."""
        return tuple(self._contained.ask_each(self._orders, lambda policy: policy.order(members, self._facts), 0.0))

    def order_alike(self, members: Sequence[Pod]) -> Hashable:
        """A value that gangs share if no policy tells them apart in `order`; None: not known."""
        if len(self._orders_alike) < len(self._orders):
            return None
        alike = tuple(self._contained.ask_each(self._orders_alike, lambda policy: policy.order_alike(members), None))
        return None if None in alike else alike

    def next_deadline(self) -> float | None:
        resting = self._contained.resting
        first = earliest(*resting.values())
        for name, policy in self._keeps_time.items():
            # As in `ask_each`: this is called after every event.
            try:
                when = policy.next_deadline()
            except Exception as defect:
                self._contained.met(name, defect)
                continue
            if when is not None and (first is None or when < first) and name not in resting:
                first = when
        return first

    def tick(self, now: float) -> Iterator[NodeName]:
        """Does what is due; returns the nodes that are worth another look."""
        resting = self._contained.resting
        for name in [name for name, until in resting.items() if until <= now]:
            del resting[name]
        ticked = self._contained.ask_each(self._keeps_time, lambda policy: policy.tick(now), _NO_NODES, now)
        return chain.from_iterable(ticked)
