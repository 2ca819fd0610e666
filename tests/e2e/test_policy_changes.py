"""A short run of policies that change under load. The long one: `python -m loadtests.policy_changes --changes 1000`."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.policy_changes.__main__ import details, table
from loadtests.policy_changes.run import Plan, run
from tests.e2e.conftest import CLUSTERS

SEED = 7


@pytest.mark.longer
@pytest.mark.timeout(240)
def test_no_decision_is_wrong_and_no_wake_is_missed_while_policies_change(state_folder: Path, where: str) -> None:
    plan = Plan(changes=200, seed=SEED)
    with CLUSTERS[where].start() as cluster:
        result = run(cluster, plan, lambda text: None)
    assert result.is_clean, f"{table(result)}\n{details(result)}"
    assert result.changes >= plan.changes
    assert result.governed > 50
    assert result.woken > 5
    assert result.refused > 5
    assert result.turns > 2
