"""What is counted of verbs is shown as the library's own histograms would show it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from extender.adapters.http import metrics
from extender.adapters.http.metrics import VERBS, verb_metrics

observed = st.lists(
    st.tuples(
        st.sampled_from(VERBS),
        st.sampled_from(metrics._SECONDS) | st.floats(0, 100),
        st.sampled_from(metrics._NODES) | st.integers(0, 20_000),
    ),
    max_size=30,
)


def twins(registry: CollectorRegistry) -> tuple[Histogram, Histogram]:
    """As `verb_metrics` would have them, of the library itself."""
    about = {family.name: family.documentation for family in registry.collect()}
    own = CollectorRegistry()
    made = [
        Histogram(name, about[name], ["verb"], buckets=buckets, registry=own)
        for name, buckets in (
            ("escher_extender_duration_seconds", metrics._SECONDS),
            ("escher_extender_nodes", metrics._NODES),
        )
    ]
    for verb in VERBS:
        for each in made:
            each.labels(verb)
    return made[0], made[1]


@given(observed)
def test_what_is_shown_is_what_the_library_shows(calls: list[tuple[str, float, float]]) -> None:
    registry, own = CollectorRegistry(), CollectorRegistry()
    ours, (duration, nodes) = verb_metrics(registry), twins(registry)
    own.register(duration)
    own.register(nodes)
    for verb, seconds, named in calls:
        ours[verb].duration.observe(seconds)
        ours[verb].nodes.observe(named)
        duration.labels(verb).observe(seconds)
        nodes.labels(verb).observe(named)
    for shown in (generate_latest, generate_openmetrics):
        assert without_times(shown(registry)) == without_times(shown(own))


def without_times(shown: bytes) -> str:
    return re.sub(r"(_created{.*}) .*", r"\1", shown.decode())


def test_their_names_are_taken() -> None:
    registry = CollectorRegistry()
    verb_metrics(registry)
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        verb_metrics(registry)
    [family] = registry.restricted_registry(["escher_extender_nodes_sum"]).collect()
    assert {sample.name for sample in family.samples} == {"escher_extender_nodes_sum"}
