"""Filter: which nodes a pod may use; a pod that holds its room from then on gets one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from extender.app.cache.assumed_pods import AssumedPods
from extender.app.cache.cache import Cache
from extender.app.cache.staleness import STALE
from extender.app.cache.unschedulable_pods import UnschedulablePods
from extender.app.cache.waiting_binds import OVERFULL
from extender.app.contracts.effects import Effect
from extender.app.contracts.extender_api import Verdict
from extender.app.cycle.bind import GONE, KNOWN_ANEW, Binds
from extender.app.cycle.pod_events import PodEvents
from extender.app.cycle.requeue import Requeue
from extender.app.policies.fault_isolation import REFUSED
from extender.core.cluster import Pod
from extender.core.gang_ask import MalformedAsk
from extender.core.gang_of_one import WAITS
from extender.core.gangs.placement.slots import SAMPLE_FLOOR
from extender.core.gangs.state.gang import NO_ROOM, WakePod
from extender.core.names import MANAGED
from extender.core.policies.matched_policy import is_placed_by
from extender.core.policies.policy_matching import MOST_GOVERNING, bare, governed_form
from extender.core.policy import Refuse
from extender.kube.names import NodeName

BOUND = "the pod is already bound to another node"
GATED = "the pod has scheduling gates"
UNMANAGED = (
    f"Escher must bind the pod, but it lacks {MANAGED}: apply deploy/policies/mark-pods.yaml and create it again"
)
_ROUNDS = 8
"""Rounds through all nodes for one pod's samples; other pods' samples take a part of each."""


class Filtering:
    """Answers filter calls. Adds what is to be done to `effects`."""

    def __init__(
        self,
        cache: Cache,
        pod_events: PodEvents,
        binds: Binds,
        unschedulable: UnschedulablePods,
        assumed_pods: AssumedPods,
        requeue: Requeue,
        effects: list[Effect],
    ) -> None:
        self._cache = cache
        self._pod_events = pod_events
        self._binds = binds
        self._unschedulable = unschedulable
        self._assumed_pods = assumed_pods
        self._requeue = requeue
        self._effects = effects

    def filter(self, pod: Pod, sent: Sequence[NodeName], *, alone: bool = False) -> Verdict:
        """Which of the sent nodes the pod may use; one for a gang's member or a pod that reserves.

        `alone`: kube-scheduler binds the pod. It is refused if it needs Escher's bind; else the best nodes pass."""
        cache = self._cache
        if cache.safety_switches.observes(pod.namespace):
            return self._let_pass(pod, sent)
        if pod.uid in cache.ended:
            return _nowhere(sent, GONE)
        ask = pod.gang if isinstance(pod.gang, MalformedAsk) else cache.policies.filter_score.malformed(pod)
        if ask is not None:
            self._pod_events.assume(pod)
            self._pod_events.invalid_pods.refuse(pod, ask)
            return _nowhere(sent, ask.reason)
        self._pod_events.invalid_pods.is_understood(pod.uid)
        known = cache.pods.get(pod.uid, pod)
        if known.deleting:
            return _nowhere(sent, GONE)
        if pod.gated or pod.at_our_gate:
            # kube-scheduler asks about no such pod.
            return _nowhere(sent, GATED)
        if known.node is not None:
            # kube-scheduler has not seen the pod's Binding yet, or takes the bind for failed.
            passed = [known.node] if known.node in sent else []
            return Verdict(passed, unresolvable=dict.fromkeys((node for node in sent if node not in passed), BOUND))
        # If kube-scheduler binds the pod itself, no bind call follows this filter call.
        guarded = alone and not cache.ledger.totals.unbound_on.keys().isdisjoint(sent)
        if not cache.whole and (guarded or cache.judges(pod)):
            self._assumed_pods.ended(pod.uid)
            self._effects.append(WakePod(pod))
            return _nowhere(sent, STALE)
        self._pod_events.assume(pod)
        if pod.namespace in cache.known_anew and cache.judges(pod):
            self._pod_events.anew.was_asked(pod)
            return self._not_now(pod, sent, KNOWN_ANEW)
        placed_by_us = cache.policies.reserve_permit.places(pod)
        if alone and (placed_by_us or cache.asks_ephemeral(pod)):
            self._pod_events.invalid_pods.leave_out(pod, UNMANAGED)
            self._requeue.settle()
            return _nowhere(sent, UNMANAGED)
        self._pod_events.invalid_pods.take_back_in(pod)
        reserves = placed_by_us or self._reserves(pod, alone=alone)
        if reserves and cache.ledger.holding(pod.uid) is None and cache.staleness.is_stale():
            # Escher still has to find a node for the pod.
            return self._not_now(pod, sent, STALE)
        verdict = self._have_placed(pod, sent) if placed_by_us else self._place_alone(pod, sent, reserves, alone=alone)
        if alone and len(verdict.passed) > 1 and (scores := cache.policies.filter_score.scores(pod, verdict.passed)):
            best = max(scores.values())
            verdict = replace(verdict, passed=[node for node in verdict.passed if scores.get(node) == best])
        self._requeue.settle_if_changed()
        return verdict

    def _have_placed(self, pod: Pod, sent: Sequence[NodeName]) -> Verdict:
        """The verdict for a pod whose node a policy chooses."""
        cache = self._cache
        # Apply all changes first: pods and gangs before this one in the queue may take the room.
        self._requeue.settle()
        allowed = cache.policies.filter_score.verdict_beside_plans(pod, sent)
        if sent and not allowed.passed:
            self._unschedulable.add(pod)
            return allowed
        place = cache.policies.reserve_permit.place(pod, allowed.passed, cache.clock.steady())
        if isinstance(place, Refuse):
            if place is REFUSED:
                # Nothing else wakes the pod.
                self._unschedulable.add(pod)
            of_one = pod.uid in cache.of_one.uids and place.reason == NO_ROOM
            refused = dict.fromkeys(sent, WAITS if of_one else place.reason)
            return replace(allowed, passed=(), unresolvable=refused | dict(allowed.unresolvable))
        return self._judged(pod, [place])

    def _place_alone(self, asked: Pod, sent: Sequence[NodeName], reserves: bool, *, alone: bool) -> Verdict:
        pod = self._first_to_be_had(asked, sent)
        verdict = self._judged(pod, sent)
        if not verdict.passed and not alone and self._cache.of_one.wants(pod, verdict):
            return self._have_placed(self._pod_events.take_for_one(pod), sent)
        if verdict.passed:
            if reserves if pod is asked else self._reserves(pod, alone=alone):
                verdict = self._reserve_one(pod, verdict, alone=alone)
            if verdict.passed:
                self._assumed_pods.passed(pod, verdict.passed, self._cache.clock.steady())
        return verdict

    def _first_to_be_had(self, pod: Pod, sent: Sequence[NodeName]) -> Pod:
        """The pod under its first alternative that leaves it a node, from the one whose turn it is.

        If none does, it keeps the present one: a reason that changes would make kube-scheduler retry at once."""
        policy_matching, judging = self._cache.policy_matching, self._cache.policies.filter_score
        if not sent or policy_matching.its_own(pod) < 2:
            return pod
        # Judge once what all alternatives share; then judge the nodes that remain by what each one adds.
        ahead = policy_matching.ahead(bare(pod))
        shared = frozenset(ahead[0]).intersection(*ahead[1:])
        common = tuple(each for each in ahead[0] if each in shared)
        if len(common) > MOST_GOVERNING:
            return pod
        left = judging.verdict(governed_form(bare(pod), common), sent).passed
        for number, governed in enumerate(ahead if left else ()):
            own = tuple(each for each in governed if each not in shared)
            if len(governed) <= MOST_GOVERNING and judging.verdict(governed_form(bare(pod), own), left).passed:
                return self._pod_events.next_alternative(pod, number) if number else pod
        return pod

    def _judged(self, pod: Pod, sent: Sequence[NodeName]) -> Verdict:
        verdict = self._cache.policies.filter_score.verdict(pod, sent)
        if verdict.passed:
            self._unschedulable.drop(pod.uid)
            self._cache.waits.passed(pod.uid)
        else:
            self._unschedulable.add(pod)
            if sent and pod.governed and (told := self._cache.waits.of_pod(pod, verdict, self._cache.clock.steady())):
                self._effects.append(told)
            self._assumed_pods.ended(pod.uid)
            self._wake_for_another_sample(pod, sent)
        return verdict

    def _wake_for_another_sample(self, pod: Pod, sent: Sequence[NodeName]) -> None:
        """Wakes the pod if kube-scheduler's sample missed the nodes that policies leave it."""
        cache = self._cache
        if not pod.governed or not SAMPLE_FLOOR <= len(sent) < len(cache.nodes):
            return
        could_go = cache.policies.filter_score.passes(pod)
        offered = frozenset(sent)
        if not any(could_go(node) for node in cache.nodes if node not in offered):
            return
        # kube-scheduler may never offer them, because of volumes and the like, about which Escher knows nothing.
        if self._unschedulable.woken_for_a_sample(pod.uid, _ROUNDS * -(-len(cache.nodes) // len(sent))):
            self._effects.append(WakePod(pod))

    def _reserves(self, pod: Pod, *, alone: bool) -> bool:
        """Whether filter holds a node for the pod; a pod judged at its bind can do without."""
        cache = self._cache
        return (alone or cache.rules.reserve_at_filter) and (cache.asks_ephemeral(pod) or is_placed_by(pod.governed))

    def _reserve_one(self, pod: Pod, verdict: Verdict, *, alone: bool) -> Verdict:
        """Holds the pod's units on a passed node: the one held before, else the best with room."""
        cache = self._cache
        before = cache.ledger.holding(pod.uid)
        kept = before is not None and before.node in verdict.passed
        judging = cache.policies.filter_score
        wanted = [before.node] if before is not None and kept else judging.best_first(pod, verdict.passed)
        until = cache.clock.steady() + cache.rules.assume_seconds
        for node in wanted:
            if self._binds.assume(pod, node, until):
                self._pod_events.holds_without_us(pod.uid, alone)
                return replace(verdict, passed=[node])
        if alone:
            # Otherwise others would be judged as if this pod were nowhere. It waits until Escher knows what
            # kube-scheduler knows.
            self._unschedulable.add(pod)
            full = dict.fromkeys(verdict.passed, OVERFULL)
            return replace(verdict, passed=(), unresolvable=full | dict(verdict.unresolvable))
        # kube-scheduler matches what is short and says it fits: it has seen a change that has not reached Escher yet.
        return verdict

    def _not_now(self, pod: Pod, sent: Sequence[NodeName], why: str) -> Verdict:
        """Refuses every node without planning; the pod is woken when planning is possible."""
        if not self._cache.policies.reserve_permit.sleeps(pod, self._cache.clock.steady()):
            self._unschedulable.add(pod)
        self._assumed_pods.ended(pod.uid)
        self._requeue.settle()
        return _nowhere(sent, why)

    def _let_pass(self, pod: Pod, sent: Sequence[NodeName]) -> Verdict:
        """Passes every node and holds nothing; emits what would have been refused."""
        cache, now = self._cache, self._cache.clock.steady()
        self._pod_events.assume(pod)
        self._unschedulable.drop(pod.uid)
        self._assumed_pods.passed(pod, sent, now)
        self._effects += cache.observing.filtered(cache.pods.get(pod.uid, pod), sent, now)
        self._requeue.settle()
        return Verdict(sent)


def _nowhere(sent: Sequence[NodeName], reason: str) -> Verdict:
    return Verdict(unresolvable=dict.fromkeys(sent, reason))
