"""A pytest plugin: a Kubernetes cluster for tests, in seconds and without Docker, and time that jumps.

| fixture | what a test gets |
|---|---|
| `kubesim_cluster` | an embedded cluster on loopback: one for the whole test run, empty for each test |
| `kubesim_kubeconfig` | the kubeconfig of that cluster, for kubectl and every client |
| `kubesim_options` | what kind of cluster it is; override it in a conftest.py |
| `virtual_time` | the backend for anyio on which sleeping takes no time; `anyio_backend` may return it |
| `kubesim_virtual` | in an async test: a cluster in that test's own event loop, in virtual time if the loop is |

It is loaded in every test run of whoever has this package installed: so it imports nothing before it is asked for.
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
    """The cluster of this test run, whatever tests have left in it: for fixtures of a longer life than a test's."""
    from kubesim.local import LocalCluster

    with LocalCluster.start(tmp_path_factory.mktemp("kubesim"), kubesim_options) as cluster:
        yield cluster


@pytest.fixture
def kubesim_cluster(kubesim_run: LocalCluster) -> Iterator[LocalCluster]:
    """An embedded cluster in which there is nothing yet, not even a node; what a test makes in it is gone after it."""
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
