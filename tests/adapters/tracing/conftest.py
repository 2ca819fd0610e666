"""What every test of traces starts from."""

from __future__ import annotations

import pytest

from tests.adapters.tracing.spans import Kept


@pytest.fixture
def kept() -> Kept:
    return Kept()
