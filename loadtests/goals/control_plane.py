"""What a run of `escher compare` on a real control plane says of the figures. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from extender.compare.figures import Estimate
from extender.compare.measured import Measured as Sampled
from extender.compare.measured import measured, ratio_of
from extender.compare.runs import DEFAULT_SAMPLING, REAL, Recorded
from extender.compare.timeline import GangTimes
from extender.compare.vocabulary import BASE, EXTENDER, NATIVE, SINGLE, THROUGH
from loadtests.goals.history import Where
from loadtests.goals.measured import Measured, of_estimate
from loadtests.goals.rows import (
    BURST,
    SIZES,
    burst_latency,
    burst_throughput,
    gated_over_plain,
    over_native,
    over_ungrouped,
)

_GATED = "gated"


def unfit(recorded: Recorded) -> str:
    """Why a run says nothing of the figures, which are about the service as it is shipped; "": it does."""
    plan = recorded.run.plan
    if plan.get("cluster") != REAL:
        return "it was not on a real control plane"
    if plan.get("waiting"):
        return f"{plan['waiting']} other gangs were waiting"
    return "the service had other settings than the usual ones" if plan.get("service_config") else ""


def where(recorded: Recorded) -> Where:
    """Raises KeyError where the run does not say."""
    run = recorded.run
    cores, processor = run.machine["cores"], run.machine["processor"]
    return Where(time=run.began, commit=run.versions.get("commit", ""), cores=cores, processor=processor)


def measures(recorded: Recorded) -> Iterator[Measured]:
    """Of each row what the run has: single gangs, default sampling. An ordinary pod's figures are those of a burst of
    pods that are no gang, on a cluster that has nothing else to do."""
    for setting, row in measured(recorded).items():
        single = (setting.workload, setting.sampling, setting.gangs) == (SINGLE, DEFAULT_SAMPLING, 1)
        if single and (setting.nodes, setting.size) in SIZES:
            for name, found in _ratios(row, setting.nodes, setting.size).items():
                if found is not None:
                    yield of_estimate(name, found)


def _ratios(row: Mapping[str, Sampled], nodes: int, size: int) -> dict[str, Estimate | None]:
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


def _rate(pods: GangTimes) -> float:
    """Pods bound a second from the first Binding to the last; none if not all of them were."""
    return (pods.size - 1) / pods.partly if pods.bound < inf else 0.0
