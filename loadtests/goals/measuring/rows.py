"""Rows: the figures that Escher should reach, each with its goal and the least result. Data only.

A row without a measure is here as well, so that it is shown as not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HTTP, COMPARE, CORE, SCALE, RESOURCES = "http", "compare", "core", "scale", "resources"
"""Measures, as `--only` names them."""


@dataclass(frozen=True, slots=True)
class Row:
    """`of`: its unit, or what it is a ratio to. `measure`: what gives the figure; "": none yet."""

    name: str
    of: str
    goal: float
    must: float
    measure: str = ""
    more_is_better: bool = False

    def reaches(self, value: float, bound: float) -> bool:
        return value >= bound if self.more_is_better else value <= bound


FILTER_ONE, FILTER_ALL = "filter 5000 names, one feasible", "filter 5000 names, all pass"
FILTER_SAMPLE = "filter 500 names"
PRIORITIZE_SAMPLE, PRIORITIZE_ALL = "prioritize 500 names", "prioritize 5000 names"
FILTER_WHOLE, PRIORITIZE_WHOLE = "filter 1000 whole nodes", "prioritize 1000 whole nodes"
ANSWERED, MEMORY_AFTER = "5000 whole nodes answered", "memory after 5000 whole nodes"

SIZES = ((100, 8), (100, 64), (5000, 8), (5000, 64))
"""Nodes, and members of the gang."""
BURST = 64
_BURSTS = tuple(each for each in SIZES if each[1] == BURST)


LARGE = (500, 2000)
LARGE_NODES = 5000
"""`LARGE`: gang sizes whose goals name no number of nodes. `LARGE_NODES`: nodes when measured."""
RATE_NODES, RATE_GANGS, RATE_SIZE = 5000, 3000, 3


def large_over_ungrouped(size: int) -> str:
    return f"gangs of {size} over ungrouped"


RATE = f"{RATE_GANGS} gangs of {RATE_SIZE}, {RATE_NODES} nodes"
MANY_RESOURCES, ASKING_FOR_MANY, LOCALITY = "1000 ephemeral resources", "asking for 100 resources", "data locality"


def over_ungrouped(nodes: int, size: int) -> str:
    return f"gang over ungrouped, {nodes} x {size}"


def over_native(nodes: int, size: int) -> str:
    return f"gang over native, {nodes} x {size}"


def gated_over_plain(nodes: int, size: int) -> str:
    return f"gated over plain gang, {nodes} x {size}"


def burst_latency(nodes: int) -> str:
    return f"ordinary pods, latency, {nodes} x {BURST}"


def burst_throughput(nodes: int) -> str:
    return f"ordinary pods, throughput, {nodes} x {BURST}"


_GO = "of the reference's time, over HTTP"
_WHOLE = f"{_GO}, 6 KB a node"
_WITHOUT = "of the same scheduler's without the extender"
_UNGROUPED, _NATIVE = "of the latency of pods without a gang", "of that of Kubernetes' own pod group"
_PLAIN = "of a plain gang's"
_BY_SIZE = {(100, 8): (0.95, 1.10), (100, 64): (1.00, 1.10), (5000, 8): (1.00, 1.05), (5000, 64): (1.00, 1.10)}

ROWS: Sequence[Row] = (
    *(Row(burst_latency(nodes), _WITHOUT, 1.02, 1.15, COMPARE) for nodes, _ in _BURSTS),
    *(Row(burst_throughput(nodes), _WITHOUT, 0.98, 0.90, COMPARE, more_is_better=True) for nodes, _ in _BURSTS),
    Row(FILTER_ONE, _GO, 0.20, 0.45, HTTP),
    Row(FILTER_SAMPLE, _GO, 0.40, 0.70, HTTP),
    Row(FILTER_ALL, _GO, 0.25, 0.45, HTTP),
    Row(PRIORITIZE_SAMPLE, _GO, 0.20, 0.45, HTTP),
    Row(PRIORITIZE_ALL, _GO, 0.20, 0.45, HTTP),
    Row(FILTER_WHOLE, _WHOLE, 0.15, 0.30, HTTP),
    Row(PRIORITIZE_WHOLE, _WHOLE, 0.15, 0.30, HTTP),
    Row(ANSWERED, "share of the calls, 6 KB a node", 1.0, 1.0, HTTP, more_is_better=True),
    # "Returns to what it was", and a twentieth for what an allocator keeps.
    Row(MEMORY_AFTER, "of the resident memory before", 1.05, 1.05, HTTP),
    Row("gang planned", "ms; 64 on 5,000 nodes, 20,000 pods in the ledger", 0.3, 1.0, CORE),
    Row("gang does not fit", "ms; the same, where it does not", 0.3, 1.0, CORE),
    *(Row(over_ungrouped(*each), _UNGROUPED, *_BY_SIZE[each], COMPARE) for each in SIZES),
    *(Row(over_native(*each), _NATIVE, 0.65, 0.80, COMPARE) for each in SIZES),
    *(Row(gated_over_plain(*each), _PLAIN, 1.15, 1.30, COMPARE) for each in SIZES),
    *(Row(large_over_ungrouped(size), "of the same pods' time without a gang", 1.0, 1.2, COMPARE) for size in LARGE),
    Row(RATE, "of ungrouped pods' time, as fast as they can be asked for", 1.0, 1.2, COMPARE),
    Row("resident memory of the service", "MiB; 5,000 nodes, 50,000 pods, after the first sync", 150, 250, SCALE),
    Row("time from start to ready", "s; 5,000 nodes, 50,000 pods", 4, 8, SCALE),
    Row("pod event", "us; applied, 50,000 pods", 20, 50, CORE),
    Row("event that helps none", "of its cost with no gang waiting; 1,000 of 100 shapes", 1.2, 2.0, CORE),
    Row("growth of filter", "of linear in bytes, 500 to 15,000 nodes", 1.0, 1.0, CORE),
    Row(MANY_RESOURCES, "of the time of a workload that asks for none, without them", 1.10, 1.10, RESOURCES),
    Row(ASKING_FOR_MANY, "of the time of asking for one", 1.25, 1.25, RESOURCES),
    Row(LOCALITY, "of native node affinity's makespan", 1.02, 1.02, RESOURCES),
)
BY_NAME = {row.name: row for row in ROWS}
