# mypy: disable-error-code="type-abstract"
"""The policies in force, asked as one: whether a pod may be on a node, where best, and whether it may be bound now.

A pod may be on a node if every policy lets it, beside what kube-scheduler itself asks: selectors, taints and cordons
(`node_match`), and room, where what gives way to the pod counts as free. The filter verb asks the policies alone, for
kube-scheduler has asked the rest; who was turned away is woken by the whole rule. One rule, asked by the filter verb,
by bind, by explain, and by what wakes.

Dispatch and nothing else: which policy has which extension point is found out once. A defect of one policy ends here:
it is told, a pod about which it was asked is refused for that, and all others are asked as ever. Must not know what any
policy is for, nor who was turned away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

from extender.app.verbs import Verdict
from extender.core.cluster import Node, Pod
from extender.core.gang_ask import MalformedAsk
from extender.core.policy import (
    Allow,
    Facts,
    Filters,
    Judge,
    KeepsTime,
    Observes,
    Orders,
    Permit,
    PermitsBinds,
    Policy,
    Reads,
    Refuse,
    Reserves,
    Scorer,
    Scores,
    Wait,
    Wakes,
    has,
)
from extender.core.units import Short
from extender.kube.names import NodeName, PodUid
from extender.kube.node_match import accepts

FAILED = "a policy has met a defect of its own: see Escher's log"
_REFUSED = Refuse(FAILED, preemption_helps=False)
_NO_NODES: Sequence[NodeName] = ()
_HIGHEST_SCORE = 10
"""MaxExtenderPriority of kube-scheduler."""
_Asked = Callable[[Pod, Facts], Judge | None]
P = TypeVar("P")
T = TypeVar("T")


def _refuse_all(node: NodeName) -> Refuse | None:
    return _REFUSED


_REFUSING: Judge | None = _refuse_all


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """Event: the policy raised what no policy should."""

    policy: str
    defect: Exception


class Policies:
    """In the order in which they are asked: each sees only the nodes that the ones before it let pass."""

    def __init__(self, policies: Sequence[Policy], facts: Facts) -> None:
        self._facts = facts
        filters, wakes = _with(Filters, policies), dict(_with(Wakes, policies))
        self._filters: list[tuple[str, _Asked]] = [(name, policy.filter) for name, policy in filters]
        self._could_pass: list[tuple[str, _Asked]] = [
            (name, wakes[name].could_pass if name in wakes else policy.filter) for name, policy in filters
        ]
        self._beside_plans: list[tuple[str, _Asked]] = [
            (name, policy.filter) for name, policy in filters if not getattr(policy, "kept_by_plans", False)
        ]
        self._scores = _with(Scores, policies)
        self._permits = _with(PermitsBinds, policies)
        self._reads = _with(Reads, policies)
        self._observes = _with(Observes, policies)
        self._reserves = _with(Reserves, policies)
        self._orders = _with(Orders, policies)
        self._keeps_time = _with(KeepsTime, policies)
        self._reserved: dict[PodUid, tuple[Pod, NodeName]] = {}
        self.failures: list[PolicyFailed] = []
        """Of which nobody has been told."""

    def _ask(self, name: str, question: Callable[[], T], otherwise: T) -> T:
        try:
            return question()
        except Exception as defect:
            self.failures.append(PolicyFailed(name, defect))
            return otherwise

    # -- facts ---------------------------------------------------------------------------------------------------

    def observe(self, fact: Pod | Node) -> None:
        for name, policy in self._observes:
            self._ask(name, partial(policy.observe, fact), None)

    def forget(self, fact: Pod | Node) -> None:
        for name, policy in self._observes:
            self._ask(name, partial(policy.forget, fact), None)

    # -- filter --------------------------------------------------------------------------------------------------

    def malformed(self, pod: Pod) -> MalformedAsk | None:
        """What the pod asks of a policy and cannot be understood."""
        if not pod.annotations:
            return None
        asked = (self._ask(name, partial(policy.malformed, pod), None) for name, policy in self._reads)
        return next((said for said in asked if said is not None), None)

    def _judges(self, pod: Pod, asked: Sequence[tuple[str, _Asked]]) -> list[tuple[str, Judge]]:
        """Those of the policies that have a say about the pod, and how each judges nodes for it."""
        said = ((name, self._ask(name, partial(question, pod, self._facts), _REFUSING)) for name, question in asked)
        return [(name, judge) for name, judge in said if judge is not None]

    def judges_of_nodes(self, pod: Pod) -> list[tuple[str, Judge]]:
        """The names of the policies that would be in the pod's way if it were tried now, and how each judges nodes."""
        return self._judges(pod, self._could_pass)

    def verdict(self, pod: Pod, sent: Sequence[NodeName]) -> Verdict:
        """What the policies say of the nodes that kube-scheduler sent."""
        return self._verdict(self._judges(pod, self._filters), sent)

    def verdict_beside_plans(self, pod: Pod, sent: Sequence[NodeName]) -> Verdict:
        """As `verdict`, by those policies alone that a gang's plan does not keep to by itself."""
        return self._verdict(self._judges(pod, self._beside_plans), sent)

    def _verdict(self, judges: Sequence[tuple[str, Judge]], sent: Sequence[NodeName]) -> Verdict:
        if not judges:
            return Verdict(sent)
        passed: list[NodeName] = []
        rejected: dict[NodeName, str] = {}
        unresolvable: dict[NodeName, str] = {}
        for node in sent:
            refusal = self._first_refusal(judges, node)
            if refusal is None:
                passed.append(node)
            else:
                (rejected if refusal.preemption_helps else unresolvable)[node] = refusal.reason
        return Verdict(passed, rejected, unresolvable)

    def refusal(self, pod: Pod, node: NodeName) -> Refuse | None:
        """Why the policies do not let the pod be there."""
        return self._first_refusal(self._judges(pod, self._filters), node)

    def room(self, pod: Pod) -> Callable[[NodeName], Short | None]:
        """What is short on a node for the pod, though all gave way that would."""
        ledger, giving_way = self._facts.ledger, self._facts.giving_way(pod)
        return lambda node: ledger.rows.short(node, pod.requests, (pod.uid, *giving_way.get(node, ())))

    def passes(self, pod: Pod) -> Callable[[NodeName], bool]:
        """Whether the pod, if it were tried now, could go to a node."""
        judges = self.judges_of_nodes(pod)
        room = self.room(pod)

        def could_go(name: NodeName) -> bool:
            node = self._facts.nodes.get(name)
            if node is None or not accepts(node, pod) or room(name) is not None:
                return False
            return self._first_refusal(judges, name) is None

        return could_go

    def _first_refusal(self, judges: Iterable[tuple[str, Judge]], node: NodeName) -> Refuse | None:
        for name, judge in judges:
            try:
                refusal = judge(node)
            except Exception as defect:
                self.failures.append(PolicyFailed(name, defect))
                return _REFUSED
            if refusal is not None:
                return refusal
        return None

    # -- score ---------------------------------------------------------------------------------------------------

    def best_first(self, pod: Pod, nodes: Sequence[NodeName]) -> Iterator[NodeName]:
        """The nodes, the best for the pod first; of equals the one that was sent first."""
        scorers = self._scorers(pod)
        if not scorers or len(nodes) < 2:
            yield from nodes
            return
        # Mostly the first is taken, and to sort thousands for that would take as long as all the rest.
        totals = {node: self._total(scorers, node) for node in nodes}
        best = max(nodes, key=totals.__getitem__)
        yield best
        yield from sorted((node for node in nodes if node != best), key=totals.__getitem__, reverse=True)

    def scores(self, pod: Pod, nodes: Sequence[NodeName]) -> Mapping[NodeName, int]:
        """From 0 to 10, without those of 0: the mean of what the policies say that have a preference."""
        scorers = self._scorers(pod)
        if not scorers:
            return {}
        share = _HIGHEST_SCORE / len(scorers)
        scored = ((node, int(share * self._total(scorers, node))) for node in nodes)
        return {node: score for node, score in scored if score}

    def _scorers(self, pod: Pod) -> list[tuple[str, Scorer]]:
        asked = (
            (name, self._ask(name, partial(policy.score, pod, self._facts), None)) for name, policy in self._scores
        )
        return [(name, scorer) for name, scorer in asked if scorer is not None]

    def _total(self, scorers: Sequence[tuple[str, Scorer]], node: NodeName) -> float:
        said = (self._ask(name, partial(scorer, node), 0.0) for name, scorer in scorers)
        return sum(min(1.0, max(0.0, score)) for score in said)

    # -- reserve and permit --------------------------------------------------------------------------------------

    def heed_held(self, pod: Pod, node: NodeName) -> None:
        """Units are held for the pod, which is not bound."""
        if self._reserves and self._reserved.get(pod.uid, (pod, None))[1] != node:
            self._let_go(pod.uid)
            self._reserved[pod.uid] = (pod, node)
            for name, policy in self._reserves:
                self._ask(name, partial(policy.reserve, pod, node), None)

    def heed_released(self) -> None:
        """Whoever holds its units no more, or is bound, is told of. O(those that hold some and are not bound)."""
        for uid, (_, node) in list(self._reserved.items()):
            held, pod = self._facts.ledger.holding(uid), self._facts.pods.get(uid)
            if held is None or held.node != node or pod is None or pod.node is not None:
                self._let_go(uid)

    def _let_go(self, uid: PodUid) -> None:
        if (reserved := self._reserved.pop(uid, None)) is not None:
            for name, policy in self._reserves:
                self._ask(name, partial(policy.unreserve, reserved[0]), None)

    def permit(self, pod: Pod, node: NodeName, now: float) -> Permit:
        """Whether the pod may be bound there now: the first refusal counts, and of those who wait the longest."""
        wait: Wait | None = None
        failed: Permit = _REFUSED
        for name, policy in self._permits:
            match self._ask(name, partial(policy.permit, pod, node, self._facts, now), failed):
                case Refuse() as refusal:
                    return refusal
                case Wait(until) as waits if wait is None or until > wait.until:
                    wait = waits
                case _:
                    pass
        return Allow() if wait is None else wait

    # -- order and time ------------------------------------------------------------------------------------------

    @property
    def order_version(self) -> int:
        """Another number whenever `order` may answer otherwise than before."""
        return sum(self._ask(name, partial(getattr, policy, "order_version"), 0) for name, policy in self._orders)

    def order(self, members: Sequence[Pod]) -> tuple[float, ...]:
        """Where a gang stands among those of its priority that wait: the policies in their order, the lower first."""
        orders = ((name, partial(policy.order, members, self._facts)) for name, policy in self._orders)
        return tuple(self._ask(name, order, 0.0) for name, order in orders)

    def next_deadline(self) -> float | None:
        known = [self._ask(name, policy.next_deadline, None) for name, policy in self._keeps_time]
        return min((when for when in known if when is not None), default=None)

    def tick(self, now: float) -> Iterator[NodeName]:
        """What is due is done; the nodes that are worth another look."""
        for name, policy in self._keeps_time:
            yield from self._ask(name, partial(policy.tick, now), _NO_NODES)


def _with(point: type[P], policies: Iterable[Policy]) -> list[tuple[str, P]]:
    return [(policy.name, cast(P, policy)) for policy in policies if has(policy, point)]
