"""The extender's own metrics, of interfaces.md section 9.

Knows prometheus-client. The registry is handed in, so that two services in one process, or two tests, do not meet.
The label `verb` has four values and no caller can add one.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Histogram

VERBS = ("filter", "prioritize", "bind", "preempt")

# From a filter of a few names to a bind that waits a minute at its gang's barrier.
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_NODES = (1.0, 10.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0)


@dataclass(frozen=True, slots=True)
class VerbMetrics:
    """Where one verb's durations and numbers of nodes are counted."""

    duration: Histogram
    nodes: Histogram


def verb_metrics(registry: CollectorRegistry) -> dict[str, VerbMetrics]:
    """The metrics of every verb, registered, and shown as 0 before the first call."""
    duration = Histogram(
        "escher_extender_duration_seconds",
        "From the last byte of a call of kube-scheduler to the first of its answer; bind waits for its gang in it.",
        ["verb"],
        buckets=_SECONDS,
        registry=registry,
    )
    nodes = Histogram(
        "escher_extender_nodes",
        "Nodes named in a call of kube-scheduler.",
        ["verb"],
        buckets=_NODES,
        registry=registry,
    )
    return {verb: VerbMetrics(duration.labels(verb), nodes.labels(verb)) for verb in VERBS}
