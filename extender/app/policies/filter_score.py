# mypy: disable-error-code="type-abstract"
"""Filter and score: whether a pod may be on a node, and which nodes are best. Dispatch only.

A pod may be on a node if every policy allows it, beside kube-scheduler's own conditions. These are selectors, taints
and cordons (`node_match`), and room, where what gives way to the pod counts as free. The filter call asks the policies
alone, because kube-scheduler has checked the rest; unschedulable pods are woken by the whole rule. The same rule serves
filter, bind, explain and requeue. A pod is refused if a policy meets a defect about it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice, product
from operator import attrgetter

from extender.app.contracts.extender_api import Verdict
from extender.app.policies.fault_isolation import REFUSED, FaultIsolation, Hook, having
from extender.core.affinity.by_place import ByPlace
from extender.core.cluster import Pod
from extender.core.common.work_budget import Work
from extender.core.fit.fit import asked_of
from extender.core.gang_ask import MalformedAsk
from extender.core.ledger.units import Short
from extender.core.policy import (
    Concerns,
    Facts,
    Filters,
    FiltersAlike,
    GivingWay,
    Infeasible,
    InfeasibleInSlices,
    NodeFilter,
    OnlyOn,
    OnlyTheseNodes,
    Policy,
    Reads,
    Refuse,
    Scorer,
    Scores,
    Wakes,
)
from extender.kube.names import NodeName
from extender.kube.node_match import accepts

_HIGHEST_SCORE = 10
"""MaxExtenderPriority of kube-scheduler."""
_TO_LOOK_UP = 4
"""Up to this number, nodes are looked up in those sent; beyond, those sent are gone through."""
_FEW = 50
"""Up to this number, going through nodes is faster than finding them in arrays."""
_AN_OFFER, _NUMBERS_A_STEP, _READ_A_STEP = 4, 500, 8
"""Steps of an offer; array numbers computed in a step; numbers read from the ledger in a step."""


def _refuse_all(node: NodeName) -> Refuse | None:
    return REFUSED


_IN_DOUBT = attrgetter("in_doubt")
_NOBODY: Collection[Pod] = ()
_NOBODYS: GivingWay = {}
_REFUSING: NodeFilter | None = _refuse_all


class FilterScore:
    """The policies in the order of calls: each sees only the nodes that those before it passed."""

    def __init__(self, policies: Sequence[Policy], facts: Facts, containment: FaultIsolation) -> None:
        self._facts = facts
        self._contained = containment
        filters, wakes = having(Filters, policies), having(Wakes, policies)
        by_plans = {name for name, each in filters.items() if getattr(each, "kept_by_plans", False)}
        alike = {name: each for name, each in having(FiltersAlike, policies).items() if name not in wakes}
        self._filters = [(name, each.filter) for name, each in filters.items()]
        self._could_pass = [(name, wakes[name].could_pass if name in wakes else each) for name, each in self._filters]
        self._beside_plans = [hook for hook in self._filters if hook[0] not in by_plans]
        self._judging_alike = [hook for hook in self._filters if hook[0] in alike]
        self._alike = [(name, partial(_alike, alike[name])) for name, _ in self._judging_alike]
        self._not_asked = {given: _not_asked(policies, *given) for given in product((False, True), repeat=2)}
        """By whether the pod requests ephemeral resources, and whether an EscherPolicy matches it."""
        scores = having(Scores, policies)
        self._scores = [(name, each.score) for name, each in scores.items()]
        self._deciding = {name for name, each in scores.items() if getattr(each, "decides", False)}
        self._malformed = [(name, each.malformed) for name, each in having(Reads, policies).items()]
        foresees = having(Infeasible, policies)
        self._why_never = [(name, each.why_never) for name, each in foresees.items()]
        self._take_withdrawn = [(name, each.take_withdrawn) for name, each in foresees.items()]
        self._in_slices = {name: each for name, each in foresees.items() if isinstance(each, InfeasibleInSlices)}
        self._take_withdrawn_at_once = [hook for hook in self._take_withdrawn if hook[0] not in self._in_slices]

    # -- filter --------------------------------------------------------------------------------------------------

    def malformed(self, pod: Pod) -> MalformedAsk | None:
        """What the pod asks of a policy that cannot be understood; None: nothing."""
        if not pod.annotations:
            return None
        return self._contained.first_of(self._malformed, None, pod)

    def _not_asked_about(self, pod: Pod) -> frozenset[str]:
        """The policies that the pod does not concern."""
        return self._not_asked[any(map(self._facts.ledger.capacity.is_ephemeral, pod.requests)), bool(pod.governed)]

    def _judges(
        self, pod: Pod, hooks: Sequence[Hook[Pod, Facts, NodeFilter | None]], facts: Facts | None = None
    ) -> list[tuple[str, NodeFilter]]:
        """The policies that have a say about the pod, and how each judges nodes for it."""
        found: list[tuple[str, NodeFilter]] = []
        facts, not_asked = facts or self._facts, self._not_asked_about(pod)
        for name, hook in hooks:
            if name in not_asked:
                continue
            # As in `ask_each`: most policies have no say about most pods, and asking should cost no more than that.
            try:
                judge = hook(pod, facts)
            except Exception as defect:
                self._contained.met(name, defect)
                judge = _REFUSING
            if judge is not None:
                found.append((name, judge))
                if _refuses_all(judge):
                    break
        return found

    def judges_of_nodes(self, pod: Pod, freed: GivingWay = _NOBODYS) -> list[tuple[str, NodeFilter]]:
        """Which policies would judge the pod if tried now, and how. `freed`: as for `passes`."""
        return self._judges(pod, self._could_pass, self._beside(freed) if freed else None)

    def _beside(self, freed: GivingWay) -> Facts:
        """The facts, as if these holders had given up their units as well."""

        def giving_way(pod: Pod) -> GivingWay:
            given = self._facts.giving_way(pod)
            return {node: (*given.get(node, ()), *freed.get(node, ())) for node in {**given, **freed}}

        return replace(self._facts, giving_way=giving_way)

    def verdict(self, pod: Pod, sent: Sequence[NodeName]) -> Verdict:
        """What the policies say about the nodes that kube-scheduler sent."""
        return self._verdict(pod, self._judges(pod, self._filters), sent)

    def verdict_beside_plans(self, pod: Pod, sent: Sequence[NodeName]) -> Verdict:
        """As `verdict`, without the policies that a gang's plan keeps to already."""
        return self._verdict(pod, self._judges(pod, self._beside_plans), sent)

    def beside_plans(self, pod: Pod) -> Callable[[NodeName], bool] | None:
        """Whether the policies of `verdict_beside_plans` allow a node; None: they allow any."""
        judges = self._judges(pod, self._beside_plans)
        return (lambda node: self._first_refusal(judges, node) is None) if judges else None

    def _verdict(self, pod: Pod, judges: Sequence[tuple[str, NodeFilter]], sent: Sequence[NodeName]) -> Verdict:
        if not judges:
            return Verdict(sent)
        if few := self._passed_of_few(judges, sent):
            return Verdict(few)
        passed, refused = sent, dict[NodeName, Refuse]()
        for name, judge in judges:
            if found := self._refused(name, judge, passed):
                passed = [node for node in passed if node not in found]
                refused = _in_order(sent, refused | found) if refused else found
        # If all pass, they stay as they were sent, whatever that is: `adapters.http` need not write them again.
        rejected, unresolvable = _told(refused)
        if unresolvable and not passed and (never := self.why_never(pod)) is not None:
            unresolvable = dict.fromkeys(unresolvable, never.reason)
        return Verdict(passed, rejected, unresolvable)

    def _passed_of_few(self, judges: Sequence[tuple[str, NodeFilter]], sent: Sequence[NodeName]) -> Sequence[NodeName]:
        """The nodes that pass, if the first policy leaves few; empty: not known, or none passes.

        The thousands of others are then neither read nor given reasons, which have no use if one passes."""
        first, few = judges[0][1], list[NodeName]()
        # A defect that is met here is met again where all nodes are gone through.
        with suppress(Exception):
            if isinstance(first, OnlyTheseNodes) and len(first.nodes) <= _TO_LOOK_UP:
                few = [node for node in first.nodes if node in sent]
        passed = [node for node in few if self._first_refusal(judges, node) is None]
        return passed if len(passed) < 2 else [node for node in sent if node in passed]

    def why_never(self, pod: Pod) -> Refuse | None:
        """Why the pod, which is refused everywhere, waits without effect; None: not proven."""
        return self._contained.first_of(self._why_never, None, pod, self._facts)

    @property
    def in_doubt(self) -> bool:
        """Whether a proof of `why_never` may hold no more for pods not looked at since."""
        return any(map(_IN_DOUBT, self._in_slices.values()))

    def take_withdrawn(self, *, in_slices: bool) -> list[Pod]:
        """Pods that `why_never` refused with a proof that holds no more.

        If not `in_slices`: without the policies that look only at as many as one slice of work holds."""
        hooks = self._take_withdrawn if in_slices else self._take_withdrawn_at_once
        return list(chain.from_iterable(self._contained.ask_each(hooks, _NOBODY, self._facts)))

    def refusal(self, pod: Pod, node: NodeName) -> Refuse | None:
        """Why the policies do not allow the pod on the node; None: they do."""
        return self._first_refusal(self._judges(pod, self._filters), node)

    def where_leaving_helps(self, pod: Pod, nodes: Iterable[NodeName]) -> list[NodeName]:
        """The nodes that the policies allow to the pod, or would if other pods left."""
        judges = self._judges(pod, self._filters)
        refusals = ((node, self._first_refusal(judges, node)) for node in nodes)
        return [node for node, refusal in refusals if refusal is None or refusal.preemption_helps]

    def room(self, pod: Pod, freed: GivingWay = _NOBODYS) -> Callable[[NodeName], Short | None]:
        """What the pod lacks on a node after all gave way that would. `freed`: as for `passes`."""
        facts = self._beside(freed) if freed else self._facts
        ledger, giving_way = facts.ledger, facts.giving_way(pod)
        return lambda node: ledger.rows.short(node, pod.requests, (pod.uid, *giving_way.get(node, ())))

    def with_room(self, pod: Pod, work: Work) -> list[NodeName]:
        """The nodes that may have room for the pod, as `room` says, found by index.

        It is called for thousands of pods after one change. Takes its cost from `work`, in steps of about 5 us."""
        ledger, asked = self._facts.ledger, asked_of(pod.requests)
        totals, own = ledger.totals, ledger.holding(pod.uid)
        few = min((totals.providers[key] for key, _ in asked if key in totals.providers), key=len, default=None)
        if any(totals.capacity.get(key, 0) < units for key, units in asked):
            return []
        if few is not None and len(few) <= _FEW:
            return list(few)
        read = ledger.columns.read
        offer = ledger.columns.offer(asked)
        work.take(_AN_OFFER + len(self._facts.nodes) // _NUMBERS_A_STEP + (ledger.columns.read - read) // _READ_A_STEP)
        if offer is None:
            return list(self._facts.nodes)
        found, besides = offer.nodes(), dict.fromkeys(self._facts.giving_way(pod))
        if own is not None:
            besides[own.node] = None
        return [*found, *(besides.keys() - found)] if besides else found

    def alike(self, pod: Pod) -> Hashable:
        """Key of pods that `refuses_alike` refuses alike; None: it refuses none of them."""
        failed = object()
        alike = tuple(self._contained.ask_each(self._alike, failed, pod))
        if failed in alike or all(each is None for each in alike):
            return None
        # What the pod holds itself is not in its way.
        return alike, pod.uid if self._facts.ledger.holding(pod.uid) is not None else None

    def refuses_alike(self, pod: Pod) -> Callable[[NodeName], bool]:
        """Whether a policy refuses the node to the pod and to all that are alike."""
        judges = self._judges(pod, self._judging_alike)
        return lambda node: self._first_refusal(judges, node) is not None

    def passes(self, pod: Pod, freed: GivingWay = _NOBODYS) -> Callable[[NodeName], bool]:
        """Whether the pod could go to a node if tried now; `freed`: had these given up units."""
        return self._passes(pod, lambda: self.judges_of_nodes(pod, freed), freed)

    def has_room(self, pod: Pod, freed: GivingWay) -> Callable[[NodeName], bool]:
        """As `passes`, whatever the policies say."""
        return self._passes(pod, lambda: (), freed)

    def _passes(
        self, pod: Pod, judges: Callable[[], Sequence[tuple[str, NodeFilter]]], freed: GivingWay
    ) -> Callable[[NodeName], bool]:
        room = self.room(pod, freed)
        made: Sequence[tuple[str, NodeFilter]] | None = None

        def could_go(name: NodeName) -> bool:
            nonlocal made
            node = self._facts.nodes.get(name)
            if node is None or not accepts(node, pod) or room(name) is not None:
                return False
            # Asking the policies may cost much, and most nodes have no room.
            made = judges() if made is None else made
            return self._first_refusal(made, name) is None

        return could_go

    def _refused(self, name: str, judge: NodeFilter, nodes: Sequence[NodeName]) -> dict[NodeName, Refuse]:
        """The nodes that one policy refuses to the pod: as `_first_refusal`, for thousands."""
        if isinstance(judge, ByPlace):
            # A defect that is met here is met again below, node by node.
            with suppress(Exception):
                return judge.refused(nodes)
        found: dict[NodeName, Refuse] = {}
        last: Refuse | None = None
        if isinstance(judge, OnlyOn | OnlyTheseNodes):
            # A defect that is met here is met again below, node by node.
            with suppress(Exception):
                concerned = judge.nodes
                few = [node for node in nodes if node in concerned]
                if isinstance(judge, OnlyTheseNodes):
                    found = dict.fromkeys(nodes, _known(judge.otherwise))
                nodes, judge = few, judge.judge
        otherwise = bool(found)
        for node in nodes:
            try:
                refusal = judge(node)
                if refusal is not last and refusal is not None:
                    last = _known(refusal)
            except Exception as defect:
                self._contained.met(name, defect)
                refusal = REFUSED
            if refusal is not None:
                found[node] = refusal
            elif otherwise:
                found.pop(node, None)
        return found

    def _first_refusal(self, judges: Iterable[tuple[str, NodeFilter]], node: NodeName) -> Refuse | None:
        for name, judge in judges:
            try:
                if (refusal := judge(node)) is not None:
                    return _known(refusal)
            except Exception as defect:
                self._contained.met(name, defect)
                return REFUSED
        return None

    # -- score ---------------------------------------------------------------------------------------------------

    def best_first(self, pod: Pod, nodes: Sequence[NodeName]) -> Iterator[NodeName]:
        """The nodes, the best for the pod first; of equals, the one that was sent first."""
        scorers = self._scorers(pod)
        if not scorers or len(nodes) < 2:
            yield from nodes
            return
        # Mostly the first is taken, and sorting thousands for that would take as long as all the rest.
        totals = {node: self._total(scorers, node) for node in nodes}
        best = max(nodes, key=totals.__getitem__)
        yield best
        yield from sorted((node for node in nodes if node != best), key=totals.__getitem__, reverse=True)

    def scores(self, pod: Pod, nodes: Sequence[NodeName]) -> Mapping[NodeName, int]:
        """From 0 to 10, without those of 0: the mean of the policies that have a preference."""
        scorers = self._scorers(pod)
        if not scorers:
            return {}
        share = _HIGHEST_SCORE / len(scorers)
        scored = ((node, int(share * self._total(scorers, node))) for node in nodes)
        return {node: score for node, score in scored if score}

    def _scorers(self, pod: Pod) -> list[tuple[str, Scorer]]:
        found, not_asked = list[tuple[str, Scorer]](), self._not_asked_about(pod)
        for name, hook in self._scores:
            if name in not_asked:
                continue
            # As in `_judges`.
            try:
                scorer = hook(pod, self._facts)
            except Exception as defect:
                self._contained.met(name, defect)
                continue
            if scorer is not None:
                found.append((name, scorer))
        return [each for each in found if each[0] in self._deciding] or found

    def preferred(self, pod: Pod) -> Scorer | None:
        """Scores of the policies that were chosen for the pod; None: they prefer no node."""
        scorers = [each for each in self._scorers(pod) if each[0] in self._deciding]
        return (lambda node: self._total(scorers, node)) if scorers else None

    def _total(self, scorers: Sequence[tuple[str, Scorer]], node: NodeName) -> float:
        return sum(self._contained.ask(name, partial(_score, scorer, node), 0.0) for name, scorer in scorers)


def _refuses_all(judge: NodeFilter) -> bool:
    """Whether no node is left for others to judge: calling them may be costly."""
    try:
        return isinstance(judge, OnlyTheseNodes) and not judge.nodes
    except Exception:
        # It is met again, and reported, where nodes are judged.
        return False


def _alike(policy: FiltersAlike, pod: Pod) -> Hashable:
    """Policies come from outside too, where types are not checked. Raises TypeError."""
    hash(alike := policy.alike(pod))
    return alike


def _score(scorer: Scorer, node: NodeName) -> float:
    return min(1.0, max(0.0, scorer(node)))


def _known(refusal: Refuse) -> Refuse:
    """Policies come from outside too, where types are not checked. Raises TypeError."""
    if isinstance(refusal, Refuse) and isinstance(refusal.reason, str):
        return refusal
    raise TypeError(f"it answers {refusal!r}, which is neither None nor a Refuse with a text")


def _told(refused: Mapping[NodeName, Refuse]) -> tuple[dict[NodeName, str], dict[NodeName, str]]:
    """The reasons of nodes where preemption helps, and of the others."""
    rejected: dict[NodeName, str] = {}
    unresolvable: dict[NodeName, str] = {}
    if refused and len(set(map(id, refused.values()))) == 1:
        # Thousands of nodes are mostly refused for the same reason.
        [refusal] = islice(refused.values(), 1)
        told = dict.fromkeys(refused, refusal.reason)
        return (told, unresolvable) if refusal.preemption_helps else (rejected, told)
    for node, refusal in refused.items():
        (rejected if refusal.preemption_helps else unresolvable)[node] = refusal.reason
    return rejected, unresolvable


def _in_order(sent: Sequence[NodeName], refused: Mapping[NodeName, Refuse]) -> dict[NodeName, Refuse]:
    return {node: refused[node] for node in sent if node in refused}


def _not_asked(policies: Sequence[Policy], asks_ephemeral: bool, is_governed: bool) -> frozenset[str]:
    unmet = [Concerns.EPHEMERAL] * (not asks_ephemeral) + [Concerns.GOVERNED] * (not is_governed)
    return frozenset(each.name for each in policies if getattr(each, "concerns", None) in unmet)
