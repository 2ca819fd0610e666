"""Simulate: what would become of pods and gangs that do not exist, after changes to the cluster.

It uses the `Scheduler` and the rules that decide. A change is observed as if it were a fact. The pods in
question are filtered with every node, as if kube-scheduler called filter. That leaves the `Scheduler` unusable for the
real cluster, so it is done in a copy (`Copied`). What only kube-scheduler knows (volumes, its own scores) is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

from extender.app.cache.claims import holder_of
from extender.app.contracts.api import Release
from extender.app.contracts.effects import Decided
from extender.app.contracts.errors import Invalid, NotFound
from extender.app.contracts.explanation import Explanation
from extender.app.contracts.simulation_changes import (
    MOST_NODES,
    Added,
    Drained,
    Ended,
    Offered,
    PolicySet,
    QuorumSet,
    Released,
    SimulationChange,
    Uncordoned,
)
from extender.app.contracts.simulation_request import (
    GangThere,
    Place,
    PodsAsked,
    PodThere,
    SimulationRequest,
    SimulationResult,
)
from extender.app.cycle.scheduler import Scheduler
from extender.app.explain.explain import Explain
from extender.app.explain.queries import gang_of, pod_of
from extender.core.cluster import Node, Pod
from extender.core.gang_ask import LARGEST_GANG, GangAsk
from extender.core.gangs.state.gang import WakePod
from extender.core.names import GangKey
from extender.core.policies.policy_types import HOSTNAME
from extender.kube.names import PODS, NodeName, PodUid
from extender.kube.node_match import accepts

T = TypeVar("T")
_OFFERED = 100
_MOST_SLICES = 100


class Copied(Protocol):
    async def in_a_copy(self, work: Callable[[], T], namespace: str = "") -> T:
        """Runs `work` where its changes are not seen here; returns its answer, or raises its error.

        `namespace`: the requester; it takes turns with others. Raises Unavailable if there is no copy, or it takes too
        long."""
        ...

    def within_a_copy(self, work: Callable[[], T]) -> T:
        """As `in_a_copy`, for a caller that runs in a copy already."""
        ...


class WhatIf:
    """Implements `api.SimulationCalls`."""

    def __init__(self, scheduler: Scheduler, copied: Copied) -> None:
        self._scheduler = scheduler
        self._copied = copied

    async def simulate(self, request: SimulationRequest) -> SimulationResult:
        self._scheduler.cache.require_whole()
        namespace = "" if request.question is None else request.question.namespace
        return await self._copied.in_a_copy(lambda: simulate_on(self._scheduler, request), namespace)

    def simulate_within(self, request: SimulationRequest) -> SimulationResult:
        """As `simulate`, for several requests in one copy, without the costly explanation."""
        return self._copied.within_a_copy(lambda: simulate_on(self._scheduler, request, explains=False))


def simulate_on(scheduler: Scheduler, request: SimulationRequest, *, explains: bool = True) -> SimulationResult:
    """`explains`: with why pods do not fit. Changes the `Scheduler`. Raises NotFound, Invalid."""
    added = sum(each.count for each in request.changes if isinstance(each, Added))
    if added > MOST_NODES:
        raise Invalid("changes", added, f"changes add {added} nodes; write {MOST_NODES} at most")
    simulation = _Simulation(scheduler)
    moved = [place for each in request.changes for place in simulation.take(each)]
    match request.question:
        case None:
            fits, places, why = True, list[Place](), None
        case PodsAsked() as asked:
            fits, places, why = simulation.ask(asked)
        case PodThere(namespace, name):
            fits, places, why = simulation.try_pod(namespace, name)
        case GangThere(key):
            fits, places, why = simulation.try_gang(key)
    nowhere = any(place.node is None for place in moved)
    explanation = why() if explains and why is not None else None
    return SimulationResult(fits=fits and not nowhere, places=places, moved=moved, explanation=explanation)


Answer = tuple[bool, list[Place], Callable[[], Explanation] | None]
"""Whether they fit, where each would be, and a function that explains why they do not."""


class _Simulation:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._cache = scheduler.cache
        self._woken: dict[PodUid, Pod] = {}
        """Pods woken by the changes: kube-scheduler tries them then."""
        self._changed: dict[NodeName, None] = {}
        """Nodes with room now for pods that kube-scheduler never sent, as it had none for them."""
        scheduler.take_no_turns()
        if scheduler.more_to_do:
            # Earlier events are not part of the changes.
            scheduler.tick()

    def _do(self, decided: Decided[None]) -> None:
        """Takes the effects, and runs the `Scheduler` until nothing follows from them."""
        for _ in range(_MOST_SLICES):
            self._woken |= {effect.pod.uid: effect.pod for effect in decided.effects if isinstance(effect, WakePod)}
            if not self._scheduler.more_to_do:
                break
            decided = self._scheduler.tick()

    # -- changes ------------------------------------------------------------------------------------------------

    def take(self, change: SimulationChange) -> list[Place]:
        """Makes the change. Returns the pods that had to move, and where to."""
        match change:
            case Drained(name):
                return self._drain(self._node(name))
            case Uncordoned(name):
                self._changed[name] = None
                self._do(self._scheduler.observe(replace(self._node(name), unschedulable=False)))
            case Added(like, count, own):
                self._add(self._node(like), count, own)
            case Ended(namespace, name):
                ended = pod_of(self._cache, namespace, name)
                if ended.node is not None:
                    self._changed[ended.node] = None
                self._do(self._scheduler.forget(ended))
            case Offered(resource, node, capacity):
                key = resource.key(self._cache.ledger.capacity.domain)
                self._do(self._scheduler.set_capacity(self._node(node).name, key, capacity))
            case Released(namespace, holder):
                self._release(namespace, holder)
            case PolicySet(namespace, name, policy):
                self._do(self._scheduler.govern(namespace, name, policy))
            case QuorumSet(key, quorum):
                self._set_quorum(key, quorum)
        return []

    def _drain(self, node: Node) -> list[Place]:
        self._scheduler.observe(replace(node, unschedulable=True))
        comes_again = self._cache.around.daemons.comes_again
        there = [pod for pod in self._cache.pods.values() if pod.node == node.name and not comes_again(pod)]
        for pod in there:
            self._scheduler.forget(pod)
        # Each needs a placement of its own now: the gang's other members stay where they are.
        return [Place(str(pod), self._place(_anew(replace(pod, gang=None)))) for pod in sorted(there, key=str)]

    def _add(self, like: Node, count: int, own_places: Sequence[str]) -> None:
        if not 1 <= count <= MOST_NODES:
            raise Invalid("count", count, f"count is {count}; write 1 to {MOST_NODES}")
        domain = self._cache.ledger.capacity.domain
        own = {key: units for key, units in like.allocatable.items() if not key.startswith(f"{domain}/")}
        for number in range(count):
            name = NodeName(f"{like.name}-more-{number}")
            labels = {**like.labels, **dict.fromkeys((*own_places, HOSTNAME), name)}
            node = replace(like, name=name, allocatable=own, capacity=own, labels=labels, unschedulable=False, uid=name)
            self._changed[name] = None
            self._do(self._scheduler.observe(node))

    def _release(self, namespace: str, holder: str) -> None:
        claimed = holder_of(Release(namespace=namespace, holder=holder))
        if self._cache.ledger.holding(claimed) is None:
            raise NotFound("holder", holder, f"there is no claim of {holder} in namespace {namespace}")
        released = self._scheduler.commit([], given_up=[claimed])
        self._do(Decided(None, released.effects))

    def _set_quorum(self, key: GangKey, quorum: int) -> None:
        gang = gang_of(self._cache, key, "gang")
        if not 1 <= quorum <= LARGEST_GANG:
            raise Invalid("quorum", quorum, f"quorum is {quorum}; write 1 to {LARGEST_GANG}")
        for member in list(gang.roster.members.values()):
            if isinstance(member.gang, GangAsk):
                self._do(self._scheduler.observe(replace(member, gang=replace(member.gang, quorum=quorum))))

    # -- what is asked -----------------------------------------------------------------------------------------------

    def ask(self, asked: PodsAsked) -> Answer:
        if not 1 <= asked.count <= LARGEST_GANG:
            raise Invalid("count", asked.count, f"count is {asked.count}; write 1 to {LARGEST_GANG}")
        key = GangKey(asked.namespace, asked.name)
        if asked.gang and self._cache.gangs.naming.is_taken(key):
            raise Invalid("name", asked.name, f"gang {key} exists already: ask about it, or use another name")
        pods = [self._made(asked, number) for number in range(asked.count)]
        if asked.gang:
            for pod in pods:
                self._scheduler.observe(pod)
            return self.try_gang(key)
        places = [Place(str(pod), self._place(pod)) for pod in pods]
        without = next((pod for pod, place in zip(pods, places, strict=True) if place.node is None), None)
        why = None if without is None else partial(Explain(self._cache).pod, without.namespace, without.name)
        return without is None, places, why

    def try_pod(self, namespace: str, name: str) -> Answer:
        pod = pod_of(self._cache, namespace, name)
        if pod.node is None:
            self._let_go_first(pod)
        node = pod.node or self._place(pod)
        why = None if node is not None else partial(Explain(self._cache).pod, namespace, name)
        return node is not None, [Place(str(pod), node)], why

    def try_gang(self, key: GangKey) -> Answer:
        gang = gang_of(self._cache, key, "gang")
        first = next(gang.roster.unplaced(), None)
        if first is not None and not gang.holds_a_plan:
            self._let_go_first(first)
            self._place(first)
        # Filter of the first member makes a plan for all.
        holding = self._cache.ledger.holding
        members = sorted(gang.roster.members.values(), key=_in_order)
        held = [(pod, holding(pod.uid)) for pod in members]
        places = [Place(str(pod), each.node) for pod, each in held if each is not None]
        if len(places) >= gang.terms.quorum:
            return True, places, None
        return False, [], partial(Explain(self._cache).gang, gang.key)

    def _let_go_first(self, pod: Pod) -> None:
        """Places the pods first that may be tried before this one."""
        for other in sorted(self._others(pod), key=lambda each: -each.priority):
            if (known := self._cache.pods.get(other.uid)) is not None and known.node is None:
                # kube-scheduler may take any of equally good nodes: assume a node that this pod could have had.
                self._place(known, rather=self._cache.policies.filter_score.passes(pod))

    def _others(self, pod: Pod) -> list[Pod]:
        """Returns waiting pods that the change may help too; one member of each gang."""
        judging, found, gangs = self._cache.policies.filter_score, list[Pod](), {self._cache.gangs.of(pod.uid)}
        for other in self._cache.pods.values():
            if other.uid == pod.uid or other.node is not None or other.priority < pod.priority:
                continue
            if other.gated or other.at_our_gate or not self._cache.ours(other):
                continue
            gang = self._cache.gangs.of(other.uid)
            if gang is not None and (gang in gangs or gang.holds_a_plan or other.uid in gang.wait.rejected):
                # A gang whose plan was possible has one, or kube-scheduler does not send its members.
                continue
            may_go = self._changed and not self._scheduler.is_asleep(other.uid)
            if other.uid in self._woken or (may_go and any(map(judging.passes(other), self._changed))):
                found.append(other)
                gangs |= {gang} if gang is not None else set()
        return found

    def _made(self, asked: PodsAsked, number: int) -> Pod:
        name = f"{asked.name}-{number}"
        uid = PodUid(f"what-if/{asked.namespace}/{name}")
        return Pod(
            uid=uid,
            namespace=asked.namespace,
            name=name,
            requests={**asked.each, PODS: 1},
            scheduler=next(iter(sorted(self._cache.rules.schedulers)), ""),
            priority=asked.priority,
            created=self._cache.clock.now(),
            preempts=False,
            labels=asked.labels,
            node_selector=asked.node_selector,
            tolerations=asked.tolerations,
            gang=GangAsk(GangKey(asked.namespace, asked.name), asked.count) if asked.gang else None,
        )

    # -- where it would be -------------------------------------------------------------------------------------------

    def _place(self, pod: Pod, rather: Callable[[NodeName], bool] = lambda name: False) -> NodeName | None:
        """Returns the node that the pod gets, or None. `rather`: nodes that it prefers."""
        self._scheduler.observe(pod)
        passed: Sequence[NodeName] = ()
        for sent in self._offers(pod):
            passed = self._scheduler.filter(pod, sent).answer.passed if sent else ()
            if passed:
                break
        if not passed:
            return None
        scores = self._scheduler.prioritize(pod, passed)
        node = max(passed, key=lambda name: (rather(name), scores.get(name, 0), name))
        if pod.gang is None:
            # The pod is there now: the next one finds less room.
            self._scheduler.observe(replace(pod, node=node))
        return node

    def _offers(self, pod: Pod) -> Iterator[list[NodeName]]:
        """Yields the nodes that kube-scheduler would send: nodes that it accepts itself.

        First at most 100 nodes that pass, then all; all at once for a gang's member."""
        judging, nodes = self._cache.policies.filter_score, self._cache.nodes
        if pod.gang is None:
            yield list(islice(filter(judging.passes(pod), nodes), _OFFERED))
        room = judging.room(pod)
        yield [n for n, node in nodes.items() if accepts(node, pod) and (pod.gang is not None or room(n) is None)]

    def _node(self, name: NodeName) -> Node:
        node = self._cache.nodes.get(name)
        if node is None:
            raise NotFound("node", name, f"there is no node {name}")
        return node


def _in_order(pod: Pod) -> tuple[int, str]:
    """Sorts number 10 after number 9."""
    return len(pod.name), pod.name


def _anew(pod: Pod) -> Pod:
    """Returns the pod as its controller would create it again."""
    return replace(pod, uid=PodUid(f"{pod.uid}/anew"), node=None, bound_at=0.0, attempt=None, nominated=None)
