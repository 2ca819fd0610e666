"""Population: the pods as they come, change, end and go, and what each is to the `Cache`.

A pod is understood as it asks: by its PodGroup, and not at all where its scheduler does not ask us. A call may tell of
a pod before any watch does. Must not know where a pod may go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from extender.app.answered_writes import Answered
from extender.app.cache.alternatives import Alternatives
from extender.app.cache.cache import Cache
from extender.app.cache.unschedulable_pods import UnschedulablePods
from extender.app.contracts.effects import AskRefused, Effect, PodEnded
from extender.app.cycle.bind import Binds
from extender.app.cycle.invalid_pods import InvalidPods
from extender.app.pod_group_events import PodGroupEvents
from extender.app.policy_rematch import Done, PolicyRematch
from extender.core.cluster import Pod
from extender.core.feedback import PoliciesChanged, TurnedAwayBefore
from extender.core.gang_ask import GangAsk, MalformedAsk
from extender.core.gangs.state.gang import WakePod
from extender.core.gangs.state.pod_groups import PodGroups
from extender.core.ledger import Holding, HoldingKind
from extender.core.matched_policy import is_placed_by
from extender.core.policy_matching import POLICY
from extender.core.policy_types import PolicyInForce
from extender.core.timers import earliest
from extender.kube.names import PodUid

SLICE = 200
"""Pods that are taken in at once: some ten milliseconds."""
_TURNS = 120
"""Pods that are governed by another of their alternatives at once, each counting as one more than it has policies:
some ten milliseconds."""
_HEARD_WITHIN = 5.0
"""Seconds. What is said of any pod tells that a Binding of before would have been told too."""
_UNSEEN_SECONDS = 120.0
"""So late can our watch be behind kube-scheduler's; a pod that it has not told of by then was gone before."""


class PodEvents:
    """`effects`: what is to be done is added there."""

    def __init__(self, cache: Cache, binds: Binds, turned_away: UnschedulablePods, effects: list[Effect]) -> None:
        self._cache = cache
        self._binds = binds
        self._unschedulable = turned_away
        self._effects = effects
        self.groups = PodGroups(cache.rules.most_together)
        self.group_news = PodGroupEvents(self.groups, cache.clock, self._understand_anew, SLICE)
        self.invalid_pods = InvalidPods(cache, self.groups, effects)
        self.answered = Answered(cache.clock)
        self.anew = PolicyRematch(cache.policy_matching, cache.pods.get, self._is_known_anew)
        cache.known_anew = cache.gangs.planning.plans.known_anew = self.anew.namespaces
        self._disproved: set[PodUid] = set()
        """Of whom a list that is being taken in says that they are not as they are known, or not at all."""
        self._listed = False
        self._finished: set[PodUid] = set()
        """Pods that have run to their end and that the API server still has."""
        self.not_asked_about: set[PodUid] = set()
        """Pods that waited when this life began, and that kube-scheduler has not asked about since: an earlier one may
        have turned them away."""
        self._hold_without_us: set[PodUid] = set()
        """Pods that hold a node since their filter, and whose bind nobody judges."""
        self._alternatives = Alternatives()
        self._unseen: dict[PodUid, float] = {}
        """Pods that a call has told of and no watch yet; and until when they are believed, oldest first."""

    # -- the watch -----------------------------------------------------------------------------------------------

    def begin(self, pods: Iterable[Pod], left_out: Mapping[PodUid, MalformedAsk]) -> None:
        """These pods exist, and another life has looked at them already."""
        self._listed = True
        self.invalid_pods.left_out = dict(left_out)
        for pod in sorted(pods, key=lambda pod: pod.finished):
            self.observe(pod)

    def replace(self, pods: Iterable[Pod]) -> Iterator[None]:
        """These pods and no others exist, and are as they are listed, once the slices are walked through. What is told
        between two is newer, and so is what a call of ours was answered since the list was asked for."""
        present = {pod.uid: pod for pod in pods}
        newer = self.answered.listed()
        gone = [uid for uid in self._known() if uid not in present and not self._may_be_newer(uid, newer)]
        self._disproved = {*gone, *(uid for uid in self._undone(present.values()) if uid not in newer)}
        # Those that are gone come first, and those that have not ended after all: a gang is not whole by either. And a
        # policy may count those that have finished only beside the living.
        first = sorted(uid for uid in self._disproved if uid not in present or uid in self._finished)
        listed = sorted(present.values(), key=lambda pod: pod.finished)
        for number, uid in enumerate([*first, *(pod.uid for pod in listed)], 1):
            if uid in self._disproved:
                self._disproved.discard(uid)
                self.forget(uid)
            if number > len(first):
                self.observe(present[uid])
            if number % SLICE == 0:
                yield
        if not self._listed:
            self._listed = True
            yield from self._take_all_for_asleep()

    def _known(self) -> set[PodUid]:
        holdings = self._cache.ledger.rows.holdings()
        bound = {PodUid(held.holder) for held in holdings if held.kind is HoldingKind.BOUND}
        return self._cache.pods.keys() | bound | self._finished

    def _undone(self, listed: Iterable[Pod]) -> Iterator[PodUid]:
        """Those that had ended, were bound, about to go or let through our gate, as we heard, and are not."""
        for pod in listed:
            before = self._cache.pods.get(pod.uid, pod)
            is_back = pod.uid in self._finished and not pod.finished
            is_undone = before.node not in (None, pod.node) or before.deleting > pod.deleting
            is_before_gate = pod.at_our_gate > before.at_our_gate and pod.uid not in self._unseen
            if is_back or is_undone or is_before_gate:
                yield pod.uid

    def observe(self, pod: Pod) -> None:
        """The pod is there and looks like this."""
        self._unseen.pop(pod.uid, None)
        before = self._cache.pods.get(pod.uid)
        if before is not None and pod.node == before.node and pod.deleting >= before.deleting:
            self.answered.heard(pod.uid)
        self._take(pod)
        after = self._cache.pods.get(pod.uid)
        if before is not None and after is not None and before.governed != after.governed:
            self._is_governed_otherwise(after)

    def _is_governed_otherwise(self, pod: Pod) -> None:
        """Its labels have changed, and no policy has."""
        self._reconsider(pod.uid)
        if pod.uid in self._unschedulable:
            # It was turned away for what is true no more, and kube-scheduler does not try it for that.
            self._unschedulable.drop(pod.uid)
            self._effects.append(WakePod(pod))
        self._cache.policies.following.heed(PoliciesChanged(pod.namespace), self._cache.clock.steady())

    def _take(self, pod: Pod) -> None:
        """The pod, as a watch has told of it, or a call, is known as it is governed now."""
        pod = self._as_it_asks(pod)
        if pod.finished:
            self._finish(pod)
            return
        cache, now = self._cache, self._cache.clock.steady()
        if pod.uid in cache.ended:
            # A list older than the pod had left it out, and a call about it may have been rejected for that.
            del cache.ended[pod.uid]
            if pod.node is None and cache.ours(pod) and not pod.at_our_gate:
                self._effects.append(WakePod(pod))
        known = cache.pods.get(pod.uid)
        if known is not None:
            if known.requests is not pod.requests and known.requests == pod.requests:
                # One vector a pod: members of a gang then share theirs, and comparisons are by identity first.
                pod = replace(pod, requests=known.requests)
            if pod.node is None and known.node is not None:
                # Told before its Binding was written, and heard after.
                pod = replace(pod, node=known.node, attempt=known.attempt)
            if known.deleting and not pod.deleting:
                # Or before its eviction was taken: nobody about to go stays.
                pod = replace(pod, deleting=True)
        if isinstance(pod.gang, MalformedAsk) and pod.at_our_gate and (known is None or known.gang != pod.gang):
            # No filter will come to say so.
            self._effects.append(AskRefused(pod, pod.gang))
        cache.keep(pod)
        if pod.node is not None:
            owner = pod.gang.key if isinstance(pod.gang, GangAsk) else None
            cache.ledger.confirm(pod.uid, on=pod.node, units=pod.requests, owner=owner)
            self._unschedulable.drop(pod.uid)
            self._hold_without_us.discard(pod.uid)
            cache.waits.forget(pod.uid)
            self._binds.is_bound(pod.uid)
        elif pod.uid in self._unschedulable:
            self._unschedulable.add(pod)
        self._heed_alternatives(pod, now)
        cache.policies.following.observe(pod, now)
        if pod.node is not None and cache.of_one.end(pod.uid):
            self._is_none_any_more(pod, now)

    def take_for_one(self, pod: Pod) -> Pod:
        """The pod of which kube-scheduler asks is a gang of one from now on, and known as that."""
        cache = self._cache
        self.believe(pod)
        cache.of_one.uids.add(pod.uid)
        known = cache.of_one.understood(cache.pods.get(pod.uid, pod))
        self._unschedulable.drop(pod.uid)
        cache.keep(known)
        cache.policies.following.observe(known, cache.clock.steady())
        return cache.of_one.understood(pod)

    def _is_none_any_more(self, pod: Pod, now: float) -> None:
        """A gang of one is bound, and what holds for gangs holds for the pod no more."""
        cache, pod = self._cache, replace(pod, gang=None)
        cache.keep(pod)
        if pod.node is not None:
            cache.ledger.confirm(pod.uid, on=pod.node, units=pod.requests, owner=None)
        cache.policies.following.observe(pod, now)

    def _heed_alternatives(self, pod: Pod, now: float) -> None:
        if pod.node is None and (pod.governed or pod.annotations):
            self._alternatives.waits(pod.uid, self._cache.policy_matching.alternatives(pod), now)
        else:
            self._alternatives.forget(pod.uid)

    def _as_it_asks(self, pod: Pod) -> Pod:
        """The pod with its ask as it is to be understood: a stranger's says nothing to us."""
        cache = self._cache
        self.groups.remember(pod)
        cache.foreign_pods.remember(pod)
        if not pod.finished:
            cache.policy_matching.remember(pod)
        return self._resolved(pod)

    def _resolved(self, pod: Pod) -> Pod:
        """The pod with its ask, as others' news have it."""
        pod = self._cache.policy_matching.resolved(pod)
        if self._cache.foreign_pods.asks(pod):
            pod = replace(pod, gang=None)
        else:
            pod = self._cache.of_one.understood(self.groups.resolved(pod))
        told = self.invalid_pods.left_out.get(pod.uid)
        return replace(pod, gang=told) if told and pod.node is None and isinstance(pod.gang, GangAsk) else pod

    def as_asked(self, pod: Pod) -> Pod:
        """The pod of which kube-scheduler asks, with its ask as it is to be understood."""
        self.not_asked_about.discard(pod.uid)
        return self._cache.of_one.understood(self.groups.resolved(self._cache.policy_matching.resolved(pod)))

    def _finish(self, pod: Pod) -> None:
        cache = self._cache
        self._finished.add(pod.uid)
        if cache.drop(pod.uid) is not None:
            self._effects.append(PodEnded(pod))
            cache.policies.following.forget(pod)
            cache.ended[pod.uid] = None
        self._leave(pod.uid)
        cache.policy_matching.forget(pod.uid)
        cache.ledger.forget(pod.uid)
        cache.policies.following.finished(pod, cache.clock.steady())

    def forget(self, uid: PodUid) -> None:
        """The pod is deleted."""
        cache = self._cache
        cache.ended[uid] = None
        self._unseen.pop(uid, None)
        self.groups.forget(uid)
        cache.foreign_pods.forget(uid)
        cache.policy_matching.forget(uid)
        self._finished.discard(uid)
        pod = cache.drop(uid)
        if pod is not None:
            self._effects.append(PodEnded(pod))
            cache.policies.following.forget(pod)
        self._leave(uid)
        cache.policies.following.deleted(uid, cache.clock.steady())
        cache.ledger.forget(uid)

    def _leave(self, uid: PodUid) -> None:
        """Nothing is to be done about it any more, and it is in nobody's way."""
        self._binds.end(uid)
        self._cache.of_one.end(uid)
        self.not_asked_about.discard(uid)
        self.invalid_pods.end(uid)
        self._hold_without_us.discard(uid)
        self._alternatives.forget(uid)
        self._unschedulable.drop(uid)
        self._cache.waits.forget(uid)
        self.answered.heard(uid)

    def told(self) -> Iterator[Pod]:
        """All that are there as they are told of, and as far as we have brought them meanwhile."""
        for told in self._cache.policy_matching.told():
            pod = self._cache.pods.get(told.uid, told)
            yield replace(told, node=pod.node, attempt=pod.attempt, deleting=pod.deleting)

    def is_leaving(self, uid: PodUid) -> None:
        """The API server has taken its eviction."""
        known = self._cache.pods.get(uid)
        if known is not None and not known.deleting:
            self.observe(replace(known, deleting=True))
            self.answered.note(uid)

    def _take_all_for_asleep(self) -> Iterator[None]:
        waiting = [pod.uid for pod in self._cache.pods.values() if pod.node is None]
        for first in range(0, len(waiting), SLICE):
            yield
            uids = waiting[first : first + SLICE]
            self._take_for_asleep(pod for uid in uids if (pod := self._cache.pods.get(uid)) is not None)

    def _take_for_asleep(self, pods: Iterable[Pod]) -> None:
        """An earlier life of the service may have turned these away: nobody else would wake them."""
        cache = self._cache
        for pod in [pod for pod in pods if pod.node is None and cache.ours(pod)]:
            if cache.policies.placing.places(pod):
                cache.policies.following.heed(TurnedAwayBefore(pod), cache.clock.steady())
            elif not (pod.gated or pod.at_our_gate):
                if isinstance(pod.gang, MalformedAsk) or cache.policies.judging.malformed(pod) is not None:
                    self.invalid_pods.add(pod)
                elif cache.asks_ephemeral(pod) or is_placed_by(pod.governed):
                    self._unschedulable.add_unasked(pod)
                    if cache.of_one.why_none(pod) is None:
                        # That it is to be a gang of one is seen when kube-scheduler asks about it again.
                        self._effects.append(WakePod(pod))
                else:
                    self.not_asked_about.add(pod.uid)

    # -- groups --------------------------------------------------------------------------------------------------

    def _understand_anew(self, members: Iterable[Pod]) -> None:
        """Their PodGroup says something else, or is not there any more."""
        for pod in members:
            self.observe(pod)
            if self.groups.to_wake(pod):
                self._effects.append(WakePod(pod))

    # -- policies ------------------------------------------------------------------------------------------------

    def governed_anew(self, namespace: str, name: str, policy: PolicyInForce | None) -> None:
        """Whom the policy governs from now on, or has governed, is to be known as it is governed now."""
        policy_matching = self._cache.policy_matching
        if policy_matching.drop(namespace, name) if policy is None else policy_matching.put(namespace, name, policy):
            self.anew.changed(namespace)

    def are_known_anew(self, done: Iterable[Done]) -> Iterator[str]:
        """Whoever is concerned looks at these namespaces again; their names."""
        cache = self._cache
        for each in done:
            if each.changed or each.asked:
                cache.policies.following.heed(PoliciesChanged(each.namespace), cache.clock.steady())
            for pod in (cache.pods.get(uid) for uid in each.asked):
                if pod is not None and pod.node is None:
                    self._unschedulable.drop(pod.uid)
                    self._effects.append(WakePod(pod))
            yield each.namespace

    def _is_known_anew(self, told: Pod) -> None:
        # What was held for it was so as it was governed before; bind is the decision.
        self._reconsider(told.uid)
        self._know_anew(told)

    def _reconsider(self, uid: PodUid) -> None:
        if uid not in self._hold_without_us:
            self._binds.reconsider(uid)

    def _know_anew(self, told: Pod) -> None:
        known = self._cache.pods.get(told.uid)
        if known is not None:
            if known.uid in self.not_asked_about:
                self._unschedulable.add(known)
            if told.node != known.node or told.attempt != known.attempt or told.deleting != known.deleting:
                told = replace(told, node=known.node, attempt=known.attempt, deleting=known.deleting)
            if known.node is not None:
                self._stands_anew(told)
            else:
                # Nobody has told of it again: one that no watch knows is believed for no longer than before.
                self._take(told)

    def _stands_anew(self, told: Pod) -> None:
        """As `_take`, of a pod that is known to be bound, and of which nothing has changed but what governs it: a
        policy may govern many thousands."""
        cache = self._cache
        pod = self._resolved(told)
        if (known := cache.pods[pod.uid]).requests is not pod.requests:
            pod = replace(pod, requests=known.requests)
        cache.keep(pod)
        cache.policies.following.observe(pod, cache.clock.steady())

    def next_alternative(self, pod: Pod, by: int) -> Pod:
        """The pod of which kube-scheduler asks, governed by another of the alternatives that it names, so far on."""
        if (told := self._cache.policy_matching.take_turn(pod.uid, POLICY, by)) is not None:
            self._know_anew(told)
        return self.as_asked(pod)

    def heed_turns(self, now: float) -> list[PodUid]:
        """Who has waited for long enough is governed by the next of its alternatives, so many at a time. Those are in
        nobody's way, as they were before."""
        cache, changed, in_gangs = self._cache, list[PodUid](), set[str]()
        left = _TURNS
        for uid, which in self._alternatives.due(now):
            if self._waits_in_vain(uid) and (told := cache.policy_matching.take_turn(uid, which)) is not None:
                self._know_anew(told)
                left -= 1 + len(cache.pods[uid].governed)
                changed.append(uid)
                if cache.policies.placing.owned(uid):
                    in_gangs.add(told.namespace)
            if left <= 0:
                break
        for namespace in sorted(in_gangs):
            cache.policies.following.heed(PoliciesChanged(namespace), now)
        return changed

    def _waits_in_vain(self, uid: PodUid) -> bool:
        """Whether nothing is held for the pod, and, if it is in no gang, it is asleep: who was woken is to be tried by
        what woke it."""
        pod = self._cache.pods.get(uid)
        if pod is None or self._cache.ledger.holding(uid) is not None:
            return False
        return uid in self._unschedulable or self._cache.policies.placing.places(pod)

    # -- who is bound without us ---------------------------------------------------------------------------------

    def holds_without_us(self, uid: PodUid, alone: bool) -> None:
        """The pod holds a node from its filter on. `alone`: nobody judges its bind."""
        if alone:
            self._hold_without_us.add(uid)
        else:
            self._hold_without_us.discard(uid)

    def stays_held(self, held: Holding) -> float:
        """For how many seconds more something is held for a pod that others bind: it may be bound, and no watch has
        said anything of late."""
        binds_itself = held.kind is HoldingKind.ASSUMPTION and held.owner is None
        return _HEARD_WITHIN if binds_itself and self._cache.staleness.age("pods") > _HEARD_WITHIN else 0.0

    # -- calls ---------------------------------------------------------------------------------------------------

    def learn(self, scheduler: str) -> None:
        """This profile of kube-scheduler has called: its pods are ours to look after."""
        cache = self._cache
        if cache.foreign_pods.are_ours(scheduler):
            return
        theirs = cache.foreign_pods.learn(scheduler)
        for pod in theirs:
            self.observe(pod)
        self._take_for_asleep(cache.pods[pod.uid] for pod in theirs if pod.uid in cache.pods)
        for pod in cache.pods.values():
            if pod.scheduler == scheduler:
                cache.around.staying.observe(pod, None)

    def believe(self, pod: Pod) -> None:
        """A call has told of the pod, which is there for as long as our watch can be late."""
        cache = self._cache
        if pod.uid in cache.pods or pod.uid in cache.ended or pod.node is not None:
            return
        # The scheduler's watch was ahead of ours; or behind, and the pod is no more.
        cache.policy_matching.remember(pod)
        cache.keep(pod)
        self._heed_alternatives(pod, cache.clock.steady())
        cache.policies.following.observe(pod, cache.clock.steady())
        self._unseen[pod.uid] = cache.clock.steady() + _UNSEEN_SECONDS

    def is_there(self, uid: PodUid) -> None:
        """The API server has it, though no watch may have told of it yet, nor the list that is being taken in."""
        self.answered.note(uid, told=uid not in self._unseen)
        self._unseen.pop(uid, None)
        self._disproved.discard(uid)

    def _may_be_newer(self, uid: PodUid, answered: Mapping[PodUid, bool]) -> bool:
        """Whether a list that lacks the pod may be older than it: it was bound since the list was asked for, or is
        being bound, and nothing but calls has told of it."""
        return not answered.get(uid, True) or self._is_on_its_way(uid)

    def _is_on_its_way(self, uid: PodUid) -> bool:
        """Whether the Binding is being written of a pod of which no watch has told: a list may be older than it."""
        held = self._cache.ledger.holding(uid)
        return uid in self._unseen and held is not None and held.until is None

    def next_deadline(self) -> float | None:
        unseen = next(iter(self._unseen.values()), None)
        return earliest(unseen, self._alternatives.next_deadline(), self.group_news.next_deadline())

    def heed_time(self, now: float) -> None:
        """Whom no watch has told of in time was gone before."""
        self.group_news.heed_time(now)
        for uid in [uid for uid, until in self._unseen.items() if until <= now]:
            if self._is_on_its_way(uid):
                # Its Binding is on its way, and would come to room that others were given: as where the whole process
                # was stopped for so long. The answer settles it.
                del self._unseen[uid]
                self._unseen[uid] = now + _UNSEEN_SECONDS
            else:
                self.forget(uid)
