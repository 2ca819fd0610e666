"""Clusters that tests share, and what holds after every test: the witness saw no wrong, the ledger is the cluster's."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from lab.controlplane.clusters import EmbeddedCluster, RealCluster
from loadtests.harm.control_plane import Follower, following
from loadtests.shared.pods import EXTENDER, LEDGER
from tests.e2e.workload import TO_COME, Arena, Field

CLUSTERS: dict[str, type[RealCluster] | type[EmbeddedCluster]] = {"embedded": EmbeddedCluster, "real": RealCluster}

_REAL = pytest.param("real", marks=pytest.mark.e2e)
REAL_ONLY = pytest.mark.parametrize("where", [_REAL], indirect=True, scope="session")

_TAIL = 40
_MEASURED = "measured"
_fields: list[Field] = []
_measured: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A machine that runs the default tests need not have a real control plane."""
    for item in items:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if params.get("where") == "real" and item.get_closest_marker("e2e") is None:
            raise pytest.UsageError(f"{item.nodeid} needs the real control plane, and is not marked e2e: use REAL_ONLY")


@pytest.fixture(scope="session", params=["embedded", _REAL])
def where(request: pytest.FixtureRequest) -> str:
    """Each test runs on both, unless its module says otherwise: on the embedded cluster by default."""
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="session")
def field(state_folder: Path, where: str) -> Iterator[Field]:
    """32 nodes of 8 CPU with the service, for most tests."""
    yield from shared_field(where, nodes=32)


def shared_field(where: str, *, settings: str = "", **wishes: Any) -> Iterator[Field]:
    """A cluster for several tests, and at its end the proof that it was sound. `settings`: more of the service's."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "escher.yaml"
        file.write_text(f"scheduler_names: [{EXTENDER}, {LEDGER}, {TO_COME}]\n{settings}")
        wishes.setdefault("service_arguments", ("--config", str(file)))
        yield from _field_of(where, wishes)


def _field_of(where: str, wishes: dict[str, Any]) -> Iterator[Field]:
    with CLUSTERS[where].start(**wishes) as cluster:
        made = Field(cluster)
        _fields.append(made)
        try:
            yield made
            made.assert_sound()
        finally:
            _fields.remove(made)
            _measured.extend(f"{where}: {line}" for line in made.measured)
            made.close()


@pytest.fixture
def arena(field: Field, request: pytest.FixtureRequest) -> Iterator[Arena]:
    """A namespace of the test's own. After it: no gang partly bound, no node over-allocated, ledger = cluster."""
    yield from fresh_arena(field, request.node.name)


def fresh_arena(field: Field, test: str) -> Iterator[Arena]:
    word = re.sub(r"[^a-z0-9]+", "-", test.lower().removeprefix("test_"))[:16].strip("-")
    made = field.arena(word)
    try:
        yield made
        made.assert_witnessed()
        field.assert_sound()
    finally:
        made.clear()


def unharmed(field: Field) -> Iterator[Follower]:
    """While the test ran, nothing was destroyed that must not be; the cluster is one that was started with `audit`."""
    with following(field.api, field.cluster.audit_log) as follower:
        yield follower
        follower.finish()
        assert not follower.violations(), "\n".join(map(str, follower.violations()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The end of the service's log stands in the report of a test that failed."""
    report = yield
    if report.failed:
        for field in _fields:
            lines = field.cluster.log("service").splitlines()[-_TAIL:]
            report.sections.append((f"the service's log, last {_TAIL} lines", "\n".join(lines)))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where tests run in several processes, the one that prints the summary is told what the others have measured."""
    told: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if told is not None:
        told[_MEASURED] = _measured


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # A process that crashed has told nothing.
    _measured.extend(getattr(node, "workeroutput", {}).get(_MEASURED, []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _measured:
        terminalreporter.section("measured")
        for line in _measured:
            terminalreporter.write_line(line)
