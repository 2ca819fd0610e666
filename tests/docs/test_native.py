"""docs/policies/native.md is true: its tables are those of the figures that are kept, and no policy is passed over."""

from __future__ import annotations

import re

import pytest

from extender.core.policies.policy_types import TYPES
from loadtests.native_policies.__main__ import WORKS
from loadtests.native_policies.report import BEGIN, END, Run, read, with_section
from loadtests.native_policies.work import Work
from tests.docs.lines import ROOT

FOLDER = ROOT / "docs/policies"
PAGE = (FOLDER / "native.md").read_text()
RUNS = read(FOLDER / "native.json")


def test_the_tables_are_those_of_the_figures_that_are_kept() -> None:
    again = "python -m loadtests.native_policies --show --json docs/policies/native.json --out docs/policies/native.md"
    assert with_section(PAGE, RUNS, WORKS) == PAGE, again


def test_figures_are_kept_of_every_policy_in_every_way_that_it_has() -> None:
    assert max(RUNS, key=lambda run: len(run.results)).results.keys() == {work.name for work in WORKS}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.nodes} nodes")
def test_each_way_has_a_batch_a_round(run: Run) -> None:
    for work in WORKS:
        if work.name in run.results:
            assert run.results[work.name].keys() == work.said.keys()
            assert {len(batches) for batches in run.results[work.name].values()} == {run.rounds}


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_each_is_linked_to_its_page_and_spoken_of(work: type[Work]) -> None:
    assert (FOLDER / work.page).exists()
    assert f"**{work.name}**" in words()


def test_every_type_of_policy_is_spoken_of() -> None:
    assert [kind for kind in TYPES if f"**{kind}**" not in words()] == []


def test_the_page_is_linked_and_its_links_lead_somewhere() -> None:
    assert "(native.md)" in (FOLDER / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#\s]+)", PAGE):
        assert (FOLDER / target).resolve().exists(), target


def words() -> str:
    """What people have written about the figures."""
    return PAGE.partition(BEGIN)[0] + PAGE.partition(END)[2]
