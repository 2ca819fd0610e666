"""The comparison with Kubernetes' own means, on a real control plane: a round of two policies, of which it has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.native_policies.__main__ import WORKS, main
from loadtests.native_policies.report import cache, read

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def test_a_round_is_placed_right_by_every_way_and_told(
    state_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "native.json"
    given = [
        "--nodes",
        "8",
        "--pods",
        "10",
        "--rounds",
        "1",
        "--policies",
        "anti-affinity",
        "queue",
        "--json",
        str(file),
    ]
    assert main(given) == 0
    [run] = read(file)
    assert set(run.results) == {"anti-affinity", "queue"}
    for way in ("native", "extender", "esl"):
        [batch] = run.results["anti-affinity"][way]
        assert (batch.bound, batch.held, batch.amount) == (8, True, 1)
        assert batch.whole is not None
        assert 0 < (batch.p50 or 0) <= (batch.p99 or 0) <= batch.whole
    queue = run.results["queue"]
    assert "extender" not in queue
    assert [(each.bound, each.refused, each.held) for each in queue["native"]] == [(5, 5, False)]
    assert [(each.bound, each.refused, each.held) for each in queue["esl"]] == [(5, 0, True)]
    told = capsys.readouterr()
    assert cache(run, WORKS) in told.out
    assert "anti-affinity (1 of 2): round 1 of 1" in told.err
