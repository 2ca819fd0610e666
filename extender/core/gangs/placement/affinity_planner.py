"""Affinity planner: plans gangs with requirements on pods around, or repelled by pods around.

It decides which gangs these are, and plans their slots with `affinity_packing`. The input is the ledger's room, and the
nodes of bound pods, of other gangs' reservations, and of the gang's own placed members. It changes nothing but its
cache of gangs that could be placed nowhere. `placement` asks it about these gangs, and `bin_packing` about all others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from extender.core.affinity.affinity_rules import SPREAD, Rules, allows, are_too_many
from extender.core.affinity.constraints import NO_CONSTRAINTS, AffinityTerm, HostPort
from extender.core.affinity.pod_affinity_index import Around, PodAffinityIndex
from extender.core.cluster import Node, Pod
from extender.core.common.bounded import Bounded
from extender.core.fit.fit import asked_of
from extender.core.gangs.placement.affinity_packing import Seat, plan
from extender.core.gangs.placement.resident_pods import ResidentPods
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.trial_snapshot import Promised, Room, Slot
from extender.core.ledger.ledger import Holder, Holding, HoldingKind, Ledger
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid
from extender.kube.quantities import Vector

_REMEMBERED = 1024
_A_NODE, _BOUND_A_STEP = 3, 8
"""Steps of work for each node of a plan, beside its looks; bound pods that one step goes through."""
_GANGS_REMEMBERED = 16_384
"""As many gangs as may wait: else each is evaluated again in every pass over all of them."""

Surroundings = tuple[Room, Around]
_Stamp = tuple[int, ...]
_Answer = tuple[Gang, _Stamp, Shortfall | None]
"""A gang, the state the answer is for, and what an emptied cluster lacks for it (None: nothing)."""


@dataclass(eq=False)
class Constrained:
    _ledger: Ledger
    _nodes: Mapping[NodeName, Node]
    _pod_affinity: PodAffinityIndex
    _staying: ResidentPods
    place_of: Callable[[Holding, str, frozenset[AffinityTerm]], Pod | None] = lambda held, namespace, apart: None
    """The pod of a gang's place; None if it repels no pods of that namespace with such terms."""
    work: int = field(default=0, init=False)
    """Steps of `core.common.work_budget` that plans have taken."""
    _hopeless: Bounded[GangKey, _Answer] = field(default_factory=lambda: Bounded(_GANGS_REMEMBERED), init=False)
    _concerned: Bounded[GangKey, tuple[Gang, tuple[int, int], bool]] = field(
        default_factory=lambda: Bounded(_GANGS_REMEMBERED), init=False
    )
    # A gang that is created again under its name is another gang.

    def forget(self, key: GangKey) -> None:
        """The gang has ended: the cache would keep the whole object."""
        self._hopeless.pop(key, None)
        self._concerned.pop(key, None)

    def concerns(self, gang: Gang) -> bool:
        """Whether the gang's places are planned here. O(members) after a change."""
        state = (gang.roster.changes, self._pod_affinity.repellers_changed)
        known = self._concerned.get(gang.key)
        if known is None or known[0] is not gang or known[1] != state:
            known = (gang, state, self._is_concerned(gang))
            self._concerned[gang.key] = known
        return known[2]

    def changes(self, *, alone: bool) -> int:
        """Grows when pods come, go or move; if not `alone`, only when pods with anti-affinity do."""
        return self._pod_affinity.repellers_changed + (self._pod_affinity.version if alone else 0)

    def _is_concerned(self, gang: Gang) -> bool:
        members = gang.roster.members.values()
        if any(pod.constraints is not None for pod in members):
            return True
        return self._pod_affinity.repels_in(gang.key.namespace) and any(map(self._pod_affinity.repels, members))

    def promised(self, gang: Gang) -> Promised:
        """Pods without a gang, not below its priority, with the nodes that kube-scheduler keeps.

        Most likely victims have left for them. O(nominated pods)."""
        nominated = self._pod_affinity.nominated()
        return [(pod, node) for pod, node in nominated if pod.gang is None and pod.priority >= gang.terms.claims]

    # -- plans ---------------------------------------------------------------------------------------------------

    def plan(
        self,
        gang: Gang,
        slots: Sequence[Slot],
        candidates: Sequence[NodeName],
        releasing: Sequence[Holder] = (),
        leaving: Collection[Holder] = (),
        promised: Promised = (),
    ) -> dict[Holder, NodeName] | Shortfall:
        """As `bin_packing.plan`, with all requirements of the members, beside what is `promised`."""
        return self.plan_in(self.environment(gang, slots, releasing, leaving, promised), gang, slots, candidates)

    def environment(
        self,
        gang: Gang,
        slots: Sequence[Slot],
        releasing: Sequence[Holder],
        leaving: Collection[Holder],
        promised: Promised,
    ) -> Surroundings:
        """The room and the pods around for such plans. O(leaving holders)."""
        own = [slot.holder for slot in slots]
        room = Room(self._ledger, [*releasing, *own], leaving)
        room.keep_for(promised)
        besides = [*self._besides(gang, {*releasing, *own}), *promised]
        return room, Around(self._pod_affinity, besides, map(PodUid, leaving))

    def plan_in(
        self, environment: Surroundings, gang: Gang, slots: Sequence[Slot], candidates: Sequence[NodeName]
    ) -> dict[Holder, NodeName] | Shortfall:
        """As `plan`, in known surroundings."""
        room, around = environment
        return self._plan(room, gang, slots, candidates, around)

    def _plan(
        self, room: Room, gang: Gang, slots: Sequence[Slot], candidates: Sequence[NodeName], around: Around
    ) -> dict[Holder, NodeName] | Shortfall:
        self.work += _A_NODE * len(candidates)
        return plan(room, self._seats(gang, slots), candidates, self._nodes, around, self._looked)

    def _looked(self, looks: int) -> None:
        self.work += looks

    def allowed(
        self,
        gang: Gang,
        pod: Pod,
        names: Iterable[NodeName],
        giving_up: Sequence[Holder],
        left: Iterable[NodeName] = (),
    ) -> Iterator[NodeName]:
        """The nodes where the pod is allowed beside all others, and a member on each `left` node."""
        slots = [(_template(gang), node) for node in left]
        around = Around(self._pod_affinity, [*self._besides(gang, {Holder(pod.uid), *giving_up}), *slots])
        return allows(pod, names, self._nodes, around)

    def is_allowed(self, gang: Gang, held: Sequence[Holding]) -> bool:
        """Whether each unbound place of the gang is allowed beside all other pods and places."""
        seated = [(like(gang, each.holder), each.node) for each in held if each.node in self._nodes]
        if are_too_many(pod for pod, _ in seated):
            return False
        around = Around(self._pod_affinity, self._besides(gang, {each.holder for each in held}, saved=False))
        rules = Rules([pod for pod, _ in seated], self._nodes, around)
        placed = [(rules.class_of(pod), self._nodes[node]) for pod, node in seated]
        for kind, node in placed:
            rules.place(kind, node)
        for kind, node in placed:
            rules.place(kind, node, -1)
            if rules.refusal(kind, node) is not None:
                return False
            rules.place(kind, node)
        return True

    def _seats(self, gang: Gang, slots: Sequence[Slot]) -> list[Seat]:
        return [Seat(slot, like(gang, slot.holder)) for slot in slots]

    def left_to(self, gang: Gang, places: Mapping[Holder, NodeName]) -> set[Holder]:
        """The gang's places that the pods around allow, room aside; each beside those before it."""
        around = Around(self._pod_affinity, self._besides(gang, places.keys()))
        seated = [(holder, like(gang, holder), node) for holder, node in places.items() if node in self._nodes]
        if are_too_many(pod for _, pod, _ in seated):
            return set()
        rules = Rules([pod for _, pod, _ in seated], self._nodes, around)
        left: set[Holder] = set()
        for holder, pod, node in seated:
            kind = rules.class_of(pod)
            if rules.refusal(kind, self._nodes[node]) is None:
                rules.place(kind, self._nodes[node])
                left.add(holder)
        return left

    def _besides(self, gang: Gang, without: Collection[Holder], *, saved: bool = True) -> list[tuple[Pod, NodeName]]:
        """Pods of unbound holdings; `saved`: with backfill ones. O(reservations and assumptions)."""
        found: list[tuple[Pod, NodeName]] = []
        unlike = dict.fromkeys(pod.constraints for pod in gang.roster.members.values() if pod.constraints is not None)
        apart = frozenset(term for own in unlike for term in own.apart_from_others(gang.key.namespace))
        for node in self._ledger.totals.unbound_on:
            for held in self._ledger.rows[node].holdings.values():
                own = held.owner == gang.key
                if held.kind is HoldingKind.BOUND or held.holder in without:
                    continue
                if held.kind is HoldingKind.SAVING and (own or not saved):
                    continue
                pod = self._pod_affinity.get(PodUid(held.holder))
                if pod is None:
                    pod = _template(gang) if own else self.place_of(held, gang.key.namespace, apart)
                if pod is not None:
                    found.append((pod, node))
        return found

    def concerned_by(self, gang: Gang, slots: Sequence[Slot], pods: Iterable[Pod]) -> list[Pod]:
        """The bound pods that may be in the way of a plan for the slots. Most share their labels."""
        members = dict.fromkeys(like(gang, slot.holder).constraints or NO_CONSTRAINTS for slot in slots)
        terms = dict.fromkeys(term for own in members for term in own.anti_affinity)
        meant: dict[tuple[str, int], bool] = {}

        def is_meant(pod: Pod) -> bool:
            labels = (pod.namespace, id(pod.labels))
            if labels not in meant:
                meant[labels] = any(term.peers.include(pod.namespace, pod.labels) for term in terms)
            return meant[labels]

        own = ((pod, pod.constraints or NO_CONSTRAINTS) for pod in pods)
        return [pod for pod, said in own if said.host_ports or said.anti_affinity or is_meant(pod)]

    def in_the_way(self, gang: Gang, found: Mapping[Holder, NodeName], pods: Iterable[Pod]) -> set[PodUid]:
        """The bound pods that may not stay if the plan is carried out, room aside."""
        planned = _Planned(((like(gang, holder), node) for holder, node in found.items()), self._nodes)
        return {pod.uid for pod in pods if planned.keep_out(pod)}

    # -- possible placements -------------------------------------------------------------------------------------

    def lacks_when_empty(self, gang: Gang, slots: Sequence[Slot], lasting: Room) -> Shortfall | None:
        """Why the slots have no place in `lasting` beside resident pods alone; None if they have."""
        found = self._plan(lasting, gang, slots, list(self._nodes), self._emptied(gang))
        return found if isinstance(found, Shortfall) else None

    def _emptied(self, gang: Gang, promised: Promised = ()) -> Around:
        self.work += len(self._pod_affinity.bound()) // _BOUND_A_STEP
        staying = [
            (pod, pod.node)
            for pod in self._pod_affinity.bound()
            if pod.node is not None and (pod.uid in gang.roster.members or pod.uid in self._staying)
        ]
        return Around(self._pod_affinity, [*staying, *promised], emptied=True)

    def hopeless(self, gang: Gang, ask: Callable[[], Shortfall | None]) -> Shortfall | None:
        """The answer of `ask` (`lacks_when_empty`), cached while its inputs are the same.

        These are nodes, members, resident pods, and pods that a member wants to be near."""
        known = self._answered(gang)
        if known is None:
            known = (gang, self._stamp(gang), ask())
        self._hopeless[gang.key] = known
        return known[2]

    def known_hopeless(self, gang: Gang) -> Shortfall | None:
        """As `hopeless`, only from the cache; not for spread, which present pods may make possible."""
        known = self._answered(gang)
        return None if known is None or known[2] is None or known[2].rule == SPREAD else known[2]

    def _answered(self, gang: Gang) -> _Answer | None:
        known = self._hopeless.get(gang.key)
        return known if known is not None and known[0] is gang and known[1] == self._stamp(gang) else None

    def _stamp(self, gang: Gang) -> _Stamp:
        unlike = dict.fromkeys(pod.constraints for pod in gang.roster.members.values() if pod.constraints is not None)
        wanted = dict.fromkeys(terms for own in unlike for terms in own.affinities)
        return (
            self._ledger.changes.capacity_count,
            gang.roster.changes,
            self._staying.grown + self._staying.shrunk,
            *(self._pod_affinity.version_of((tuple(term.peers for term in terms), False)) for terms in wanted),
        )

    def aims(
        self,
        gang: Gang,
        slots: Sequence[Slot],
        names: Sequence[NodeName],
        releasing: Sequence[Holder],
        lasting: Room,
        promised: Promised = (),
    ) -> dict[Holder, tuple[NodeName, Vector]] | None:
        """For every slot, the node to wait for and the units free there, as `feasibility.aim`.

        Nodes that the pods around allow now come first."""
        holders = [*releasing, *(slot.holder for slot in slots)]
        now = Room(self._ledger, holders)
        for room in (now, lasting):
            room.keep_for(promised)
        need = asked_of(slots[0].units) if slots else ()
        around = Around(self._pod_affinity, [*self._besides(gang, frozenset(holders)), *promised])
        left = frozenset(allows(_template(gang), names, self._nodes, around))
        emptiest = sorted(dict.fromkeys(names), key=lambda name: (name not in left, -now.part(name, need)[1]))
        found = self._plan(lasting, gang, slots, emptiest, self._emptied(gang, promised))
        if isinstance(found, Shortfall):
            return None
        aims: dict[Holder, tuple[NodeName, Vector]] = {}
        for slot in slots:
            node = found[slot.holder]
            part, _ = now.part(node, asked_of(slot.units))
            now.take(node, part.items())
            aims[slot.holder] = (node, part)
        return aims


def _template(gang: Gang) -> Pod:
    """The pod that a place without a member resembles."""
    return next(gang.roster.unplaced(), next(iter(gang.roster.members.values())))


def like(gang: Gang, holder: Holder) -> Pod:
    """The pod of the gang's place, or one like it. A saved place is named after the member."""
    members = gang.roster.members
    return members.get(PodUid(holder)) or members.get(PodUid(holder.rpartition("#")[2])) or _template(gang)


_Kind = tuple[str, frozenset[tuple[str, str]]]
"""Pods of one namespace with the same labels."""


class _Planned:
    """Planned pods: whether a bound pod may stay beside them, by the rules of `affinity_rules`."""

    def __init__(self, places: Iterable[tuple[Pod, NodeName]], nodes: Mapping[NodeName, Node]) -> None:
        self._nodes = nodes
        self._ports: dict[NodeName, list[HostPort]] = {}
        self._terms: dict[AffinityTerm, set[str]] = {}
        """Anti-affinity terms of planned pods, with the values of the topology key on their nodes."""
        self._kinds: dict[_Kind, tuple[Pod, list[NodeName]]] = {}
        self._terms_about: Bounded[_Kind, list[AffinityTerm]] = Bounded(_REMEMBERED)
        self._values_of: Bounded[AffinityTerm, set[str]] = Bounded(_REMEMBERED)
        for pod, node in places:
            own = pod.constraints or NO_CONSTRAINTS
            self._kinds.setdefault(_kind_of(pod), (pod, []))[1].append(node)
            if own.host_ports:
                self._ports.setdefault(node, []).extend(own.host_ports)
            for term in own.anti_affinity:
                self._terms.setdefault(term, set()).update(self._values(term, [node]))

    def keep_out(self, pod: Pod) -> bool:
        """Whether the pod may not stay on its node beside the planned pods."""
        own, about = pod.constraints or NO_CONSTRAINTS, self._about(pod)
        if pod.node is None or not (own.host_ports or own.anti_affinity or about):
            return False
        if pod.node not in self._nodes:
            return True
        labels = self._nodes[pod.node].labels
        return (
            any(port.clashes(other) for port in own.host_ports for other in self._ports.get(pod.node, ()))
            or any(labels.get(term.topology_key) in self._terms[term] for term in about)
            or any(labels.get(term.topology_key) in self._where(term) for term in own.anti_affinity)
        )

    def _about(self, pod: Pod) -> list[AffinityTerm]:
        """The terms of planned pods that match the pod."""
        kind = _kind_of(pod)
        found = self._terms_about.get(kind)
        if found is None:
            found = [term for term in self._terms if term.peers.include(pod.namespace, pod.labels)]
            self._terms_about[kind] = found
        return found

    def _where(self, term: AffinityTerm) -> set[str]:
        """The values of the term's topology key on the nodes of planned pods that it matches."""
        found = self._values_of.get(term)
        if found is None:
            meant = (on for pod, on in self._kinds.values() if term.peers.include(pod.namespace, pod.labels))
            found = self._values_of[term] = self._values(term, chain.from_iterable(meant))
        return found

    def _values(self, term: AffinityTerm, on: Iterable[NodeName]) -> set[str]:
        labels = (self._nodes[node].labels for node in on if node in self._nodes)
        return {each[term.topology_key] for each in labels if term.topology_key in each}


def _kind_of(pod: Pod) -> _Kind:
    return pod.namespace, frozenset(pod.labels.items())
