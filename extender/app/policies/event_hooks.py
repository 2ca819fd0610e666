# mypy: disable-error-code="type-abstract"
"""Event hooks: dispatch facts, outcomes and time to policies, and collect their effects."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import cast

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
        self.count = 0
        """Grows with each fact, outcome and tick."""
        observes, acts = having(Observes, policies), having(Acts, policies)
        self._observe = [(name, each.observe) for name, each in observes.items()]
        self._observe_only = [(name, observe) for name, observe in self._observe if name not in acts]
        self._forget = [(name, each.forget) for name, each in observes.items()]
        outlives = having(KeepsEnded, policies)
        self._finished = [(name, each.finished) for name, each in outlives.items()]
        self._deleted = [(name, each.deleted) for name, each in outlives.items()]
        self._take_effects = [(name, each.take_effects) for name, each in acts.items()]
        self._on_event = [(name, each.on_event) for name, each in acts.items()]
        hints = having(RequeueHints, policies)
        self._take_requeue_hints = [(name, each.take_requeue_hints) for name, each in hints.items()]
        orders = having(Orders, policies)
        self._order = [(name, each.order) for name, each in orders.items()]
        self._order_versions = [(name, partial(getattr, each, "order_version")) for name, each in orders.items()]
        self._order_alike = [(name, each.order_alike) for name, each in having(OrdersAlike, policies).items()]
        self._hold = [(name, each.hold) for name, each in having(CountsHeld, policies).items()]
        self._keeps_time = having(KeepsTime, policies)
        self._tick = [(name, each.tick) for name, each in self._keeps_time.items()]

    # -- facts ---------------------------------------------------------------------------------------------------

    def observe(self, fact: Pod | Node, now: float) -> None:
        self.count += 1
        self._contained.call_each(self._observe, fact, now)

    def bound(self, pod: Pod, now: float) -> None:
        """The Binding is written, and no watch has reported it yet.

        Policies that act get it as feedback: what they know of the pod may be newer than this."""
        self.count += 1
        self._contained.call_each(self._observe_only, pod, now)

    def forget(self, fact: Pod | Node) -> None:
        self.count += 1
        self._contained.call_each(self._forget, fact)

    def finished(self, pod: Pod, now: float) -> None:
        self.count += 1
        self._contained.call_each(self._finished, pod, now)

    def deleted(self, uid: PodUid, now: float) -> None:
        self.count += 1
        self._contained.call_each(self._deleted, uid, now)

    # -- effects and what became of them -------------------------------------------------------------------------

    def take_effects(self) -> Iterable[GangEffect]:
        return chain.from_iterable(self._contained.ask_each(self._take_effects, _NOTHING))

    def on_event(self, told: Feedback, now: float) -> None:
        self.count += 1
        self._contained.call_each(self._on_event, told, now)

    def take_requeue_hints(self) -> Collection[str]:
        """Namespaces whose matched pods may fit elsewhere now, though no node has gained room."""
        return set().union(*filter(None, self._contained.ask_each(self._take_requeue_hints, _NO_NAMESPACES)))

    # -- order and time ------------------------------------------------------------------------------------------

    def on_held(self) -> None:
        """Tells the policies that count holdings what has changed of these."""
        ledger, pods = self._facts.ledger, self._facts.pods
        changed = ledger.changes.drain_holders()
        if changed is not None and not changed:
            return
        held: dict[PodUid, bool] = {}
        saving, bound = HoldingKind.SAVING, HoldingKind.BOUND
        for uid in pods if changed is None else cast(Collection[PodUid], changed):
            holding = ledger.holding(uid)
            if holding is None or (kind := holding.kind) is saving:
                held[uid] = False
            elif kind is not bound and uid in pods:
                held[uid] = True
        if held:
            self._contained.call_each(self._hold, held)

    def order_version(self) -> int:
        """A number that changes whenever `order` may answer otherwise than before."""
        self.on_held()
        return sum(self._contained.ask_each(self._order_versions, 0))

    def order(self, members: Sequence[Pod]) -> tuple[float, ...]:
        """The gang's position in the queue of its priority: one number a policy, lower first."""
        return tuple(self._contained.ask_each(self._order, 0.0, members, self._facts))

    def order_alike(self, members: Sequence[Pod]) -> Hashable:
        """A value that gangs share if no policy tells them apart in `order`; None: not known."""
        if len(self._order_alike) < len(self._order):
            return None
        alike = tuple(self._contained.ask_each(self._order_alike, None, members))
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

    def tick(self, now: float) -> Iterable[NodeName]:
        """Does what is due; returns the nodes that are worth another look."""
        self.count += 1
        resting = self._contained.resting
        for name in [name for name, until in resting.items() if until <= now]:
            del resting[name]
        return chain.from_iterable(self._contained.ask_each(self._tick, _NO_NODES, now, now=now))
