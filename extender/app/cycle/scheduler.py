"""The `Scheduler`: sole owner of the ledger, of the tables of nodes and pods, and of the gangs.

Facts and feedback come in, questions are answered; what should be done about it is returned as effects, for a
`effects.Performer`. Every method is synchronous: nothing else runs between what it reads and what it writes, so there
are no locks. Dispatch and nothing else: each of its parts knows one thing. It knows the clock's reading but waits for
nothing; it must not know the network.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from extender.core.daemons import DaemonSet
from extender.core.feedback import Bound, BrakeChanged, Evicted, Expired, Feedback, NotBound
from extender.core.gang_ask import MalformedAsk
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.gangs.state.gang import WakePod
from extender.core.gangs.state.pod_groups import PodGroup
from extender.core.ledger import Commit, Detection, Holder, Holding, Mode
from extender.core.policy import Permit, Policy
from extender.core.policy_types import PolicyInForce
from extender.core.timers import earliest
from extender.kube.names import NodeName, PodUid, ResourceKey

Fact = Node | Pod | PodGroup | Promise | Budget | DaemonSet
"""What the cluster has: each of these is listed and watched."""
T = TypeVar("T")


class Scheduler:
    """`policies`: in the order in which they are asked; None: those that come with Escher. `life` names this life of
    the service: no other has the same."""

    def __init__(
        self, clock: Clock, rules: Rules = DEFAULT_RULES, policies: Sequence[Policy] | None = None, life: str = "0"
    ) -> None:
        self.cache = cache = Cache(clock, rules, policies, life)
        self.decisions = 0
        """How often anything was decided: while it is the same, invariants need no second look."""
        self._effects: list[Effect] = []
        self._assumed_pods = AssumedPods(cache.ledger)
        self._unschedulable = UnschedulablePods(cache.ledger, cache.isolation)
        cache.gangs.planning.plans.others_wait = Contention(cache, self._unschedulable).wait_for_room_of
        self._binds = Binds(cache, self._assumed_pods, self._effects)
        self.pod_events = PodEvents(cache, self._binds, self._unschedulable, self._effects)
        self._settlement = Requeue(cache, self._binds, self._unschedulable, self._effects)
        self._filtering = Filtering(
            cache,
            self.pod_events,
            self._binds,
            self._unschedulable,
            self._assumed_pods,
            self._settlement,
            self._effects,
        )

    # -- facts ---------------------------------------------------------------------------------------------------

    def observe(self, fact: Fact) -> Decided[None]:
        """It is there and looks like this."""
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
                if not self._heed_controller(fact):
                    return Decided(None)
            case Budget():
                self.cache.around.budgets.see(fact)
            case DaemonSet():
                self.cache.around.daemons.see(fact)
        return self.settle()

    def forget(self, fact: Fact) -> Decided[None]:
        """It is deleted; this is how it looked last."""
        match fact:
            case Node():
                self._drop_node(fact.name)
            case Pod():
                self.pod_events.forget(fact.uid)
            case PodGroup():
                # Members that are bound stay; the others wait until it is there again, or its kind is uninstalled.
                self.pod_events.group_news.hear(fact, gone=True)
            case Promise():
                self.cache.around.promises.lose(fact.controller)
                if not self._heed_controller(fact):
                    return Decided(None)
            case Budget():
                self.cache.around.budgets.lose(fact)
            case DaemonSet():
                self.cache.around.daemons.lose(fact)
        return self.settle()

    def _heed_controller(self, promise: Promise) -> bool:
        """Whether its gang has another quorum for that."""
        members, now = self.cache.gangs.members, self.cache.clock.steady()
        return promise.gang is not None and members.heed_controllers([promise.gang], now)

    def pod_groups_uninstalled(self) -> Decided[None]:
        """The cluster has no PodGroups any more: whose label names one is of no gang."""
        self.pod_events.group_news.uninstalled()
        return self.settle()

    def replace(self, kind: type[Fact], facts: Iterable[Fact]) -> Iterator[None]:
        """These of the kind and no others exist, once the steps are walked through; settle then. Pods may be many, and
        are taken in by slices: calls and other facts may come between two, and time may pass. Until all are known
        nothing is decided, and no effect goes out."""
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
            cache.gangs.members.heed_controllers(list(cache.gangs.by_key), cache.clock.steady())
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
            cache.policies.following.forget(node)
            cache.around.daemons.node_changed(name)
        cache.ledger.capacity.remove_node(name)

    def _take_node(self, node: Node) -> None:
        cache = self.cache
        cache.removed_nodes.come(node.name)
        known = cache.nodes.get(node.name)
        cache.nodes[node.name] = node
        cache.ledger.capacity.set_node(node.name, node.allocatable)
        cache.policies.following.observe(node, cache.clock.steady())
        if known is None or _welcomes(node) != _welcomes(known):
            cache.around.daemons.node_changed(node.name)
            if known is not None:
                cache.ledger.capacity.reconsider(node.name)
        if cache.drift(node):
            self._effects.append(AdvertiseCapacity(node.name))

    def govern(self, namespace: str, name: str, policy: PolicyInForce | None) -> Decided[None]:
        """This is in force of the policy of that name; None: nothing is. Whom it governs, or has governed, is known
        anew, in slices, and who waits and could go somewhere for that is woken."""
        self.pod_events.governed_anew(namespace, name, policy)
        self._heed_known_anew(self.pod_events.anew.go_on())
        return self.settle()

    def _heed_known_anew(self, done: Iterable[Done]) -> None:
        for namespace in self.pod_events.are_known_anew(done):
            self._settlement.governed_anew(namespace)

    def _hurry(self, pod: Pod) -> None:
        """Of what policies that have changed come to for a pod of which kube-scheduler asks, as much as one slice
        holds is done first."""
        if pod.namespace in self.cache.known_anew:
            self._heed_known_anew(self.pod_events.anew.finish_soon(pod.namespace, pod.uid))

    # -- the ledger ----------------------------------------------------------------------------------------------

    def set_capacity(self, node: NodeName, resource: ResourceKey, units: int) -> Decided[None]:
        """The node should have so many units of an ephemeral resource; 0 removes it. Holders stay."""
        return self.set_capacities(resource, {node: units})

    def set_capacities(self, resource: ResourceKey, units: Mapping[NodeName, int]) -> Decided[None]:
        """The same for several nodes, and who waits is looked at once."""
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
        """Somebody's claims, and what is given up with them: see `core.ledger.Ledger.commit`. What `given_up` hold is
        released before, whatever becomes of the claims."""
        ledger = self.cache.ledger
        for holder in given_up:
            ledger.release(holder)
        outcome = ledger.commit(claims, mode=mode, detection=detection, read=read, releasing=releasing)
        if not (outcome.conflicts and mode is Mode.ALL_OR_NOTHING):
            claimed = {claim.holder for claim in claims}
            for holder in releasing:
                if holder not in claimed:
                    ledger.release(holder)
        self._settlement.settle()
        return self._decided(outcome)

    # -- verbs ---------------------------------------------------------------------------------------------------

    def filter(self, pod: Pod, sent: Sequence[NodeName], *, alone: bool = False) -> Decided[Verdict]:
        """Where the pod may go, among the nodes sent. A gang's member, and whoever reserves, gets exactly one. `alone`:
        as for `Verbs.filter`."""
        self.pod_events.learn(pod.scheduler)
        self._hurry(pod)
        return self._decided(self._filtering.filter(self.pod_events.as_asked(pod), sent, alone=alone))

    def prioritize(self, pod: Pod, sent: Sequence[NodeName]) -> Mapping[NodeName, int]:
        """How good the nodes are for the pod, from 0 to 10; those left out have 0."""
        return self.cache.policies.judging.scores(self.cache.policy_matching.resolved(pod), sent)

    def preempt(self, pod: Pod, victims: Mapping[NodeName, Victims]) -> Decided[Mapping[NodeName, Victims]]:
        """Nodes whose victims may go: their gangs keep their quorum, or leave as a whole.

        None for a gang's member: it would evict for half a gang. Its gang preempts as a whole, by itself. None for a
        pod that is gone, or about to go.
        """
        cache = self.cache
        self.pod_events.learn(pod.scheduler)
        self._hurry(pod)
        pod = self.pod_events.as_asked(pod)
        if cache.brake.observes(pod.namespace):
            return self._decided(dict(victims))
        known = cache.pods.get(pod.uid, pod)
        if pod.uid in cache.ended or known.deleting:
            # It went while kube-scheduler was trying it.
            return self._decided({})
        if pod.gang is not None:
            self.pod_events.believe(pod)
            if known.node is None and cache.policies.placing.sleeps(pod, cache.clock.steady()):
                self._settlement.settle()
            return self._decided({})
        if not cache.whole:
            # Nobody leaves for what may not be so: it is tried again when all is known.
            self._effects.append(WakePod(known))
            return self._decided({})
        if not cache.is_decided(pod) and cache.judges(pod):
            self.pod_events.anew.was_asked(pod)
            return self._decided({})
        if cache.tenancy.foreign(pod.namespace, pod.requests) is not None:
            return self._decided({})
        # kube-scheduler offers nodes about which it has not asked us: nobody leaves one where the pod may not be.
        open_to_it = cache.policies.judging.where_leaving_helps(pod, victims) if pod.governed else victims
        with_units = cache.of_one.with_units(pod, victims, open_to_it)
        if open_to_it and not with_units and cache.of_one.wants_more(pod, open_to_it):
            cache.policies.placing.sleeps(self.pod_events.take_for_one(pod), cache.clock.steady())
            self._settlement.settle()
        open_to_it = with_units
        chosen = {node: victims[node].pods for node in open_to_it}
        safe = cache.policies.placing.may_evict(pod, chosen, cache.clock.steady())
        return self._decided({node: each for node, each in victims.items() if node in safe})

    def permit(self, uid: PodUid, node: NodeName) -> Decided[Permit]:
        """Whether the pod may be bound to the node now; if so, its units are held there. If it is to wait, an effect
        will tell: BindAnswered, or for a gang's member OpenBarrier or TurnBack."""
        if (pod := self.cache.pods.get(uid)) is not None:
            self._hurry(pod)
        permit = self._binds.permit(uid, node)
        self._settlement.settle()
        return self._decided(permit)

    # -- feedback ------------------------------------------------------------------------------------------------

    def heed(self, told: Feedback) -> Decided[None]:
        """What became of an effect, or what else has happened."""
        if isinstance(told, Bound):
            self.pod_events.is_there(told.pod)
            self._binds.bound(told)
        self.cache.policies.following.heed(told, self.cache.clock.steady())
        match told:
            case NotBound():
                self._binds.not_bound(told)
            case Evicted(pod):
                self.pod_events.is_leaving(pod.uid)
            case BrakeChanged():
                self._binds.heed_brake()
                self.pod_events.invalid_pods.heed_brake()
                self._effects += map(WakePod, self._unschedulable.woken_in(self.cache.brake.observes))
                self._effects += (WakePod(self.cache.pods[uid]) for uid in self.cache.of_one.take_let_go())
            case _:
                pass
        return self.settle()

    # -- another life of it ----------------------------------------------------------------------------------------

    def asleep(self) -> list[PodUid]:
        """Pods that our filters turned away everywhere, and that nothing has woken since."""
        return list(self._unschedulable)

    def begin(
        self,
        nodes: Sequence[Node],
        pods: Sequence[Pod],
        left_out: Mapping[PodUid, MalformedAsk],
        held: Sequence[Holding],
    ) -> None:
        """All of this is so, as another life knew it; nothing is decided for that. Policies, and what is known beside
        nodes and pods, are there already. See `snapshot`."""
        self._replace_nodes(nodes)
        self.pod_events.begin(pods, left_out)
        for holding in held:
            self.cache.ledger.resume(holding)

    def resume(self, asleep: Sequence[PodUid], not_asked_about: Sequence[PodUid]) -> None:
        """These pods sleep, or were not asked about; whatever has happened until now is settled."""
        for pod in (self.cache.pods.get(uid) for uid in asleep):
            if pod is not None:
                self._unschedulable.add(pod)
        self.pod_events.not_asked_about = set(not_asked_about)
        self.cache.ledger.changes.drain_gains()
        self.cache.policies.following.take_requeue_hints()
        list(self.cache.policies.take_effects())
        self._effects.clear()

    # -- time ----------------------------------------------------------------------------------------------------

    def tick(self) -> Decided[None]:
        """What has passed its deadline is released, gang by gang."""
        cache, now = self.cache, self.cache.clock.steady()
        if not cache.whole:
            return Decided(None)
        for held in cache.ledger.expire(now, self.pod_events.stays_held):
            cache.policies.following.heed(Expired(held), now)
        for node in cache.policies.following.tick(now):
            cache.ledger.capacity.reconsider(node)
        self.pod_events.heed_time(now)
        self._settlement.governed_otherwise(self.pod_events.heed_turns(now))
        self._binds.heed_time(now)
        self.pod_events.anew.work.renew()
        self._settlement.waking.work.renew()
        self._heed_known_anew(self.pod_events.anew.go_on())
        return self.settle()

    def next_deadline(self) -> float | None:
        """The next moment at which `tick` has something to do, in seconds that pass; None: nothing waits."""
        cache = self.cache
        if not cache.whole:
            return None
        if self.more_to_do:
            return cache.clock.steady()
        due = earliest(
            cache.ledger.next_deadline(),
            cache.policies.following.next_deadline(),
            self._binds.next_deadline(),
            self._assumed_pods.next_deadline(),
            self.pod_events.next_deadline(),
        )
        return self._settlement.next_deadline(due)

    @property
    def more_to_do(self) -> bool:
        """Whether a slice of work was over before all was settled: `tick` goes on."""
        return self._settlement.more_to_do or bool(self.cache.known_anew)

    def take_no_turns(self) -> None:
        """From now on nobody else waits for this one: what is done in slices is done at once."""
        self.pod_events.anew.work.limit = self._settlement.waking.work.limit = sys.maxsize

    def is_asleep(self, uid: PodUid) -> bool:
        """Whether our filters turned the pod away everywhere, and nothing has woken it since."""
        return uid in self._unschedulable

    def waiting_kinds(self, namespace: str) -> tuple[int, int]:
        """How many kinds of pods of the namespace sleep, within its quota and beyond."""
        return self._unschedulable.counted(namespace)

    def settle(self) -> Decided[None]:
        """Whoever waits and could go now is planned for and woken, once for each change."""
        self._settlement.settle()
        return self._decided(None)

    def _decided(self, answer: T) -> Decided[T]:
        """The answer, and all that is to be done by now: nothing before all is known. A wake is held back while
        somebody is in its way."""
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
    """What of a node, beside its resources, decides which pods it accepts, and which are its own."""
    return (node.labels, node.taints, node.unschedulable, node.uid)


def _of(kind: type[T], facts: Iterable[object]) -> list[T]:
    return [fact for fact in facts if isinstance(fact, kind)]
