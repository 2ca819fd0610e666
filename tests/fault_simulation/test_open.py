"""Plans in which something is found that is not mended yet. One that comes out clean is to be a test of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtests.fault_simulation.plan import read
from loadtests.fault_simulation.run import run

OPEN = Path(__file__).with_name("open")
FOUND = {
    "left-by-kube-scheduler-nominated": "kube-scheduler does not try a pod again whose last victim was gone when it "
    "wanted to delete it (1.36: its executor takes 404 for done), until something else happens",
    "intent-stored-again-before-a-restart": "a request that creates an intent arrives again when the transaction is in "
    "force, and the service is killed: the next life takes back what was answered",
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
