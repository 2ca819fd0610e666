"""Reads the figures from a run of `escher compare` on a real control plane. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from lab.compare.reporting.figures import Estimate
from lab.compare.reporting.measured import Measured as Sampled
from lab.compare.reporting.measured import Setting, measured, ratio_of
from lab.compare.reporting.timeline import GangTimes, TrialTimes
from lab.compare.runs import DEFAULT_SAMPLING, REAL, Recorded
from lab.compare.vocabulary import BASE, EXTENDER, NATIVE, SINGLE, THROUGH
from lab.compare.vocabulary import BURST as MANY_GANGS
from loadtests.goals.measuring.history import Where
from loadtests.goals.measuring.measured import Measured, of_estimate
from loadtests.goals.measuring.rows import (
    BURST,
    LARGE,
    LARGE_NODES,
    RATE,
    RATE_GANGS,
    RATE_NODES,
    RATE_SIZE,
    SIZES,
    burst_latency,
    burst_throughput,
    gated_over_plain,
    large_over_ungrouped,
    over_native,
    over_ungrouped,
)

_GATED = "gated"


def unfit(recorded: Recorded) -> str:
    """Why the run gives no figures of the service with its default settings; "" if it does."""
    plan = recorded.run.plan
    if plan.get("cluster") != REAL:
        return "it was not on a real control plane"
    if plan.get("waiting"):
        return f"{plan['waiting']} other gangs were waiting"
    return "the service had other settings than the usual ones" if plan.get("service_config") else ""


def where(recorded: Recorded) -> Where:
    """Returns the run's place and time. Raises KeyError if the run does not give them."""
    run = recorded.run
    cores, processor = run.machine["cores"], run.machine["processor"]
    return Where(time=run.began, commit=run.versions.get("commit", ""), cores=cores, processor=processor)


def measures(recorded: Recorded) -> Iterator[Measured]:
    """Yields rows at default sampling. Rows of ordinary pods are from bursts on an idle cluster."""
    for setting, row in measured(recorded).items():
        if setting.sampling == DEFAULT_SAMPLING:
            for name, found in _ratios(setting, row).items():
                if found is not None:
                    yield of_estimate(name, found)


def _ratios(setting: Setting, row: Mapping[str, Sampled]) -> dict[str, Estimate | None]:
    workload, nodes, gangs, size = setting.workload, setting.nodes, setting.gangs, setting.size
    if (workload, nodes, gangs, size) == (MANY_GANGS, RATE_NODES, RATE_GANGS, RATE_SIZE):
        return {RATE: ratio_of(row, EXTENDER, BASE, lambda each: each.by_trial(_all_bound))}
    if (workload, gangs) != (SINGLE, 1):
        return {}
    if nodes == LARGE_NODES and size in LARGE:
        return {large_over_ungrouped(size): ratio_of(row, EXTENDER, BASE)}
    return _of_single(row, nodes, size) if (nodes, size) in SIZES else {}


def _of_single(row: Mapping[str, Sampled], nodes: int, size: int) -> dict[str, Estimate | None]:
    found = {
        over_ungrouped(nodes, size): ratio_of(row, EXTENDER, BASE),
        over_native(nodes, size): ratio_of(row, EXTENDER, NATIVE),
        gated_over_plain(nodes, size): ratio_of(row, _GATED, EXTENDER),
    }
    if size == BURST:
        found |= {
            burst_latency(nodes): ratio_of(row, THROUGH, BASE),
            burst_throughput(nodes): ratio_of(row, THROUGH, BASE, lambda each: each.by_gang(_rate)),
        }
    return found


def _all_bound(times: TrialTimes) -> float:
    """Seconds until the last gang is bound, or inf: for equal numbers, inverse to pods a second."""
    return max(gang.bound for gang in times.gangs) - min(gang.asked for gang in times.gangs)


def _rate(pods: GangTimes) -> float:
    """Pods bound a second from the first Binding to the last; 0 if not all were bound."""
    return (pods.size - 1) / pods.partly if pods.bound < inf else 0.0
