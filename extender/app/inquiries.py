"""Inquiries: what the cluster, its gangs and their members are like now. Reads the keeper, changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from extender.app.catalog import Catalog
from extender.app.claims import is_claim
from extender.app.keeper import Keeper
from extender.app.management import GangState, HolderState, MemberPhase, MemberState, NodeState, NotFound
from extender.app.ports import PodRef
from extender.app.wording import why_gang_waits
from extender.core.cluster import Pod
from extender.core.gang import Gang
from extender.core.ledger import Holding, Kind, Row
from extender.core.names import GangKey, NodeName, PodUid, ResourceKey, in_domain
from extender.core.units import Vector


class Inquiries:
    def __init__(self, keeper: Keeper, catalog: Catalog) -> None:
        self._keeper = keeper
        self._catalog = catalog

    # -- nodes ---------------------------------------------------------------------------------------------------

    def cluster_state(
        self, *, namespace: str | None = None, node: NodeName | None = None, resource: ResourceKey | None = None
    ) -> Sequence[NodeState]:
        """As `Management.cluster_state` says. O(nodes x resources); O(resources) for one node."""
        rows = self._keeper.ledger.rows
        if node is None:
            names: Sequence[NodeName] = list(self._keeper.nodes)
        elif node in self._keeper.nodes:
            names = [node]
        else:
            raise NotFound("node", node, f"there is no node {node}")
        shown = self._shown(namespace, resource)
        states = [self._node_state(name, rows[name], namespace, resource, shown) for name in names]
        if resource is not None:
            states = [state for state in states if resource in state.capacity or resource in state.available]
        return states

    def _shown(self, namespace: str | None, resource: ResourceKey | None) -> Callable[[ResourceKey], bool]:
        """Which resources were asked for."""
        domain = self._keeper.ledger.domain

        def shown(key: ResourceKey) -> bool:
            if resource is not None and key != resource:
                return False
            if namespace is None:
                return True
            if not in_domain(key, domain):
                return False
            holder = self._catalog.holder_of(key)
            return key.startswith(f"{domain}/{namespace}.") or (holder is not None and holder.namespace == namespace)

        return shown

    def _node_state(
        self,
        name: NodeName,
        row: Row,
        namespace: str | None,
        resource: ResourceKey | None,
        shown: Callable[[ResourceKey], bool],
    ) -> NodeState:
        keys = [key for key in row.capacity | row.held if shown(key)]
        holders = []
        for holding in row.holdings.values():
            units = {r: number for r, number in holding.units.items() if number and (resource is None or r == resource)}
            state = self._holder_state(holding, units)
            if units and (namespace is None or _namespace_of(holding, state) == namespace):
                holders.append(state)
        return NodeState(
            node=name,
            capacity={key: row.capacity[key] for key in keys if key in row.capacity},
            available={key: row.capacity.get(key, 0) - row.held.get(key, 0) for key in keys},
            holders=holders,
            sequence=row.sequence,
        )

    def _holder_state(self, holding: Holding, units: Vector) -> HolderState:
        pod = self._keeper.pods.get(PodUid(holding.holder))
        for_gang = holding.owner is not None and not is_claim(holding)
        return HolderState(
            holder=holding.holder,
            kind=holding.kind,
            units=units,
            pod=None if pod is None else PodRef.of(pod),
            gang=holding.owner if for_gang else None,
            until=self._time_of_day(holding.until),
        )

    # -- gangs ---------------------------------------------------------------------------------------------------

    def gangs(self, namespace: str) -> Sequence[GangState]:
        """All of the namespace, in any order."""
        return [self._state(gang) for key, gang in self._keeper.gangs.by_key.items() if key.namespace == namespace]

    def gang(self, key: GangKey) -> GangState:
        """Raises NotFound."""
        gang = self._keeper.gangs.by_key.get(key)
        if gang is None:
            raise NotFound("name", key.name, f"there is no gang {key.name} in namespace {key.namespace}")
        return self._state(gang)

    def _state(self, gang: Gang) -> GangState:
        members = sorted(gang.members.values(), key=lambda pod: (pod.created, pod.name))
        return GangState(
            key=gang.key,
            phase=gang.phase,
            quorum=gang.quorum,
            members=[self._member(gang, pod) for pod in members],
            deadline=self._time_of_day(gang.deadline),
            reason=why_gang_waits(gang, saved=gang is self._keeper.gangs.waiting.turns.saver),
        )

    def _time_of_day(self, deadline: float | None) -> float | None:
        """When a deadline passes, in seconds since the epoch, as the machine's clock stands now."""
        clock = self._keeper.clock
        return None if deadline is None else clock.now() + deadline - clock.steady()

    def _member(self, gang: Gang, pod: Pod) -> MemberState:
        held = self._keeper.ledger.holding(pod.uid)
        places: Sequence[tuple[MemberPhase, Mapping[PodUid, NodeName]]] = (
            (MemberPhase.BINDING, gang.writing),
            (MemberPhase.AT_BARRIER, gang.arrived),
        )
        if pod.uid in gang.bound or pod.node is not None:
            node = pod.node if pod.node is not None or held is None else held.node
            return MemberState(pod=PodRef.of(pod), phase=MemberPhase.BOUND, node=node)
        for phase, where in places:
            if pod.uid in where:
                return MemberState(pod=PodRef.of(pod), phase=phase, node=where[pod.uid])
        if held is not None and held.kind is not Kind.BOUND and not gang.intends:
            return MemberState(pod=PodRef.of(pod), phase=MemberPhase.RESERVED, node=held.node)
        return MemberState(pod=PodRef.of(pod), phase=MemberPhase.PENDING)


def _namespace_of(holding: Holding, state: HolderState) -> str | None:
    if state.pod is not None:
        return state.pod.namespace
    return None if holding.owner is None else holding.owner.namespace
