"""A pytest plugin: a Kubernetes cluster for tests in seconds, without Docker, and virtual time.

| fixture | what a test gets |
|---|---|
| `kubesim_cluster` | an embedded cluster on loopback: one for the whole test run, empty for each test |
| `kubesim_kubeconfig` | the kubeconfig of that cluster, for kubectl and every client |
| `kubesim_options` | the properties of that cluster; override it in a conftest.py |
| `virtual_time` | the backend for anyio on which sleeping takes no time; `anyio_backend` may return it |
| `kubesim_virtual` | in an async test: a cluster in that test's own event loop, in virtual time if the loop is |

pytest loads it in every test run where this package is installed, so its fixtures import the rest only when used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kubesim.local import LocalCluster
    from kubesim.options import Options
    from kubesim.virtual import VirtualCluster


@pytest.fixture(scope="session")
def kubesim_options() -> Options:
    """One scheduler, `default-scheduler`, without extenders."""
    from kubesim.options import Options

    return Options()


@pytest.fixture(scope="session")
def kubesim_run(kubesim_options: Options, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """The cluster of this test run with all objects in it, for fixtures that outlive a test."""
    from kubesim.local import LocalCluster

    with LocalCluster.start(tmp_path_factory.mktemp("kubesim"), kubesim_options) as cluster:
        yield cluster


@pytest.fixture
def kubesim_cluster(kubesim_run: LocalCluster) -> Iterator[LocalCluster]:
    """An embedded cluster without objects, not even a node; it is emptied again after the test."""
    kubesim_run.empty()
    yield kubesim_run
    kubesim_run.empty()


@pytest.fixture
def kubesim_kubeconfig(kubesim_cluster: LocalCluster) -> Path:
    return kubesim_cluster.kubeconfig


@pytest.fixture(scope="session")
def virtual_time() -> tuple[str, dict[str, Any]]:
    from kubesim.virtual_time import BACKEND

    return BACKEND


@pytest.fixture
async def kubesim_virtual(kubesim_options: Options) -> AsyncIterator[VirtualCluster]:
    """An embedded cluster without sockets in the event loop of the test."""
    from kubesim.virtual import VirtualCluster

    async with VirtualCluster(kubesim_options) as cluster:
        yield cluster
