"""The keeper: sole owner of the ledger, of the tables of nodes and pods, and of the gangs.

Facts come in (`Nodes`, `Pods` are sinks), questions are answered, and what should be done about it is handed to
`deliver` as effects. Every method is synchronous: nothing else runs between what it reads and what it writes, so
there are no locks. It knows the clock's reading but waits for nothing; it must not know the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from extender.app.claims import is_claim
from extender.app.departures import Departures
from extender.app.in_flight import InFlight
from extender.app.judging import Judging
from extender.app.knowledge import STALE, Knowledge
from extender.app.observing import Observing
from extender.app.ports import Clock
from extender.app.strangers import Strangers
from extender.app.turned_away import TurnedAway
from extender.app.unseen_room import BindAnswered, UnseenRoom
from extender.app.verbs import Verdict, Victims
from extender.core import gang_audit
from extender.core.audit import Violation
from extender.core.brake import FREE, Act, Brake, Switches
from extender.core.budgets import Budget
from extender.core.cluster import Node, Pod
from extender.core.evictions import Evictions
from extender.core.gang import GangEffect, WakePod
from extender.core.gang_ask import GangAsk, MalformedAsk
from extender.core.gangs import Gangs
from extender.core.ledger import Holder, Holding, Kind, Ledger
from extender.core.names import CPU, MEMORY, PODS, GangKey, NodeName, PodUid, ResourceKey, in_domain
from extender.core.orders import EvictRest, LetRoomGo
from extender.core.pod_groups import PodGroup, PodGroups
from extender.core.preempting import Preempting
from extender.core.promises import GATHER_LIMIT
from extender.core.restraint import DEFAULT_BOUNDS, Bounds
from extender.core.savings import DEFAULT_THRIFT, Thrift
from extender.core.staying import LONG_RUNNING_SECONDS, Staying
from extender.core.turns import DEFAULT_PATIENCE, Patience
from extender.filters import FILTERS, Filter

GONE = "the pod is deleted or has finished"
BOUND = "the pod is bound to another node already"
GATED = "the pod has scheduling gates"
_GONE_REMEMBERED = 16_384
_UNSEEN_SECONDS = 120.0
"""So late can our watch be behind kube-scheduler's; a pod that it has not told of by then was gone before."""
KEYS_PER_NODE = 1500
"""With the longest names half a MiB of a Node: each stands in capacity, in allocatable, and twice in managedFields."""


@dataclass(frozen=True, slots=True)
class AdvertiseCapacity:
    """Effect: the node's status should say what the ledger has of our domain."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class AskRefused:
    """Event: a pod's annotations cannot be understood."""

    pod: Pod
    ask: MalformedAsk


@dataclass(frozen=True, slots=True)
class PodEnded:
    """Event: the pod is deleted or finished."""

    pod: Pod


Effect = GangEffect | AdvertiseCapacity | AskRefused | BindAnswered | PodEnded


@dataclass(frozen=True, slots=True)
class Rules:
    """What can be chosen about deciding.

    `reserve_at_filter`: a pod that asks for ephemeral resources gets one node, held for it, in its filter, and a gang
    its whole room (pessimistic); else every node that fits passes, a member's room is free for others until it comes to
    be bound, and bind checks again (optimistic). `assume_seconds`: how long a pod's units are held. `patience`: what a
    gang puts up with before room is saved for it. `thrift`: how much is saved for how long. `long_running_seconds`:
    nobody waits for a pod to leave that has run for so long, see `core.staying`. `gather_limit`: how many places in a
    namespace are held for pods that do not exist yet, see `core.promises`. `switches`: what is allowed at first, see
    `core.brake`. `preemption`: how often others leave for a gang, and how many at most. `most_together`: how many binds
    can wait at a barrier; None: any number. `keys_per_node`: how many ephemeral resources a node may have.
    """

    reserve_at_filter: bool = True
    assume_seconds: float = 30.0
    patience: Patience = DEFAULT_PATIENCE
    thrift: Thrift = DEFAULT_THRIFT
    long_running_seconds: float = LONG_RUNNING_SECONDS
    gather_limit: int = GATHER_LIMIT
    schedulers: frozenset[str] = frozenset({"escher", "escher-ledger"})
    """Profiles of kube-scheduler that ask us; more are learnt from their calls. Pods of others are facts on nodes."""
    switches: Switches = FREE
    most_together: int | None = None
    keys_per_node: int = KEYS_PER_NODE
    preemption: Bounds = DEFAULT_BOUNDS


class Keeper:
    """`life` names this life of the service: no other has the same."""

    def __init__(
        self,
        clock: Clock,
        deliver: Callable[[Sequence[Effect]], None],
        rules: Rules = Rules(),
        filters: Sequence[Filter] = FILTERS,
        life: str = "0",
    ) -> None:
        self.clock = clock
        self.rules = rules
        self.ledger = Ledger()
        self.nodes: dict[NodeName, Node] = {}
        self._departures = Departures()
        self.pods: dict[PodUid, Pod] = {}
        """Pods that are not finished: pending and bound."""
        self.brake = Brake(rules.switches)
        self.gangs = Gangs(
            self.ledger,
            self.nodes,
            rules.patience,
            reserve_at_filter=rules.reserve_at_filter,
            life=life,
            brake=self.brake,
            staying=Staying(self.pods, self._may_leave, rules.long_running_seconds),
            thrift=rules.thrift,
            gather_limit=rules.gather_limit,
        )
        self._strangers = Strangers(rules.schedulers)
        self._evictions = Evictions(self.gangs, self.pods, self.brake)
        self.preempting.ours = self.ours
        self.preempting.bounds = rules.preemption
        self._groups = PodGroups(rules.most_together)
        self.judging = Judging(self.ledger, self.nodes, filters, self.gangs.waiting.turns.gives_way_to)
        self._deliver = deliver
        self._effects: list[Effect] = []
        self._unseen_room = UnseenRoom(self._claim)
        self._in_flight = InFlight(self.ledger)
        self.observing = Observing(self.gangs, self.judging.verdict)
        self.knowledge = Knowledge()
        self._was_stale = False
        self._listed = False
        self._rewound = False
        """Whether what was heard of pods is of a time that is no more."""
        self._gone: dict[PodUid, None] = {}
        """Pods that ended lately: a call about one was under way when it went."""
        self._turned_away = TurnedAway(self.ledger, self.judging.passes)
        self._gained: dict[NodeName, None] = {}
        """Nodes that gained room, which those who were turned away were not asked about yet."""
        self.more_to_do = False
        self._preempts_again_at: float | None = None
        """Whether a slice of work was over before all was settled: `tick` goes on."""
        self._unseen: dict[PodUid, float] = {}
        """Pods that a call has told of and no watch yet; and until when they are believed, oldest first."""

    @property
    def preempting(self) -> Preempting:
        return self.gangs.waiting.preempting

    # -- facts ---------------------------------------------------------------------------------------------------

    def see_node(self, node: Node) -> None:
        """The node is there and looks like this."""
        self._departures.hear(self.clock.steady())
        self._take_node(node)
        self.settle()

    def lose_node(self, name: NodeName) -> None:
        self._drop_node(name)
        self.settle()

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        """These nodes and no others exist."""
        self._departures.hear(self.clock.steady())
        present = {node.name: node for node in nodes}
        for name in [name for name in self.nodes if name not in present]:
            self._drop_node(name)
        for node in present.values():
            self._take_node(node)
        self.settle()

    def has_left(self, node: NodeName) -> bool:
        """For good, that is: see `departures`."""
        return node not in self.nodes and self._departures.for_good(node, self.clock.steady())

    def _drop_node(self, name: NodeName) -> None:
        if self.nodes.pop(name, None) is not None:
            self._departures.leave(name, self.clock.steady())
        self.ledger.remove_node(name)

    def _take_node(self, node: Node) -> None:
        self._departures.come(node.name)
        known = self.nodes.get(node.name)
        self.nodes[node.name] = node
        self.ledger.set_node(node.name, node.allocatable)
        if known is not None and _welcomes(node) != _welcomes(known):
            self.ledger.reconsider(node.name)
        if self.drift(node):
            self._effects.append(AdvertiseCapacity(node.name))

    def drift(self, node: Node) -> dict[ResourceKey, tuple[int, int]]:
        """Where the node's status differs from what is desired of our domain: (desired, the most deviant of what it
        says)."""
        row = self.ledger.rows.get(node.name)
        desired: Mapping[ResourceKey, int] = row.ephemeral if row is not None else {}
        found: dict[ResourceKey, tuple[int, int]] = {}
        for said in (node.capacity, node.allocatable):
            for resource in desired.keys() | {r for r in said if in_domain(r, self.ledger.domain)}:
                want, has = desired.get(resource), said.get(resource)
                if want != has:
                    found[resource] = (want or 0, has or 0)
        return found

    def see_pod(self, pod: Pod) -> None:
        """The pod is there and looks like this."""
        self._take_pod(pod)
        self.settle()

    def lose_pod(self, uid: PodUid) -> None:
        """The pod is deleted."""
        self._drop_pod(uid)
        self.settle()

    def rewind_pods(self) -> None:
        """The API server has gone back in time: who is bound, and where, is as the list says that follows."""
        self._rewound = True

    def replace_pods(self, pods: Iterable[Pod]) -> None:
        """These pods and no others exist."""
        present = {pod.uid: pod for pod in pods}
        if self._rewound:
            self._rewound = False
            for pod in present.values():
                before = self.pods.get(pod.uid)
                if before is not None and before.node is not None and before.node != pod.node:
                    self._drop_pod(pod.uid)
        known = self.pods.keys() | {held.holder for held in self.ledger.holdings() if held.kind is Kind.BOUND}
        known |= set(self.gangs.ended_well.known)
        for uid in sorted(PodUid(uid) for uid in known if uid not in present):
            self._drop_pod(uid)
        # Finished members count for their gang only while it lives: the living come first.
        for pod in sorted(present.values(), key=lambda pod: pod.finished):
            self._take_pod(pod)
        if not self._listed:
            self._listed = True
            self._take_for_asleep(self.pods.values())
        self.settle()

    def _take_for_asleep(self, pods: Iterable[Pod]) -> None:
        """An earlier life of the service may have turned these away: nobody else would wake them."""
        for pod in pods:
            if pod.node is None and isinstance(pod.gang, GangAsk):
                self.gangs.take_for_asleep(pod.uid)
                if pod.nominated is not None:
                    # By an earlier life: nobody is made to leave for it now.
                    self._effects.append(LetRoomGo(pod.gang.key, (pod,)))
            elif pod.node is None and self.ours(pod) and self._asks_ephemeral(pod):
                self._turned_away.add(pod)

    def _take_pod(self, pod: Pod) -> None:
        now = self.clock.steady()
        self._unseen.pop(pod.uid, None)
        pod = self._known_as(pod)
        if pod.finished:
            if self.pods.pop(pod.uid, None) is not None:
                self._effects.append(PodEnded(pod))
                self._remember_gone(pod.uid)
            self._in_flight.ended(pod.uid)
            self._answer(self._unseen_room.end(pod.uid, GONE))
            self.preempting.forget(pod.uid)
            self.ledger.forget(pod.uid)
            self._turned_away.drop(pod.uid)
            self.gangs.staying.forget(pod.uid)
            self.gangs.bystanders.remove(pod.uid)
            self.gangs.observe(pod, now)
            return
        if pod.uid in self._gone:
            # A list older than the pod had left it out, and a call about it may have been rejected for that.
            del self._gone[pod.uid]
            if pod.node is None and self.ours(pod) and not pod.at_our_gate:
                self._effects.append(WakePod(pod))
        known = self.pods.get(pod.uid)
        if known is not None:
            if known.requests == pod.requests:
                # One vector a pod: members of a gang then share theirs, and comparisons are by identity first.
                pod = replace(pod, requests=known.requests)
            if pod.node is None and known.node is not None:
                # Told before its Binding was written, and heard after.
                pod = replace(pod, node=known.node)
        if isinstance(pod.gang, MalformedAsk) and pod.at_our_gate and (known is None or known.gang != pod.gang):
            # No filter will come to say so.
            self._effects.append(AskRefused(pod, pod.gang))
        self.pods[pod.uid] = pod
        self.gangs.staying.observe(pod, known)
        self.preempting.heed(known, pod, now)
        self._effects += self._evictions.heed(pod)
        self.gangs.bystanders.put(pod)
        if pod.node is not None:
            if known is None or known.node is None:
                self.gangs.heed_bystander(pod)
            self.ledger.confirm(pod.uid, on=pod.node, units=pod.requests)
            self._in_flight.ended(pod.uid)
            self._turned_away.drop(pod.uid)
            self._answer(self._unseen_room.heed_pod(pod.uid))
        elif pod.uid in self._turned_away:
            self._turned_away.add(pod)
        if pod.gang is not None or self.gangs.of(pod.uid) is not None:
            self.gangs.observe(pod, now)

    def _known_as(self, pod: Pod) -> Pod:
        """The pod with its ask as it is to be understood: a stranger's says nothing to us."""
        self._groups.remember(pod)
        self._strangers.remember(pod)
        return replace(pod, gang=None) if self._strangers.asks(pod) else self._groups.resolved(pod)

    def ours(self, pod: Pod) -> bool:
        """Whether its scheduler asks us. If not, the pod is a fact on its node, and nothing else."""
        return self._strangers.are_ours(pod.scheduler)

    def _may_leave(self, pod: Pod) -> bool:
        return self.ours(pod) or self.preempting.bounds.others

    def _learn(self, scheduler: str) -> None:
        """This profile of kube-scheduler has called: its pods are ours to look after."""
        if not self._strangers.are_ours(scheduler):
            theirs = self._strangers.learn(scheduler)
            for pod in theirs:
                self._take_pod(pod)
            self._take_for_asleep(self.pods[pod.uid] for pod in theirs if pod.uid in self.pods)
            for pod in self.pods.values():
                if pod.scheduler == scheduler:
                    self.gangs.staying.observe(pod, None)

    def _drop_pod(self, uid: PodUid) -> None:
        self._remember_gone(uid)
        self._unseen.pop(uid, None)
        self._groups.forget(uid)
        self._strangers.forget(uid)
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._effects.append(PodEnded(pod))
        self._in_flight.ended(uid)
        self._answer(self._unseen_room.end(uid, GONE))
        self._turned_away.drop(uid)
        self.gangs.staying.forget(uid)
        self.preempting.forget(uid)
        self.gangs.bystanders.remove(uid)
        self.gangs.remove(uid, self.clock.steady())
        self.ledger.forget(uid)

    def _remember_gone(self, uid: PodUid) -> None:
        self._gone[uid] = None
        if len(self._gone) > _GONE_REMEMBERED:
            del self._gone[next(iter(self._gone))]

    def replace_groups(self, groups: Iterable[PodGroup]) -> None:
        """These PodGroups and no others exist; their kind is installed."""
        self._take_again(self._groups.replace(groups))

    def see_group(self, group: PodGroup) -> None:
        """The PodGroup is there and looks like this."""
        self._take_again(self._groups.see(group))

    def lose_group(self, group: PodGroup) -> None:
        """The PodGroup is deleted. Members that are bound stay; the others wait until it is there again."""
        self._take_again(self._groups.lose(group))

    def _take_again(self, members: Iterable[Pod]) -> None:
        for pod in members:
            self._take_pod(pod)
            if self._groups.to_wake(pod):
                self._effects.append(WakePod(pod))
        self.settle()

    def replace_promises(self, promised: Mapping[str, int]) -> None:
        """These controllers and no others exist, by UID, and promise so many pods at a time."""
        self.gangs.promises.replace(promised)

    def see_promise(self, controller: str, pods: int) -> None:
        """The controller is there, and its spec promises so many pods at a time."""
        self.gangs.promises.see(controller, pods)

    def lose_promise(self, controller: str) -> None:
        """The controller is deleted."""
        self.gangs.promises.lose(controller)

    # -- capacity ------------------------------------------------------------------------------------------------

    def set_capacity(self, node: NodeName, resource: ResourceKey, units: int) -> None:
        """The node should have so many units of an ephemeral resource; 0 removes it. Holders stay."""
        self.ledger.set_capacity(node, resource, units)
        if node in self.nodes:
            self._effects.append(AdvertiseCapacity(node))
        self.settle()

    # -- verbs ---------------------------------------------------------------------------------------------------

    def filter(self, pod: Pod, sent: Sequence[NodeName]) -> Verdict:
        """Where the pod may go, among the nodes sent. A gang's member, and whoever reserves, gets exactly one."""
        self._learn(pod.scheduler)
        pod = self._groups.resolved(pod)
        if self.brake.observes(pod.namespace):
            return self._let_pass(pod, sent)
        if isinstance(pod.gang, MalformedAsk):
            self._groups.turned_away(pod)
            self._effects.append(AskRefused(pod, pod.gang))
            self._flush()
            return Verdict(unresolvable=dict.fromkeys(sent, pod.gang.reason))
        known = self.pods.get(pod.uid, pod)
        if pod.uid in self._gone or known.deleting:
            return Verdict(unresolvable=dict.fromkeys(sent, GONE))
        if pod.gated or pod.at_our_gate:
            # No kube-scheduler asks about such a pod.
            return Verdict(unresolvable=dict.fromkeys(sent, GATED))
        if known.node is not None:
            # kube-scheduler has not heard of its Binding, or takes it for failed.
            passed = [known.node] if known.node in sent else []
            return Verdict(passed, unresolvable=dict.fromkeys((node for node in sent if node not in passed), BOUND))
        self._believe(pod)
        if self.knowledge.is_stale() and self._needs_a_place(pod):
            return self._not_now(pod, sent)
        if isinstance(pod.gang, GangAsk):
            self.settle()
            answer = self.gangs.admit(pod, sent, self.clock.steady())
            if answer not in sent:
                self.settle()
                return Verdict(unresolvable=dict.fromkeys(sent, answer))
            sent = [NodeName(answer)]
        verdict = self.judging.verdict(pod, sent)
        if not verdict.passed:
            self._turned_away.add(pod)
            self._in_flight.ended(pod.uid)
        else:
            self._turned_away.drop(pod.uid)
            if pod.gang is None:
                if self.rules.reserve_at_filter and self._asks_ephemeral(pod):
                    verdict = self._reserve_one(pod, verdict)
                self._in_flight.passed(pod, verdict.passed, self.clock.steady())
        self.settle()
        return verdict

    def _needs_a_place(self, pod: Pod) -> bool:
        """Whether a place would have to be found for it: it has none, and kube-scheduler does not place it alone."""
        reserves = self.rules.reserve_at_filter and self._asks_ephemeral(pod)
        return (isinstance(pod.gang, GangAsk) or reserves) and self.ledger.holding(pod.uid) is None

    def _not_now(self, pod: Pod, sent: Sequence[NodeName]) -> Verdict:
        """Nothing is planned; the pod is woken when it may be."""
        if isinstance(pod.gang, GangAsk) and self.gangs.observe(pod, self.clock.steady()) is not None:
            self.gangs.take_for_asleep(pod.uid)
        else:
            self._turned_away.add(pod)
        self._in_flight.ended(pod.uid)
        self.settle()
        return Verdict(unresolvable=dict.fromkeys(sent, STALE))

    def _believe(self, pod: Pod) -> None:
        """A call has told of the pod, which is there for as long as our watch can be late."""
        if pod.uid not in self.pods and pod.node is None:
            # The scheduler's watch was ahead of ours; or behind, and the pod is no more.
            self.pods[pod.uid] = pod
            self._unseen[pod.uid] = self.clock.steady() + _UNSEEN_SECONDS
            self.gangs.bystanders.put(pod)

    def _let_pass(self, pod: Pod, sent: Sequence[NodeName]) -> Verdict:
        """Every node passes, and nothing is held; what would have been refused is told."""
        now = self.clock.steady()
        if pod.uid not in self.pods and pod.node is None and pod.uid not in self._gone:
            self.pods[pod.uid] = pod
            self._unseen[pod.uid] = now + _UNSEEN_SECONDS
            self.gangs.observe(pod, now)
        self._turned_away.drop(pod.uid)
        self._in_flight.passed(pod, sent, now)
        self._effects += self.observing.filtered(self.pods.get(pod.uid, pod), sent, now)
        self.settle()
        return Verdict(sent)

    def _asks_ephemeral(self, pod: Pod) -> bool:
        return any(in_domain(resource, self.ledger.domain) for resource in pod.requests)

    def _reserve_one(self, pod: Pod, verdict: Verdict) -> Verdict:
        """The pod holds its units on one of the nodes that passed: the one it held before, else the first with room."""
        before = self.ledger.holding(pod.uid)
        wanted = [before.node] if before is not None and before.node in verdict.passed else verdict.passed
        until = self.clock.steady() + self.rules.assume_seconds
        for node in wanted:
            if self._assume(pod, node, until):
                return replace(verdict, passed=[node])
        # What is short is none of ours, and kube-scheduler says it fits: it knows of a change that is on its way to us.
        return verdict

    def prioritize(self, pod: Pod, sent: Sequence[NodeName]) -> dict[NodeName, int]:
        """Pods that ask for ephemeral resources: the emptier the node, the higher, 0 to 10. Others: no preference."""
        asked = [r for r in pod.requests if in_domain(r, self.ledger.domain)]
        scores: dict[NodeName, int] = {}
        for node in sent if asked else ():
            row = self.ledger.rows.get(node)
            if row is None:
                continue
            shares = [
                max(0, row.capacity[r] - row.held.get(r, 0)) / row.capacity[r] for r in asked if row.capacity.get(r)
            ]
            if shares and (score := int(10 * min(shares))):
                scores[node] = score
        return scores

    def preempt(self, pod: Pod, victims: Mapping[NodeName, Victims]) -> dict[NodeName, Victims]:
        """Nodes whose victims may go: their gangs keep their quorum, or leave as a whole.

        None for a gang's member: it would evict for half a gang. Its gang preempts as a whole, by itself. None for a
        pod that is gone, or about to go.
        """
        self._learn(pod.scheduler)
        pod = self._groups.resolved(pod)
        if self.brake.observes(pod.namespace):
            return dict(victims)
        if pod.uid in self._gone or self.pods.get(pod.uid, pod).deleting:
            # It went while kube-scheduler was trying it.
            return {}
        if pod.gang is not None:
            self._believe(pod)
            if self.pods.get(pod.uid, pod).node is None and self.gangs.observe(pod, self.clock.steady()) is not None:
                self.gangs.take_for_asleep(pod.uid)
                self.settle()
            return {}
        safe = self._evictions.offer(pod, {node: chosen.pods for node, chosen in victims.items()}, self.clock.steady())
        return {node: chosen for node, chosen in victims.items() if node in safe}

    def claim_for_bind(self, uid: PodUid, node: NodeName) -> str | None:
        """A pod of no gang may be bound to the node (empty), and its units are held there; or why not; None: a
        BindAnswered effect will tell."""
        if self._observes(uid):
            return self._let_bind(uid, node)
        refusal = self._claim(uid, node)
        self._in_flight.ended(uid)
        if refusal is None:
            self._unseen_room.wait(uid, node, self.clock.steady())
        elif refusal:
            self._offered_again(node)
        self._flush()
        return refusal

    def _observes(self, uid: PodUid) -> bool:
        pod = self.pods.get(uid)
        return pod is not None and self.brake.observes(pod.namespace)

    def _let_bind(self, uid: PodUid, node: NodeName) -> str:
        """The pod may be bound to the node, of whatever gang it is; its units are held there if they can be."""
        pod = self.pods[uid]
        held = self.ledger.holding(uid)
        self._in_flight.ended(uid)
        if held is not None and held.node == node:
            self.ledger.keep(uid, None)
        elif pod.node is None and not self._assume(pod, node, None):
            self._effects.append(self.observing.overfull(pod, node))
        self._flush()
        return ""

    def _answer(self, answers: Iterable[BindAnswered]) -> None:
        for answer in answers:
            self._effects.append(answer)
            if answer.refusal:
                self.ledger.reconsider(answer.node)

    def _offered_again(self, node: NodeName) -> None:
        """A bind is refused. Until now kube-scheduler counted the pod there, and maybe offered the node to no other."""
        self.ledger.reconsider(node)
        self.settle()

    def _claim(self, uid: PodUid, node: NodeName) -> str | None:
        pod = self.pods.get(uid)
        if pod is None:
            # Not seen yet: kube-scheduler has matched it, and nothing of ours can be known about it.
            return ""
        if pod.node is not None:
            return "" if pod.node == node else f"the pod is bound to {pod.node} already"
        held = self.ledger.holding(uid)
        if held is not None and held.node == node:
            self.ledger.keep(uid, None)
            return ""
        rejection = self.judging.rejection(pod, node)
        if rejection is not None:
            return rejection.reason
        if self._assume(pod, node, None):
            return ""
        if any(self.ledger.free(node, resource) < pod.requests.get(resource, 0) for resource in (CPU, MEMORY, PODS)):
            return None
        # What else may be short kube-scheduler may have been told to ignore.
        self.ledger.forget(uid)
        return ""

    def _assume(self, pod: Pod, node: NodeName, until: float | None) -> bool:
        """The pod's units are held on the node, if they fit beside what does not give way to it."""
        claim = Holding(Holder(pod.uid), node, pod.requests, Kind.ASSUMPTION, until=until)
        giving_way: Sequence[Holder] = ()
        if self.ledger.short(node, pod.requests, (pod.uid,)) is not None:
            giving_way = self.gangs.waiting.turns.gives_way_to(pod).get(node, ())
        return not self.ledger.commit([claim], releasing=giving_way).conflicts

    def has_barrier(self, uid: PodUid) -> bool:
        """Whether the pod's bind is for `arrive`: it is a gang's member. If not, it is for `claim_for_bind`."""
        return self.gangs.of(uid) is not None and not self._observes(uid)

    def arrive(self, uid: PodUid, node: NodeName) -> str:
        """The gang's member stands at its barrier, or the answer says why not."""
        self._in_flight.ended(uid)
        refusal = self.gangs.arrive(uid, node, self.clock.steady())
        if refusal:
            self._offered_again(node)
        self.settle()
        return refusal

    def bound(self, uid: PodUid, node: NodeName) -> None:
        """The pod's Binding is written."""
        # The API server has it, though no watch may have told of it yet.
        self._unseen.pop(uid, None)
        pod = self.pods.get(uid)
        if pod is not None:
            self.pods[uid] = replace(pod, node=node)
            self.gangs.staying.observe(self.pods[uid], pod)
            self.gangs.bystanders.put(self.pods[uid])
            self.ledger.confirm(uid, on=node, units=pod.requests)
        self.gangs.written(uid, node, self.clock.steady())
        self.settle()

    def not_bound(self, uid: PodUid, *, for_good: bool, surely: bool = False) -> None:
        """The pod's Binding could not be written; `for_good`: the pod is gone; `surely`: it never was written, either,
        by a try whose answer is lost."""
        self.gangs.failed(uid, self.clock.steady(), for_good=for_good, surely=surely)
        # A gang has the say on what is held for it, and on nothing that the pod held before it was a member.
        held = self.ledger.holding(uid)
        if held is not None and held.kind is not Kind.BOUND and held.owner is None:
            self.ledger.forget(uid)
        self.settle()

    def not_evicted(self, uid: PodUid) -> None:
        """A member that was to be evicted stays."""
        self.gangs.not_evicted(uid, self.clock.steady())
        self.settle()

    # -- the brake -----------------------------------------------------------------------------------------------

    def heed_brake(self) -> None:
        """The switches have changed. What they do not allow any more has ended, and nobody is left to wait for it."""
        self.gangs.heed_brake(self.clock.steady())
        for uid in self._unseen_room.waiting():
            if self._observes(uid):
                self._answer(self._unseen_room.end(uid, ""))
        self._effects += map(WakePod, self._turned_away.woken_in(self.brake.observes))
        self.settle()

    # -- evictions -----------------------------------------------------------------------------------------------

    def replace_budgets(self, budgets: Iterable[Budget]) -> None:
        """These disruption budgets and no others exist."""
        self.preempting.budgets.replace(budgets)
        self.preempting.budgets_known = True
        self.settle()

    def see_budget(self, budget: Budget) -> None:
        """The disruption budget is there and looks like this."""
        self.preempting.budgets.see(budget)
        self.settle()

    def lose_budget(self, budget: Budget) -> None:
        self.preempting.budgets.lose(budget)
        self.settle()

    def evicted(self, gang: GangKey, pod: Pod) -> None:
        """The API server has taken the pod's eviction, for that gang: it counts as leaving from now on."""
        self.preempting.evicted(gang, pod)
        self.leaves(pod)

    def leaves(self, pod: Pod) -> None:
        """The API server has taken the pod's eviction: it counts as leaving from now on."""
        known = self.pods.get(pod.uid)
        if known is not None and not known.deleting:
            self._take_pod(replace(known, deleting=True))
        self.settle()

    def still_wants(self, order: EvictRest) -> bool:
        """Whether the pod that a gang leaves for is there, waiting or bound: what was begun for it is gone on with."""
        known = self.pods.get(order.preemptor.uid)
        braked = self.brake.protects(order.gang.namespace) or not self.brake.allows(
            Act.PREEMPT, order.preemptor.namespace
        )
        return known is not None and not known.deleting and not braked

    def rest_not_evicted(self, order: EvictRest, left: int, why: str) -> None:
        """`left` members of the gang have gone for the pod, and the others cannot be made to."""
        self.preempting.is_left_in_part(order.gang, str(order.preemptor), left, order.gone + len(order.rest), why)

    def unit_stays(self, gang: GangKey, unit: Sequence[Pod], left: int, why: str) -> None:
        """The unit was to leave for that gang: `left` of it have, and the others cannot be made to."""
        self.preempting.refused(gang, unit, left, why, self.clock.steady())
        self.settle()

    def eviction_done(self, gang: GangKey) -> None:
        """Nobody else is evicted for that order of the gang."""
        self.preempting.done(gang, self.clock.steady())
        self.settle()

    # -- time and change -----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """What has passed its deadline is released, gang by gang."""
        now = self.clock.steady()
        for held in self.ledger.expire(now):
            if held.owner is not None:
                self.gangs.expire(held.owner, now)
        self.gangs.heed_time(now)
        for uid in [uid for uid, until in self._unseen.items() if until <= now]:
            self._drop_pod(uid)
        self._answer(self._unseen_room.overdue(now))
        self.settle()

    def next_deadline(self) -> float | None:
        """The next moment at which `tick` has something to do, in seconds that pass; None: nothing waits."""
        if self.more_to_do:
            return self.clock.steady()
        keeping_time = (self.ledger, self.gangs, self._unseen_room, self._in_flight)
        known = [each.next_deadline() for each in keeping_time]
        known.append(next(iter(self._unseen.values()), None))
        first = min((when for when in known if when is not None), default=None)
        if first is not None and self._was_stale:
            # What is not planned now stays due.
            return max(first, self.clock.steady() + 1.0)
        return first

    def violations(self) -> list[Violation]:
        """Every invariant of ledger and gangs that does not hold now. O(everything)."""
        bound = {uid: pod for uid, pod in self.pods.items() if pod.node is not None}
        beside = self.gangs.bystanders.violations(bound)
        return [*self.ledger.violations(), *gang_audit.violations(self.gangs, is_claim), *beside]

    def settle(self) -> None:
        """Whoever waits and could go now is planned for and woken, once for each change; all effects are delivered."""
        now = self.clock.steady()
        self.gangs.staying.heed_time(self.clock.now())
        if self.knowledge.is_stale():
            self._was_stale, self.more_to_do = True, False
            self.gangs.announce()
            self._flush()
            return
        if self._was_stale:
            self._was_stale = False
            for node in self.nodes:
                self.ledger.reconsider(node)
        waiting = self.gangs.waiting
        waiting.begin_slice()
        while (gains := self.ledger.drain_gains()) or waiting.has_work or self._heed_turn(now):
            # First: kube-scheduler counts those pods there already.
            self._answer(self._unseen_room.heed_nodes(gains))
            self.gangs.settle(gains, now)
            self._gained |= dict.fromkeys(gains)
            if not self.ledger.has_gains:
                # What was given up on the way is saved again by now.
                gained, self._gained = waiting.turns.with_news_for_others(self._gained), {}
                self._effects += map(WakePod, self._turned_away.woken_by(gained))
            if waiting.turns.work.is_over:
                break
        self.more_to_do = waiting.turns.work.is_over
        self.gangs.announce()
        self._flush()

    def _heed_turn(self, now: float) -> bool:
        if self.gangs.preempt(now):
            return True
        return self.gangs.heed_turn(now)

    def _flush(self) -> None:
        if self.gangs.effects:
            self._effects += self.gangs.effects
            self.gangs.effects.clear()
        now = self.clock.steady()
        effects: list[Effect] = list(self._in_flight.let_go(now))
        for effect in self._effects:
            if not (isinstance(effect, WakePod) and self._in_flight.holds_back(effect, now)):
                effects.append(effect)
        if effects or self._effects or self.more_to_do or self._looks_again_at_another_time():
            self._effects = []
            self._deliver(effects)

    def _looks_again_at_another_time(self) -> bool:
        """Whether the alarm is to be set anew though nothing is to be done: what has changed is looked at later."""
        told, self._preempts_again_at = self._preempts_again_at, self.preempting.next_deadline()
        return self._preempts_again_at is not None and self._preempts_again_at != told


def _welcomes(node: Node) -> tuple[object, ...]:
    """What of a node, beside its resources, decides which pods it accepts."""
    return (node.labels, node.taints, node.unschedulable)
