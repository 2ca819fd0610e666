"""The documents are true as far as a machine can tell: links lead somewhere, tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from extender.adapters.http.metrics import verb_metrics
from extender.core import gang
from extender.settings import Settings

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        leads_to = (document.parent / path).resolve() if path else document
        assert leads_to.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", leads_to.read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings], target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_and_files_that_are_named_exist(document: Path) -> None:
    text = document.read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z0-9-]+)`", text)) <= targets
    for name in re.findall(r"`((?:extender|tests|docs|deploy|scheduler-config|loadtests)/[\w./-]*)`", text):
        assert (ROOT / name).exists(), name


def test_every_setting_is_in_the_table() -> None:
    assert [name for name in Settings.model_fields if f"`{name}`" not in OPERATIONS] == []


def test_every_metric_is_in_the_table() -> None:
    registry = CollectorRegistry()
    verb_metrics(registry)
    named = [family.name for family in registry.collect()]
    source = (ROOT / "extender" / "adapters" / "metrics.py").read_text()
    named += re.findall(r'"(escher_[a-z_]+)"', source)
    assert len(named) > 5
    assert [name for name in named if f"`{name}" not in OPERATIONS] == []


def test_every_reason_that_kube_scheduler_shows_is_in_the_table() -> None:
    reasons = (gang.INCOMPLETE, gang.NO_ROOM, gang.NO_ROOM_FOR_MEMBER, gang.NOT_ITS_NODE)
    assert [reason for reason in reasons if reason not in OPERATIONS] == []
