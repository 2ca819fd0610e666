"""A town: nodes by zone, pods that stand on them, and what gangs there require of each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from extender.core.affinity.constraints import AffinityTerm, Constraints, HostPort, Peers, Spread
from extender.core.affinity.pod_affinity_index import Around, PodAffinityIndex
from extender.core.cluster import Node, Pod
from extender.core.fit.node_matching import AcceptsPod, NodeTable, matching
from extender.core.gangs.placement.affinity_packing import Seat, plan
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.trial_snapshot import Room, Slot
from extender.core.ledger.ledger import Holder, Ledger
from extender.core.ledger.node_arrays import Accepts
from extender.kube.label_match import LabelRequirement
from extender.kube.names import NodeName
from tests.builders import node, pod
from tests.core.naive_neighbours import holds

ZONE = "zone"


def peers(app: str = "train") -> Peers:
    return Peers(frozenset({"default"}), (LabelRequirement("app", "In", (app,)),))


def term(key: str = ZONE, app: str = "train") -> AffinityTerm:
    return AffinityTerm(peers(app), key)


def near(*keys: str, app: str = "train") -> Constraints:
    return Constraints(affinity=tuple(term(key, app) for key in keys or (ZONE,)))


def apart(key: str = ZONE, app: str = "train") -> Constraints:
    return Constraints(anti_affinity=(term(key, app),))


def even(key: str = ZONE, skew: int = 1, **more: Any) -> Constraints:
    return Constraints(spread=(Spread(peers(), key, skew, **more),))


def ports(*numbers: int) -> Constraints:
    return Constraints(host_ports=tuple(map(HostPort, numbers)))


def members(count: int, constraints: Constraints | None, cpu: int = 8000, app: str = "train") -> list[Pod]:
    return [pod(f"{app}-{n}", {"cpu": cpu}, labels={"app": app}, constraints=constraints) for n in range(count)]


class Town:
    """Nodes by zone, `aab`: two in zone a, one in b; each with 8 CPU and its own name as label `host`."""

    useless = 0
    """So many nodes beside them have neither room nor labels."""

    def __init__(self, zones: str, cpu: int = 8000) -> None:
        self.nodes = NodeTable()
        self.ledger = Ledger()
        self.pod_affinity = PodAffinityIndex()
        self.there: list[tuple[Pod, Node]] = []
        for number, zone in enumerate(zones):
            labels = {"host": f"n{number}"} | ({ZONE: zone} if zone != "-" else {})
            each = node(f"n{number}", {"cpu": cpu}, labels=labels)
            self.add(each)
        for number in range(self.useless):
            self.add(node(f"useless-{number}", {"cpu": 0}))

    def add(self, each: Node) -> None:
        self.nodes[each.name] = each
        self.ledger.capacity.set_node(each.name, each.allocatable)

    def put(self, name: str, on: str, constraints: Constraints | None = None, *, cpu: int = 0, **facts: Any) -> None:
        facts.setdefault("labels", {"app": name.partition("-")[0]})
        each = pod(name, {"cpu": cpu}, node=NodeName(on), constraints=constraints, **facts)
        self.ledger.confirm(each.uid, on=NodeName(on), units=each.requests)
        self.pod_affinity.put(each)
        self.there.append((each, self.nodes[NodeName(on)]))

    def fill(self, on: str, cpu: int) -> None:
        """So much of it is taken."""
        self.put(f"full-{on}", on, cpu=cpu)

    def plan(
        self, pods: Sequence[Pod], around: Around | None = None, accepts: Accepts | None = None
    ) -> dict[Holder, NodeName] | Shortfall:
        accepting: dict[object, Accepts] = {}
        seats: list[Seat] = []
        for each in pods:
            # As places does it: slots of equal selectors share what says which nodes they may be on.
            selector = frozenset(each.node_selector.items())
            own = accepts if accepts and not selector else accepting.setdefault(selector, self.accepting(each))
            seats.append(Seat(Slot(Holder(each.uid), each.requests, own), each))
        room = Room(self.ledger, ())
        before = {name: dict(change) for name, change in room.change.items()}
        found = plan(room, seats, list(self.nodes), self.nodes, around or Around(self.pod_affinity))
        assert room.change == before
        if not isinstance(found, Shortfall):
            by_uid = {Holder(each.uid): each for each in pods}
            assert found.keys() == by_uid.keys()
            assert around or holds([(by_uid[holder], at) for holder, at in found.items()], self.there, self.nodes)
        return found

    def accepting(self, one: Pod) -> Accepts:
        return AcceptsPod(one, matching(self.nodes))

    def zones(self, pods: Sequence[Pod]) -> str:
        """Of the plan, in order of zone."""
        found = self.plan(pods)
        assert not isinstance(found, Shortfall), found
        return "".join(sorted(self.nodes[at].labels.get(ZONE, "-") for at in found.values()))
