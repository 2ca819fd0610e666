"""Gangs of one: pods of no gang for which Escher evicts, because kube-scheduler would not.

kube-scheduler preempts where its own fit finds something short that victims hold. It knows neither what the ledger
alone matches nor the nodes that policies allow. There it finds no victims, and such a pod would wait for ever. So a pod
that was refused for these becomes a gang with one member. All that holds for gangs holds for it: its turn, the search
for victims, the limits, and the backfill reservation. It is a gang until it is bound.

For the search for victims see `core.gangs.preemption.preemption`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import chain, islice
from typing import TYPE_CHECKING

from extender.app.contracts.extender_api import Verdict, Victims
from extender.core.cluster import Pod
from extender.core.common.bounded import Bounded
from extender.core.gang_of_one import ask_of_one
from extender.core.names import in_domain
from extender.core.policies.matched_policy import of_type
from extender.core.policies.policy_types import AntiAffinity, Balance, CoLocation
from extender.core.safety_switches import Act
from extender.filters import ephemeral_fit
from extender.kube.names import NodeName, PodUid, ResourceKey

if TYPE_CHECKING:
    from extender.app.cache.cache import Cache

_LOOKED_AT = 256
"""Nodes searched for a holder of lower priority; beyond them Escher assumes that there is one."""
_HOLDERS_LOOKED_AT = 4096
"""Holders looked at on all of these nodes; beyond them likewise."""
_REMEMBERED = 16_384
_PLANNED = (AntiAffinity, Balance, CoLocation)
"""Types of policies that evictions can satisfy; evictions give a pod neither data nor a label."""


class WhyNone(Enum):
    """Why no pod is evicted for a pod of no gang. The value is for people."""

    SWITCHED_OFF = "preemption or its backfill reservation is switched off (safety switches: GET /v1/safety-switches)"
    NEVER = "its preemptionPolicy is Never"
    TOO_FEW = "no node has as many units as it requests, free or held"
    LOWEST = "no pod of lower priority is bound"
    NO_LOWER_HOLDER = "no pod of lower priority holds the units that it lacks"
    POLICIES = "the setting preempts_for_policies is off"
    NOT_THEIRS = "it lacks what its policies require, and no other pod holds that"
    ALTERNATIVES = "its policies have alternatives, and these are tried instead"
    UNKNOWN_ASKS = "it has requirements that Escher cannot plan"


class GangsOfOne:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.uids: set[PodUid] = set()
        """Pods that are gangs of one."""
        self._priorities: Counter[int] = Counter()
        """How many bound pods have each priority."""
        self._held_back: Bounded[PodUid, None] = Bounded(_REMEMBERED)
        """Pods that would be gangs of one by now, if the safety switch did not hold them back."""

    # -- what pods are -------------------------------------------------------------------------------------------

    def count(self, before: Pod | None, after: Pod | None) -> None:
        """Counts a bound pod by its priority, as it looks now; None: it did not exist, or does no more."""
        was = None if before is None or before.node is None else before.priority
        now = None if after is None or after.node is None else after.priority
        if was == now:
            return
        if now is not None:
            self._priorities[now] += 1
        if was is not None:
            self._priorities[was] -= 1
            if not self._priorities[was]:
                del self._priorities[was]

    def understood(self, pod: Pod) -> Pod:
        """The pod with the ask of a gang of one, if it is one."""
        if pod.uid not in self.uids or pod.gang is not None:
            return pod
        return replace(pod, gang=ask_of_one(pod.namespace, pod.name))

    def end(self, uid: PodUid) -> bool:
        """The pod is bound or gone; returns whether it was a gang of one."""
        self._held_back.pop(uid, None)
        if uid not in self.uids:
            return False
        self.uids.discard(uid)
        return True

    # -- whether it becomes one ----------------------------------------------------------------------------------

    def wants(self, pod: Pod, verdict: Verdict) -> bool:
        """Whether a pod that policies refused on every node becomes a gang of one."""
        if not (pod.governed or self._cache.asks_ephemeral(pod)):
            return False
        units = [node for node, reason in verdict.rejected.items() if reason == ephemeral_fit.REASON]
        why = self._why_none(pod, units, lacks_units=bool(units))
        if why is WhyNone.SWITCHED_OFF:
            self._held_back[pod.uid] = None
        return why is None

    def take_let_go(self) -> list[PodUid]:
        """Pods that the safety switch held back, and holds back no longer; each once."""
        pods = self._cache.pods
        let_go = [uid for uid in self._held_back if uid in pods and not self._is_held_back(pods[uid])]
        for uid in let_go:
            del self._held_back[uid]
        return let_go

    def _is_held_back(self, pod: Pod) -> bool:
        switches = self._cache.safety_switches
        return not (switches.allows(Act.PREEMPT, pod.namespace) and switches.allows(Act.SAVE_ROOM, pod.namespace))

    def wants_more(self, pod: Pod, offered: Iterable[NodeName]) -> bool:
        """As `wants`, for nodes that lack the units even without kube-scheduler's victims."""
        return self._why_none(pod, list(offered), lacks_units=True) is None

    def why_none(self, pod: Pod) -> WhyNone | None:
        """Why no pod would be evicted for the waiting pod if kube-scheduler asked about it now."""
        asked = self._asked(pod)
        short = self._short_of(pod, asked)
        if asked and not short and not pod.governed:
            return WhyNone.TOO_FEW
        return self._why_none(pod, short, lacks_units=bool(asked) and bool(short))

    def _why_none(self, pod: Pod, units_short_on: Sequence[NodeName], *, lacks_units: bool) -> WhyNone | None:
        cache = self._cache
        if self._is_held_back(pod):
            return WhyNone.SWITCHED_OFF
        if not pod.preempts:
            return WhyNone.NEVER
        if all(priority >= pod.priority for priority in self._priorities):
            return WhyNone.LOWEST
        if pod.unknown_asks:
            return WhyNone.UNKNOWN_ASKS
        if next(cache.policy_matching.alternatives(pod), None) is not None:
            return WhyNone.ALTERNATIVES
        if lacks_units:
            return None if self._lower_holds(pod, units_short_on) else WhyNone.NO_LOWER_HOLDER
        if not any(True for kind in _PLANNED for _ in of_type(pod.governed, kind)):
            return WhyNone.NOT_THEIRS
        return None if cache.rules.preemption.for_policies else WhyNone.POLICIES

    def _asked(self, pod: Pod) -> Mapping[ResourceKey, int]:
        domain = self._cache.ledger.capacity.domain
        return {key: units for key, units in pod.requests.items() if in_domain(key, domain) and units > 0}

    def _short_of(self, pod: Pod, asked: Mapping[ResourceKey, int]) -> list[NodeName]:
        """Nodes with capacity for all units that the pod asks for, which are not all free."""
        if not asked:
            return []
        ledger = self._cache.ledger
        having: Mapping[NodeName, None] = min((ledger.totals.providers.get(key, {}) for key in asked), key=len)
        return [
            node
            for node in islice(having, _LOOKED_AT + 1)
            if all(ledger.rows[node].capacity.get(key, 0) >= units for key, units in asked.items())
            and ledger.rows.lacking(node, asked, (pod.uid,)) is not None
        ]

    def _lower_holds(self, pod: Pod, nodes: Collection[NodeName]) -> bool:
        """Whether a pod of lower priority holds units that the pod asks for on one of the nodes."""
        asked, cache = self._asked(pod), self._cache
        rows = (cache.ledger.rows.get(node) for node in islice(nodes, _LOOKED_AT))
        there = chain.from_iterable(row.holdings.items() for row in rows if row is not None)
        looked_at = list(islice(there, _HOLDERS_LOOKED_AT))
        for holder, held in looked_at:
            other = cache.pods.get(PodUid(holder))
            if other is None or other.node is None or other.priority >= pod.priority:
                continue
            if any(held.units.get(key) for key in asked):
                return True
        return len(nodes) > _LOOKED_AT or len(looked_at) == _HOLDERS_LOOKED_AT

    # -- kube-scheduler preempts ---------------------------------------------------------------------------------

    def with_units(
        self, pod: Pod, victims: Mapping[NodeName, Victims], open_to_it: Iterable[NodeName]
    ) -> list[NodeName]:
        """The nodes that would have the units that the pod asks for once their victims leave."""
        nodes = list(open_to_it)
        if not (asked := self._asked(pod)):
            return nodes
        rows, giving_way = self._cache.ledger.rows, self._cache.policies.reserve_permit.gives_way(pod)
        return [
            node
            for node in nodes
            if rows.lacking(node, asked, (pod.uid, *victims[node].pods, *giving_way.get(node, ()))) is None
        ]
