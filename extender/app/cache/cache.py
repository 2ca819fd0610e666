"""The cache: what Escher knows of the cluster and what is decided, at this moment.

All parts may read it; only the `Scheduler` and its parts change it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from extender.app.cache.claims import is_claim
from extender.app.cache.dry_run import DryRun
from extender.app.cache.foreign_pods import ForeignPods
from extender.app.cache.removed_nodes import RemovedNodes
from extender.app.cache.staleness import Staleness
from extender.app.cache.wait_reasons import WaitReasons
from extender.app.contracts.ports import Clock
from extender.app.gangs_of_one import GangsOfOne
from extender.app.policies import Policies
from extender.core.cluster import Node, Pod
from extender.core.common.bounded import Bounded
from extender.core.daemons import Daemons
from extender.core.fit.node_matching import NodeTable
from extender.core.gangs import audit as gang_audit
from extender.core.gangs.cycle.environment import Environment
from extender.core.gangs.cycle.expected_members import GATHER_LIMIT, ExpectedMembers
from extender.core.gangs.gangs import Gangs
from extender.core.gangs.placement.resident_pods import LONG_RUNNING_SECONDS, ResidentPods
from extender.core.gangs.preemption.preemption_limits import DEFAULT_BOUNDS, Bounds
from extender.core.gangs.queue.backfill import DEFAULT_LIMITS, BackfillLimits
from extender.core.gangs.queue.queue import DEFAULT_PATIENCE, BackfillTrigger
from extender.core.ledger import audit as ledger_audit
from extender.core.ledger.audit import Violation
from extender.core.ledger.ledger import Ledger
from extender.core.policies.policy_matching import PolicyMatching
from extender.core.policy import Facts, GivingWay, Policy
from extender.core.safety_switches import FREE, SafetySwitches, Switches
from extender.core.tenancy.isolation import UNLIMITED, Allowance, Isolation
from extender.core.tenancy.tenancy import Tenancy
from extender.filters import made
from extender.filters.gang import gang_policies
from extender.kube.errors import Unavailable
from extender.kube.names import NodeName, PodUid, ResourceKey

KEYS_PER_NODE = 1500
"""With the longest names half a MiB of a Node: in capacity, allocatable, twice in managedFields."""
_ENDED_REMEMBERED = 16_384


@dataclass(frozen=True, slots=True)
class Rules:
    """Settings of how Escher decides.

    `reserve_at_filter`: a pod that asks for ephemeral resources gets one node, held for it, in its filter, and a gang
    its whole room (pessimistic). Else every node that fits passes, a member's room is free for others until its bind,
    and bind checks again (optimistic). `assume_seconds`: how long a pod's units are held. `patience`: what a gang
    tolerates before it has a backfill reservation. `thrift`: how much is reserved, and for how long.
    `long_running_seconds`: no gang waits for a pod to leave that has run for that time, see
    `core.gangs.placement.resident_pods`. `expected_members_limit`: how many places in a namespace are held for pods
    that do not exist yet, see `core.gangs.cycle.expected_members`. `switches`: what is allowed at first, see
    `core.safety_switches`. `preemption`: how often pods are evicted for a gang, and how many at most. `most_together`:
    how many binds can wait at a barrier; None: any number. `keys_per_node`: how many ephemeral resources a node may
    have."""

    reserve_at_filter: bool = True
    assume_seconds: float = 30.0
    patience: BackfillTrigger = DEFAULT_PATIENCE
    thrift: BackfillLimits = DEFAULT_LIMITS
    long_running_seconds: float = LONG_RUNNING_SECONDS
    expected_members_limit: int = GATHER_LIMIT
    schedulers: frozenset[str] = frozenset({"escher", "escher-ledger"})
    """Profiles of kube-scheduler that call Escher; calls add more. Other pods are only facts."""
    switches: Switches = FREE
    most_together: int | None = None
    keys_per_node: int = KEYS_PER_NODE
    preemption: Bounds = DEFAULT_BOUNDS
    allowances: tuple[Allowance, Mapping[str, Allowance]] = (UNLIMITED, {})
    """What namespaces may have and touch at first; see `core.tenancy.isolation`."""
    cross_namespace_units: bool = False
    """Whether pods may ask for ephemeral resources of any namespace; see `core.tenancy.tenancy`."""


DEFAULT_RULES = Rules()


class Cache:
    """What Escher knows, and the parts that keep it.

    `policy_matching`: which policies match which pods. `pods`: unfinished pods, pending and bound. `ended`: pods that
    ended lately, because a call about one was under way when it went. `foreign_pods`: pods of schedulers that do not
    call Escher. `waits`: why pods wait. `of_one`: gangs of one. `gangs`: for reports; decisions ask `policies`."""

    def __init__(self, clock: Clock, rules: Rules, policies: Sequence[Policy] | None, life: str) -> None:
        self.clock = clock
        self.rules = rules
        self.whole = True
        """False while a list of pods is being taken in: nothing is decided on it (`judges`).

        The cache is then a mixture of the list and older facts that was never true."""
        self.known_anew: Collection[str] = ()
        """Namespaces whose pods are not all matched to new policies yet: see `PolicyRematch`."""
        self.ledger = Ledger()
        self.nodes = NodeTable()
        self.removed_nodes = RemovedNodes()
        self.waits = WaitReasons()
        self.pods: dict[PodUid, Pod] = {}
        self.ended: Bounded[PodUid, None] = Bounded(_ENDED_REMEMBERED)
        self.foreign_pods = ForeignPods(rules.schedulers)
        self.policy_matching = PolicyMatching()
        self.safety_switches = SafetySwitches(rules.switches)
        self.isolation = Isolation(*rules.allowances)
        self.tenancy = Tenancy(crossing=rules.cross_namespace_units, domain=self.ledger.capacity.domain)
        daemons = Daemons(self.nodes)
        staying = ResidentPods(self.pods, self._may_leave, rules.long_running_seconds, comes_again=daemons.comes_again)
        daemons.flipped = staying.judge_anew
        expected = ExpectedMembers(rules.expected_members_limit)
        self.around = Environment(staying, expected, isolation=self.isolation, daemons=daemons)
        self.gangs = Gangs(
            self.ledger,
            self.nodes,
            rules.patience,
            reserve_at_filter=rules.reserve_at_filter,
            life=life,
            switches=self.safety_switches,
            around=self.around,
            thrift=rules.thrift,
            bounds=rules.preemption,
            ours=self.ours,
        )
        kept = self.gangs.kept_places
        facts = Facts(self.ledger, self.nodes, self.pods, self._gives_way, kept.takes, self.tenancy, kept.take_freed)
        others = made() if policies is None else policies
        self.policies = Policies([*gang_policies(self.gangs), *others], facts)
        self.gangs.slots.judged = self.policies.filter_score.beside_plans
        self.gangs.slots.preferred = self.policies.filter_score.preferred
        order = self.gangs.waiting.queue.order
        following = self.policies.event_hooks
        order.of, order.version, order.alike = following.order, following.order_version, following.order_alike
        self.of_one = GangsOfOne(self)
        self.observing = DryRun(self.policies)
        self.staleness = Staleness()

    # -- pods ----------------------------------------------------------------------------------------------------

    def keep(self, pod: Pod) -> None:
        """The pod exists, is not finished, and looks like this."""
        known, self.pods[pod.uid] = self.pods.get(pod.uid), pod
        self.around.daemons.observe(pod)
        self.around.staying.observe(pod, known)
        self.around.pod_affinity.put(pod)
        self.gangs.kept_places.observe(pod)
        self.of_one.count(known, pod)

    def drop(self, uid: PodUid) -> Pod | None:
        """The pod is gone or has finished. Returns its last state; None: it was not known."""
        self.around.staying.forget(uid)
        self.around.daemons.forget(uid)
        self.around.pod_affinity.remove(uid)
        known = self.pods.pop(uid, None)
        self.of_one.count(known, None)
        return known

    def ours(self, pod: Pod) -> bool:
        """Whether its scheduler calls Escher. If not, the pod is only a fact on its node."""
        return self.foreign_pods.are_ours(pod.scheduler)

    def _may_leave(self, pod: Pod) -> bool:
        return self.ours(pod) or self.gangs.waiting.preempting.victims.bounds.others

    def _gives_way(self, pod: Pod) -> GivingWay:
        return self.policies.reserve_permit.gives_way(pod)

    def asks_ephemeral(self, pod: Pod) -> bool:
        return any(map(self.ledger.capacity.is_ephemeral, pod.requests))

    def judges(self, pod: Pod) -> bool:
        """Whether Escher decides where the pod may be, beyond what is held for other pods."""
        policies = self.policies
        placed = policies.reserve_permit.owned(pod.uid) or policies.reserve_permit.places(pod)
        return placed or self.asks_ephemeral(pod) or bool(pod.governed)

    def is_decided(self, pod: Pod) -> bool:
        return self.whole and pod.namespace not in self.known_anew

    def require_whole(self) -> None:
        """Raises Unavailable while a list is being taken in."""
        if not self.whole:
            raise Unavailable("Escher is reading a list of all pods", retry_after=1.0)

    def has_left(self, node: NodeName) -> bool:
        """Whether the node has left for good: see `removed_nodes`."""
        return node not in self.nodes and self.removed_nodes.for_good(node, self.clock.steady())

    def drift(self, node: Node) -> dict[ResourceKey, tuple[int, int]]:
        """Units where the node's status differs in Escher's domain, as (desired, reported)."""
        row = self.ledger.rows.get(node.name)
        desired: Mapping[ResourceKey, int] = row.ephemeral if row is not None else {}
        found: dict[ResourceKey, tuple[int, int]] = {}
        for said in (node.capacity, node.allocatable):
            for resource in desired.keys() | set(filter(self.ledger.capacity.is_ephemeral, said)):
                want, has = desired.get(resource), said.get(resource)
                if want != has:
                    found[resource] = (want or 0, has or 0)
        return found

    def violations(self) -> list[Violation]:
        """Every invariant of ledger and gangs that does not hold now. O(everything)."""
        bound = {uid: pod for uid, pod in self.pods.items() if pod.node is not None}
        beside = (*self.around.pod_affinity.violations(bound), *self.around.daemons.violations())
        return [*ledger_audit.violations(self.ledger), *gang_audit.violations(self.gangs, is_claim), *beside]
