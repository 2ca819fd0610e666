"""Pod events: applies what lists, watches and calls report about pods to the `Cache`.

A pod's ask is read through its PodGroup, and ignored if its scheduler does not call Escher. A call may report a pod
before any watch does.
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
from extender.core.common.timers import earliest
from extender.core.feedback import PoliciesChanged, TurnedAwayBefore
from extender.core.gang_ask import GangAsk, MalformedAsk
from extender.core.gangs.state.gang import WakePod
from extender.core.gangs.state.pod_groups import PodGroups
from extender.core.ledger.ledger import Holding, HoldingKind
from extender.core.policies.matched_policy import is_placed_by
from extender.core.policies.policy_matching import POLICY
from extender.core.policies.policy_types import PolicyInForce
from extender.kube.names import PodUid

SLICE = 200
"""Pods that are taken in at once: about ten milliseconds."""
_TURNS = 120
"""Limit of alternative changes at once, each 1 + policies of the pod: about ten milliseconds."""
_HEARD_WITHIN = 5.0
"""Seconds. News of pods within this time shows that a Binding would have been reported too."""
_UNSEEN_SECONDS = 120.0
"""Seconds by which Escher's watch may lag; a pod not reported by then was gone before."""


class PodEvents:
    """Takes in pods. Adds what is to be done to `effects`."""

    def __init__(self, cache: Cache, binds: Binds, unschedulable: UnschedulablePods, effects: list[Effect]) -> None:
        self._cache = cache
        self._binds = binds
        self._unschedulable = unschedulable
        self._effects = effects
        self.groups = PodGroups(cache.rules.most_together)
        self.group_news = PodGroupEvents(self.groups, cache.clock, self._understand_anew, SLICE)
        self.invalid_pods = InvalidPods(cache, self.groups, effects)
        self.answered = Answered(cache.clock)
        self.anew = PolicyRematch(cache.policy_matching, cache.pods.get, self._is_known_anew)
        cache.known_anew = cache.gangs.planning.plans.known_anew = self.anew.namespaces
        self._disproved: set[PodUid] = set()
        """Pods that the list being taken in shows to be gone, or other than the cache has them."""
        self._listed = False
        self._finished: set[PodUid] = set()
        """Finished pods that the API server still has."""
        self.not_asked_about: set[PodUid] = set()
        """Pods waiting since the start without any call; an earlier run may have refused them."""
        self._hold_without_us: set[PodUid] = set()
        """Pods that hold a node since their filter, and whose bind Escher does not judge."""
        self._alternatives = Alternatives()
        self._unseen: dict[PodUid, float] = {}
        """Pods that only calls have reported, and until when they are believed, oldest first."""

    # -- the watch -----------------------------------------------------------------------------------------------

    def begin(self, pods: Iterable[Pod], left_out: Mapping[PodUid, MalformedAsk]) -> None:
        """These pods exist, and another run of the service has looked at them already."""
        self._listed = True
        self.invalid_pods.left_out = dict(left_out)
        for pod in sorted(pods, key=lambda pod: pod.finished):
            self.observe(pod)

    def replace(self, pods: Iterable[Pod]) -> Iterator[None]:
        """These pods and no others exist, as listed, once the caller has walked through the slices.

        News between two slices is newer, and so are the answers to Escher's writes since the list was requested."""
        present = {pod.uid: pod for pod in pods}
        newer = self.answered.listed()
        gone = [uid for uid in self._known() if uid not in present and not self._may_be_newer(uid, newer)]
        self._disproved = {*gone, *(uid for uid in self._undone(present.values()) if uid not in newer)}
        # Pods that are gone, and pods that have not finished after all, come first: neither makes a gang whole.
        # Finished pods come last, because a policy may count them only beside the living.
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
        """Listed pods that went back: from finished, bound, deleting, or past Escher's gate."""
        for pod in listed:
            before = self._cache.pods.get(pod.uid, pod)
            is_back = pod.uid in self._finished and not pod.finished
            is_undone = before.node not in (None, pod.node) or before.deleting > pod.deleting
            is_before_gate = pod.at_our_gate > before.at_our_gate and pod.uid not in self._unseen
            if is_back or is_undone or is_before_gate:
                yield pod.uid

    def observe(self, pod: Pod) -> None:
        self._unseen.pop(pod.uid, None)
        before = self._cache.pods.get(pod.uid)
        if before is not None and pod.node == before.node and pod.deleting >= before.deleting:
            self.answered.heard(pod.uid)
        self._take(pod)
        after = self._cache.pods.get(pod.uid)
        if before is not None and after is not None and before.governed != after.governed:
            self._is_governed_otherwise(after)

    def _is_governed_otherwise(self, pod: Pod) -> None:
        """The pod's labels have changed, and thus its policies; no policy has changed."""
        self._reconsider(pod.uid)
        if pod.uid in self._unschedulable:
            # The reason of the refusal is not true any more, and kube-scheduler does not retry the pod for that.
            self._unschedulable.drop(pod.uid)
            self._effects.append(WakePod(pod))
        self._cache.policies.event_hooks.on_event(PoliciesChanged(pod.namespace), self._cache.clock.steady())

    def _take(self, pod: Pod) -> None:
        """Takes in a pod that a watch or a call reported, with the policies that match it now."""
        pod = self._as_it_asks(pod)
        if pod.finished:
            self._finish(pod)
            return
        cache, now = self._cache, self._cache.clock.steady()
        if pod.uid in cache.ended:
            # A list older than the pod lacked it, and a call about the pod may have been rejected for that.
            del cache.ended[pod.uid]
            if pod.node is None and cache.ours(pod) and not pod.at_our_gate:
                self._effects.append(WakePod(pod))
        known = cache.pods.get(pod.uid)
        if known is not None:
            if known.requests is not pod.requests and known.requests == pod.requests:
                # Keep one vector a pod: members of a gang then share theirs, and comparisons are by identity first.
                pod = replace(pod, requests=known.requests)
            if pod.node is None and known.node is not None:
                # The report was made before the pod's Binding was written, and arrived after.
                pod = replace(pod, node=known.node, attempt=known.attempt)
            if known.deleting and not pod.deleting:
                # Or it was made before the eviction was accepted: a deleting pod does not stay.
                pod = replace(pod, deleting=True)
            if pod.at_our_gate and not known.at_our_gate:
                # Or it was made before the gate was removed: a gate never comes back, except by a restore (`_undone`).
                pod = replace(pod, at_our_gate=False)
        if isinstance(pod.gang, MalformedAsk) and pod.at_our_gate and (known is None or known.gang != pod.gang):
            # No filter call will come to report this.
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
        self._on_alternatives(pod, now)
        cache.policies.event_hooks.observe(pod, now)
        if pod.node is not None and cache.of_one.end(pod.uid):
            self._is_none_any_more(pod, now)

    def take_for_one(self, pod: Pod) -> Pod:
        """Makes the pod that kube-scheduler asks about a gang of one, and returns it as that."""
        cache = self._cache
        self.assume(pod)
        cache.of_one.uids.add(pod.uid)
        known = cache.of_one.understood(cache.pods.get(pod.uid, pod))
        self._unschedulable.drop(pod.uid)
        cache.keep(known)
        cache.policies.event_hooks.observe(known, cache.clock.steady())
        return cache.of_one.understood(pod)

    def _is_none_any_more(self, pod: Pod, now: float) -> None:
        """A gang of one is bound: the rules for gangs apply to the pod no more."""
        cache, pod = self._cache, replace(pod, gang=None)
        cache.keep(pod)
        if pod.node is not None:
            cache.ledger.confirm(pod.uid, on=pod.node, units=pod.requests, owner=None)
        cache.policies.event_hooks.observe(pod, now)

    def _on_alternatives(self, pod: Pod, now: float) -> None:
        if pod.node is None and (pod.governed or pod.annotations):
            self._alternatives.waits(pod.uid, self._cache.policy_matching.alternatives(pod), now)
        else:
            self._alternatives.forget(pod.uid)

    def _as_it_asks(self, pod: Pod) -> Pod:
        """Remembers the pod and returns it with its ask as Escher reads it (none if foreign)."""
        cache = self._cache
        self.groups.remember(pod)
        cache.foreign_pods.remember(pod)
        if not pod.finished:
            cache.policy_matching.remember(pod)
        return self._resolved(pod)

    def _resolved(self, pod: Pod) -> Pod:
        """The pod with its ask, as its PodGroup, its policies and its scheduler define it."""
        pod = self._cache.policy_matching.resolved(pod)
        if self._cache.foreign_pods.asks(pod):
            pod = replace(pod, gang=None)
        else:
            pod = self._cache.of_one.understood(self.groups.resolved(pod))
        told = self.invalid_pods.left_out.get(pod.uid)
        return replace(pod, gang=told) if told and pod.node is None and isinstance(pod.gang, GangAsk) else pod

    def as_asked(self, pod: Pod) -> Pod:
        """The pod that kube-scheduler asks about, with its ask as Escher reads it."""
        self.not_asked_about.discard(pod.uid)
        return self._cache.of_one.understood(self.groups.resolved(self._cache.policy_matching.resolved(pod)))

    def _finish(self, pod: Pod) -> None:
        cache = self._cache
        self._finished.add(pod.uid)
        if cache.drop(pod.uid) is not None:
            self._effects.append(PodEnded(pod))
            cache.policies.event_hooks.forget(pod)
            cache.ended[pod.uid] = None
        self._leave(pod.uid)
        cache.policy_matching.forget(pod.uid)
        cache.ledger.forget(pod.uid)
        cache.policies.event_hooks.finished(pod, cache.clock.steady())

    def forget(self, uid: PodUid) -> None:
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
            cache.policies.event_hooks.forget(pod)
        self._leave(uid)
        cache.policies.event_hooks.deleted(uid, cache.clock.steady())
        cache.ledger.forget(uid)

    def _leave(self, uid: PodUid) -> None:
        """Nothing is left to do about the pod, and it blocks no other pod."""
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
        """All pods as last reported, with the node and deletion that Escher itself has caused."""
        for told in self._cache.policy_matching.told():
            pod = self._cache.pods.get(told.uid, told)
            yield replace(told, node=pod.node, attempt=pod.attempt, deleting=pod.deleting)

    def is_leaving(self, uid: PodUid) -> None:
        """The API server has accepted the pod's eviction."""
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
        """An earlier run of the service may have refused these pods: nothing else wakes them."""
        cache = self._cache
        for pod in [pod for pod in pods if pod.node is None and cache.ours(pod)]:
            if cache.policies.reserve_permit.places(pod):
                cache.policies.event_hooks.on_event(TurnedAwayBefore(pod), cache.clock.steady())
            elif not (pod.gated or pod.at_our_gate):
                if isinstance(pod.gang, MalformedAsk) or cache.policies.filter_score.malformed(pod) is not None:
                    self.invalid_pods.add(pod)
                elif cache.asks_ephemeral(pod) or is_placed_by(pod.governed):
                    self._unschedulable.add_unasked(pod)
                    if cache.of_one.why_none(pod) is None:
                        # Whether it becomes a gang of one is decided when kube-scheduler asks about it again.
                        self._effects.append(WakePod(pod))
                else:
                    self.not_asked_about.add(pod.uid)

    # -- groups --------------------------------------------------------------------------------------------------

    def _understand_anew(self, members: Iterable[Pod]) -> None:
        """Takes the members in again: their PodGroup has changed or does not exist any more."""
        for pod in members:
            self.observe(pod)
            if self.groups.to_wake(pod):
                self._effects.append(WakePod(pod))

    # -- policies ------------------------------------------------------------------------------------------------

    def governed_anew(self, namespace: str, name: str, policy: PolicyInForce | None) -> None:
        """Matches pods again: the policy is in force as given, or has ended (None)."""
        policy_matching = self._cache.policy_matching
        if policy_matching.drop(namespace, name) if policy is None else policy_matching.put(namespace, name, policy):
            self.anew.changed(namespace)

    def are_known_anew(self, done: Iterable[Done]) -> Iterator[str]:
        """Policies and waiting pods look at these namespaces again; yields the names."""
        cache = self._cache
        for each in done:
            if each.changed or each.asked:
                cache.policies.event_hooks.on_event(PoliciesChanged(each.namespace), cache.clock.steady())
            for pod in (cache.pods.get(uid) for uid in each.asked):
                if pod is not None and pod.node is None:
                    self._unschedulable.drop(pod.uid)
                    self._effects.append(WakePod(pod))
            yield each.namespace

    def _is_known_anew(self, told: Pod) -> None:
        # What was held for the pod was held under its former policies; bind decides.
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
                # No news of the pod: if no watch knows it, it is believed no longer than before.
                self._take(told)

    def _stands_anew(self, told: Pod) -> None:
        """As `_take`, but fast: thousands of bound pods may get other policies at once."""
        cache = self._cache
        pod = self._resolved(told)
        if (known := cache.pods[pod.uid]).requests is not pod.requests:
            pod = replace(pod, requests=known.requests)
        cache.keep(pod)
        cache.policies.event_hooks.observe(pod, cache.clock.steady())

    def next_alternative(self, pod: Pod, by: int) -> Pod:
        """The pod that kube-scheduler asks about, under the alternative `by` places further on."""
        if (told := self._cache.policy_matching.take_turn(pod.uid, POLICY, by)) is not None:
            self._know_anew(told)
        return self.as_asked(pod)

    def on_turns(self, now: float) -> list[PodUid]:
        """Moves pods that waited long enough to their next alternatives, in limited numbers.

        They block no other pod, as before."""
        cache, changed, in_gangs = self._cache, list[PodUid](), set[str]()
        left = _TURNS
        for uid, which in self._alternatives.due(now):
            if self._waits_in_vain(uid) and (told := cache.policy_matching.take_turn(uid, which)) is not None:
                self._know_anew(told)
                left -= 1 + len(cache.pods[uid].governed)
                changed.append(uid)
                if cache.policies.reserve_permit.owned(uid):
                    in_gangs.add(told.namespace)
            if left <= 0:
                break
        for namespace in sorted(in_gangs):
            cache.policies.event_hooks.on_event(PoliciesChanged(namespace), now)
        return changed

    def _waits_in_vain(self, uid: PodUid) -> bool:
        """Whether nothing is held for the pod, and, if it is in no gang, it is asleep.

        A woken pod is tried under the alternative that woke it."""
        pod = self._cache.pods.get(uid)
        if pod is None or self._cache.ledger.holding(uid) is not None:
            return False
        return uid in self._unschedulable or self._cache.policies.reserve_permit.places(pod)

    # -- pods that are bound without Escher ----------------------------------------------------------------------

    def holds_without_us(self, uid: PodUid, alone: bool) -> None:
        """The pod holds a node since its filter. `alone`: Escher does not judge its bind."""
        if alone:
            self._hold_without_us.add(uid)
        else:
            self._hold_without_us.discard(uid)

    def stays_held(self, held: Holding) -> float:
        """Seconds for which an expired holding stays, for a pod that is bound without Escher.

        The pod may be bound, and no watch has reported anything lately."""
        binds_itself = held.kind is HoldingKind.ASSUMPTION and held.owner is None
        return _HEARD_WITHIN if binds_itself and self._cache.staleness.age("pods") > _HEARD_WITHIN else 0.0

    # -- calls ---------------------------------------------------------------------------------------------------

    def note_scheduler(self, scheduler: str) -> None:
        """The kube-scheduler profile has called: Escher looks after its pods from now on."""
        cache = self._cache
        if cache.foreign_pods.are_ours(scheduler):
            return
        theirs = cache.foreign_pods.note_scheduler(scheduler)
        for pod in theirs:
            self.observe(pod)
        self._take_for_asleep(cache.pods[pod.uid] for pod in theirs if pod.uid in cache.pods)
        for pod in cache.pods.values():
            if pod.scheduler == scheduler:
                cache.around.staying.observe(pod, None)

    def assume(self, pod: Pod) -> None:
        """Takes in a pod that a call reported, for as long as Escher's watch can be late."""
        cache = self._cache
        if pod.uid in cache.pods or pod.uid in cache.ended or pod.node is not None:
            return
        # kube-scheduler's watch was ahead of Escher's; or it was behind, and the pod is gone.
        cache.policy_matching.remember(pod)
        cache.keep(pod)
        self._on_alternatives(pod, cache.clock.steady())
        cache.policies.event_hooks.observe(pod, cache.clock.steady())
        self._unseen[pod.uid] = cache.clock.steady() + _UNSEEN_SECONDS

    def is_there(self, uid: PodUid) -> None:
        """The API server has the pod, though no watch and no list may have reported it yet."""
        self.answered.note(uid, told=uid not in self._unseen)
        self._unseen.pop(uid, None)
        self._disproved.discard(uid)

    def _may_be_newer(self, uid: PodUid, answered: Mapping[PodUid, bool]) -> bool:
        """Whether a list that lacks the pod may be older than the pod.

        It was bound since the list was requested, or is being bound and only calls have reported it."""
        return not answered.get(uid, True) or self._is_on_its_way(uid)

    def _is_on_its_way(self, uid: PodUid) -> bool:
        """Whether the pod's Binding is being written, and no watch knows the pod."""
        held = self._cache.ledger.holding(uid)
        return uid in self._unseen and held is not None and held.until is None

    def next_deadline(self) -> float | None:
        unseen = next(iter(self._unseen.values()), None)
        return earliest(unseen, self._alternatives.next_deadline(), self.group_news.next_deadline())

    def on_time(self, now: float) -> None:
        """Forgets the pods that no watch reported in time: they were gone before."""
        self.group_news.on_time(now)
        for uid in [uid for uid, until in self._unseen.items() if until <= now]:
            if self._is_on_its_way(uid):
                # The pod's Binding is on its way, and would take room that others were given: for example if the whole
                # process was stopped for that time. The answer to the write decides.
                del self._unseen[uid]
                self._unseen[uid] = now + _UNSEEN_SECONDS
            else:
                self.forget(uid)
