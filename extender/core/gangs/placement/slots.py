"""Slots: one for each member of a gang that must be placed, with the nodes that it may use.

They depend on members, nodes, resident pods and the nodes that kube-scheduler has offered, not on plans or holdings.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from extender.core.cluster import Node, Pod
from extender.core.common.bounded import Bounded
from extender.core.fit.equivalence import TOO_VARIED, EquivalenceClass, are_alike, are_too_varied, matching_of
from extender.core.fit.fit import asked_of
from extender.core.fit.node_matching import AcceptsPod, matching
from extender.core.gangs.placement.resident_pods import ResidentPods
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.trial_snapshot import Room, Slot, Template
from extender.core.ledger.ledger import Holder, Ledger
from extender.core.ledger.node_arrays import Accepts
from extender.core.ledger.units import add
from extender.core.policies.policy_types import HOSTNAME
from extender.kube.names import CPU, MEMORY, NodeName, PodUid
from extender.kube.quantities import Vector

SAMPLE_FLOOR = 100
"""kube-scheduler never samples fewer nodes: a shorter list is every node that its plug-ins allow."""
_REMEMBERED = 4096


class Offers:
    """The nodes that kube-scheduler allows single members, if the list is complete.

    Members that look alike to Escher may differ in what only kube-scheduler evaluates, such as volumes. Then the offer
    for one member does not hold for another. An offer is a hint, and may be out of date.
    """

    def __init__(self) -> None:
        self._of: Bounded[PodUid, frozenset[NodeName]] = Bounded(_REMEMBERED)

    def note_offer(self, pod: Pod, sent: Sequence[NodeName]) -> None:
        """Stores the nodes sent for the pod, if they are complete."""
        if len(sent) < SAMPLE_FLOOR:
            self._of[pod.uid] = frozenset(sent)

    def forget(self, uid: PodUid) -> None:
        """Forgets the deleted pod, which would keep up to 100 names of nodes."""
        if uid in self._of:
            del self._of[uid]

    def of(self, pod: Pod) -> frozenset[NodeName] | None:
        """The nodes last offered for the pod; None if not known."""
        return self._of.get(pod.uid)

    def differ(self, gang: Gang, first: Pod, sent: Sequence[NodeName]) -> bool:
        """Whether this offer may not hold for all members. Stores the offer.

        So it is if the pod has volumes or devices of its own, or another member was offered other nodes."""
        if len(sent) >= SAMPLE_FLOOR:
            return False
        self.note_offer(first, sent)
        if first.unknown_asks:
            return True
        return any(
            not known.issuperset(sent)
            for uid in gang.roster.members
            if uid != first.uid and (known := self._of.get(uid)) is not None
        )


def _says_nothing(pod: Pod) -> None: ...


@dataclass(eq=False)
class Slots:
    """`nodes`: all nodes, for selectors and taints. `staying`: pods that no gang waits for."""

    _ledger: Ledger
    nodes: Mapping[NodeName, Node]
    _staying: ResidentPods
    judged: Callable[[Pod], Accepts | None] = field(default_factory=lambda: _says_nothing, init=False)
    """The policies' verdict on nodes for a pod, beside the node rules; None: there is none."""
    preferred: Callable[[Pod], Callable[[NodeName], float] | None] = field(
        default_factory=lambda: _says_nothing, init=False
    )
    """The score of nodes for a pod; None: all are equal."""

    def __post_init__(self) -> None:
        self._matching = matching(self.nodes)

    # -- nodes ----------------------------------------------------------------------------------------------------

    def candidates(self, sent: Sequence[NodeName]) -> Sequence[NodeName]:
        """Nodes to plan on: those sent, then the rest, because a sample may lack room for all."""
        if len(sent) >= len(self.nodes):
            return sent
        offered = frozenset(sent)
        return [*sent, *(name for name in self.nodes if name not in offered)]

    def best_first(self, gang: Gang, nodes: Sequence[NodeName]) -> Sequence[NodeName] | None:
        """The nodes, best for the gang's members first; None if the members prefer none."""
        member = next(gang.roster.unplaced(), None)
        score = self.preferred(member) if member is not None and member.governed else None
        return None if score is None else sorted(nodes, key=score, reverse=True)

    def is_sample(self, sent: Sequence[NodeName]) -> bool:
        """Whether kube-scheduler may allow the pod other nodes than those it sent."""
        return SAMPLE_FLOOR <= len(sent) < len(self.nodes)

    def would_have(self, node: NodeName, kind: EquivalenceClass) -> bool:
        """Whether selectors, taints and cordons allow pods of the kind on the node."""
        return self._matching.accepts(node, kind.like)

    def accepting(self, pod: Pod) -> Accepts:
        """Whether selectors, taints and cordons allow the pod on a node."""
        return AcceptsPod(pod, self._matching)

    def is_judged(self, gang: Gang) -> bool:
        """Whether policies also decide where its members may be."""
        unlike = {pod.governed: pod for pod in gang.roster.unplaced()}
        return any(self.judged(pod) is not None for pod in unlike.values())

    # -- members, smallest first ----------------------------------------------------------------------------------

    def smallest(self, gang: Gang, room_to_ask: Callable[[], Room]) -> list[Pod]:
        """The members that a plan may place, smallest first, then those without room if there are too many.

        Of each kind at most as many come first as there is room for."""
        members = sorted(plannable(gang), key=size_of)
        if len(members) <= gang.needed:
            return members
        room, kinds, left = room_to_ask(), _Kinds(), dict[int, int]()
        numbered = [(kinds.of(pod), pod) for pod in members]
        room.index(self.nodes, len({kind for kind, _ in numbered}))
        shared: dict[Hashable, Accepts] = {}
        chosen: list[Pod] = []
        rest: list[Pod] = []
        for kind, pod in numbered:
            if kind not in left:
                accepting = shared.setdefault(matching_of(pod), self.accepting(pod))
                template = Template([Slot(Holder(pod.uid), pod.requests, accepting)], asked_of(pod.requests))
                left[kind] = room.total(template, self.nodes, gang.needed)
            (chosen if left[kind] > 0 else rest).append(pod)
            left[kind] -= 1
        return [*chosen, *rest]

    def emptied(self, gang: Gang) -> Room:
        """The room if only resident pods and the gang's bound members held units."""
        return Room.emptied(self._ledger, self.nodes, self.lasting(gang))

    def lasting(self, gang: Gang) -> Callable[[NodeName], Vector]:
        """Units on a node for as long as the gang waits: resident pods, and its own bound members."""
        below = gang.terms.claims if gang.roster.preempts else None
        staying = self._staying
        own: dict[NodeName, list[Vector]] = {}
        for uid in gang.roster.bound:
            pod = gang.roster.members.get(uid)
            if pod is not None and pod.node is not None and uid not in staying and uid not in gang.roster.leaving:
                own.setdefault(pod.node, []).append(pod.requests)
        if not own:
            return lambda node: staying.on(node, below)
        return lambda node: add([staying.on(node, below), *own.get(node, ())])

    # -- a slot for each ------------------------------------------------------------------------------------------

    def in_empty(self, gang: Gang) -> list[Slot]:
        """A slot for each member still needed: the smallest that have room beside resident pods."""
        members = self.smallest(gang, lambda: self.emptied(gang))
        return self.of_quorum(gang, members, None) if members else []

    def of_quorum(
        self, gang: Gang, members: Sequence[Pod], offered: Sequence[NodeName] | None, own: Offers | None = None
    ) -> list[Slot]:
        """One slot for each member still needed. `offered`: the nodes sent for the first member.

        `own`: the offers of the other members, if the first is not valid for them."""
        missing = gang.missing
        template = members[0]
        placing = members[: gang.needed - missing]
        if own is None:
            slots, accepting = self.of_members(placing, template, offered)
        else:
            slots, accepting = self.of_members_apart(placing, offered, own)
        return slots + [Slot(slot_name(gang), template.requests, accepting) for _ in range(missing)]

    def more(self, gang: Gang, number: int) -> list[Slot]:
        """`number` slots for members like those that are not placed."""
        template = next(gang.roster.unplaced(), None)
        if template is None or number <= 0:
            return []
        accepting = self._acceptance(template)
        return [Slot(slot_name(gang), template.requests, accepting) for _ in range(number)]

    def of_members(
        self, members: Sequence[Pod], template: Pod, offered: Sequence[NodeName] | None
    ) -> tuple[list[Slot], Accepts]:
        """A slot for each of these, and which nodes pods like the template accept."""
        # A short offer is every node that kube-scheduler's plug-ins allow: pods that are alike may go nowhere else.
        offer = frozenset(offered) if offered is not None and len(offered) < SAMPLE_FLOOR else None
        of_template: Accepts = self._acceptance(template) if offer is None else offer.__contains__
        kinds = _Kinds()
        acceptances = {kinds.of(template): of_template}
        shared: dict[Hashable, Accepts] = {}
        slots: list[Slot] = []
        for pod in members:
            kind = kinds.of(pod)
            if kind not in acceptances:
                acceptances[kind] = self._acceptance(pod, shared)
            slots.append(Slot(Holder(pod.uid), pod.requests, acceptances[kind]))
        if any(HOSTNAME in pod.node_selector for pod in members):
            named: dict[str | None, set[NodeName]] = {}
            for name, node in self.nodes.items():
                named.setdefault(node.labels.get(HOSTNAME), set()).add(name)
            for number, pod in enumerate(members):
                if (host := pod.node_selector.get(HOSTNAME)) is not None:
                    slots[number] = replace(slots[number], only=frozenset(named.get(host, ())))
        return slots, of_template

    def of_members_apart(
        self, members: Sequence[Pod], offered: Sequence[NodeName] | None, own: Offers
    ) -> tuple[list[Slot], Accepts]:
        """As `of_members`, but each may use the nodes offered for itself, else those it accepts."""
        slots, anywhere = self.of_members(members, members[0], None)
        by_offer: dict[frozenset[NodeName], Accepts] = {}
        for number, pod in enumerate(members):
            offer = frozenset(offered) if number == 0 and offered is not None else own.of(pod)
            if offer is not None:
                slots[number] = replace(slots[number], accepts=by_offer.setdefault(offer, offer.__contains__))
        return slots, anywhere

    def _acceptance(self, pod: Pod, known: dict[Hashable, Accepts] | None = None) -> Accepts:
        """`known`: functions of earlier pods, shared if only requests differ and no policy judges."""
        judged = self.judged(pod)
        accepting = AcceptsPod(pod, self._matching, judged)
        if judged is not None or known is None:
            return accepting
        return known.setdefault((matching_of(pod), pod.governed), accepting)


def slot_name(gang: Gang) -> Holder:
    gang.plan.slots_made += 1
    return Holder(f"slot:{gang.key.id}#{gang.plan.slots_made}")


def plannable(gang: Gang, first: Pod | None = None) -> list[Pod]:
    """The members that a plan may place: all, or only as many as it must place if all are too varied.

    In order. Empty if these are too varied as well: then there is no plan."""
    members = in_order(gang, first)
    if not are_too_varied(members):
        return members
    members = members[: gang.needed]
    return [] if are_too_varied(members) else members


def too_varied(gang: Gang) -> Shortfall:
    return Shortfall(0, gang.needed, None, TOO_VARIED, unsure=True)


def in_order(gang: Gang, first: Pod | None) -> list[Pod]:
    """The members to place: `first`, then by age."""
    members = gang.roster.unplaced()
    return list(members) if first is None else sorted(members, key=lambda pod: pod.uid != first.uid)


class _Kinds:
    """Numbers pods: two pods get one number if Escher expects the same allowed nodes for both."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._last: tuple[Pod, int] | None = None

    def of(self, pod: Pod) -> int:
        if self._last is None or pod.governed != self._last[0].governed or not are_alike(pod, self._last[0]):
            kind = frozenset(pod.requests.items()), *matching_of(pod), pod.governed
            self._last = pod, self._numbers.setdefault(kind, len(self._numbers))
        return self._last[1]


def size_of(pod: Pod) -> tuple[int, int, int]:
    """Sorts pods by their requests, the most contended resource first."""
    requests = pod.requests
    return (requests.get(CPU, 0), requests.get(MEMORY, 0), sum(requests.values()))
