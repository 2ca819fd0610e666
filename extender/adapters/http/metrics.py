"""Metrics of the extender calls; docs/operations.md lists them.

The registry is passed in, so that two services in one process, or two tests, do not collide. The label `verb` has four
values, and no caller can add one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

VERBS = ("filter", "prioritize", "bind", "preempt")

# From a filter of a few names to a bind that waits a minute at its gang's barrier.
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_NODES = (1.0, 10.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0)


class Distribution:
    """Counts observations up to each bound, and their sum. For one thread; has no locks."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = (*bounds, inf)
        self._counts = [0] * len(self._bounds)
        """By the lowest bound that is not below the observation."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def up_to(self, bound: float) -> int:
        return sum(self._counts[: bisect_left(self._bounds, bound) + 1])


class _Histograms(Collector):
    """A library histogram for each verb, filled from a `Distribution` at each scrape."""

    def __init__(self, name: str, about: str, bounds: Sequence[float], registry: CollectorRegistry) -> None:
        self._shown = Histogram(name, about, ["verb"], buckets=bounds, registry=None)
        self.of: dict[str, Distribution] = {}
        for verb in VERBS:
            self._shown.labels(verb)
            self.of[verb] = Distribution(bounds)
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return self._shown.describe()

    def collect(self) -> Iterable[Metric]:
        for family in self._shown.collect():
            family.samples = [self._told(sample, sample.name.removeprefix(family.name)) for sample in family.samples]
            yield family

    def _told(self, sample: Sample, kind: str) -> Sample:
        distribution = self.of[sample.labels["verb"]]
        match kind:
            case "_bucket":
                return sample._replace(value=distribution.up_to(float(sample.labels["le"])))
            case "_count":
                return sample._replace(value=distribution.up_to(inf))
            case "_sum":
                return sample._replace(value=distribution.total)
            case _:
                return sample


@dataclass(frozen=True, slots=True)
class VerbMetrics:
    """The distributions of one verb's durations and numbers of nodes."""

    duration: Distribution
    nodes: Distribution


def verb_metrics(registry: CollectorRegistry) -> dict[str, VerbMetrics]:
    """Registers and returns the metrics of every verb, which show 0 before the first call."""
    duration = _Histograms(
        "escher_extender_duration_seconds",
        "Seconds from a kube-scheduler call's last byte to its answer's first; bind includes the wait for its gang.",
        _SECONDS,
        registry,
    )
    nodes = _Histograms("escher_extender_nodes", "Nodes named in a kube-scheduler call.", _NODES, registry)
    return {verb: VerbMetrics(duration.of[verb], nodes.of[verb]) for verb in VERBS}
