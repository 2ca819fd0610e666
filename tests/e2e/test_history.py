"""Escher in a real control plane with a history: others, and the cluster, are as they were found.

The same scene in virtual time, and that what is looked for would be seen: tests/harm/test_history.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.controlplane.clusters import RealCluster
from loadtests.history.control_plane import play
from loadtests.history.course import BINDINGS, KEYS

HALF_A_MINUTE, TEN_MINUTES = 30.0, 600.0


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(HALF_A_MINUTE, id="for-half-a-minute", marks=pytest.mark.e2e),
        pytest.param(TEN_MINUTES, id="for-ten-minutes", marks=(pytest.mark.e2e, pytest.mark.slow)),
    ],
)
@pytest.mark.timeout(1200)
def test_others_are_left_alone_and_uninstalling_leaves_the_cluster_as_it_was_found(
    state_folder: Path, seconds: float
) -> None:
    with RealCluster.start(service=False, audit=True) as cluster:
        outcome = play(cluster, seconds)
    assert outcome.findings == []
    assert outcome.evictions == 0
    assert outcome.writes["pods/binding"] == BINDINGS
    assert outcome.keys == KEYS
