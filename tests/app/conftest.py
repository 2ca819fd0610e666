"""What every test of the application starts from: virtual time, and a world that is audited at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.app.world import World


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Everything behind the management API, on an API server in memory; three nodes of 8 CPU."""
    made = World()
    made.add_nodes("n1", "n2", "n3")
    async with made.running():
        yield made
    made.audit()
