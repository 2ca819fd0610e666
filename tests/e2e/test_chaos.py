"""A short run of chaos. `make chaos` is the long one, and has resources with a pod as owner: they need a minute."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.chaos.__main__ import details
from loadtests.chaos.run import run, strikes_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SEED = 4


def test_nothing_is_lost_when_each_part_is_struck_in_turn(state_folder: Path) -> None:
    strikes = strikes_for([("service", 5), ("scheduler", 2), ("apiserver", 2), ("etcd", 2)], SEED)
    result = run("all", strikes, nodes=24, seed=SEED, owners=False, stuck_after=30)
    assert result.is_clean, f"seed {SEED}\n{details(result)}"
    assert result.struck.count == len(strikes)
    assert result.gangs_created > 10
    assert result.pods_finished > 20
