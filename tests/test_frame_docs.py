"""The documents are true as far as a machine can tell: links lead somewhere, tables name what there is."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from prometheus_client import CollectorRegistry

from extender.adapters.http.metrics import verb_metrics
from extender.adapters.metrics import OLD_NAMES
from extender.cli.main import app
from extender.core.gangs.state import gang
from extender.settings.settings import Settings

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DOCUMENTS = sorted(
    [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.glob("*.md")]
    + [each for folder in ("comparison", "runbooks") for each in (DOCS / folder).rglob("*.md")]
)
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
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
    named += set(re.findall(r'"(escher_[a-z_]+)"', source)) - set(OLD_NAMES.values())
    assert len(named) > 5
    assert [name for name in named if f"`{name}" not in OPERATIONS] == []


def test_every_reason_that_kube_scheduler_shows_is_in_the_table() -> None:
    reasons = (gang.INCOMPLETE, gang.NO_ROOM, gang.NO_ROOM_FOR_MEMBER, gang.NOT_ITS_NODE)
    assert [reason for reason in reasons if reason not in OPERATIONS] == []


def commands_in(text: str) -> list[str]:
    """Every `escher ...` of a document: whole lines of code, what a shell would take out of such, and within prose."""
    text = re.sub(r"\\\n\s*", "", text)
    fenced = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    blocks = [line for block in fenced.findall(text) for line in block.splitlines()]
    text = fenced.sub("", text)
    blocks += [line for line in text.splitlines() if line.startswith("    ")]
    said = [each[1] for line in blocks if (each := re.match(r"\s*(escher .*)", line))]
    said += [each for line in blocks for each in re.findall(r"\$\((escher [^)]*)\)", line)]
    # A line may break within.
    said += [" ".join(each.split()) for each in re.findall(r"`(escher\s[^`]*)`", text)]
    return [each for each in said if "|" not in each]


def complaint(command: str) -> str:
    """What is wrong with it, as far as the command line knows before it does anything; empty: nothing."""
    group: Any = typer.main.get_command(app)
    leaves = [group]
    for each in leaves:
        leaves += getattr(each, "commands", {}).values()
        if each is not group:
            each.callback = lambda **_: None
    words = shlex.split(command, comments=True)[1:]
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told), pytest.raises(SystemExit) as ended:
        group.main(args=words, prog_name="escher")
    # The name of a group alone shows its help.
    return told.getvalue() if ended.value.code and "Commands" not in told.getvalue() else ""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_said_to_be_typed_can_be_typed(document: Path) -> None:
    """In prose a command may stand alone, without what it needs."""
    said = commands_in(document.read_text())
    bare = [each for each in said if re.fullmatch(r"escher( [a-z]+)+", each)]
    assert [wrong for each in said if (wrong := complaint(f"{each} --help" if each in bare else each))] == []


def test_commands_are_found_in_every_form_and_wrong_ones_are_noticed() -> None:
    readme = commands_in((ROOT / "README.md").read_text())
    found = {"cluster up --nodes 16", "explain pod reader", "demo --nodes 200", "cluster env"}
    assert {f"escher {each}" for each in found} <= set(readme)
    for wrong in ("clusters up", "cluster up --node 3", "explain pod", "demo --nodes many", "quota here", "clusters"):
        assert complaint(f"escher {wrong}"), wrong


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_to_type_leave_nothing_to_fill_in(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    typed = [line for line in text.splitlines() if re.match(r"    (escher|export|kubectl|curl|make|eval|\. )", line)]
    assert [line for line in typed if "..." in line or re.search(r"<[a-z-]+>", line)] == []
