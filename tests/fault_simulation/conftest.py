from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time
