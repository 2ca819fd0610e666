"""All gangs, and every decision about them: plan, claim, move, barrier, deadline.

It connects the parts that decide between what gangs ask for (`gang`) and what the ledger has (`ledger`), synchronously.
Decisions leave `effects`, which the application carries out. Time is an argument. No part uses one that is constructed
after it; each documents what it decides.

The guarantees: a gang without room for its whole quorum holds nothing, except the gang whose turn it is (`queue`). A
plan has a deadline. The barrier opens only when the quorum has arrived, and holds all that it needs. A change that
makes room wakes each rejected member once. A bound part of a gang is evicted only if it is proven (`partial_gangs`)
that its quorum never was whole. A defect with one gang affects no other gang.

With `reserve_at_filter` a plan holds its room from the first member's filter call on (pessimistic). Without it the plan
only proposes nodes, and any pod may take that room. Each member claims its own room when it arrives in bind, which is
when kube-scheduler counts it as well (optimistic). Two gangs may then each hold what the other lacks, until their plans
time out. So a gang whose plan timed out holds its next one as a whole, as does one that was woken for room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from extender.core.cluster import Node, Pod
from extender.core.gangs.cycle.admission import Admission
from extender.core.gangs.cycle.environment import Environment
from extender.core.gangs.cycle.members import Members
from extender.core.gangs.cycle.permit_barrier import Barrier
from extender.core.gangs.cycle.planner import Planning
from extender.core.gangs.cycle.quarantine import Quarantine
from extender.core.gangs.cycle.quorum import Quorums
from extender.core.gangs.cycle.requeue import Requeue
from extender.core.gangs.cycle.timeouts import Deadlines
from extender.core.gangs.kept_places import KeptPlaces
from extender.core.gangs.placement.affinity_planner import Constrained
from extender.core.gangs.placement.placement import Places
from extender.core.gangs.placement.slots import Offers, Slots
from extender.core.gangs.preemption.feasibility import Feasibility
from extender.core.gangs.preemption.pod_preemption import Evictions
from extender.core.gangs.preemption.preemption import Preemption
from extender.core.gangs.preemption.preemption_limits import DEFAULT_BOUNDS, Bounds
from extender.core.gangs.preemption.victim_rules import Victims
from extender.core.gangs.queue.backfill import DEFAULT_LIMITS, BackfillLimits, SavedRoom
from extender.core.gangs.queue.elastic_members import ElasticMembers
from extender.core.gangs.queue.fit_index import Fits
from extender.core.gangs.queue.plan_store import Plans
from extender.core.gangs.queue.queue import DEFAULT_PATIENCE, BackfillTrigger, Queue
from extender.core.gangs.queue.waiting_gangs import Waiting
from extender.core.gangs.state.gang_store import GangStore
from extender.core.gangs.state.quota import PlaceQuota
from extender.core.ledger.ledger import Ledger
from extender.core.safety_switches import SafetySwitches
from extender.kube.names import NodeName


class Gangs:
    """The gangs of the cluster, on one ledger.

    `nodes`: the table of nodes of `Scheduler`, read for selectors and taints. `life`: unique name of this run of the
    service.
    """

    def __init__(
        self,
        ledger: Ledger,
        nodes: Mapping[NodeName, Node],
        patience: BackfillTrigger = DEFAULT_PATIENCE,
        *,
        reserve_at_filter: bool = True,
        life: str = "0",
        around: Environment | None = None,
        thrift: BackfillLimits = DEFAULT_LIMITS,
        bounds: Bounds = DEFAULT_BOUNDS,
        ours: Callable[[Pod], bool] = lambda pod: True,
        switches: SafetySwitches | None = None,
    ) -> None:
        switches = switches or SafetySwitches()
        around = around or Environment()
        staying, pod_affinity = around.staying, around.pod_affinity
        self.ledger = ledger
        table = GangStore()
        self.by_key = table.by_key
        self.naming = table.naming
        self.effects = table.effects
        self.of = table.of
        self.slots = slots = Slots(ledger, nodes, staying)
        offers = Offers()
        constrained = Constrained(ledger, nodes, pod_affinity, staying)
        self.kept_places = KeptPlaces(ledger, nodes, pod_affinity, table, thrift.share)
        constrained.place_of = self.kept_places.pod_before
        quota = PlaceQuota(ledger, around.isolation)
        places = Places(ledger, slots, constrained, offers, quota)
        feasibility = Feasibility(ledger, places, slots, constrained)
        plans = Plans(table, nodes)
        fits = Fits(ledger, places, feasibility, slots, plans, staying)
        saved = SavedRoom(ledger, places, feasibility, thrift)
        queue = Queue(fits, saved, patience, switches)
        surplus = ElasticMembers(ledger, table, fits.copies, slots.would_have, lambda gang: not quota.over_by_one(gang))
        victims = Victims(table, switches, around.budgets, bounds, ours, around.daemons)
        preempting = Preemption(ledger, feasibility, table, switches, victims)
        self.kept_places.is_made_free = preempting.has_evicted_for
        saved.awaited = preempting.awaited
        self.evictions = Evictions(table, victims, staying.pods, switches)
        self.waiting = waiting = Waiting(table, queue, quota, surplus, preempting, staying, patience, switches)
        self.planning = planning = Planning(
            ledger, table, places, feasibility, plans, around.promises, waiting, pod_affinity, reserve_at_filter
        )
        self.quorums = quorums = Quorums(table, places, waiting, planning, switches)
        self.quarantine = quarantine = Quarantine(table, places, (waiting, quorums, planning))
        self.requeue = requeue = Requeue(ledger, table, places, waiting, planning, quarantine, switches)
        self.barrier = barrier = Barrier(ledger, table, places, planning, quorums, quarantine, life)
        self.members = members = Members(ledger, table, places, waiting, planning, quorums, barrier, quarantine)
        self.admission = Admission(ledger, slots, table, places, waiting, planning, requeue, members, quarantine)
        self.deadlines = Deadlines(
            ledger, table, places, waiting, planning, requeue, quorums, barrier, quarantine, switches
        )
