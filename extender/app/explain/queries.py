"""Queries: the present state of the cluster, its gangs and members. It only reads the `Cache`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from extender.app.cache.cache import Cache
from extender.app.cache.claims import is_claim, namespace_of
from extender.app.contracts.api import GangState, HolderState, MemberPhase, MemberState, NodeState
from extender.app.contracts.errors import Invalid, NotFound
from extender.app.contracts.messages import why_gang_waits
from extender.app.contracts.ports import PodRef
from extender.app.resources.capacity import Capacities
from extender.core.cluster import Pod
from extender.core.gang_of_one import lone_pod
from extender.core.gangs.naming import Ambiguous
from extender.core.gangs.state.gang import Gang
from extender.core.ledger.ledger import Holding, HoldingKind, Row
from extender.core.names import GangKey, in_domain
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.quantities import Vector


class Queries:
    def __init__(self, cache: Cache, capacities: Capacities) -> None:
        self._cache = cache
        self._capacities = capacities

    # -- nodes ---------------------------------------------------------------------------------------------------

    def cluster_state(
        self,
        *,
        namespace: str | None = None,
        node: NodeName | None = None,
        resource: ResourceKey | None = None,
        after: str | None = None,
    ) -> Iterator[NodeState]:
        """See `api.StateCalls`. O(nodes x log nodes), plus what is held on the nodes shown."""
        rows = self._cache.ledger.rows
        if node is None:
            names = sorted(name for name in self._cache.nodes if after is None or name > after)
        elif node in self._cache.nodes:
            names = [node]
        else:
            raise NotFound("node", node, f"there is no node {node}")
        shown = self._shown(namespace, resource)
        if resource is not None:
            names = [name for name in names if resource in rows[name].capacity or resource in rows[name].held]
            names = names if shown(resource) else []
        return (self._node_state(name, rows[name], namespace, resource, shown) for name in names)

    def _shown(self, namespace: str | None, resource: ResourceKey | None) -> Callable[[ResourceKey], bool]:
        """Returns which resources are shown: a namespace's own, exported to it, and shared."""
        domain = self._cache.ledger.capacity.domain

        def shown(key: ResourceKey) -> bool:
            if resource is not None and key != resource:
                return False
            if namespace is None:
                return True
            return in_domain(key, domain) and self._cache.tenancy.is_offered(namespace, key)

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
        pod = self._cache.pods.get(PodUid(holding.holder))
        gang = None if is_claim(holding) else holding.owner
        if gang is not None and lone_pod(gang):
            of_one, gang = self._cache.gangs.by_key.get(gang), None
            pod = pod or next(iter(of_one.roster.members.values() if of_one is not None else ()), None)
        return HolderState(
            holder=holding.holder,
            kind=holding.kind,
            units=units,
            pod=None if pod is None else PodRef.of(pod),
            gang=None if gang is None else self._cache.gangs.naming.spoken(gang),
            until=self._time_of_day(holding.until),
        )

    # -- gangs ---------------------------------------------------------------------------------------------------

    def gangs(self, namespace: str, *, after: str | None = None) -> Iterator[GangState]:
        """See `api.GangCalls`."""
        by_key, naming = self._cache.gangs.by_key, self._cache.gangs.naming
        theirs = (key for key in by_key if key.namespace == namespace and not lone_pod(key))
        named = sorted((naming.of(key), key) for key in theirs)
        return (self._state(by_key[key]) for name, key in named if after is None or name > after)

    def gang(self, key: GangKey) -> GangState:
        """Raises NotFound, Invalid."""
        return self._state(gang_of(self._cache, key))

    def _state(self, gang: Gang) -> GangState:
        members = sorted(gang.roster.members.values(), key=lambda pod: (pod.created, pod.name))
        return GangState(
            key=self._cache.gangs.naming.spoken(gang.key),
            phase=gang.phase,
            quorum=gang.terms.quorum,
            members=[self._member(gang, pod) for pod in members],
            deadline=self._time_of_day(gang.plan.deadline),
            reason=why_gang_waits(gang, saved=gang is self._cache.gangs.waiting.queue.saved.gang),
        )

    def _time_of_day(self, deadline: float | None) -> float | None:
        """Returns when a deadline passes, in seconds since the epoch, by the clock as it is now."""
        clock = self._cache.clock
        return None if deadline is None else clock.now() + deadline - clock.steady()

    def _member(self, gang: Gang, pod: Pod) -> MemberState:
        held = self._cache.ledger.holding(pod.uid)
        phase, node = MemberPhase.PENDING, None
        if pod.uid in gang.roster.bound or pod.node is not None:
            phase, node = MemberPhase.BOUND, pod.node if pod.node is not None or held is None else held.node
        elif pod.uid in gang.barrier.writing:
            phase, node = MemberPhase.BINDING, gang.barrier.writing[pod.uid]
        elif pod.uid in gang.barrier.arrived:
            phase, node = MemberPhase.AT_BARRIER, gang.barrier.arrived[pod.uid]
        elif held is not None and held.kind is not HoldingKind.BOUND and not gang.plan.intends:
            phase, node = MemberPhase.RESERVED, held.node
        return MemberState(pod=PodRef.of(pod), phase=phase, node=node)


def gang_of(cache: Cache, key: GangKey, field: str = "name") -> Gang:
    """Returns the gang of that name. Raises NotFound, Invalid."""
    try:
        gang = cache.gangs.naming.find(key)
    except Ambiguous as error:
        said = f"several gangs in namespace {key.namespace} are called {key.name}: ask for one of {error}"
        raise Invalid(field, key.name, said) from None
    if gang is None:
        raise NotFound(field, key.name, f"there is no gang {key.name} in namespace {key.namespace}")
    return gang


def pod_of(cache: Cache, namespace: str, name: str) -> Pod:
    """Returns the unfinished pod of that name. Raises NotFound. O(pods)."""
    found = [pod for pod in cache.pods.values() if pod.name == name and pod.namespace == namespace]
    if not found:
        raise NotFound("pod", name, f"there is no unfinished pod {name} in namespace {namespace}")
    return max(found, key=lambda pod: (not pod.deleting, pod.created, pod.uid))


def _namespace_of(holding: Holding, state: HolderState) -> str | None:
    if state.pod is not None:
        return state.pod.namespace
    return namespace_of(holding)
