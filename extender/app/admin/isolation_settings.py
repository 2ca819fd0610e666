"""Isolation settings: puts quotas and scheduling domains in force, and reports how much is used.

What is in force is never taken away. See `core.tenancy.isolation` for the limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import structlog

from extender.app.cache.claims import owning
from extender.app.contracts.api import QuotaState
from extender.app.contracts.effects import Performer
from extender.app.contracts.ports import Sink
from extender.app.cycle.scheduler import Scheduler
from extender.app.escher_policies.controller import EscherPolicies
from extender.app.resources.capacity import Capacities
from extender.core.cluster import Node
from extender.core.tenancy.isolation import Allowance, Counted
from extender.kube.names import NodeName

_log = structlog.get_logger(__name__)


class IsolationInForce:
    """Implements `quota_state.QuotaCalls`."""

    def __init__(
        self, scheduler: Scheduler, performer: Performer, capacities: Capacities, policies: EscherPolicies
    ) -> None:
        self._scheduler = scheduler
        self._performer = performer
        self._capacities = capacities
        self._policies = policies

    def set(self, default: Allowance, namespaces: Mapping[str, Allowance]) -> None:
        """Puts settings in force: objects get what is now allowed, and waiting pods are woken."""
        if self._scheduler.cache.isolation.set(default, namespaces):
            _log.warning("quotas or scheduling domains were changed", namespaces=sorted(namespaces))
            self._capacities.look_again()
            self._policies.on_quota()
            self._performer.do(self._scheduler.settle())

    def nodes(self, first: Sink[Node]) -> Sink[Node]:
        """Returns a sink that passes nodes to `first`, then their label changes to capacities."""
        return _NodesTold(first, self._capacities)

    def quota(self, namespace: str) -> QuotaState:
        cache, resources = self._scheduler.cache, self._capacities.quota.used(namespace)
        allowance, places = cache.isolation.of(namespace), cache.ledger.totals.places
        kinds, kinds_beyond = self._scheduler.waiting_kinds(namespace)
        used = {
            Counted.RESOURCES: resources.resources,
            Counted.UNITS: resources.units,
            Counted.POLICIES: self._policies.quota.used(namespace),
            Counted.GANG_PLACES: places.get(namespace, 0),
            Counted.CLAIMS: places.get(owning(namespace), 0),
            Counted.WAITING_KINDS: kinds,
        }
        aside = cache.gangs.waiting.quota.aside
        waiting = {
            **self._capacities.waiting_for_quota(namespace),
            Counted.POLICIES: self._policies.waiting_for_quota(namespace),
            Counted.GANG_PLACES: sum(key.namespace == namespace for key in aside),
            Counted.WAITING_KINDS: kinds_beyond,
        }
        return QuotaState(
            namespace=namespace,
            counted={each: (number, allowance.most.get(each)) for each, number in used.items()},
            waiting=waiting,
            nodes=allowance.nodes,
            names=allowance.names,
            node_count=sum(allowance.has_node(node.labels) for node in cache.nodes.values()),
        )


class _NodesTold:
    def __init__(self, first: Sink[Node], capacities: Capacities) -> None:
        self._first = first
        self._capacities = capacities
        self._labels: dict[NodeName, Mapping[str, str]] = {}

    def replace(self, objects: Iterable[Node]) -> Iterator[None]:
        present = list(objects)
        yield from self._first.replace(present)
        self._labels = {node.name: node.labels for node in present}
        self._capacities.look_again(self._labels.keys())

    def upsert(self, item: Node) -> None:
        self._first.upsert(item)
        if self._labels.get(item.name) != item.labels:
            self._labels[item.name] = item.labels
            self._capacities.look_again([item.name])

    def remove(self, item: Node) -> None:
        self._first.remove(item)
        self._labels.pop(item.name, None)
