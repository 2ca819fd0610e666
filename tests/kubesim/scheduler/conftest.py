from __future__ import annotations

import pytest

from tests.kubesim.scheduler.world import World


@pytest.fixture
async def world() -> World:
    return World()
