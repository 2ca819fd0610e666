"""The `Scheduler`: sole owner of the ledger, of the tables of nodes and pods, and of the gangs.

It takes in facts and feedback, answers questions, and returns what should be done as effects for an
`effects.Performer`. Every method is synchronous: nothing else runs between its reads and its writes, so there are no
locks. It only dispatches to its parts. It reads the clock but waits for nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TypeVar

from extender.app.cache.assumed_pods import AssumedPods
from extender.app.cache.cache import DEFAULT_RULES, Cache, Rules
from extender.app.cache.unschedulable_pods import UnschedulablePods
from extender.app.contracts.effects import AdvertiseCapacity, Decided, Effect
from extender.app.contracts.extender_api import Verdict, Victims
from extender.app.contracts.ports import Clock
from extender.app.cycle.bind import Binds
from extender.app.cycle.contention import Contention
from extender.app.cycle.filter import Filtering
from extender.app.cycle.pod_events import PodEvents
from extender.app.cycle.requeue import Requeue
from extender.app.policy_rematch import Done
from extender.core.budgets import Budget
from extender.core.cluster import Node, Pod
from extender.core.common.timers import earliest
from extender.core.daemons import DaemonSet
from extender.core.feedback import Bound, Evicted, Expired, Feedback, NotBound, SwitchesChanged
from extender.core.gang_ask import MalformedAsk
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.gangs.state.gang import WakePod
from extender.core.gangs.state.pod_groups import PodGroup
from extender.core.ledger.ledger import Commit, Detection, Holder, Holding, Mode
from extender.core.policies.policy_types import PolicyInForce
from extender.core.policy import Permit, Policy
from extender.kube.names import NodeName, PodUid, ResourceKey

Fact = Node | Pod | PodGroup | Promise | Budget | DaemonSet
"""The kinds of objects that are listed and watched."""
T = TypeVar("T")


class Scheduler:
    """Dispatches facts, calls and feedback to its parts.

    `policies`: in the order of calls; None: those of Escher. `life`: this run of the service; no other has the same."""

    def __init__(
        self, clock: Clock, rules: Rules = DEFAULT_RULES, policies: Sequence[Policy] | None = None, life: str = "0"
    ) -> None:
        self.cache = cache = Cache(clock, rules, policies, life)
        self.decisions = 0
        """Number of decisions. While it is the same, invariants need no second look."""
        self._effects: list[Effect] = []
        self._assumed_pods = AssumedPods(cache.ledger)
        self._unschedulable = UnschedulablePods(cache.ledger, cache.isolation)
        cache.gangs.planning.plans.others_wait = Contention(cache, self._unschedulable).wait_for_room_of
        self._binds = Binds(cache, self._assumed_pods, self._effects)
        self.pod_events = PodEvents(cache, self._binds, self._unschedulable, self._effects)
        self._requeue = Requeue(cache, self._binds, self._unschedulable, self._effects)
        self._filtering = Filtering(
            cache, self.pod_events, self._binds, self._unschedulable, self._assumed_pods, self._requeue, self._effects
        )

    # -- facts ---------------------------------------------------------------------------------------------------

    def observe(self, fact: Fact) -> Decided[None]:
        match fact:
            case Node():
                self.cache.removed_nodes.hear(self.cache.clock.steady())
                self._take_node(fact)
            case Pod():
                self.pod_events.observe(fact)
            case PodGroup():
                self.pod_events.group_news.hear(fact, gone=False)
            case Promise():
                self.cache.around.promises.see(fact)
                if not self._on_controller(fact):
                    return Decided(None)
            case Budget():
                self.cache.around.budgets.see(fact)
            case DaemonSet():
                self.cache.around.daemons.see(fact)
        return self.settle()

    def forget(self, fact: Fact) -> Decided[None]:
        """The object is deleted; this is how it looked last."""
        match fact:
            case Node():
                self._drop_node(fact.name)
            case Pod():
                self.pod_events.forget(fact.uid)
            case PodGroup():
                # Bound members stay; the others wait until the PodGroup exists again, or its kind is uninstalled.
                self.pod_events.group_news.hear(fact, gone=True)
            case Promise():
                self.cache.around.promises.lose(fact.controller)
                if not self._on_controller(fact):
                    return Decided(None)
            case Budget():
                self.cache.around.budgets.lose(fact)
            case DaemonSet():
                self.cache.around.daemons.lose(fact)
        return self.settle()

    def _on_controller(self, promise: Promise) -> bool:
        """Whether the quorum of the controller's gang changes."""
        members, now = self.cache.gangs.members, self.cache.clock.steady()
        return promise.gang is not None and members.on_controllers([promise.gang], now)

    def pod_groups_uninstalled(self) -> Decided[None]:
        """The cluster has no PodGroups any more: a pod whose label names one is in no gang."""
        self.pod_events.group_news.uninstalled()
        return self.settle()

    def replace(self, kind: type[Fact], facts: Iterable[Fact]) -> Iterator[None]:
        """These objects of the kind and no others exist, once all steps are walked through.

        Settle then. Pods may be many, and are taken in by slices: calls and other facts may come between two, and time
        may pass. Until all pods are known nothing is decided, and no effect goes out."""
        if kind is Node:
            self._replace_nodes(_of(Node, facts))
        elif kind is Pod:
            self.cache.whole = False
            yield from self.pod_events.replace(_of(Pod, facts))
            self.cache.whole = True
        elif kind is PodGroup:
            yield from self.pod_events.group_news.replace(_of(PodGroup, facts))
        elif kind is Promise:
            cache = self.cache
            cache.around.promises.replace(_of(Promise, facts))
            cache.gangs.members.on_controllers(list(cache.gangs.by_key), cache.clock.steady())
        elif kind is DaemonSet:
            self.cache.around.daemons.replace(_of(DaemonSet, facts))
        else:
            self.cache.around.budgets.replace(_of(Budget, facts))

    def _replace_nodes(self, nodes: Sequence[Node]) -> None:
        self.cache.removed_nodes.hear(self.cache.clock.steady())
        present = {node.name: node for node in nodes}
        for name in [name for name in self.cache.nodes if name not in present]:
            self._drop_node(name)
        for node in present.values():
            self._take_node(node)

    def _drop_node(self, name: NodeName) -> None:
        cache = self.cache
        if (node := cache.nodes.pop(name, None)) is not None:
            cache.removed_nodes.leave(name, cache.clock.steady())
            cache.policies.event_hooks.forget(node)
            cache.around.daemons.node_changed(name)
        cache.ledger.capacity.remove_node(name)

    def _take_node(self, node: Node) -> None:
        cache = self.cache
        cache.removed_nodes.come(node.name)
        known = cache.nodes.get(node.name)
        cache.nodes[node.name] = node
        cache.ledger.capacity.set_node(node.name, node.allocatable)
        cache.policies.event_hooks.observe(node, cache.clock.steady())
        if known is None or _welcomes(node) != _welcomes(known):
            cache.around.daemons.node_changed(node.name)
            if known is not None:
                cache.ledger.capacity.reconsider(node.name)
        if cache.drift(node):
            self._effects.append(AdvertiseCapacity(node.name))

    def govern(self, namespace: str, name: str, policy: PolicyInForce | None) -> Decided[None]:
        """The policy is in force as given; None: it is not in force any more.

        The pods that it matches or matched are matched again, in slices. Pods that could then go to a node are
        woken."""
        self.pod_events.governed_anew(namespace, name, policy)
        self._on_known_anew(self.pod_events.anew.go_on())
        return self.settle()

    def _on_known_anew(self, done: Iterable[Done]) -> None:
        for namespace in self.pod_events.are_known_anew(done):
            self._requeue.governed_anew(namespace)

    def _hurry(self, pod: Pod) -> None:
        """Matches the pod, and its namespace if one slice suffices, to changed policies first."""
        if pod.namespace in self.cache.known_anew:
            self._on_known_anew(self.pod_events.anew.finish_soon(pod.namespace, pod.uid))

    # -- the ledger ----------------------------------------------------------------------------------------------

    def set_capacity(self, node: NodeName, resource: ResourceKey, units: int) -> Decided[None]:
        """Sets the node's units of an ephemeral resource; 0 removes it. Holders stay."""
        return self.set_capacities(resource, {node: units})

    def set_capacities(self, resource: ResourceKey, units: Mapping[NodeName, int]) -> Decided[None]:
        """The same for several nodes; waiting pods are looked at once."""
        for node, count in units.items():
            self.cache.ledger.capacity.set(node, resource, count)
            if node in self.cache.nodes:
                self._effects.append(AdvertiseCapacity(node))
        return self.settle()

    def commit(
        self,
        claims: Sequence[Holding],
        releasing: Sequence[Holder] = (),
        mode: Mode = Mode.ALL_OR_NOTHING,
        detection: Detection = Detection.RESOURCE_FIT,
        read: Mapping[NodeName, int] | None = None,
        *,
        given_up: Sequence[Holder] = (),
    ) -> Decided[Commit]:
        """Releases `given_up` in any case, then commits the claims: `core.ledger.ledger.Ledger.commit`."""
        ledger = self.cache.ledger
        for holder in given_up:
            ledger.release(holder)
        outcome = ledger.commit(claims, mode=mode, detection=detection, read=read, releasing=releasing)
        if not (outcome.conflicts and mode is Mode.ALL_OR_NOTHING):
            claimed = {claim.holder for claim in claims}
            for holder in releasing:
                if holder not in claimed:
                    ledger.release(holder)
        self._requeue.settle()
        return self._decided(outcome)

    # -- verbs ---------------------------------------------------------------------------------------------------

    def filter(self, pod: Pod, sent: Sequence[NodeName], *, alone: bool = False) -> Decided[Verdict]:
        """Which of the sent nodes the pod may use; one for a gang's member or a pod that reserves.

        `alone`: as for `Verbs.filter`."""
        self.pod_events.note_scheduler(pod.scheduler)
        self._hurry(pod)
        return self._decided(self._filtering.filter(self.pod_events.as_asked(pod), sent, alone=alone))

    def prioritize(self, pod: Pod, sent: Sequence[NodeName]) -> Mapping[NodeName, int]:
        """The scores of the nodes for the pod, from 0 to 10; nodes that are left out have 0."""
        return self.cache.policies.filter_score.scores(self.cache.policy_matching.resolved(pod), sent)

    def preempt(self, pod: Pod, victims: Mapping[NodeName, Victims]) -> Decided[Mapping[NodeName, Victims]]:
        """The nodes whose victims may go: their gangs keep their quorum, or leave as a whole.

        None for a gang's member: it would evict for half a gang, and its gang preempts as a whole. None for a pod that
        is gone or deleting."""
        cache = self.cache
        self.pod_events.note_scheduler(pod.scheduler)
        self._hurry(pod)
        pod = self.pod_events.as_asked(pod)
        if cache.safety_switches.observes(pod.namespace):
            return self._decided(dict(victims))
        known = cache.pods.get(pod.uid, pod)
        if pod.uid in cache.ended or known.deleting:
            # The pod went while kube-scheduler was trying it.
            return self._decided({})
        if pod.gang is not None:
            self.pod_events.assume(pod)
            if known.node is None and cache.policies.reserve_permit.sleeps(pod, cache.clock.steady()):
                self._requeue.settle()
            return self._decided({})
        if not cache.whole:
            # No pod is evicted on facts that may be wrong: the pod is tried again when all is known.
            self._effects.append(WakePod(known))
            return self._decided({})
        if not cache.is_decided(pod) and cache.judges(pod):
            self.pod_events.anew.was_asked(pod)
            return self._decided({})
        if cache.tenancy.foreign(pod.namespace, pod.requests) is not None:
            return self._decided({})
        # kube-scheduler offers nodes that it never sent to filter: no pod leaves a node that the pod may not use.
        open_to_it = cache.policies.filter_score.where_leaving_helps(pod, victims) if pod.governed else victims
        with_units = cache.of_one.with_units(pod, victims, open_to_it)
        if open_to_it and not with_units and cache.of_one.wants_more(pod, open_to_it):
            cache.policies.reserve_permit.sleeps(self.pod_events.take_for_one(pod), cache.clock.steady())
            self._requeue.settle()
        open_to_it = with_units
        chosen = {node: victims[node].pods for node in open_to_it}
        safe = cache.policies.reserve_permit.may_evict(pod, chosen, cache.clock.steady())
        return self._decided({node: each for node, each in victims.items() if node in safe})

    def permit(self, uid: PodUid, node: NodeName) -> Decided[Permit]:
        """Whether the pod may be bound to the node now; if so, the ledger holds its units there.

        If it must wait, an effect follows: `BindAnswered`, or `OpenBarrier` or `TurnBack` for a gang's member."""
        if (pod := self.cache.pods.get(uid)) is not None:
            self._hurry(pod)
        permit = self._binds.permit(uid, node)
        self._requeue.settle()
        return self._decided(permit)

    # -- feedback ------------------------------------------------------------------------------------------------

    def on_event(self, told: Feedback) -> Decided[None]:
        """Takes in what became of an effect, or what else has happened."""
        if isinstance(told, Bound):
            self.pod_events.is_there(told.pod)
            self._binds.bound(told)
        self.cache.policies.event_hooks.on_event(told, self.cache.clock.steady())
        match told:
            case NotBound():
                self._binds.not_bound(told)
            case Evicted(pod):
                self.pod_events.is_leaving(pod.uid)
            case SwitchesChanged():
                self._binds.on_safety_switches()
                self.pod_events.invalid_pods.on_safety_switches()
                self._effects += map(WakePod, self._unschedulable.woken_in(self.cache.safety_switches.observes))
                self._effects += (WakePod(self.cache.pods[uid]) for uid in self.cache.of_one.take_let_go())
            case _:
                pass
        return self.settle()

    # -- another run of the service --------------------------------------------------------------------------------

    def asleep(self) -> list[PodUid]:
        """The unschedulable pods that nothing has woken since."""
        return list(self._unschedulable)

    def begin(
        self,
        nodes: Sequence[Node],
        pods: Sequence[Pod],
        left_out: Mapping[PodUid, MalformedAsk],
        held: Sequence[Holding],
    ) -> None:
        """Takes in the state that another run of the service knew; decides nothing.

        Policies, and what is known beside nodes and pods, are there already. See `snapshot`."""
        self._replace_nodes(nodes)
        self.pod_events.begin(pods, left_out)
        for holding in held:
            self.cache.ledger.resume(holding)

    def resume(self, asleep: Sequence[PodUid], not_asked_about: Sequence[PodUid]) -> None:
        """These pods sleep, or were not asked about; changes and effects until now are dropped."""
        for pod in (self.cache.pods.get(uid) for uid in asleep):
            if pod is not None:
                self._unschedulable.add(pod)
        self.pod_events.not_asked_about = set(not_asked_about)
        self.cache.ledger.changes.drain_gains()
        self.cache.policies.event_hooks.take_requeue_hints()
        list(self.cache.policies.take_effects())
        self._effects.clear()

    # -- time ----------------------------------------------------------------------------------------------------

    def tick(self) -> Decided[None]:
        """Releases what has passed its deadline, gang by gang, and continues the work in slices."""
        cache, now = self.cache, self.cache.clock.steady()
        if not cache.whole:
            return Decided(None)
        for held in cache.ledger.expire(now, self.pod_events.stays_held):
            cache.policies.event_hooks.on_event(Expired(held), now)
        for node in cache.policies.event_hooks.tick(now):
            cache.ledger.capacity.reconsider(node)
        self.pod_events.on_time(now)
        self._requeue.governed_otherwise(self.pod_events.on_turns(now))
        self._binds.on_time(now)
        self.pod_events.anew.work.renew()
        self._requeue.waking.work.renew()
        self._on_known_anew(self.pod_events.anew.go_on())
        return self.settle()

    def next_deadline(self) -> float | None:
        """When `tick` has work next, in seconds of the steady clock; None: nothing waits."""
        cache = self.cache
        if not cache.whole:
            return None
        if self.more_to_do:
            return cache.clock.steady()
        due = earliest(
            cache.ledger.next_deadline(),
            cache.policies.event_hooks.next_deadline(),
            self._binds.next_deadline(),
            self._assumed_pods.next_deadline(),
            self.pod_events.next_deadline(),
        )
        due = self._requeue.next_deadline(due)
        self._requeue.due = inf if due is None else due
        return due

    @property
    def more_to_do(self) -> bool:
        """Whether a slice of work ended before all was settled: `tick` goes on."""
        return self._requeue.more_to_do or bool(self.cache.known_anew)

    def take_no_turns(self) -> None:
        """Does work in slices at once from now on: no caller waits for this `Scheduler`."""
        fits = self.cache.gangs.waiting.queue.fits
        self.pod_events.anew.work.limit = self._requeue.waking.work.limit = fits.work.limit = sys.maxsize

    def is_asleep(self, uid: PodUid) -> bool:
        return uid in self._unschedulable

    def waiting_kinds(self, namespace: str) -> tuple[int, int]:
        """How many kinds of pods of the namespace sleep, within its quota and beyond it."""
        return self._unschedulable.counted(namespace)

    def settle(self) -> Decided[None]:
        """Plans and wakes the waiting pods and gangs that may fit now, once for each change."""
        self._requeue.settle()
        return self._decided(None)

    def _decided(self, answer: T) -> Decided[T]:
        """The answer, with the effects that are due and not held back; none before all is known."""
        self.decisions += 1
        cache = self.cache
        if not cache.whole:
            return Decided(answer)
        now = cache.clock.steady()
        for told in cache.policies.take_effects():
            self._effects.append(told)
            if (waits := cache.waits.of_gang(told, now, cache.gangs.naming.of)) is not None:
                self._effects.append(waits)
        effects: list[Effect] = list(self._assumed_pods.let_go(now))
        for effect in self._effects:
            if not (isinstance(effect, WakePod) and self._assumed_pods.holds_back(effect, now)):
                effects.append(effect)
        self._effects.clear()
        return Decided(answer, effects)


def _welcomes(node: Node) -> tuple[object, ...]:
    """What, beside resources, decides which pods a node accepts, and which are its own."""
    return (node.labels, node.taints, node.unschedulable, node.uid)


def _of(kind: type[T], facts: Iterable[object]) -> list[T]:
    return [fact for fact in facts if isinstance(fact, kind)]
