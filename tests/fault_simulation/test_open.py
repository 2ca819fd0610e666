"""Plans in which something is found that nobody has mended yet. One that comes out clean is to be a test of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.fault_simulation.plan import read
from loadtests.fault_simulation.run import run

OPEN = Path(__file__).with_name("open")
FOUND = {
    "failing-10343": "two members of a gang whose Bindings are refused again and again wake each other without a pause",
    "failing-13674": "what is held for two members of a gang, which are not bound, is never given back",
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
