"""Extension points of policies: what a policy is, and when Escher calls it.

A policy decides on which nodes pods may be, which nodes are best, in which order pods are placed, and when. A policy is
one file with one class that has a `name` and any of the extension points below. Each point is a protocol named after
its counterpart in kube-scheduler's framework. One line registers a policy (see `extender.filters`); configuration or an
entry point registers one from outside (see `extender.registry`).

    facts come in            Observes: `observe`, `forget`. KeepsEnded: `finished`, `deleted`
    a pod is to be placed    Filters: `filter`. FiltersAlike: `alike`. Scores: `score`. Reads: `malformed`.
                             Infeasible: `why_never`
    or by one policy alone   PlacementPlugin: `places`, `place`, `owns`, `sleeps`, `would_refuse`
    units are held           Reserves: `reserve`, `unreserve`. YieldsReservations: `gives_way`
    it is to be bound        PermitsBinds: `permit`
    pods are to be evicted   Preempts: `may_evict`
    gangs wait               Orders: `order`, `order_version`. CountsHeld: `hold`
    room came free           Wakes: `could_pass`, by default what `filter` lets pass. Settles: `settle` and others
    something else changed   RequeueHints: `take_requeue_hints`
    time passes              KeepsTime: `next_deadline`, `tick`
    effects                  Acts: `take_effects`, and a method for their results

The gang (`extender.filters.gang`) has nearly all of them; most policies need one or two. A method may change the
policy's own state and nothing else: a pod or a holding is shared by all, and only mypy stops a policy from changing it.
Methods are bound once, when the `Scheduler` is made. Time is an argument; actions are returned as effects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache
from typing import Protocol, runtime_checkable

from extender.core.cluster import Node, Pod
from extender.core.feedback import Feedback
from extender.core.gang_ask import MalformedAsk
from extender.core.gangs.state.gang import GangEffect
from extender.core.ledger.ledger import Holder, Ledger
from extender.core.ledger.units import Short
from extender.core.tenancy.tenancy import Tenancy
from extender.kube.names import NodeName, PodUid


@dataclass(frozen=True, slots=True)
class Allow:
    """The pod may be bound."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The node or the bind is refused for `reason`, which goes to kube-scheduler.

    `reason` is constant for the same situation, or kube-scheduler retries the pod for ever. `short`: the numbers, for
    people. `preemption_helps`: whether evicting pods of lower priority could make room. `policy`: the name of the
    EscherPolicy whose rule refused."""

    reason: str
    short: Short | None = None
    preemption_helps: bool = True
    explained: str = ""
    """A longer form of `reason` for people; its numbers may change. Empty: `reason` is enough."""
    policy: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """The pod waits. Escher asks again at every change of the cluster.

    At `until`, in seconds of a clock that only advances, it is refused with `reason`. None: Escher does not ask again;
    the policy answers by an effect, OpenBarrier or TurnBack."""

    until: float | None
    reason: str


Permit = Allow | Refuse | Wait


class Concerns(Enum):
    """The pods that a policy's `filter` and `score` are called for; without `concerns`, all."""

    GOVERNED = auto()  # An EscherPolicy matches them.
    EPHEMERAL = auto()  # They request ephemeral resources.


NodeFilter = Callable[[NodeName], Refuse | None]
"""For one pod: None if the pod may be on the node."""


@dataclass(frozen=True, slots=True)
class OnlyOn:
    """A `NodeFilter` that asks `judge` about the few `nodes` and allows every other node."""

    nodes: Container[NodeName]
    judge: NodeFilter

    def __call__(self, node: NodeName) -> Refuse | None:
        return self.judge(node) if node in self.nodes else None


@dataclass(frozen=True, slots=True)
class OnlyTheseNodes:
    """A `NodeFilter` that asks `judge` about the few `nodes` and refuses every other node."""

    nodes: Collection[NodeName]
    judge: NodeFilter
    otherwise: Refuse

    def __call__(self, node: NodeName) -> Refuse | None:
        return self.judge(node) if node in self.nodes else self.otherwise


Scorer = Callable[[NodeName], float]
"""For one pod: how good the node is, from 0 to 1."""

GivingWay = Mapping[NodeName, Sequence[Holder]]
"""Holders by node that would release their units for the pod: a filter counts these as free."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a policy may read and must not change: always the current state.

    `pods`: pending and bound pods, without finished ones. `giving_way`: holdings of others that would be released for a
    pod. `takes`: whether a pod on a node would take a place kept for a gang, beyond units; None: on no node.
    `take_freed`: pods that a kept place had excluded from nodes other than its own, once the place is no longer
    kept."""

    ledger: Ledger
    nodes: Mapping[NodeName, Node]
    pods: Mapping[PodUid, Pod] = field(default_factory=dict)
    giving_way: Callable[[Pod], GivingWay] = lambda pod: {}
    takes: Callable[[Pod, Collection[Holder]], Callable[[NodeName], bool] | None] = lambda pod, giving_way: None
    tenancy: Tenancy = field(default_factory=Tenancy)
    """Which namespaces may use which ephemeral resources."""
    take_freed: Callable[[], Collection[Pod]] = lambda: ()

    def node_of(self, pod: Pod) -> NodeName | None:
        """The node on which the pod is bound, or on which units are held for it."""
        held = self.ledger.holding(pod.uid)
        return pod.node if pod.node is not None or held is None else held.node


class Policy(Protocol):
    """`name` is a DNS label, for metrics, settings and explanations.

    A policy judges a pod by its holding and by properties that all pods of its class share: namespace, gang, priority,
    requests, selectors, tolerations and annotations (`Pod.annotations`). The answer for one pod of a class decides
    whether Escher wakes the others."""

    @property
    def name(self) -> str: ...


@runtime_checkable
class Reads(Protocol):
    def malformed(self, pod: Pod) -> MalformedAsk | None:
        """What the pod asks of this policy in a form that cannot be parsed; None if nothing."""
        ...


@runtime_checkable
class Observes(Protocol):
    def observe(self, fact: Pod | Node, now: float) -> None:
        """The object exists in this state. A finished pod is passed to `forget` instead."""
        ...

    def forget(self, fact: Pod | Node) -> None:
        """The object is gone; `fact` is its last state."""
        ...


@runtime_checkable
class KeepsEnded(Protocol):
    """For a policy that counts finished pods."""

    def finished(self, pod: Pod, now: float) -> None:
        """The pod has finished; the API server still has it. It holds nothing. May be repeated."""
        ...

    def deleted(self, uid: PodUid, now: float) -> None:
        """The API server no longer has the pod, finished or not. Its holding is released later."""
        ...


@runtime_checkable
class Filters(Protocol):
    """A filter for pods. A plan respects room, selectors, taints and rules between pods without it.

    Of anything else that a filter says, a plan uses only the nodes allowed for each member, one member at a time. A
    policy that says nothing else has a true attribute `kept_by_plans`."""

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        """How this policy judges nodes for the pod; None, after one look-up, if not concerned."""
        ...


@runtime_checkable
class FiltersAlike(Filters, Protocol):
    """A filter that judges equally for pods with equal `alike`, by where other pods are."""

    def alike(self, pod: Pod) -> Hashable:
        """What `filter` reads of a pod without a holding; None if this policy does not apply."""
        ...


@runtime_checkable
class Infeasible(Protocol):
    def why_never(self, pod: Pod, facts: Facts) -> Refuse | None:
        """Why the pod fits on no existing node, whichever pods leave; None if that is not proven.

        Called only for a pod that is refused on every node. The answer replaces the other reasons."""
        ...

    def take_withdrawn(self, facts: Facts) -> Collection[Pod]:
        """Pods whose proof has ceased to hold since the last call; they receive a new reason."""
        ...


@runtime_checkable
class InfeasibleInSlices(Infeasible, Protocol):
    """A call of `take_withdrawn` does a limited amount of work; it is repeated while `in_doubt`."""

    @property
    def in_doubt(self) -> bool: ...


@runtime_checkable
class Wakes(Protocol):
    def could_pass(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        """Which nodes justify a wake of an unschedulable pod, if `filter` answers otherwise."""
        ...


@runtime_checkable
class RequeueHints(Protocol):
    def take_requeue_hints(self) -> Collection[str]:
        """Namespaces, since the last call, whose unschedulable pods may fit now.

        Only pods that a policy matches. Perhaps no node that accepts them has gained room."""
        ...


@runtime_checkable
class Scores(Protocol):
    """Preference among nodes. A policy that the pod's author chose has a true attribute `decides`.

    If such a policy prefers a node, the other policies are not asked. Plans of gangs use only these policies."""

    def score(self, pod: Pod, facts: Facts) -> Scorer | None:
        """How good nodes are for the pod; None where this policy prefers none."""
        ...


@runtime_checkable
class Reserves(Protocol):
    def reserve(self, pod: Pod, node: NodeName) -> None:
        """Units are held for the pod on the node; it is not bound yet."""
        ...

    def unreserve(self, pod: Pod) -> None:
        """The units are no longer held so: the pod is bound, was refused, or is gone."""
        ...


@runtime_checkable
class PermitsBinds(Protocol):
    def permit(self, pod: Pod, node: NodeName, facts: Facts, now: float) -> Permit:
        """Whether the pod, which holds units on the node, may be bound there now."""
        ...


@runtime_checkable
class PlacementPlugin(Protocol):
    """A policy that places some pods on its own, together with others.

    It owns the holdings of these pods. Escher calls its `permit` last, after all other policies allow the bind."""

    def places(self, pod: Pod) -> bool:
        """Whether it places this pod, given as kube-scheduler has it, perhaps newer than known."""
        ...

    def owns(self, uid: PodUid) -> bool:
        """Whether the pod is one of its own: then this policy decides last on its bind."""
        ...

    def place(self, pod: Pod, nodes: Sequence[NodeName], now: float) -> NodeName | Refuse:
        """Holds one of these nodes for the pod and returns it. Other filters accept all of them."""
        ...

    def would_refuse(self, pod: Pod, nodes: Sequence[NodeName]) -> str:
        """Why `place` would refuse the pod now, or empty. Changes nothing."""
        ...

    def sleeps(self, pod: Pod, now: float) -> bool:
        """The pod was refused everywhere, not by `place`. Whether this policy wakes it."""
        ...


@runtime_checkable
class YieldsReservations(Protocol):
    def gives_way(self, pod: Pod) -> GivingWay:
        """Holdings of other pods under this policy that it would release for the pod."""
        ...


@runtime_checkable
class Preempts(Protocol):
    def may_evict(self, pod: Pod, victims: Mapping[NodeName, Sequence[PodUid]], now: float) -> Collection[NodeName]:
        """Which of kube-scheduler's candidate nodes have victims that may leave for the pod."""
        ...


@runtime_checkable
class Orders(Protocol):
    def order(self, members: Sequence[Pod], facts: Facts) -> float:
        """Position among waiting gangs of the same priority: lowest first, equal ones by age."""
        ...

    @property
    def order_version(self) -> int:
        """Changes whenever `order` may answer otherwise than before."""
        ...


@runtime_checkable
class OrdersAlike(Protocol):
    """For `Orders` with a key of equal positions: one of thousands of gangs is asked about."""

    def order_alike(self, members: Sequence[Pod]) -> Hashable:
        """Equal for gangs with equal `order` while they have these members; None: not known."""
        ...


@runtime_checkable
class CountsHeld(Protocol):
    """For a policy that counts a pod from its admission, and not only from its bind."""

    def hold(self, held: Mapping[PodUid, bool]) -> None:
        """Whether each of these pods has a place held; the pods may be unknown to the policy.

        Called before `order_version` is read, for pods that are not known to be bound."""
        ...


@runtime_checkable
class KeepsTime(Protocol):
    def next_deadline(self) -> float | None:
        """When `tick` next has something to do, in seconds of a clock that only advances."""
        ...

    def tick(self, now: float) -> Sequence[NodeName]:
        """Performs what is due. Returns the nodes that unschedulable pods may fit on now."""
        ...


@runtime_checkable
class Settles(Protocol):
    """Requeue: plans and wakes waiting pods as room comes free, in slices (`core.common.work_budget`)."""

    def begin_slice(self, now: float) -> None:
        """A new slice begins, with its full budget of work."""
        ...

    def has_work(self, now: float) -> bool:
        """Whether there is work even if no node may have gained room."""
        ...

    def settle(self, gains: Collection[NodeName], now: float) -> None:
        """These nodes have gained room. Repeated until nothing more is released or left to do."""
        ...

    def left_for_others(self, gains: Collection[NodeName]) -> Collection[NodeName]:
        """Requeue is complete: nodes worth trying for waiting pods that no policy handles."""
        ...

    def slice_is_over(self) -> bool:
        """Whether the remaining work is left for the next slice, which follows soon."""
        ...


@runtime_checkable
class Acts(Protocol):
    def take_effects(self) -> Sequence[GangEffect]:
        """The effects since the last call; `extender.app.effects.dispatcher` performs them."""
        ...

    def on_event(self, told: Feedback, now: float) -> None:
        """Results of effects of any policy. It reports a written Binding, `observe` does not."""
        ...


def has(policy: Policy, point: type) -> bool:
    """As `isinstance`, which before Python 3.12 computes the members of a protocol at each call."""
    return all(getattr(policy, member, None) is not None for member in _members(point))


@cache
def _members(point: type) -> list[str]:
    return [name for name in vars(point) if not name.startswith("_")]
