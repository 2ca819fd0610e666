"""The seam: what a policy is. A policy decides where pods may be, where best, in which order, and when.

A policy is one file with one class that has a `name` and as many of the extension points below as it needs; each is a
protocol of its own, by the name that kube-scheduler's framework has for it. It is registered by one line (see
`extender.filters`), or from outside by configuration or entry point (see `extender.registry`).

    facts come in            Observes: `observe`, `forget`. Outlives: `finished`, `deleted`
    a pod is to be placed    Filters: `filter`. FiltersAlike: `alike`. Scores: `score`. Reads: `malformed`.
                             Foresees: `why_never`
    or by one policy alone   Places: `places`, `place`, `owns`, `sleeps`, `would_refuse`
    units are held           Reserves: `reserve`, `unreserve`. YieldsReservations: `gives_way`
    it is to be bound        PermitsBinds: `permit`
    others are to leave      Preempts: `may_evict`
    gangs wait               Orders: `order`, `order_version`. CountsHeld: `hold`
    room came free           Wakes: `could_pass`, by default what `filter` lets pass. Settles: `settle` and its sisters
    something else changed   Stirs: `take_stirred`
    time passes              KeepsTime: `next_deadline`, `tick`
    something is to be done  Acts: `take_effects`; what became of it: `heed`

The gang (`extender.filters.gang`) has nearly all of them; most policies need one or two.

Every method is pure: it may change what the policy itself knows, and nothing else; time is an argument; what should be
done is returned as effects. Must not know clocks, networks, or kube-scheduler's wire.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol, runtime_checkable

from extender.core.cluster import Node, Pod
from extender.core.feedback import Feedback
from extender.core.gang_ask import MalformedAsk
from extender.core.gangs.state.gang import GangEffect
from extender.core.ledger import Holder, Ledger
from extender.core.tenancy import Tenancy
from extender.core.units import Short
from extender.kube.names import NodeName, PodUid


@dataclass(frozen=True, slots=True)
class Allow:
    """Yes."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """No. `reason` goes to kube-scheduler and is constant for the same situation, or the pod is tried for ever; `short`
    has the numbers, for people. `preemption_helps`: whether evicting pods of lower priority could make room. `policy`:
    that of those that people create whose rule it is, by name.
    """

    reason: str
    short: Short | None = None
    preemption_helps: bool = True
    explained: str = ""
    """The same in more words, for people; may have numbers that change. Empty: `reason` says it all."""
    policy: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet: asked again at every change of the cluster, and refused with `reason` at `until`, in seconds that only
    pass. None: the policy is not asked again, it answers by an effect, OpenBarrier or TurnBack."""

    until: float | None
    reason: str


Permit = Allow | Refuse | Wait

NodeFilter = Callable[[NodeName], Refuse | None]
"""For one pod: None if it may be on the node."""


@dataclass(frozen=True, slots=True)
class OnlyOn:
    """A `NodeFilter` that refuses no other nodes than these: for a pod that may go to thousands it is asked about the
    few. `judge`: of one of them."""

    nodes: Container[NodeName]
    judge: NodeFilter

    def __call__(self, node: NodeName) -> Refuse | None:
        return self.judge(node) if node in self.nodes else None


@dataclass(frozen=True, slots=True)
class OnlyTheseNodes:
    """A `NodeFilter` that refuses all nodes but these for one reason: for a pod that may go to a few of thousands.
    `judge`: of one of these."""

    nodes: Collection[NodeName]
    judge: NodeFilter
    otherwise: Refuse

    def __call__(self, node: NodeName) -> Refuse | None:
        return self.judge(node) if node in self.nodes else self.otherwise


Scorer = Callable[[NodeName], float]
"""For one pod: how good the node is, from 0 to 1."""

GivingWay = Mapping[NodeName, Sequence[Holder]]
"""Holders by node that would give up what they hold for the pod: to be counted as free."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a policy may read, and must not change: always of this moment.

    `pods` are those that are not finished, pending and bound. `giving_way`: what is held for others and given up for a
    pod. `takes`: whether a pod, on a node, would take away a place that is kept for a gang, beyond units; None: on no
    node. `take_freed`: whom such a place has kept from other nodes, and does no more.
    """

    ledger: Ledger
    nodes: Mapping[NodeName, Node]
    pods: Mapping[PodUid, Pod] = field(default_factory=dict)
    giving_way: Callable[[Pod], GivingWay] = lambda pod: {}
    takes: Callable[[Pod, Collection[Holder]], Callable[[NodeName], bool] | None] = lambda pod, giving_way: None
    tenancy: Tenancy = field(default_factory=Tenancy)
    """Which namespaces may use which ephemeral resources."""
    take_freed: Callable[[], Collection[Pod]] = lambda: ()

    def node_of(self, pod: Pod) -> NodeName | None:
        """Where the pod is bound, or where units are held for it."""
        held = self.ledger.holding(pod.uid)
        return pod.node if pod.node is not None or held is None else held.node


class Policy(Protocol):
    """`name` is a DNS label, for metrics, settings and explanations.

    Of a pod it judges by what is alike for all of a kind: its namespace, gang, priority, requests, selectors,
    tolerations and annotations (`Pod.annotations`), and by what is held for it. Others are woken by what one of a kind
    is told.
    """

    @property
    def name(self) -> str: ...


@runtime_checkable
class Reads(Protocol):
    def malformed(self, pod: Pod) -> MalformedAsk | None:
        """What the pod asks of this policy and cannot be understood; it is rejected for that, and told how to mend it.
        None if it can, or asks nothing."""
        ...


@runtime_checkable
class Observes(Protocol):
    def observe(self, fact: Pod | Node, now: float) -> None:
        """It is there, and looks like this. A pod that has finished is forgotten instead."""
        ...

    def forget(self, fact: Pod | Node) -> None:
        """It is gone; this is how it looked last."""
        ...


@runtime_checkable
class KeepsEnded(Protocol):
    """For whom a pod that has finished still counts."""

    def finished(self, pod: Pod, now: float) -> None:
        """It has run to its end, and the API server still has it. Nothing is held for it. Told whenever it is seen."""
        ...

    def deleted(self, uid: PodUid, now: float) -> None:
        """The API server has it no more, finished or not. What is held for it is let go afterwards."""
        ...


@runtime_checkable
class Filters(Protocol):
    """A gang's plan keeps to room, selectors, taints and what pods' specs require of each other. Of what a filter says
    beside that only the nodes for each member are minded, member by member. A policy that says nothing else has a
    true attribute `kept_by_plans`."""

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        """How this policy judges nodes for the pod; None where it has no say, which must take one look-up to find
        out."""
        ...


@runtime_checkable
class FiltersAlike(Filters, Protocol):
    """It judges nodes alike for pods that say the same of a few things, and which pods are where decides."""

    def alike(self, pod: Pod) -> Hashable:
        """What `filter` reads of the pod, if it holds nothing; None where this policy has no say."""
        ...


@runtime_checkable
class Infeasible(Protocol):
    def why_never(self, pod: Pod, facts: Facts) -> Refuse | None:
        """Why with the nodes that there are the pod waits in vain, whoever leaves; asked only about who was let
        nowhere, and told instead of what was in the way. None where that is not proven."""
        ...

    def take_withdrawn(self, facts: Facts) -> Collection[Pod]:
        """Those of whom that was proven, and is no more; since this was asked last. They are told what is true now."""
        ...


@runtime_checkable
class InfeasibleInSlices(Infeasible, Protocol):
    """Its `take_withdrawn` looks at as much as others can wait for, and is asked again while it is in doubt."""

    @property
    def in_doubt(self) -> bool: ...


@runtime_checkable
class Wakes(Protocol):
    def could_pass(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        """As `filter`, for a pod that was turned away: whether it is worth a wake. Only for a policy of which `filter`
        says something else."""
        ...


@runtime_checkable
class RequeueHints(Protocol):
    def take_requeue_hints(self) -> Collection[str]:
        """Namespaces of which governed pods that were turned away may go somewhere now, though no node that would have
        them may have gained room; since this was asked last."""
        ...


@runtime_checkable
class Scores(Protocol):
    """A policy that the pod's author has chosen for this pod has a true attribute `decides`: where one of these prefers
    a node, others are not asked. Plans of gangs mind these alone."""

    def score(self, pod: Pod, facts: Facts) -> Scorer | None:
        """How good nodes are for the pod; None where this policy prefers none."""
        ...


@runtime_checkable
class Reserves(Protocol):
    def reserve(self, pod: Pod, node: NodeName) -> None:
        """Units are held for the pod on the node; it is not bound yet."""
        ...

    def unreserve(self, pod: Pod) -> None:
        """They are held no more: the pod is bound, or was turned away, or is gone."""
        ...


@runtime_checkable
class PermitsBinds(Protocol):
    def permit(self, pod: Pod, node: NodeName, facts: Facts, now: float) -> Permit:
        """Whether the pod, for which units are held on the node, may be bound there now."""
        ...


@runtime_checkable
class PlacementPlugin(Protocol):
    """One that finds the place for some pods by itself, together with others. What is held for them is its affair, and
    it is asked for `permit` last, when all others allow."""

    def places(self, pod: Pod) -> bool:
        """Whether it does so for this one, as kube-scheduler has it: that may be newer than what was observed."""
        ...

    def owns(self, uid: PodUid) -> bool:
        """Whether it has taken that pod for one of its own: then it has the last word on its bind."""
        ...

    def place(self, pod: Pod, nodes: Sequence[NodeName], now: float) -> NodeName | Refuse:
        """The node, one of these, that is held for the pod from now on. All other filters let it be on any of them."""
        ...

    def would_refuse(self, pod: Pod, nodes: Sequence[NodeName]) -> str:
        """Why `place` would refuse the pod now, empty if it would not. Nothing is held, and nothing changes."""
        ...

    def sleeps(self, pod: Pod, now: float) -> bool:
        """It was turned away, and not by `place`. False: this policy does not wake it."""
        ...


@runtime_checkable
class YieldsReservations(Protocol):
    def gives_way(self, pod: Pod) -> GivingWay:
        """What this policy holds for others and would give up for the pod."""
        ...


@runtime_checkable
class Preempts(Protocol):
    def may_evict(self, pod: Pod, victims: Mapping[NodeName, Sequence[PodUid]], now: float) -> Collection[NodeName]:
        """Of the nodes that kube-scheduler could choose, those whose victims may go for the pod."""
        ...


@runtime_checkable
class Orders(Protocol):
    def order(self, members: Sequence[Pod], facts: Facts) -> float:
        """Where a gang with these members stands among those of its priority that wait: the lower, the earlier; those
        of one place go by age."""
        ...

    @property
    def order_version(self) -> int:
        """Another number whenever `order` may answer otherwise than before."""
        ...


@runtime_checkable
class OrdersAlike(Protocol):
    """For `Orders` that can say whom it has in one place: thousands may wait, and one of them is asked about."""

    def order_alike(self, members: Sequence[Pod]) -> Hashable:
        """The same for gangs that `order` never tells apart, as long as they have these members; None: that is not
        known."""
        ...


@runtime_checkable
class CountsHeld(Protocol):
    """For whom a pod counts from when it is let in, and not only from when it is bound."""

    def hold(self, held: Mapping[PodUid, bool]) -> None:
        """Whether a place is held for each of these, known or not, that are not known to be bound. Told before
        `order_version` is asked; of one that is bound meanwhile not at all."""
        ...


@runtime_checkable
class KeepsTime(Protocol):
    def next_deadline(self) -> float | None:
        """The next moment at which `tick` has something to do, in seconds that only pass."""
        ...

    def tick(self, now: float) -> Sequence[NodeName]:
        """What is due is done. The nodes to which somebody who was turned away may go now."""
        ...


@runtime_checkable
class Settles(Protocol):
    """Whoever waits is planned for and woken as room comes free, in slices of work (`core.work_budget`)."""

    def begin_slice(self, now: float) -> None:
        """As much as one slice holds may be done from now on."""
        ...

    def has_work(self, now: float) -> bool:
        """Whether there is something to settle, though no node may have gained room."""
        ...

    def settle(self, gains: Collection[NodeName], now: float) -> None:
        """These nodes have gained room. Called until nobody gives up any more on the way, and nothing is left."""
        ...

    def left_for_others(self, gains: Collection[NodeName]) -> Collection[NodeName]:
        """All is settled: the nodes that are worth a look of those who wait for no policy."""
        ...

    def slice_is_over(self) -> bool:
        """What is left is for the next slice, which is soon."""
        ...


@runtime_checkable
class Acts(Protocol):
    def take_effects(self) -> Sequence[GangEffect]:
        """What is to be done since this was asked last; `extender.app.effects.dispatcher` performs it."""
        ...

    def heed(self, told: Feedback, now: float) -> None:
        """What became of effects, whosever they were. That a Binding is written it hears here, and not by `observe`."""
        ...


def has(policy: Policy, point: type) -> bool:
    """What `isinstance` says; but before Python 3.12 that works out the members of a protocol each time."""
    return all(getattr(policy, member, None) is not None for member in _members(point))


@cache
def _members(point: type) -> list[str]:
    return [name for name in vars(point) if not name.startswith("_")]
