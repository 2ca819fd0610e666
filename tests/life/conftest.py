from __future__ import annotations

from typing import Any

import pytest

from extender.sim.virtual_time import BACKEND


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return BACKEND
