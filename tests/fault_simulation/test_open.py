"""Plans in which something is found that is not mended yet. One that comes out clean is to be a test of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.fault_simulation.plan import read
from loadtests.fault_simulation.run import run

OPEN = Path(__file__).with_name("open")
FOUND = {
    "saved-for-no-gang": "a place is saved for a gang that is gone, for a minute",
    "evicted-for-a-gang-without-members": "a pod is evicted for a gang of which the last member is gone",
    "let-in-and-evicted": "a pod takes the place that a victim has left for a gang, and is evicted too",
    "half-expires-before-it-is-taken-back": "what a transaction wrote by half ends its time to live before it is taken "
    "back, and what was there before does not come back",
}


@pytest.mark.longer
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.xfail(strict=True, reason=FOUND[each])) for each in FOUND]
)
def test_nothing_is_found(name: str) -> None:
    result = run(read((OPEN / f"{name}.json").read_bytes()))
    assert result.is_clean, [str(each) for each in result.findings]


def test_each_plan_is_named() -> None:
    assert {each.stem for each in OPEN.iterdir()} == FOUND.keys()
