"""Growth: what is told of a cluster is of that cluster; what it is, is not looked at."""

from __future__ import annotations

import gc

import pytest

from loadtests.goals import growth


@pytest.mark.parametrize(
    ("nodes", "names"), [(50, 50), (100, 100), (500, 230), (1000, 420), (5000, 500), (15_000, 750), (100_000, 5000)]
)
def test_a_sample_has_as_many_nodes_as_kube_scheduler_looks_for(nodes: int, names: int) -> None:
    assert growth.sampled(nodes) == names


def test_each_figure_is_told_and_the_collector_is_left_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    before = gc.get_threshold(), bool(gc.get_freeze_count())
    assert growth.main(["--nodes", "120", "--pods", "600"]) == 0
    assert (gc.get_threshold(), bool(gc.get_freeze_count())) == before
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 12
    assert "a filter call, a sample of 100 names" in told[7]
    assert "a filter call, all 120 names" in told[8]
    # Memory is not: a process that has had more before takes no more for these.
    assert all(float(line[46:].split()[0].replace(",", "")) > 0 for line in (*told[:2], *told[3:]))


def test_wrong_use_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        growth.main(["--pods", "0"])
    assert ended.value.code == 2
    assert "should be 1 or more" in capsys.readouterr().err
