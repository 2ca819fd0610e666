"""Steps: what must hold after each round with decisions of the service, and at each Binding.

The invariants are the service's own; the rest is computed here from the objects.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from fractions import Fraction

from extender.app.cycle.scheduler import Scheduler
from kubesim.apiserver.machinery.store import DELETED, Change
from kubesim.kinds import LEASE, POD, Json, Kind
from lab.simulated_service import ARRIVES_WITHIN
from lab.simulation import SERVICE
from loadtests.fault_simulation.actors.offers import Offers
from loadtests.fault_simulation.actors.restoring import Restoring
from loadtests.fault_simulation.actors.transactions import NAMESPACE
from loadtests.fault_simulation.actors.working import GROUP
from loadtests.fault_simulation.stage import SERVICES, Stage
from loadtests.life.policies import POLICY
from loadtests.life.seeing import annotation, label, name, uid
from loadtests.shared.reading import ATTEMPT, attempt_of, is_over, node_of, quorum_of, requests_of
from loadtests.shared.replicas import NAMESPACE as LEASES
from loadtests.shared.replicas import SETTINGS

VIOLATION, CAPACITY, QUORUM, KEPT_OFF, FENCE = "violation", "capacity", "quorum", "policy", "fence"
_DECIDES_WITHIN = 10.0
"""Seconds from kube-scheduler's look at a node to its bind call: two filter calls may be late."""
_HEARS_WITHIN = 75.0
"""Seconds after which the service must respect a pod that was bound without it.

A watch is held back for 30 s; a write sent then is repeated for 30 s, and is up to 8 s late."""
_OF_NO_LEADER = ("leases", "events", "endpointslices")
"""Resources that a replica may write without leading, or whose writes do no harm."""


class Steps:
    """`find` takes a finding's kind and text. `resources`: the kind of EphemeralResource."""

    def __init__(self, stage: Stage, resources: Kind, find: Callable[[str, str], None], restoring: Restoring) -> None:
        self._stage = stage
        self._restoring = restoring
        restoring.listeners.append(self._restored)
        self._find = find
        self._store = stage.cluster.api.store
        self._offers = Offers(self._store, resources, stage.clock.now)
        self._members: dict[str, set[str]] = defaultdict(set)
        """By gang: UIDs of all members that it has or had."""
        self._governed: set[str] = set()
        """UIDs of pods created while the policy of their group was in force."""
        self._arrived: dict[str, float] = {}
        """By request and user: when a leader's write took effect, in seconds of the event loop."""
        self._looked_at: tuple[Scheduler, int] | None = None
        """The scheduler that led at the last check, and its number of decisions then."""
        self._without_us: dict[str, float] = {}
        """By UID: when a pod was bound without a call to the service, in event loop seconds."""
        self._with_us: dict[str, float] = {}
        """By UID: when a pod was bound after a bind call to the service."""
        self._store.subscribe(self._written)
        stage.cluster.api.audit.subscribe(self._carried_out)

    # -- after each round ------------------------------------------------------------------------------------------

    def look(self) -> None:
        # A restore may bring back a released Lease; a replica that starts then cannot know which one has led since.
        if len(self._stage.leaders) > 1 and self._restoring.since() >= SETTINGS.lease_seconds:
            self._find(FENCE, f"{len(self._stage.leaders)} replicas take themselves for the one that leads")
        life = self._stage.leading
        if life is None or not life.application.scheduler.cache.whole:
            return
        scheduler = life.application.scheduler
        if self._looked_at != (scheduler, scheduler.decisions):
            # Nine of ten rounds only carry messages.
            self._looked_at = scheduler, scheduler.decisions
            for each in scheduler.cache.violations():
                self._find(VIOLATION, f"{each.invariant}: {each.detail}")

    # -- at each write ---------------------------------------------------------------------------------------------

    def _restored(self) -> None:
        """Takes pods that exist as members; which policy matched which pod is unknown now."""
        self._governed.clear()
        self._without_us.clear()
        self._with_us.clear()
        for each in self._store.list(POD):
            if (gang := quorum_of(each)) is not None:
                self._members[gang[0]].add(uid(each))

    def _written(self, change: Change) -> None:
        if self._restoring.under_way or change.kind is not POD or change.type == DELETED:
            return
        if change.before is None:
            if (gang := quorum_of(change.object)) is not None:
                self._members[gang[0]].add(uid(change.object))
            if self._is_governed(change.object):
                self._governed.add(uid(change.object))
        is_bound = node_of(change.object) and (change.before is None or not node_of(change.before))
        if is_bound and self._restoring.is_mended:
            if uid(change.object) in self._stage.calls.binds:
                self._with_us[uid(change.object)] = asyncio.get_running_loop().time()
                self._has_room(change.object)
            else:
                self._without_us[uid(change.object)] = asyncio.get_running_loop().time()
            self._has_its_quorum(change.object)
            self._keeps_off(change.object)

    def _has_room(self, pod: Json) -> None:
        """Finds too many pods on the pod's node.

        Left out is room that was taken without the service after the decision, and that could not be known. Another
        scheduler may take it, or kube-scheduler, which has given a pod's bind up and counts on that. kube-scheduler
        decides beside all pods but those that were bound although their bind had failed, or was given up. The service
        decides beside all pods that it can have heard of."""
        node, now = node_of(pod), asyncio.get_running_loop().time()
        asked = self._stage.calls.binds.get(uid(pod), now)
        there = [each for each in self._store.list(POD) if node_of(each) == node and not is_over(each)]
        counted = [each for each in there if not self._were_apart(uid(each), uid(pod))]
        heard = now - _HEARS_WITHIN
        found = self._too_much(pod, counted, max(asked - _DECIDES_WITHIN, heard)) or self._too_much(pod, there, heard)
        for each in found:
            self._find(CAPACITY, each)

    def _were_apart(self, one: str, other: str) -> bool:
        """Whether kube-scheduler counted on neither when it asked for the other's bind last."""
        calls = self._stage.calls
        known = one != other and one in self._with_us
        return known and not (
            self._is_counted(one, calls.asked_last(other)) or self._is_counted(other, calls.asked_last(one))
        )

    def _is_counted(self, pod: str, at: float) -> bool:
        return self._with_us[pod] < at or self._stage.calls.counted(pod, at)

    def _too_much(self, pod: Json, there: Iterable[Json], unheard: float) -> list[str]:
        """What the pods use too much of, without those bound beside the service after `unheard`."""
        node, used = node_of(pod), defaultdict[str, Fraction](Fraction)
        for each in there:
            if self._without_us.get(uid(each), unheard) <= unheard:
                for resource, units in requests_of(each).items():
                    used[resource] += units
        # There may be less of a resource than is held, because holders keep it; only requested ones are checked.
        asked = {resource: self._offers.most(node, resource) for resource, units in requests_of(pod).items() if units}
        return [
            f"{used[resource]} {resource} are bound to {node}, which has {most}"
            for resource, most in asked.items()
            if used[resource] > most
        ]

    def _has_its_quorum(self, pod: Json) -> None:
        quorum = quorum_of(pod)
        if quorum is None:
            return
        attempt = attempt_of(uid(pod), annotation(pod, ATTEMPT))
        if attempt is None:
            self._find(QUORUM, f"{name(pod)} is bound, and does not say with whom: {annotation(pod, ATTEMPT)!r}")
            return
        if attempt.joins:
            return
        members = self._members[quorum[0]]
        # Pods that are gone count as ready, because their state then is unknown.
        ready = members - {uid(each) for each in self._store.list(POD) if not self._is_ready(each)}
        if len(ready) < quorum[1]:
            said = f"{len(ready)} members bound or asked for"
            self._find(QUORUM, f"{name(pod)} is bound with {said}, and its gang needs {quorum[1]}")

    def _is_ready(self, pod: Json) -> bool:
        """Whether it is bound, or kube-scheduler has asked the service to bind it."""
        return bool(node_of(pod)) or uid(pod) in self._stage.calls.binds

    def _is_governed(self, pod: Json) -> bool:
        """Whether the policy of its group is in force, according to the policy's status."""
        policy = self._store.get(POLICY, NAMESPACE, label(pod, GROUP))
        said = [] if policy is None else (policy.get("status") or {}).get("conditions") or []
        return any((each["type"], each["status"]) == ("Ready", "True") for each in said)

    def _keeps_off(self, pod: Json) -> None:
        """Finds others of its group on its node, if the policy was in force at its creation."""
        for each in self._store.list(POD) if uid(pod) in self._governed else ():
            is_other = label(each, GROUP) == label(pod, GROUP) and uid(each) != uid(pod) and not is_over(each)
            if is_other and node_of(each) == node_of(pod):
                self._find(KEPT_OFF, f"{name(pod)} is bound to {node_of(pod)}, where {name(each)} is")

    def _carried_out(self, event: Json) -> None:
        """Checks an answered request that would change something."""
        user, about = event["user"]["username"], event["objectRef"]
        is_replica = user in SERVICES and user != SERVICE
        if not is_replica or about["resource"] in _OF_NO_LEADER or event["responseStatus"]["code"] >= 300:
            return
        lease = self._store.get(LEASE, LEASES, "escher")
        holder = None if lease is None else lease["spec"].get("holderIdentity")
        sent, now = (
            f"{user} {event['verb']} {event['requestURI']} {event.get('requestObject')}",
            asyncio.get_running_loop().time(),
        )
        if holder == user:
            self._arrived[sent] = now
        elif self._restoring.is_mended and now - self._arrived.get(sent, float("-inf")) > ARRIVES_WITHIN:
            # Else the network repeats what was sent in time, and its sender has released its Lease since.
            what = "/".join(filter(None, (about["resource"], about.get("name"), about.get("subresource"))))
            self._find(FENCE, f"{user} wrote while {holder or 'nobody'} led: {event['verb']} {what}")
