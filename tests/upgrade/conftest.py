"""A cluster for a change of version, and what both services are told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lab.controlplane.clusters import RealCluster
from loadtests.shared.ledger import Service
from tests.upgrade import former, scene


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("upgrade") / "escher.yaml"
    file.write_text(scene.SETTINGS)
    return file


@pytest.fixture(scope="module")
def cluster(state_folder: Path) -> Iterator[RealCluster]:
    """With the former version's definitions, and without a service."""
    with scene.started() as made:
        made.admin.post("/api/v1/namespaces", {"metadata": {"name": scene.NAMESPACE}})
        scene.define(made.admin, former.DEFINITIONS, queues=False)
        yield made


@pytest.fixture(scope="module")
def service(cluster: RealCluster) -> Iterator[Service]:
    """Whichever runs."""
    with closing(Service(cluster.service_url)) as made:
        yield made
