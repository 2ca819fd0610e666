"""A small cluster in memory around a Scheduler: an API server's truth, watches that are late, and a kube-scheduler.

Nothing happens by itself: a test says what happens next. The scheduler here is no friend of ours: it offers windows
of nodes, calls late and twice, and knows nothing of reservations. It tries a pod that our filter rejected again only
when it is woken, and one at our gate not before that is open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from extender.app.cache.cache import Rules
from extender.app.contracts.effects import AskRefused, BindAnswered, Effect
from extender.app.contracts.extender_api import Verdict
from extender.app.cycle.scheduler import Scheduler
from extender.core.attempt import Attempt
from extender.core.cluster import Node, Owner, Pod
from extender.core.daemons import DaemonSet
from extender.core.feedback import Bound, NotBound, SwitchesChanged
from extender.core.gang_ask import GangAsk
from extender.core.gangs.cycle.expected_members import Promise
from extender.core.gangs.queue.backfill import DEFAULT_LIMITS, BackfillLimits
from extender.core.gangs.queue.queue import DEFAULT_PATIENCE, BackfillTrigger
from extender.core.gangs.state.eviction_orders import EvictRest, KeepRoomFor, LetRoomGo, Preempted
from extender.core.gangs.state.gang import (
    EvictFor,
    EvictMembers,
    GangInDoubt,
    GangInPart,
    GangQuarantined,
    GangTurnedAway,
    OpenBarrier,
    RoomSaved,
    TurnBack,
    VoidAttempts,
    WakePod,
)
from extender.core.gangs.state.gang_state import Roster
from extender.core.gangs.state.pod_groups import PodGroup
from extender.core.gangs.state.state_machine import Phase
from extender.core.policy import Allow, Refuse, Wait
from extender.core.safety_switches import FREE, Switches, Withheld
from extender.core.tenancy.isolation import UNLIMITED, Allowance, Counted
from extender.filters.gang import AT_BARRIER
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.node_match import accepts
from tests.builders import NOW, gone, node
from tests.performing import Performing, replaced


def differs_from_twin(roster: Roster) -> list[str]:
    """What the roster counts otherwise than one that looks at all members does."""
    members = list(roster.members.values())
    asks = [each.gang for each in members if isinstance(each.gang, GangAsk)]
    free = {each.uid for each in members if not (each.uid in roster.bound or each.deleting or each.gated)}
    twin = {
        "quorums": sorted(ask.quorum for ask in asks),
        "timeouts": sorted(ask.timeout for ask in asks),
        "priorities": sorted(each.priority for each in members),
        "created": sorted(each.created for each in members),
        "with_node": sum(each.node is not None for each in members),
        "spare": sorted(each.attempt.size - each.attempt.needed for each in members if each.attempt is not None),
    }
    differs = [name for name, counted in twin.items() if getattr(roster.asked, name) != counted]
    same = {each.uid for each in roster.unplaced()} == free and roster.unplaced_count == len(free)
    return differs if same else [*differs, "unplaced"]


@dataclass
class FixedClock:
    time: float = NOW
    """Seconds that pass."""
    stepped: float = 0.0
    """By how many seconds somebody has set the time of day forward, or, below 0, back."""

    def now(self) -> float:
        return self.time + self.stepped

    def steady(self) -> float:
        return self.time


@dataclass
class GangWorld(Performing):
    clock: FixedClock = field(default_factory=FixedClock)
    patience: BackfillTrigger = DEFAULT_PATIENCE
    thrift: BackfillLimits = DEFAULT_LIMITS
    reserve_at_filter: bool = True
    jobs: int = 0
    """Each gang's members, as they are created, are a Job's of so many pods, whose promise is known; 0: nobody's."""
    switches: Switches = FREE
    allowances: tuple[Allowance, Mapping[str, Allowance]] = (UNLIMITED, {})
    daemon_sets: dict[str, DaemonSet] = field(default_factory=dict)
    pods: dict[PodUid, Pod] = field(default_factory=dict)
    nodes: dict[NodeName, Node] = field(default_factory=dict)
    events: deque[Pod | PodUid] = field(default_factory=deque)
    """What the pod watch has still to tell: a pod as it is, or the UID of one that is gone."""
    assumed: dict[PodUid, NodeName] = field(default_factory=dict)
    """Pods that passed filter: the scheduler counts them on their node until their bind has failed."""
    counting_on_room: set[PodUid] = field(default_factory=set)
    """Pods of no gang whose bind waits, for their node is full as far as we know."""
    opened: dict[PodUid, NodeName] = field(default_factory=dict)
    """Pods whose Binding is to be written."""
    said: dict[PodUid, Attempt] = field(default_factory=dict)
    """What their Bindings say."""
    asleep: dict[PodUid, str] = field(default_factory=dict)
    """Pods that our filter rejected, and why; only a wake brings them back."""
    wakes: dict[PodUid, int] = field(default_factory=dict)
    turned_back: list[PodUid] = field(default_factory=list)
    turned_back_for: list[str] = field(default_factory=list)
    """The reason that each of them was given."""
    gangs_opened: list[tuple[str, int]] = field(default_factory=list)
    preempted: list[list[str]] = field(default_factory=list)
    """Pods that are to be evicted for a gang, each time that it was so."""
    taken: list[Preempted] = field(default_factory=list)
    """Pods that kube-scheduler was offered as victims and has evicted."""
    rests: list[EvictRest] = field(default_factory=list)
    """What is left of gangs that an ordinary pod has preempted a part of."""
    kept_room: list[tuple[str, NodeName]] = field(default_factory=list)
    """Members that kube-scheduler is to keep room for again, and where."""
    let_go: list[str] = field(default_factory=list)
    """Members that kube-scheduler is to keep room for no more."""
    told: list[RoomSaved] = field(default_factory=list)
    told_in_part: list[GangInPart] = field(default_factory=list)
    turned_away: list[GangTurnedAway] = field(default_factory=list)
    refused: list[AskRefused] = field(default_factory=list)
    evicted: list[PodUid] = field(default_factory=list)
    """Pods that are to be evicted: the API server does it when the scheduler comes to its next round."""

    withheld: list[Withheld] = field(default_factory=list)
    lives: int = 0
    ended: dict[PodUid, Pod] = field(default_factory=dict)
    """Pods that have finished, and that nobody has deleted."""
    groups: dict[str, PodGroup] | None = None
    """PodGroups by name; None: their kind is not installed."""
    doubted: list[GangInDoubt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        rules = Rules(
            self.reserve_at_filter,
            patience=self.patience,
            thrift=self.thrift,
            switches=self.switches,
            allowances=self.allowances,
        )
        self.scheduler = Scheduler(self.clock, rules, life=str(self.lives))

    @property
    def gangs(self) -> dict[str, Phase]:
        return {key.name: gang.phase for key, gang in self.scheduler.cache.gangs.by_key.items()}

    def take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case WakePod(pod):
                    self.wakes[pod.uid] = self.wakes.get(pod.uid, 0) + 1
                    self.asleep.pop(pod.uid, None)
                    self._open_gate(pod)
                case BindAnswered(uid, _, refusal):
                    self.counting_on_room.remove(uid)
                    if refusal:
                        self.assumed.pop(uid, None)
                    else:
                        self.opened[uid] = self.assumed[uid]
                case OpenBarrier(key, members, attempts):
                    self.said |= attempts
                    gang = self.scheduler.cache.gangs.by_key[key]
                    seen_bound = all(uid in gang.roster.bound for uid in members)
                    whole = gang.roster.placed + len(gang.barrier.writing) >= gang.terms.quorum
                    observed = self.scheduler.cache.safety_switches.observes(key.namespace)
                    assert whole or seen_bound or observed, "opened before the quorum was there"
                    self.gangs_opened.append((key.name, len(members)))
                    for uid in members:
                        self.opened[uid] = gang.barrier.writing.get(uid) or self.assumed[uid]
                case EvictFor(key, _, victims):
                    self.preempted.append([pod.name for pod in victims])
                    self.evicted += [pod.uid for pod in victims]
                    self.scheduler.cache.gangs.waiting.preempting.reports(key)
                    for pod in victims:
                        self.scheduler.cache.gangs.waiting.preempting.evicted(key, pod)
                    self.scheduler.cache.gangs.waiting.preempting.done(key, self.clock.steady())
                case Preempted():
                    self.taken.append(effect)
                case EvictRest(_, _, rest):
                    self.rests.append(effect)
                    self.evicted += [pod.uid for pod in rest]
                case KeepRoomFor(pod, node):
                    self.kept_room.append((pod.name, node))
                case LetRoomGo(_, members):
                    self.let_go += [pod.name for pod in members]
                case Withheld():
                    self.withheld.append(effect)
                case RoomSaved():
                    self.told.append(effect)
                case GangInPart():
                    self.told_in_part.append(effect)
                case GangTurnedAway():
                    self.turned_away.append(effect)
                case AskRefused():
                    self.refused.append(effect)
                case VoidAttempts(_, members):
                    for uid in [each.uid for each in members if each.uid in self.pods]:
                        self.change(uid, attempt=None)
                case GangInDoubt():
                    self.doubted.append(effect)
                case GangQuarantined():
                    self.has_a_defect(effect)
                case EvictMembers(_, _, members, _):
                    there = [self.pods[pod.uid] for pod in members if pod.uid in self.pods]
                    assert all(pod.node is not None for pod in there)
                    self.evicted += [pod.uid for pod in members]
                case TurnBack(_, members, reason):
                    assert reason
                    for uid in members:
                        self.turned_back.append(uid)
                        self.turned_back_for.append(reason)
                        self.assumed.pop(uid, None)

    def _open_gate(self, pod: Pod) -> None:
        there = self.pods.get(pod.uid)
        if pod.at_our_gate and there is not None and there.at_our_gate:
            self.pods[pod.uid] = replace(there, at_our_gate=False)
            self.events.append(self.pods[pod.uid])

    def has_a_defect(self, event: GangQuarantined) -> None:
        raise event.defect

    # -- the safety switches ------------------------------------------------------------------------------------------

    def hold(self, **switches: bool) -> None:
        """The settings say so from now on; all else is as by default."""
        self.scheduler.cache.safety_switches.set_everywhere(Switches(**switches))
        self.do(self.scheduler.on_event(SwitchesChanged()))

    def label(self, namespace: str, **switches: bool) -> None:
        """The namespace's labels say so from now on."""
        self.scheduler.cache.safety_switches.set_labelled(namespace, Switches(**switches))
        self.do(self.scheduler.on_event(SwitchesChanged()))

    # -- isolation -----------------------------------------------------------------------------------------------

    def allow(self, **gang_places: int) -> None:
        """So many gang places each of these namespaces may hold from now on; others any number."""
        limited = {name: Allowance({Counted.GANG_PLACES: number}) for name, number in gang_places.items()}
        self.allowances = (UNLIMITED, limited)
        self.scheduler.cache.isolation.set(*self.allowances)
        self.do(self.scheduler.settle())

    # -- the cluster ---------------------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.do(self.scheduler.observe(node))

    def restart(self) -> None:
        """A new life of the service, with what the cluster says. Calls to the one before are answered by nobody."""
        self.lives += 1
        self.assumed.clear()
        self.opened.clear()
        self.counting_on_room.clear()
        self.events.clear()
        self.evicted.clear()
        self._begin()
        self.do(replaced(self.scheduler, Node, list(self.nodes.values())))
        self.do(replaced(self.scheduler, DaemonSet, self.daemon_sets.values()))
        if self.groups is not None:
            self.do(replaced(self.scheduler, PodGroup, self.groups.values()))
        self.do(replaced(self.scheduler, Pod, [*self.pods.values(), *self.ended.values()]))

    def have(self, daemon_set: DaemonSet) -> None:
        """The DaemonSet is there, and looks like this."""
        self.daemon_sets[daemon_set.uid] = daemon_set
        self.do(self.scheduler.observe(daemon_set))
        self.do_the_rest()

    def remove_node(self, name: NodeName) -> None:
        del self.nodes[name]
        self.do(self.scheduler.forget(node(name)))

    def create(self, *pods: Pod, seen: bool = True) -> None:
        for pod in map(self._by_a_job, pods):
            self.pods[pod.uid] = pod
            self.events.append(pod)
        if seen:
            self.catch_up()

    def _by_a_job(self, pod: Pod) -> Pod:
        if not self.jobs or not isinstance(pod.gang, GangAsk) or pod.owner is not None:
            return pod
        job = Owner("Job", pod.gang.key.name, f"uid-job-{pod.gang.key.name}")
        self.do(self.scheduler.observe(Promise(job.uid, self.jobs)))
        return replace(pod, owner=job)

    def delete(self, uid: PodUid, *, seen: bool = True, by_force: bool = False) -> None:
        """It is gone. One on a node has had its end before, unless it was deleted by force."""
        if self.pods[uid].node is None or by_force:
            self._remove(uid)
        else:
            self.kubelet_deletes(uid)
        if seen:
            self.catch_up()

    def kubelet_deletes(self, uid: PodUid) -> None:
        """As kubelets do since 1.27: the pod is being deleted, then its phase is Failed, then it is gone."""
        if not self.pods[uid].deleting:
            self.change(uid, deleting=True)
        if not self.pods[uid].finished:
            self.change(uid, finished=True, succeeded=False)
        self._remove(uid)

    def _remove(self, uid: PodUid) -> None:
        del self.pods[uid]
        self.asleep.pop(uid, None)
        self.events.append(uid)

    def change(self, uid: PodUid, **facts: Any) -> None:
        """Somebody edits the pod."""
        self.pods[uid] = replace(self.pods[uid], **facts)
        self.events.append(self.pods[uid])

    def finish(self, uid: PodUid, *, succeeded: bool = True) -> None:
        done = self.ended[uid] = replace(self.pods.pop(uid), finished=True, succeeded=succeeded)
        self.events.append(done)

    def deliver(self) -> None:
        """The watch tells the next thing."""
        if self.events:
            news = self.events.popleft()
            if isinstance(news, Pod):
                self.do(self.scheduler.observe(news))
            else:
                self.do(self.scheduler.forget(gone(news)))

    def set_group(self, group: PodGroup) -> None:
        self.groups = {**(self.groups or {}), group.name: group}
        self.do(self.scheduler.observe(group))

    def drop_group(self, name: str) -> None:
        assert self.groups is not None
        self.do(self.scheduler.forget(self.groups.pop(name)))

    def catch_up(self) -> None:
        while self.events:
            self.deliver()
        self.do_the_rest()

    def do_the_rest(self) -> None:
        """The event loop comes back to what a slice of work had no room for, until nothing is left."""
        for _ in range(1000):
            if not self.scheduler.more_to_do:
                return
            self.do(self.scheduler.tick())
        raise AssertionError("there is always more to do")

    def pass_time(self, seconds: float) -> None:
        self.clock.time += seconds
        self._ring()

    def at_its_alarms(self, seconds: float) -> None:
        """Time passes in which the service is asked nothing and hears nothing: it does what it set its alarm for."""
        until = self.clock.time + seconds
        while (due := self.scheduler.next_deadline()) is not None and due <= until:
            self.clock.time = max(due, self.clock.time)
            self._ring()
        self.clock.time = until

    def _ring(self) -> None:
        """The alarm rings, and at once again for what is due still."""
        for _ in range(10):
            self.do(self.scheduler.tick())
            self.do_the_rest()
            due = self.scheduler.next_deadline()
            if due is None or due > self.clock.time:
                return
        raise AssertionError("what is due stays due: the alarm rings for ever")

    # -- the scheduler -------------------------------------------------------------------------------------------

    def free(self, name: NodeName, resource: str) -> int:
        """What the scheduler believes is free: it knows bound pods and those it assumed, and no reservation."""
        living = {uid: pod for uid, pod in self.pods.items() if not pod.finished}
        there = [pod for uid, pod in living.items() if name in (pod.node, self.assumed.get(uid))]
        held = sum(pod.requests.get(ResourceKey(resource), 0) for pod in there)
        return self.nodes[name].allocatable.get(ResourceKey(resource), 0) - held

    def offer(self, pod: Pod) -> list[NodeName]:
        """The nodes that the scheduler's own plugins allow."""
        return [
            name
            for name, node in self.nodes.items()
            if accepts(node, pod) and all(units <= self.free(name, r) for r, units in pod.requests.items())
        ]

    def pending(self) -> list[Pod]:
        """Pods that the scheduler would try next."""
        return [
            pod
            for uid, pod in self.pods.items()
            if self.scheduler.cache.ours(pod)
            and not (pod.node or pod.gated or pod.at_our_gate or uid in self.assumed or uid in self.asleep)
        ]

    def filter(self, pod: Pod, sent: Sequence[NodeName] | None = None) -> Verdict:
        sent = self.offer(pod) if sent is None else sent
        pod = self._by_a_job(pod)
        verdict = self.do(self.scheduler.filter(pod, sent))
        if pod.uid not in self.pods:
            return verdict
        if verdict.passed:
            assert set(verdict.passed) <= set(sent)
            self.assumed[pod.uid] = verdict.passed[0]
        else:
            reasons = {*verdict.rejected.values(), *verdict.unresolvable.values()}
            assert verdict.unresolvable.keys() | verdict.rejected.keys() == set(sent), "a node without a reason"
            if sent and self.wakes.get(pod.uid, 0) == self.wakes_before(pod.uid):
                self.asleep[pod.uid] = ", ".join(sorted(reasons))
        return verdict

    def wakes_before(self, uid: PodUid) -> int:
        # A wake during the very call that rejects counts: kube-scheduler keeps events that arrive in flight.
        seen = self._wakes_seen.get(uid, 0)
        self._wakes_seen[uid] = self.wakes.get(uid, 0)
        return seen

    _wakes_seen: dict[PodUid, int] = field(default_factory=dict)

    def bind(self, uid: PodUid) -> str:
        """The scheduler's bind call: empty if it passed or waits at the barrier."""
        node = self.assumed[uid]
        self.counting_on_room.add(uid)
        permit = self.do(self.scheduler.permit(uid, node))
        if isinstance(permit, Wait) and permit is not AT_BARRIER:
            return ""
        self.counting_on_room.discard(uid)
        if isinstance(permit, Allow):
            self.opened[uid] = node
        if isinstance(permit, Refuse):
            self.assumed.pop(uid, None)
            return permit.reason
        return ""

    def bring(self, members: Iterable[Pod]) -> None:
        """Filter and bind, one after the other: to their barrier, or through it."""
        for member in members:
            self.filter(member)
            self.bind(member.uid)

    def write(self, uid: PodUid) -> None:
        """The Binding reaches the API server; a pod that is gone has none."""
        node = self.opened.pop(uid)
        self.assumed.pop(uid, None)
        pod = self.pods.get(uid)
        if pod is None:
            self.do(self.scheduler.on_event(NotBound(uid, for_good=True, surely=True)))
            return
        self.pods[uid] = replace(pod, node=node, attempt=self.said.pop(uid, None))
        self.events.append(self.pods[uid])
        self.do(self.scheduler.on_event(Bound(uid, node, self.pods[uid].attempt)))

    def restart_scheduler(self) -> None:
        """A new one knows nothing of what its predecessor has tried; its bind calls are still with us."""
        under_way = self.opened.keys() | self.counting_on_room
        self.assumed = {uid: node for uid, node in self.assumed.items() if uid in under_way}
        self.asleep.clear()

    def schedule(self) -> None:
        """The scheduler tries whatever is to be tried, and every bind is made, until nothing moves any more."""
        for _ in range(200):
            for uid in self.evicted:
                if uid in self.pods:
                    self.delete(uid)
            self.evicted.clear()
            tried = [pod for pod in self.pending() if (sent := self.offer(pod)) and self.filter(pod, sent).passed]
            waiting = {uid for gang in self.scheduler.cache.gangs.by_key.values() for uid in gang.barrier.arrived}
            waiting |= self.counting_on_room
            for uid in [uid for uid in self.assumed if uid not in self.opened and uid not in waiting]:
                self.bind(uid)
            moved = bool(tried or self.opened or self.events)
            for uid in list(self.opened):
                self.write(uid)
            self.catch_up()
            if not moved:
                return
        raise AssertionError("it never comes to rest: a hot loop")

    # -- what must always hold -----------------------------------------------------------------------------------

    def check(self) -> None:
        scheduler = self.scheduler
        assert (broken := scheduler.cache.violations()) == [], broken
        assert not scheduler.cache.gangs.effects
        for gang in scheduler.cache.gangs.by_key.values():
            assert (differs := differs_from_twin(gang.roster)) == [], f"{gang.key}: {differs}"

    def bound(self, gang: str) -> int:
        return sum(
            pod.node is not None and not pod.finished and isinstance(pod.gang, GangAsk) and pod.gang.key.name == gang
            for pod in self.pods.values()
        )

    def idle_cpu(self) -> int:
        return sum(self.free(name, "cpu") for name in self.nodes)
