# mypy: disable-error-code="type-abstract"
"""Reserve and permit: which policy places a pod, whether it may be bound, and what gives way.

Also which victims may be evicted. Dispatch and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from extender.app.policies.fault_isolation import FAILED, REFUSED, FaultIsolation, having
from extender.core.cluster import Pod
from extender.core.policy import (
    Allow,
    Facts,
    GivingWay,
    Permit,
    PermitsBinds,
    PlacementPlugin,
    Policy,
    Preempts,
    Refuse,
    Reserves,
    Wait,
    YieldsReservations,
)
from extender.kube.names import NodeName, PodUid

_NOBODY: GivingWay = {}
_NO_NODES: Collection[NodeName] = ()


class ReservePermit:
    def __init__(self, policies: Sequence[Policy], facts: Facts, containment: FaultIsolation) -> None:
        self._facts = facts
        self._contained = containment
        self._places = having(PlacementPlugin, policies)
        self._permitting = having(PermitsBinds, policies)
        reserves = having(Reserves, policies)
        self._reserve = [(name, each.reserve) for name, each in reserves.items()]
        self._unreserve = [(name, each.unreserve) for name, each in reserves.items()]
        self._gives_way = [(name, each.gives_way) for name, each in having(YieldsReservations, policies).items()]
        self._preempts = having(Preempts, policies)
        self._reserved: dict[PodUid, tuple[Pod, NodeName]] = {}

    # -- by one policy -------------------------------------------------------------------------------------------

    def _placer(self, pod: Pod) -> tuple[str, PlacementPlugin] | None:
        for name, policy in self._places.items():
            if self._contained.ask(name, partial(policy.places, pod), False):
                return name, policy
        return None

    def places(self, pod: Pod) -> bool:
        """Whether a policy chooses the node of this pod."""
        return self._placer(pod) is not None

    def owned(self, uid: PodUid) -> bool:
        """Whether a policy has taken the pod as its own."""
        return self._owner(uid) is not None

    def _owner(self, uid: PodUid) -> str | None:
        for name, policy in self._places.items():
            if self._contained.ask(name, partial(policy.owns, uid), False):
                return name
        return None

    def place(self, pod: Pod, nodes: Sequence[NodeName], now: float) -> NodeName | Refuse:
        """The one of these nodes that is held for the pod, which a policy places; or a refusal."""
        failed: NodeName | Refuse = REFUSED
        if (placer := self._placer(pod)) is None:
            return failed
        return self._contained.ask(placer[0], partial(placer[1].place, pod, nodes, now), failed)

    def would_refuse(self, pod: Pod, nodes: Sequence[NodeName]) -> str:
        """Why `place` would refuse the pod now; empty if it would not."""
        if (placer := self._placer(pod)) is None:
            return ""
        return self._contained.ask(placer[0], partial(placer[1].would_refuse, pod, nodes), FAILED)

    def sleeps(self, pod: Pod, now: float) -> bool:
        """The pod was refused; returns whether the policy that places it wakes it."""
        placer = self._placer(pod)
        return placer is not None and self._contained.ask(placer[0], partial(placer[1].sleeps, pod, now), False)

    # -- reserve and permit --------------------------------------------------------------------------------------

    def on_held(self, pod: Pod, node: NodeName) -> None:
        """Units are held for the pod, which is not bound."""
        if self._reserve and self._reserved.get(pod.uid, (pod, None))[1] != node:
            self._let_go(pod.uid)
            self._reserved[pod.uid] = (pod, node)
            self._contained.call_each(self._reserve, pod, node)

    def on_released(self) -> None:
        """Unreserves pods that hold their units no more, or are bound. O(unbound holders)."""
        for uid, (_, node) in list(self._reserved.items()):
            held, pod = self._facts.ledger.holding(uid), self._facts.pods.get(uid)
            if held is None or held.node != node or pod is None or pod.node is not None:
                self._let_go(uid)

    def _let_go(self, uid: PodUid) -> None:
        if (reserved := self._reserved.pop(uid, None)) is not None:
            self._contained.call_each(self._unreserve, reserved[0])

    def permit(self, pod: Pod, node: NodeName, now: float) -> Permit:
        """First refusal, else longest wait; the pod's owner is asked only if all others allow."""
        failed: Permit = REFUSED
        waits: list[Wait] = []
        owner = self._owner(pod.uid)
        for name in sorted(self._permitting, key=lambda name: name == owner):
            if waits and name == owner:
                break
            question = partial(self._permitting[name].permit, pod, node, self._facts, now)
            match self._contained.ask(name, question, failed):
                case Refuse() as refusal:
                    return refusal
                case Wait() as wait:
                    waits.append(wait)
        # A policy with an endless wait answers later itself; the others are asked again.
        return max(waits, key=lambda wait: -1.0 if wait.until is None else wait.until) if waits else Allow()

    # -- what gives way, and which pods are evicted --------------------------------------------------------------

    def gives_way(self, pod: Pod) -> GivingWay:
        """What is held for others and given up for the pod."""
        some = [each for each in self._contained.ask_each(self._gives_way, _NOBODY, pod) if each]
        if len(some) < 2:
            return some[0] if some else _NOBODY
        nodes = dict.fromkeys(node for each in some for node in each)
        return {node: [holder for each in some for holder in each.get(node, ())] for node in nodes}

    def may_evict(self, pod: Pod, victims: Mapping[NodeName, Sequence[PodUid]], now: float) -> Collection[NodeName]:
        """The nodes whose victims may be evicted for the pod, if all policies allow it."""
        for name, policy in self._preempts.items():
            allowed = self._contained.ask(name, partial(policy.may_evict, pod, victims, now), _NO_NODES)
            victims = {node: chosen for node, chosen in victims.items() if node in allowed}
        return victims.keys()
