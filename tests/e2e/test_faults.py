"""A few runs of the proxy that hinders. `make faults` has a thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.faults.__main__ import details, table
from loadtests.faults.draw import USUAL
from loadtests.faults.run import runs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SEED = 7


def test_nothing_is_lost_when_the_way_to_the_api_server_is_hindered(state_folder: Path) -> None:
    results = list(runs(range(SEED, SEED + 5), USUAL, nodes=16, stuck_after=45, say=lambda text: None))
    assert all(each.is_clean for each in results), "\n".join(details(each) for each in results if not each.is_clean)
    assert sum(each.pods_bound for each in results) > 50
    assert sum(each.faults.total() for each in results) > 50, table(results)
