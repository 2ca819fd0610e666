"""Streams: limits how many event streams callers hold open. A refusal names the setting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.adapters.http.problems import Problem, ProblemKind

Client = tuple[str, str]
"""How a client is identified, and its name: `("user", "ann")`."""

_RETRY_AFTER = 10


class Streams(Collector):
    """Limits open streams: `per_client`, `per_namespace` (or for all of them), `limit` in total."""

    def __init__(self, per_client: int = 16, per_namespace: int = 128, limit: int = 512) -> None:
        self._per_client = per_client
        self._per_namespace = per_namespace
        self._limit = limit
        self.open: Counter[Hashable] = Counter()
        """By client, by namespace (None: all namespaces), and in all."""
        self._refused = dict.fromkeys(("streams_per_client", "streams_per_namespace", "streams_limit"), 0)
        """Number of refusals, by the setting that caused them."""

    def collect(self) -> Iterable[Metric]:
        there = GaugeMetricFamily("escher_event_streams", "Event streams that callers hold open")
        there.add_metric([], self.open["all"])
        yield there
        refused = CounterMetricFamily(
            "escher_event_streams_refused", "Event streams refused, by the setting of the limit", labels=["setting"]
        )
        for setting, number in self._refused.items():
            refused.add_metric([setting], number)
        yield refused

    @contextmanager
    def held(self, client: Client | None, namespace: str | None) -> Iterator[None]:
        """Counts one more open stream during the block. `client` None: unknown. Raises Problem."""
        followed = "all namespaces" if namespace is None else f"namespace {namespace!r}"
        bounds: dict[Hashable, tuple[int, str, str]] = {}
        if client is not None:
            bounds[client] = (self._per_client, f"of {client[0]} {client[1]!r} are open", "streams_per_client")
        bounds["namespace", namespace] = (self._per_namespace, f"follow {followed}", "streams_per_namespace")
        bounds["all"] = (self._limit, "are open", "streams_limit")
        for key, (most, which, setting) in bounds.items():
            if self.open[key] >= most:
                self._refused[setting] += 1
                raise Problem(
                    ProblemKind.TOO_MANY,
                    f"{most} event streams {which}, which is the limit (setting {setting}): close one that is "
                    "not needed, or retry later",
                    # The refused call must not hold its connection open either.
                    headers={"Retry-After": str(_RETRY_AFTER), "Connection": "close"},
                )
        self.open.update(bounds.keys())
        try:
            yield
        finally:
            self.open.subtract(bounds.keys())
            self.open += Counter()
