"""Where the cases run: `embedded` by default, `real` with the mark e2e. Each is started once and shared by all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from lab.controlplane.clusters import EmbeddedCluster, RealCluster
from tests.conformance.place import Place
from tests.conformance.site import EXTENDER, LEDGER, TO_COME, Site

NODES = 6
CLUSTERS: dict[str, type[EmbeddedCluster] | type[RealCluster]] = {"embedded": EmbeddedCluster, "real": RealCluster}
PLACES = [
    pytest.param("embedded", id="embedded"),
    pytest.param("real", id="real", marks=[pytest.mark.e2e, pytest.mark.timeout(300)]),
]


@pytest.fixture(scope="session", params=PLACES)
def cluster(
    request: pytest.FixtureRequest, state_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A control plane with six plain nodes and the service."""
    where: str = request.param
    settings = tmp_path_factory.mktemp("settings") / "escher.yaml"
    settings.write_text(f"scheduler_names: [{EXTENDER}, {LEDGER}, {TO_COME}]\n")
    start = partial(CLUSTERS[where].start, nodes=NODES, service_arguments=("--config", str(settings)))
    with start() as started, closing(Place(started)) as place:
        yield place


@pytest.fixture
def site(cluster: Place, request: pytest.FixtureRequest) -> Iterator[Site]:
    """A namespace of the case's own."""
    word = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[:16].strip("-")
    made = Site(cluster, cluster.fresh_namespace(word), [], [])
    try:
        yield made
    finally:
        made.clear()
