"""Metrics: the service's metrics beyond the verbs' own, read from the `Scheduler` at each scrape.

Users cannot multiply the values of any label: resources are counted by class, gangs by phase.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.app.cache.cache import Cache
from extender.app.effects.eviction_audit import EvictionKind
from extender.app.resources.node_status import WriteBack
from extender.app.resources.resync import drift_units
from extender.core.gang_of_one import lone_pod
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import HoldingKind
from extender.core.safety_switches import Act
from extender.kube.names import CPU, MEMORY, PODS

if TYPE_CHECKING:
    # These imports load cryptography and the `kubernetes` client: half a second, which the embedded cluster does not
    # need.
    from extender.adapters.http.server.tls import ServedCertificates
    from extender.adapters.log_lines import LogLines
    from extender.kube.client.credentials import Credentials

_GANG_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200)
_WRITE_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 30)

_STATES = {
    HoldingKind.BOUND: "bound",
    HoldingKind.ASSUMPTION: "assumed",
    HoldingKind.RESERVATION: "reserved",
    HoldingKind.SAVING: "saved",
}


OLD_NAMES = {
    "escher_actions_suppressed": "escher_withheld",
    "escher_evictions": "escher_destroyed",
    "escher_watch_age_seconds": "escher_knowledge_age_seconds",
    "escher_backfill_share": "escher_saved_share",
    "escher_backfill_seconds": "escher_saved_seconds",
}
"""By the new name. Each metric is shown under both names until version 0.4."""


def _by_old_name(metric: Metric) -> Metric:
    old = OLD_NAMES[metric.name]
    again = Metric(old, f"Old name of {metric.name}; removed in version 0.4", metric.type)
    again.samples = [each._replace(name=each.name.replace(metric.name, old, 1)) for each in metric.samples]
    return again


class CredentialMetrics(Collector):
    """Shows when the credentials for the API server end, and how often their renewal failed."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def collect(self) -> Iterable[Metric]:
        if self._credentials.ends_at is not None:
            ends = GaugeMetricFamily(
                "escher_credentials_end_timestamp_seconds", "When the credentials for the API server expire"
            )
            ends.add_metric([], self._credentials.ends_at)
            yield ends
        vain = CounterMetricFamily(
            "escher_credentials_not_renewed", "Reloads of the credentials that brought no usable ones"
        )
        vain.add_metric([], self._credentials.vain)
        yield vain


class LogMetrics(Collector):
    """Shows how many lines of the log were lost."""

    def __init__(self, lines: LogLines) -> None:
        self._lines = lines

    def collect(self) -> Iterable[Metric]:
        lost = CounterMetricFamily(
            "escher_log_lines_lost", "Log lines that could not be written, or that the reader did not take in time"
        )
        lost.add_metric([], self._lines.lost)
        yield lost


class CertificateMetrics(Collector):
    """Shows when the served certificate ends, and how often a new one could not be used."""

    def __init__(self, certificates: ServedCertificates, now: Callable[[], float] = time.time) -> None:
        self._certificates = certificates
        self._now = now

    def collect(self) -> Iterable[Metric]:
        expires = GaugeMetricFamily(
            "escher_certificate_expires_seconds", "Until the served chain's first certificate expires; then negative"
        )
        expires.add_metric([], self._certificates.ends_at - self._now())
        yield expires
        unusable = CounterMetricFamily(
            "escher_certificates_unusable", "New certificates that could not be used; the old ones stayed in use"
        )
        unusable.add_metric([], self._certificates.unusable)
        yield unusable


class Metrics(Collector):
    """Counts events, and reads the rest from the `Scheduler` at a scrape: O(nodes x resources)."""

    def __init__(
        self,
        registry: CollectorRegistry,
        cache: Cache,
        write_back: WriteBack,
        transactions_unfinished: Callable[[], int] = lambda: 0,
    ) -> None:
        self._cache = cache
        self._write_back = write_back
        self._transactions_unfinished = transactions_unfinished
        self._gang_wait = Histogram(
            "escher_gang_wait_seconds",
            "From the first member seen to the quorum bound",
            registry=registry,
            buckets=_GANG_BUCKETS,
        )
        self._relists = Counter(
            "escher_reflector_relists", "Full lists, by kind and reason", ["kind", "reason"], registry=registry
        )
        self._violations = Counter(
            "escher_invariant_violations", "Invariants that did not hold", ["invariant"], registry=registry
        )
        self._evictions = Counter(
            "escher_evictions", "Evictions that the API server accepted, by kind", ["kind"], registry=registry
        )
        self._suppressed = Counter(
            "escher_actions_suppressed", "Actions that a safety switch suppressed, by act", ["act"], registry=registry
        )
        self._bad_settings = Counter(
            "escher_settings_file_unusable", "Times that the settings file could not be used", registry=registry
        )
        self._shed = Counter(
            "escher_management_shed",
            "Calls of the management API refused because of overload or low memory",
            ["why"],
            registry=registry,
        )
        for destruction in EvictionKind:
            self._evictions.labels(destruction.value)
        for act in Act:
            self._suppressed.labels(act.value)
        self._write_back_seconds = Histogram(
            "escher_write_back_seconds", "One PATCH of a node's status", registry=registry, buckets=_WRITE_BUCKETS
        )
        self._undone = Counter(
            "escher_write_back_undone", "Writes of a node's status that another client changed back", registry=registry
        )
        registry.register(self)

    def gang_placed(self, seconds: float) -> None:
        self._gang_wait.observe(seconds)

    def node_written(self, seconds: float) -> None:
        self._write_back_seconds.observe(seconds)

    def node_undone(self) -> None:
        self._undone.inc()

    def relisted(self, kind: str, reason: str) -> None:
        self._relists.labels(kind, reason).inc()

    def destroyed(self, kind: str) -> None:
        self._evictions.labels(kind).inc()

    def withheld(self, act: Act) -> None:
        self._suppressed.labels(act.value).inc()

    def settings_broken(self) -> None:
        self._bad_settings.inc()

    def shed(self, why: str) -> None:
        self._shed.labels(why).inc()

    def violated(self, invariant: str) -> None:
        self._violations.labels(invariant).inc()

    def collect(self) -> Iterable[Metric]:
        for counter in (self._evictions, self._suppressed):
            for each in counter.collect():
                yield _by_old_name(each)
        for each in self._gauges():
            yield each
            if each.name in OLD_NAMES:
                yield _by_old_name(each)

    def _gauges(self) -> Iterator[Metric]:
        yield self._gangs()
        waiting = GaugeMetricFamily("escher_bind_barrier_waiting", "Members whose bind waits for their gang")
        waiting.add_metric([], sum(len(gang.barrier.arrived) for gang in self._cache.gangs.by_key.values()))
        yield waiting
        doubt = GaugeMetricFamily("escher_gangs_in_doubt", "Gangs bound in part that may have run: left alone")
        doubt.add_metric([], len(self._cache.gangs.quorums.in_doubt))
        yield doubt
        aside = GaugeMetricFamily("escher_gangs_over_quota", "Gangs that wait for gang places of their namespace")
        aside.add_metric([], len(self._cache.gangs.waiting.quota.aside))
        yield aside
        unfinished = GaugeMetricFamily(
            "escher_preemptions_unfinished",
            "Preempted gangs of which only some members could be evicted, and that are below their quorum since",
        )
        unfinished.add_metric([], len(self._cache.gangs.waiting.preempting.victims.unfinished))
        yield unfinished
        half = GaugeMetricFamily(
            "escher_transactions_unfinished", "Intents of transactions that do not run here: to be rolled back"
        )
        half.add_metric([], self._transactions_unfinished())
        yield half
        yield self._units()
        drift = GaugeMetricFamily("escher_drift_units", "Units by which node status differs from what is desired")
        drift.add_metric([], drift_units(self._cache))
        yield drift
        yield self._safety_switches()
        pending = GaugeMetricFamily("escher_write_back_pending", "Nodes whose status is to be written")
        pending.add_metric([], self._write_back.pending)
        yield pending
        fights = GaugeMetricFamily(
            "escher_write_back_fights", "Nodes whose status another client changes back repeatedly"
        )
        fights.add_metric([], self._write_back.fights())
        yield fights
        ages = GaugeMetricFamily(
            "escher_watch_age_seconds", "Since the API server last sent anything about a kind", labels=["kind"]
        )
        for kind, age in self._cache.staleness.ages().items():
            ages.add_metric([kind], age)
        yield ages
        yield from self._savings()

    def _safety_switches(self) -> Metric:
        family = GaugeMetricFamily("escher_brake", "1 if the settings suppress an action everywhere", labels=["act"])
        for act in Act:
            family.add_metric([act.value], not self._cache.safety_switches.everywhere.allows(act))
        return family

    def _gangs(self) -> Metric:
        family = GaugeMetricFamily("escher_gang_phase", "Gangs by phase", labels=["phase"])
        counts = dict.fromkeys(Phase, 0)
        for key, gang in self._cache.gangs.by_key.items():
            counts[gang.phase] += not lone_pod(key)
        for phase, count in counts.items():
            family.add_metric([phase.value], count)
        return family

    def _savings(self) -> Iterator[Metric]:
        savings = self._cache.gangs.waiting.queue.saved.savings
        share = GaugeMetricFamily(
            "escher_backfill_share", "Largest share of a resource of the cluster that is reserved for a gang"
        )
        share.add_metric([], savings.share)
        yield share
        seconds = GaugeMetricFamily(
            "escher_backfill_seconds", "Seconds with more than backfill_max_share reserved; falls while less is"
        )
        seconds.add_metric([], savings.seconds_over_at(self._cache.clock.steady()))
        yield seconds

    def _units(self) -> Metric:
        totals: dict[tuple[str, str], int] = {}
        for row in self._cache.ledger.rows.values():
            for resource, units in row.capacity.items():
                key = (self._class(resource), "capacity")
                totals[key] = totals.get(key, 0) + units
            for holding in row.holdings.values():
                state = _STATES[holding.kind]
                for resource, units in holding.units.items():
                    key = (self._class(resource), state)
                    totals[key] = totals.get(key, 0) + units
        family = GaugeMetricFamily(
            "escher_ledger_units", "Units in the ledger; cpu in milli-cores", labels=["resource_class", "state"]
        )
        for labels, units in sorted(totals.items()):
            family.add_metric(labels, units)
        return family

    def _class(self, resource: str) -> str:
        if resource in (CPU, MEMORY, PODS):
            return resource
        if self._cache.ledger.capacity.is_ephemeral(resource):
            return "ephemeral"
        return "extended" if "/" in resource else "other"
